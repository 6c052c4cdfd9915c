"""The schedules that `dqa_fidelity.py` compares: shipped, linear at its best, fitted to one `J`; cost of a refit."""

from __future__ import annotations

import statistics
from typing import Any

import torch

from qboltz import AnnealingSchedule, IsingModel
from qboltz.adaptive import AdaptiveSchedule
from qboltz.fidelity import schedule_fidelity
from qboltz.fitting import Objective, fit_schedule
from qboltz.modelset import ModelSet

ENSEMBLES = ("weak", "middle", "broad")


def shipped(depth: int) -> dict[str, AnnealingSchedule]:
    """Schedules that know nothing of the model."""
    fitted = {f"fitted, {name}": AnnealingSchedule.fitted(depth, name) for name in ENSEMBLES}
    return {"linear": AnnealingSchedule.linear(depth), **fitted}


def linear_at_best_time(tuning: ModelSet, depth: int) -> AnnealingSchedule:
    """The calibrated linear schedule whose anneal time has the least magnetization error on `tuning`."""
    found = []
    for per_layer in torch.linspace(0.3, 3.0, 55).tolist():
        try:
            schedule = AnnealingSchedule.linear(depth, per_layer * depth)
        except ValueError:  # a temperature cannot be set to 1 with this one
            continue
        found.append((schedule_fidelity(schedule, tuning).magnetization, per_layer, schedule))
    return min(found)[-1]


def adapted(
    seen: ModelSet, depth: int, objective: Objective = "moments", max_iterations: int = 100
) -> AnnealingSchedule:
    """Angles fitted to `seen`, from the shipped schedule that is best on it."""
    starts = shipped(depth).values()
    if objective == "kl":
        start = min(starts, key=lambda schedule: schedule_fidelity(schedule, seen).kl)
    else:
        start = min(starts, key=lambda schedule: _moment_loss(schedule, seen))
    found = fit_schedule(depth, seen, restarts=1, start=start, objective=objective, max_iterations=max_iterations)
    return found.schedule


def _moment_loss(schedule: AnnealingSchedule, models: ModelSet) -> float:
    fidelity = schedule_fidelity(schedule, models)
    return fidelity.magnetization**2 + fidelity.covariance**2


def in_sub_blocks(model: IsingModel, depth: int, block_spins: int, refits: int = 5, seed: int = 0) -> AnnealingSchedule:
    """The angles of an adaptive solver after some refits to one model."""
    adaptive = AdaptiveSchedule(AnnealingSchedule.fitted(depth), refit_every=1, block_spins=block_spins, seed=seed)
    for _ in range(refits):
        adaptive.for_model(model)
    return adaptive.schedule


def refit_seconds(num_spins: int, refits: int = 7) -> dict[str, Any]:
    """Cost of a refit as an adaptive solver does it while `J` moves a little between refits."""
    generator = torch.Generator().manual_seed(num_spins)
    J = 0.3 * torch.randn(num_spins, num_spins, dtype=torch.float64, generator=generator).triu(1)
    fields = 0.5 * torch.randn(64, num_spins, dtype=torch.float64, generator=generator)
    adaptive = AdaptiveSchedule(AnnealingSchedule.fitted(4), refit_every=1, rows=12)
    seconds = []
    for _ in range(refits):
        J = J + 0.02 * torch.randn(num_spins, num_spins, dtype=torch.float64, generator=generator).triu(1)
        before = adaptive.seconds
        adaptive.for_model(IsingModel(fields, J + J.mT))
        seconds.append(adaptive.seconds - before)
    low, median, high = statistics.quantiles(seconds, n=4)
    return {"first": seconds[0], "median": median, "low_quartile": low, "high_quartile": high, "refits": refits}
