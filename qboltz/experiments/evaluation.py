"""How good a model is: loss and accuracy, and how far its sampler is from the exact magnetizations."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from qboltz.attention import BoltzmannAttention
from qboltz.ensemble import Solver, SpinEnsemble
from qboltz.ising import IsingModel
from qboltz.solvers.exact import ExactSolver
from qboltz.tasks.base import IGNORED, Batch

#: Sequences that are evaluated at a time.
CHUNK = 256


@dataclass(frozen=True)
class Evaluation:
    """Means over the rows that count."""

    loss: float
    accuracy: float
    num_targets: int

    @property
    def perplexity(self) -> float:
        """``exp(loss)``, or infinity where that overflows."""
        return math.exp(self.loss) if self.loss < 700 else math.inf


def summed_loss(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Cross entropy and number of right answers, summed over the rows that count."""
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="sum")
    return loss, (logits.argmax(-1) == targets).sum()


@torch.no_grad()
def evaluate(model: nn.Module, batch: Batch, *, chunk: int = CHUNK) -> Evaluation:
    """Loss and accuracy on one batch, ``chunk`` sequences at a time; dropout is off meanwhile."""
    if batch.num_targets == 0:
        raise ValueError(f"batch must have a target to evaluate on, got none in {batch.size} sequences.")
    device = next(model.parameters()).device
    training = model.training
    model.eval()
    loss, right = 0.0, 0
    for start in range(0, batch.size, chunk):
        part = batch.part(start, start + chunk).to(device)
        part_loss, part_right = summed_loss(model(part.tokens, part.rows), part.targets)
        loss += float(part_loss)
        right += int(part_right)
    model.train(training)
    return Evaluation(loss / batch.num_targets, right / batch.num_targets, batch.num_targets)


@contextmanager
def using_solver(model: nn.Module, solver: Solver) -> Iterator[None]:
    """Every Boltzmann attention layer of ``model`` uses ``solver`` inside the ``with`` block."""
    layers = [layer for layer in model.modules() if isinstance(layer, BoltzmannAttention)]
    own = [layer.solver for layer in layers]
    try:
        for layer in layers:
            layer.solver = solver
        yield
    finally:
        for layer, before in zip(layers, own, strict=True):
            layer.solver = before


class _Recorder:
    """A solver that keeps what another one was asked and what it answered."""

    def __init__(self, solver: Solver) -> None:
        self.solver = solver
        self.answers: list[tuple[IsingModel, Tensor]] = []

    def solve(self, model: IsingModel) -> SpinEnsemble:
        ensemble = self.solver.solve(model)
        self.answers.append((model, ensemble.magnetization()))
        return ensemble


def magnetization_rmse(model: nn.Module, batch: Batch, solver: Solver, reference: Solver | None = None) -> float | None:
    r"""``sqrt(mean (m_solver - m_exact)^2)`` over the visible spins of the rows that ``batch`` asks for.

    Fields and couplings are those that the trained model has on this batch. ``None`` where nothing is solved
    for, that is in the softmax variant.

    Raises:
        TooManySpinsError: there are too many spins for the reference, exact enumeration by default.
    """
    return evaluate_sampler(model, batch, solver, ExactSolver() if reference is None else reference)[1]


def evaluate_sampler(
    model: nn.Module, batch: Batch, solver: Solver, exact: Solver | None
) -> tuple[Evaluation, float | None]:
    """Quality with a solver and the ``magnetization_rmse`` of the same samples: where they are paid for, paid once.

    Without ``exact`` there is nothing to compare them with, and the second is ``None``.
    """
    recorder = _Recorder(solver)
    with using_solver(model, recorder):
        quality = evaluate(model, batch)
    return quality, None if exact is None else _rmse(recorder, exact)


def _rmse(recorder: _Recorder, exact: Solver) -> float | None:
    total, count = 0.0, 0
    for ising, m in recorder.answers:
        gap = (m - exact.solve(ising).magnetization()).double().square()
        visible = torch.ones_like(gap) if ising.visible is None else ising.visible.expand(gap.shape).double()
        total += float((gap * visible).sum())
        count += int(visible.sum())
    return math.sqrt(total / count) if count else None
