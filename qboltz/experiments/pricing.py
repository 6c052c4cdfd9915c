"""What a training run costs on a machine, before its first job: every request of every step and evaluation, counted."""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from qboltz.ensemble import SampledEnsemble
from qboltz.experiments.evaluation import CHUNK, evaluate, using_solver
from qboltz.experiments.model import OneLayerTransformer
from qboltz.experiments.optimization import data_generator
from qboltz.ising import IsingModel
from qboltz.schedule import AnnealingSchedule
from qboltz.tasks.base import Batch, Task

if TYPE_CHECKING:
    from qiskit.providers import BackendV2

    from qboltz.machine.estimate import Estimate


class _Counting:
    """A solver that counts the rows it is asked for, and answers nonsense."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, int]] = []

    def solve(self, model: IsingModel) -> SampledEnsemble:
        groups = model.groups
        rows = groups.num_groups * groups.num_rows
        if groups.visible is not None:
            rows = int(groups.visible.any(-1).sum())
        self.requests.append((groups.num_spins, rows))
        shape = groups.num_groups, groups.num_rows, 1, groups.num_spins
        return SampledEnsemble(model, torch.ones(shape, dtype=torch.int8))


def requests(model: OneLayerTransformer, batch: Batch, chunk: int = CHUNK) -> list[tuple[int, int]]:
    """``(spins, rows)`` of each request that evaluating ``batch`` makes, ``chunk`` sequences at a time."""
    counting = _Counting()
    with using_solver(model, counting):
        evaluate(model, batch, chunk=chunk)
    return counting.requests


@dataclass(frozen=True)
class RunPrice:
    """What a run takes.

    Attributes:
        training: of the steps that are left.
        evaluation: of the evaluations with the run's own sampler.
        left: QPU seconds on the account, where it says so.
    """

    training: tuple[Estimate, ...]
    evaluation: tuple[Estimate, ...]
    left: float | None = None

    @property
    def seconds(self) -> float:
        """QPU seconds in all."""
        return sum(part.seconds.total for part in (*self.training, *self.evaluation))

    @property
    def rule(self) -> float:
        """In all, by IBM's quick rule."""
        return sum(part.seconds.rule for part in (*self.training, *self.evaluation))

    def lines(self, args: argparse.Namespace, done: int = 0) -> Iterator[str]:
        """For people, with what the options make of it."""
        yield f"Price of {'the rest of ' if done else ''}this run, before anything is submitted:"
        for label, parts in (("training", self.training), ("evaluation", self.evaluation)):
            for part in parts:
                yield "\n".join([f" {label} on {part.lines_of_text()[0]}", *part.lines_of_text()[1:]])
        yield f" in all {self.seconds:,.1f} QPU seconds (by IBM's quick rule {self.rule:,.1f})"
        if self.left is not None:
            yield f" on the account {self.left:,.0f} s are left" + ("" if self.left >= self.seconds else ": NOT ENOUGH")
        budget = args.max_qpu_seconds
        if budget is not None and budget < self.seconds:
            per_step = sum(part.seconds.total for part in self.training) / max(1, args.steps - done)
            steps = math.floor(budget / per_step) if per_step else 0
            yield f" --max-qpu-seconds {budget:g} stops it after about {steps} of {args.steps - done} steps"
        if args.mode == "session":
            yield " a session is billed by the clock from its first job to its end, waiting included: expect more"


def price_run(
    model: OneLayerTransformer,
    task: Task,
    args: argparse.Namespace,
    test_batch: Batch,
    device: BackendV2,
    schedule: AnnealingSchedule,
    *,
    processes: int = 1,
    done: int = 0,
    left: float | None = None,
) -> RunPrice:
    """Price the run that the options ask for.

    A step asks for ``batch x rows per sequence x heads`` models, divided among the processes, each of which submits
    jobs of its own. The test sequences are sampled once, by the first process; the twins are solved here, for nothing.

    Args:
        model: that will be trained, or one of the same shape.
        task: its data.
        args: the options.
        test_batch: what it is evaluated on.
        device: where.
        schedule: of the anneal (an adaptive one starts with it).
        processes: of the run.
        done: steps that an earlier session has done.
        left: QPU seconds on the account.
    """
    size = math.ceil(args.batch_size / processes)
    batch = task.batch(data_generator(args.seed, "train", done), size)
    options = {"guard": args.guard or 0, "max_error": args.max_line_error, "lines": args.lines}

    def price(asked: list[tuple[int, int]]) -> tuple[Estimate, ...]:
        from qboltz.machine.estimate import estimate

        return tuple(
            estimate(device, spins, schedule, rows, args.shots, steps=count, **options)
            for (spins, rows), count in Counter(asked).items()
            if rows
        )

    steps = max(0, args.steps - done) * processes
    return RunPrice(price(steps * requests(model, batch, chunk=size)), price(requests(model, test_batch)), left)
