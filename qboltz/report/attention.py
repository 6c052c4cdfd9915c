"""What a trained model attends to on test sequences, with one solver or another, and how far apart the two are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from qboltz.ensemble import Solver, SpinEnsemble
from qboltz.experiments.evaluation import summed_loss, using_solver
from qboltz.experiments.model import OneLayerTransformer
from qboltz.ising import IsingModel
from qboltz.tasks.base import IGNORED, Batch


class _Recorder:
    """A solver that keeps the last model it was asked for and what another one answered."""

    def __init__(self, solver: Solver) -> None:
        self.solver = solver
        self.model: IsingModel | None = None
        self.magnetization: Tensor | None = None

    def solve(self, model: IsingModel) -> SpinEnsemble:
        ensemble = self.solver.solve(model)
        self.model, self.magnetization = model, ensemble.magnetization()
        return ensemble


@dataclass(frozen=True, eq=False)
class Attended:
    """One pass over a batch of ``B`` sequences with ``Q`` asking rows each.

    Attributes:
        batch: the sequences.
        answers: ``(B, Q)``.
        weights: of attention, ``(B, H, Q, T)``.
        model: what the solver was asked, ``None`` for softmax.
        magnetization: its answer, in the shape of the fields.
        loss, accuracy: means over the rows that count.
    """

    batch: Batch
    answers: Tensor
    weights: Tensor
    model: IsingModel | None
    magnetization: Tensor | None
    loss: float
    accuracy: float

    @property
    def right(self) -> Tensor:
        """Which answers are right, ``(B, Q)``."""
        return self.answers == self.batch.targets

    @property
    def visible(self) -> Tensor:
        """Which magnetizations count, in their shape."""
        assert self.model is not None
        assert self.magnetization is not None
        seen = self.model.visible
        return (
            torch.ones_like(self.magnetization, dtype=torch.bool) if seen is None else seen.expand_as(self.model.fields)
        )


@torch.no_grad()
def attend(model: OneLayerTransformer, batch: Batch, solver: Solver) -> Attended:
    """Ask the model; weights and answers come from the same samples."""
    seen: list[Tensor] = []

    def ask_for_weights(module: nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        return args, kwargs | {"need_weights": True, "average_attn_weights": False}

    def keep_weights(module: nn.Module, args: Any, output: tuple[Tensor, Tensor]) -> None:
        seen.append(output[1])

    recorder = _Recorder(solver)
    hooks = [
        model.attention.register_forward_pre_hook(ask_for_weights, with_kwargs=True),
        model.attention.register_forward_hook(keep_weights),
    ]
    try:
        with using_solver(model, recorder):
            logits = model(batch.tokens, batch.rows)
    finally:
        for hook in hooks:
            hook.remove()
    loss, right = summed_loss(logits, batch.targets)
    count = batch.num_targets
    return Attended(
        batch,
        logits.argmax(-1),
        seen[0],
        recorder.model,
        recorder.magnetization,
        float(loss) / count,
        int(right) / count,
    )


def magnetization_error(one: Attended, other: Attended) -> float:
    """``sqrt(mean (m - m')^2)`` over visible spins of all rows."""
    assert one.magnetization is not None
    assert other.magnetization is not None
    gap = (one.magnetization - other.magnetization).double()[other.visible]
    return math.sqrt(float(gap.square().mean()))


def total_variation(one: Attended, other: Attended) -> Tensor:
    """``1/2 sum_j |w_j - w'_j|`` of every row that counts and every head."""
    distance = 0.5 * (one.weights - other.weights).double().abs().sum(-1)  # (B, H, Q)
    counts = (one.batch.targets != IGNORED)[:, None].expand_as(distance)
    return distance[counts]


def shot_noise(exact: Attended, shots: int) -> float:
    """The ``magnetization_error`` that perfect samples would have, ``sqrt(mean (1 - m^2) / shots)``."""
    assert exact.magnetization is not None
    m = exact.magnetization.double()[exact.visible]
    return math.sqrt(float((1 - m.square()).mean()) / shots)
