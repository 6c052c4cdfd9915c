"""Several processes training one model (``torchrun``), and how a run is asked to stop."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from qboltz.tasks.base import Batch


@dataclass(frozen=True)
class Processes:
    """The processes of this run, and which of them this is: ``index`` of ``count``."""

    index: int = 0
    count: int = 1

    @classmethod
    def current(cls) -> Processes:
        """Those of the default process group, or this one alone."""
        if dist.is_available() and dist.is_initialized():
            return cls(dist.get_rank(), dist.get_world_size())
        return cls()

    @property
    def first(self) -> bool:
        """Whether this is the one that reports and writes."""
        return self.index == 0

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model, with gradients averaged over the processes."""
        if self.count == 1:
            return model
        return nn.parallel.DistributedDataParallel(model)

    def part(self, batch: Batch) -> Batch:
        """This process's sequences of a batch that all of them drew; sizes differ by at most one."""
        size = batch.size
        return batch.part(size * self.index // self.count, size * (self.index + 1) // self.count)

    def sum(self, values: Sequence[float]) -> list[float]:
        """Sums over the processes, the same list on each."""
        if self.count == 1:
            return [float(value) for value in values]
        total = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        return [float(value) for value in total]

    def gather(self, value: Any) -> list[Any]:
        """The plain values of all processes, in order, on each of them."""
        if self.count == 1:
            return [value]
        values: list[Any] = [None] * self.count
        dist.all_gather_object(values, value)
        return values

    @property
    def device(self) -> torch.device:
        """Where the model of this process lives: a GPU of its own where ``torchrun`` found GPUs, else the CPU."""
        grouped = self.count > 1 and dist.get_backend() == "nccl"
        return torch.device("cuda", torch.cuda.current_device()) if grouped else torch.device("cpu")


@contextmanager
def join_processes() -> Iterator[Processes]:
    """Join the others if ``torchrun`` started this process: nccl where there are GPUs, else gloo."""
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        yield Processes()
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    try:
        yield Processes.current()
    finally:
        dist.destroy_process_group()


class StopSignal:
    """While entered, Ctrl-C (SIGINT) and SIGTERM only set ``requested``; a second Ctrl-C interrupts at once.

    Only the main thread can receive signals; elsewhere this changes nothing.
    """

    def __init__(self) -> None:
        self.requested = False
        self._interrupts = 0
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopSignal:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._receive)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        self._interrupts += number == signal.SIGINT
        if self._interrupts > 1:
            raise KeyboardInterrupt
