"""Schedules fitted to Boltzmann distributions, by gradient descent through the simulated circuits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import optimize
from torch import Tensor

from qboltz.errors import TooManySpinsError, check_integer, unknown_name
from qboltz.fidelity import BoltzmannTarget
from qboltz.modelset import ModelSet
from qboltz.schedule import AnnealingSchedule
from qboltz.simulator import Angles

Objective = Literal["moments", "kl"]
OBJECTIVES: tuple[Objective, ...] = ("moments", "kl")

#: Largest models that are fitted on: enumerated and simulated in float64 hundreds of times.
MAX_FIT_SPINS = 14

#: Called with (restart, evaluations so far in it, present loss).
Progress = Callable[[int, int, float], None]


@dataclass(frozen=True)
class FitResult:
    """The best of several restarts.

    Attributes:
        schedule: its angles.
        loss: its objective on the models it was fitted on.
        losses: the final objective of every restart, in order.
        evaluations: circuits-with-gradient evaluations of the whole set, over all restarts.
    """

    schedule: AnnealingSchedule
    loss: float
    losses: tuple[float, ...]
    evaluations: int


def fit_schedule(
    num_layers: int,
    models: ModelSet,
    *,
    objective: Objective = "moments",
    restarts: int = 4,
    seed: int = 0,
    start: AnnealingSchedule | None = None,
    max_iterations: int = 400,
    progress: Progress | None = None,
) -> FitResult:
    r"""Minimize, over the ``3 p`` angles, the distance of the circuits from the Boltzmann distributions of ``models``:

    .. math::
        \text{moments:}\; \overline{(m^q - m)^2} + \overline{(C^q - C)^2} \qquad
        \text{kl:}\; \overline{\mathrm{KL}(p \| q)}

    with magnetizations ``m`` and pair covariances ``C`` (magnetizations alone would ruin the covariances, which are the
    gradients of training). L-BFGS on exact gradients through the batched simulator, float64.

    Args:
        num_layers: ``p``.
        models: at most 14 spins each.
        objective: ``"moments"`` or ``"kl"``.
        restarts: the first starts at ``start`` (default: the calibrated linear schedule), the others at random
            multiples of it (factors ``exp(0.3 N(0, 1))``).
        seed: of the restarts.
        start: angles to start from.
        max_iterations: of each restart.
        progress: called after each evaluation.

    Raises:
        ValueError: unknown objective, no restart, or ``start`` of another depth.
        TooManySpinsError: a model of more than 14 spins.
    """
    if objective not in OBJECTIVES:
        raise ValueError(unknown_name("objective", objective, OBJECTIVES))
    check_integer("restarts", restarts)
    begin = AnnealingSchedule.linear(num_layers) if start is None else start
    if begin.num_layers != num_layers:
        raise ValueError(f"start must have {num_layers} layers, got {begin.num_layers}.")
    largest = max(batch.num_spins for batch in models.batches)
    if largest > MAX_FIT_SPINS:
        raise TooManySpinsError(
            f"models must have at most {MAX_FIT_SPINS} spins to fit on, got {largest}: fit on smaller models of the "
            "same strength, the angles carry over."
        )
    loss = _Loss([BoltzmannTarget(batch) for batch in models.batches], models, objective)
    generator = np.random.default_rng(seed)
    origin = np.asarray([begin.field_angles, begin.coupling_angles, begin.mixer_angles])
    results = []
    for restart in range(restarts):
        factors = np.exp(0.3 * generator.standard_normal(origin.shape)) if restart else np.ones_like(origin)
        loss.report = None if progress is None else _Counter(restart, progress)
        results.append(
            optimize.minimize(
                loss,
                (origin * factors).ravel(),
                jac=True,
                method="L-BFGS-B",
                options={"maxiter": max_iterations, "ftol": 1e-12, "gtol": 1e-9},
            )
        )
    best = min(results, key=lambda result: float(result.fun))
    angles = [tuple(map(float, row)) for row in best.x.reshape(3, -1)]
    return FitResult(
        AnnealingSchedule(*angles),
        float(best.fun),
        tuple(float(result.fun) for result in results),
        sum(int(result.nfev) for result in results),
    )


class _Loss:
    """The objective and its gradient as SciPy wants them."""

    def __init__(self, targets: list[BoltzmannTarget], models: ModelSet, objective: Objective) -> None:
        self.targets = targets
        self.shares = [batch.fields.shape[:-1].numel() / models.num_models for batch in models.batches]
        self.objective = objective
        self.report: _Counter | None = None

    def __call__(self, flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        device = self.targets[0].fields.device
        angles = torch.tensor(flat.reshape(3, -1), dtype=torch.float64, device=device, requires_grad=True)
        with torch.enable_grad():
            terms = [
                share * self._distance(target, angles) for target, share in zip(self.targets, self.shares, strict=True)
            ]
            loss = torch.stack(terms).sum()
        (gradient,) = torch.autograd.grad(loss, angles)
        value = float(loss.detach())
        if self.report is not None:
            self.report(value)
        return value, gradient.cpu().numpy().ravel()

    def _distance(self, target: BoltzmannTarget, angles: Tensor) -> Tensor:
        q = target.populations(Angles(*angles))
        if self.objective == "kl":
            return target.kl(q)
        magnetization, covariance = target.squared_errors(q)
        return magnetization + covariance


class _Counter:
    def __init__(self, restart: int, progress: Progress) -> None:
        self.restart, self.progress, self.evaluations = restart, progress, 0

    def __call__(self, loss: float) -> None:
        self.evaluations += 1
        self.progress(self.restart, self.evaluations, loss)
