"""The training loop: a task, a model, a directory. It knows nothing of solvers."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import nn

from qboltz.experiments.checkpoint import CHECKPOINT, MetricsLog, check_same_config, load_checkpoint, save_checkpoint
from qboltz.experiments.evaluation import summed_loss
from qboltz.experiments.optimization import TrainingConfig, data_generator, lr_factor, make_optimizer, stream_seed
from qboltz.experiments.processes import Processes, StopSignal
from qboltz.experiments.progress import Display
from qboltz.tasks.base import Task


@runtime_checkable
class Stateful(Protocol):
    """Something with a state that a checkpoint has to hold, such as the seeds of a sampler."""

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain Python values."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> object:
        """Continue from there."""
        ...


@dataclass(frozen=True)
class TrainingResult:
    """What came of it.

    Attributes:
        steps: steps done in all.
        interrupted: a stop was asked for before the last step.
        history: on process 0, a record per step: ``step, loss, accuracy, lr, grad_norm, circuits, seconds``;
            the last two count from the start of the run, over all sessions and processes.
    """

    steps: int
    interrupted: bool
    history: list[dict[str, Any]]

    @property
    def seconds(self) -> float:
        """Spent on steps."""
        return float(self.history[-1]["seconds"]) if self.history else 0.0

    @property
    def circuits(self) -> int:
        """Run in training."""
        return int(self.history[-1]["circuits"]) if self.history else 0


def train(
    model: nn.Module,
    task: Task,
    config: TrainingConfig,
    folder: Path | None = None,
    *,
    resume: bool = False,
    settings: Mapping[str, Any] | None = None,
    stateful: Mapping[str, Stateful] | None = None,
    count_circuits: Callable[[], int] = lambda: 0,
    display: Display | None = None,
    stop: StopSignal | None = None,
) -> TrainingResult:
    """Train ``model`` in place.

    In a process group the batch is divided among the processes, each gradient is that of the whole batch, and
    process 0 writes. A run that was stopped and resumed ends with the same bits as one that was not.

    Args:
        model: called as ``model(tokens, rows)``, returns logits ``(B, Q, classes)``.
        task: where batches come from.
        config: how to train.
        folder: for checkpoint, metrics and events; ``None`` writes nothing.
        resume: continue from the checkpoint in ``folder`` if there is one.
        settings: plain values kept in the checkpoint; a resumed run must have the same.
        stateful: by name, whatever else has a state: samplers. Each process keeps its own.
        count_circuits: circuits run so far by this process, for display and records.
        display: told about every step, on process 0.
        stop: asked after every step; once it is set, a checkpoint is written and training ends.

    Raises:
        FileExistsError: ``folder`` holds a run and ``resume`` is not set.
        FloatingPointError: the loss is not finite.
        ValueError: settings of a resumed run differ, or there are fewer sequences per step than processes.
    """
    session = _Session(model, task, config, folder, settings or {}, stateful or {})
    processes = session.processes
    session.begin(resume)
    shown = display if processes.first else None
    interrupted = False
    with MetricsLog(folder if processes.first else None, session.step) as log:
        last = log.history[-1] if log.history else {"seconds": 0.0, "circuits": 0}
        seconds, circuits = last["seconds"], last["circuits"]
        if session.step == 0:
            session.save()
        if shown is not None:
            shown.start(config.steps, session.step)
        try:
            while session.step < config.steps and not interrupted:
                began, before = time.perf_counter(), count_circuits()
                record = session.advance()
                asked = stop is not None and stop.requested
                here = [count_circuits() - before, asked]
                new_circuits, stops = processes.sum(here)
                seconds += time.perf_counter() - began
                circuits += int(new_circuits)
                record |= {"circuits": circuits, "seconds": seconds}
                log.write(record)
                if shown is not None:
                    shown.step(record)
                interrupted = stops > 0 and session.step < config.steps
                if interrupted or session.step == config.steps or session.step % config.checkpoint_every == 0:
                    log.sync()
                    session.save()
        finally:
            if shown is not None:
                shown.stop()
        return TrainingResult(session.step, interrupted, log.history)


class _Session:
    """A run in progress: all that a checkpoint has to hold, and one step."""

    def __init__(
        self,
        model: nn.Module,
        task: Task,
        config: TrainingConfig,
        folder: Path | None,
        settings: Mapping[str, Any],
        stateful: Mapping[str, Stateful],
    ) -> None:
        self.model, self.task, self.config, self.folder, self.stateful = model, task, config, folder, stateful
        self.processes = Processes.current()
        if config.batch_size < self.processes.count:
            raise ValueError(
                f"batch_size must be at least the number of processes, {self.processes.count}, got {config.batch_size}."
            )
        self.settings = {
            **dataclasses.asdict(config),
            "sequences": repr(task),
            "processes": self.processes.count,
            **settings,
        }
        self.optimizer = make_optimizer(model, config)
        self.device = next(model.parameters()).device
        self.step = 0

    def begin(self, resume: bool) -> None:
        """Load the checkpoint if there is one and it is wanted, and make the model ready to be trained."""
        exists = self.folder is not None and (self.folder / CHECKPOINT).exists()
        if any(self.processes.gather(exists)):
            assert self.folder is not None, "some process found a checkpoint"
            if not resume:
                raise FileExistsError(f"{self.folder} already holds a run. Resume it, or choose another place.")
            self._load(self.folder)
        else:
            if self.folder is not None:
                self.folder.mkdir(parents=True, exist_ok=True)
            torch.manual_seed(stream_seed(self.config.seed, "torch", self.processes.index))
        self.wrapped = self.processes.wrap(self.model)
        self.model.train()

    def advance(self) -> dict[str, Any]:
        """One optimizer step; the record of the whole batch, the same on every process."""
        batch = self.task.batch(data_generator(self.config.seed, "train", self.step), self.config.batch_size)
        count = batch.num_targets
        part = self.processes.part(batch).to(self.device)
        factor = lr_factor(self.step, self.config)
        for group in self.optimizer.param_groups:
            group["lr"] = factor * group["peak_lr"]
        loss, right = summed_loss(self.wrapped(part.tokens, part.rows), part.targets)
        self.optimizer.zero_grad()
        # Processes average their gradients: times their number, that is the mean over the whole batch.
        (loss * (self.processes.count / count)).backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip or math.inf)
        total, correct = self.processes.sum([float(loss.detach()), int(right)])
        if not math.isfinite(total) or not math.isfinite(norm):
            raise FloatingPointError(
                f"loss and gradient must be finite, got {total / count} and norm {float(norm)} at step "
                f"{self.step + 1}. Try a smaller lr."
            )
        self.optimizer.step()
        self.step += 1
        return {
            "step": self.step,
            "loss": total / count,
            "accuracy": correct / count,
            "lr": factor * self.config.lr,
            "grad_norm": float(norm),
        }

    def save(self) -> None:
        """Write the checkpoint: process 0 for all."""
        own = {
            "torch": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else None,
            "stateful": {name: thing.state_dict() for name, thing in self.stateful.items()},
        }
        everyone = self.processes.gather(own)
        if self.folder is not None and self.processes.first:
            state = {
                "step": self.step,
                "settings": self.settings,
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "processes": everyone,
            }
            save_checkpoint(self.folder, state)

    def _load(self, folder: Path) -> None:
        state = load_checkpoint(folder)
        check_same_config(state["settings"], self.settings, folder)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step = state["step"]
        own = state["processes"][self.processes.index]
        torch.set_rng_state(own["torch"])
        if own["cuda"] is not None and self.device.type == "cuda":
            torch.cuda.set_rng_state(own["cuda"], self.device)
        for name, thing in self.stateful.items():
            thing.load_state_dict(own["stateful"][name])
