"""Which schedule a model is run with: a fixed one, or one refitted now and then to the couplings of the moment."""

from __future__ import annotations

import time
from typing import Any

import torch

from qboltz.errors import check_integer
from qboltz.fitting import fit_schedule
from qboltz.ising import IsingModel
from qboltz.modelset import ModelSet
from qboltz.schedule import AnnealingSchedule
from qboltz.seeds import SeedStream, integer_seed

#: Largest models that are refitted whole while training: a refit takes seconds here, and twice that per spin more.
MAX_WHOLE_SPINS = 12


class FixedSchedule:
    """The same schedule for every model."""

    def __init__(self, schedule: AnnealingSchedule) -> None:
        self.schedule = schedule

    def for_model(self, model: IsingModel) -> AnnealingSchedule:
        """The schedule to run ``model`` with."""
        return self.schedule

    def state_dict(self) -> dict[str, Any]:
        """Nothing: it does not change."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nothing to load."""


class AdaptiveSchedule:
    """Angles refitted to the present ``J`` and a sample of the present fields, every ``refit_every`` solves.

    ``J`` is shared by all queries of a head, so one fit serves them all. Each refit starts from the present angles
    and runs a few L-BFGS steps, so that it costs little per training step (``seconds`` and ``refits`` tell how much).
    Models of more than 12 spins are fitted through random sub-blocks of ``block_spins`` spins of theirs.

    Args:
        start: the schedule to begin with; its depth is kept.
        refit_every: solves between refits; the first solve refits too.
        rows: fields sampled per refit and group.
        max_iterations: L-BFGS steps of one refit.
        block_spins: size of the sub-blocks for large models.
        seed: of the sampling of rows and blocks.
    """

    def __init__(
        self,
        start: AnnealingSchedule,
        refit_every: int = 50,
        *,
        rows: int = 12,
        max_iterations: int = 30,
        block_spins: int = 10,
        seed: int | None = 0,
    ) -> None:
        if not 2 <= block_spins <= MAX_WHOLE_SPINS:
            raise ValueError(f"block_spins must be between 2 and {MAX_WHOLE_SPINS}, got {block_spins!r}.")
        self.schedule = start
        self.refit_every = check_integer("refit_every", refit_every)
        self.rows = check_integer("rows", rows)
        self.max_iterations = check_integer("max_iterations", max_iterations)
        self.block_spins = block_spins
        self.seeds = SeedStream(seed)
        self.solves = 0
        self.refits = 0
        self.seconds = 0.0

    def for_model(self, model: IsingModel) -> AnnealingSchedule:
        """The schedule to run ``model`` with; refits first when it is due."""
        due = self.solves % self.refit_every == 0
        self.solves += 1
        if due and model.fields.numel():
            self._refit(model)
        return self.schedule

    def _refit(self, model: IsingModel) -> None:
        started = time.perf_counter()
        seed = integer_seed(self.seeds.next()) % 2**31
        models = ModelSet.recorded(self._block(model, seed), rows=self.rows, seed=seed)
        result = fit_schedule(
            self.schedule.num_layers, models, restarts=1, start=self.schedule, max_iterations=self.max_iterations
        )
        self.schedule = result.schedule
        self.refits += 1
        self.seconds += time.perf_counter() - started

    def _block(self, model: IsingModel, seed: int) -> IsingModel:
        n = model.num_spins
        if n <= MAX_WHOLE_SPINS:
            return model
        spins = torch.randperm(n, generator=torch.Generator().manual_seed(seed))[: self.block_spins].sort().values
        spins = spins.to(model.fields.device)
        visible = model.visible
        if visible is not None:
            visible = visible.expand(model.fields.shape)[..., spins]
        return IsingModel(model.fields[..., spins], model.couplings[..., spins[:, None], spins], visible)

    def state_dict(self) -> dict[str, Any]:
        """Plain data for a checkpoint."""
        return {
            "angles": self.schedule.as_dict(),
            "seeds": self.seeds.state_dict(),
            "solves": self.solves,
            "refits": self.refits,
            "seconds": self.seconds,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state_dict`` was taken."""
        self.schedule = AnnealingSchedule(**state["angles"])
        self.seeds.load_state_dict(state["seeds"])
        self.solves, self.refits = int(state["solves"]), int(state["refits"])
        self.seconds = float(state["seconds"])

    def __repr__(self) -> str:
        return f"AdaptiveSchedule(num_layers={self.schedule.num_layers}, refit_every={self.refit_every})"


def make_schedule(
    schedule: AnnealingSchedule | AdaptiveSchedule | str | None, num_layers: int | None, refit_every: int
) -> FixedSchedule | AdaptiveSchedule:
    """What a solver's options mean.

    Args:
        schedule: angles; ``None`` for fitted ones of the table; ``"adaptive"`` for these, refitted as training goes on;
            or an ``AdaptiveSchedule`` with settings of one's own.
        num_layers: depth where ``schedule`` does not say it, 4 by default.
        refit_every: of ``"adaptive"``.

    Raises:
        TypeError: ``schedule`` is none of these.
        ValueError: ``num_layers`` contradicts ``schedule``.
    """
    check_integer("refit_every", refit_every)
    if schedule is None or schedule == "adaptive":
        start = AnnealingSchedule.fitted(4 if num_layers is None else num_layers)
        return FixedSchedule(start) if schedule is None else AdaptiveSchedule(start, refit_every)
    if isinstance(schedule, AnnealingSchedule):
        chosen: FixedSchedule | AdaptiveSchedule = FixedSchedule(schedule)
    elif isinstance(schedule, AdaptiveSchedule):
        chosen = schedule
    else:
        raise TypeError(f"schedule must be an AnnealingSchedule, 'adaptive' or None, got {schedule!r}.")
    if num_layers not in (None, chosen.schedule.num_layers):
        raise ValueError(
            f"num_layers must be left out or agree with schedule, {chosen.schedule.num_layers}, got {num_layers}."
        )
    return chosen
