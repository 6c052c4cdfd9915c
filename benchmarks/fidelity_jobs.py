"""The grid of `dqa_fidelity.py`: for each of its parts, the names of the records and the work behind them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from fidelity_measures import of_populations, summary
from fidelity_samplers import Errors, controls, correction, exact_strength, free_samplers, noise, target_errors
from fidelity_schedules import adapted, in_sub_blocks, linear_at_best_time, refit_seconds, shipped
from recorded_models import strength

from qboltz import AnnealingSchedule, IsingModel
from qboltz.fidelity import BoltzmannTarget
from qboltz.modelset import ModelSet

CELLS = [(0.3, 0.1), (0.5, 0.1), (0.5, 0.3), (1.0, 0.3), (1.0, 0.5)]
SIZES = [8, 4, 6, 10, 12]
DEPTHS = [1, 2, 3, 4, 5, 6, 7, 8]
SHOTS = (64, 256, 1024)
SEED = 20_261_201
#: Models per cell at infinite shots (many for small n, where their spread decides whether a bound holds), and how many
#: of them are sampled.
COUNTS = {4: 2048, 6: 2048, 8: 2048, 10: 512, 12: 96}
SAMPLED = {4: 256, 6: 256, 8: 256, 10: 128, 12: 48}
#: Coupling matrices that adaptive schedules are fitted to, and the depths: fits on 12 spins take long.
ADAPTIVE = {8: (24, DEPTHS), 4: (24, [2, 4, 8]), 6: (24, [2, 4, 8]), 10: (8, [4, 8]), 12: (4, [4, 8])}
FIT_ROWS, TEST_ROWS = 12, 48
BACKEND, NOISE_SHOTS, NOISE_COUNT = "fake_torino", 1024, 24
NOISE = {4: (CELLS, DEPTHS), 6: (CELLS, DEPTHS), 8: (CELLS[1:3], [1, 2, 3, 4, 6])}
Job = tuple[dict[str, Any], Callable[[], Errors]]


def cells(sizes: list[int], count: int | None = None) -> Iterator[tuple[dict[str, Any], Callable[[], IsingModel]]]:
    """Each cell: what its records begin with, and its held-out models, one batch."""
    for n in sizes:
        for sigma_h, sigma_J in CELLS:
            models = count or COUNTS[n]
            key: dict[str, Any] = {"num_spins": n, "sigma_h": sigma_h, "sigma_J": sigma_J}
            key |= {"models": models, "seed": SEED + n}

            def batch(n: int = n, sigmas: tuple[float, float] = (sigma_h, sigma_J), count: int = models) -> IsingModel:
                return ModelSet.random(*sigmas, sizes=(n,), count=count, seed=SEED + n).batches[0]

            yield key, batch


def schedule_jobs(sizes: list[int], depths: list[int], count: int | None) -> Iterator[Job]:
    for key, models in cells(sizes, count):
        n = key["num_spins"]
        for depth in depths:

            def work(depth: int = depth, models: Callable[[], IsingModel] = models) -> Errors:
                return {name: random_errors(models(), schedule) for name, schedule in shipped(depth).items()}

            yield {"part": "schedules", **key, "layers": depth, "sampled": min(key["models"], SAMPLED[n])}, work


def linear_jobs(depths: list[int], count: int | None, tuning: int = 200) -> Iterator[Job]:
    """The calibrated linear schedule at its best: the anneal time is chosen on other models of the same cell."""
    for key, models in cells([8], count):
        for depth in depths:

            def work(
                depth: int = depth, models: Callable[[], IsingModel] = models, key: dict[str, Any] = key
            ) -> Errors:
                known = ModelSet.random(key["sigma_h"], key["sigma_J"], sizes=(8,), count=tuning, seed=SEED)
                schedule = linear_at_best_time(known, depth)
                errors = random_errors(models(), schedule)
                return {"linear, best time": errors, "anneal_time": round(2 * sum(schedule.mixer_angles), 3)}

            yield {"part": "linear", **key, "layers": depth, "sampled": min(key["models"], SAMPLED[8])}, work


def correction_jobs(depths: list[int], count: int | None, shots: int = 256) -> Iterator[Job]:
    """A control variate for the conditional estimator, n = 8."""
    for key, models in cells([8], count or 1024):
        for depth in depths:

            def work(depth: int = depth, models: Callable[[], IsingModel] = models) -> Errors:
                target = BoltzmannTarget(models())
                samplers = {name: target.populations(schedule) for name, schedule in shipped(depth).items()}
                return correction(target, free_samplers(target) | samplers, shots, SEED)

            yield {"part": "correction", **key, "layers": depth}, work


def random_errors(batch: IsingModel, schedule: AnnealingSchedule) -> Errors:
    """Shot noise on the first models, everything else on all."""
    found = {}
    few = first(batch)
    for models, shots in ((few, SHOTS), (batch, ())):
        target = BoltzmannTarget(models)
        found |= of_populations(target, models, target.populations(schedule), shots, SEED)
    return summary([found])


def first(batch: IsingModel) -> IsingModel:
    """The models that are sampled."""
    count = SAMPLED[batch.num_spins]
    return IsingModel(batch.fields[:count], batch.couplings[:count])


def control_jobs(sizes: list[int], count: int | None) -> Iterator[Job]:
    for key, models in cells(sizes, count):
        n = key["num_spins"]

        def work(models: Callable[[], IsingModel] = models) -> Errors:
            batch = first(models())
            target = BoltzmannTarget(batch)
            return {**controls(target, batch, SHOTS, SEED), "rms_magnetization": exact_strength(target)}

        yield {"part": "controls", **key, "models": min(key["models"], SAMPLED[n])}, work


def adaptive_jobs(sizes: list[int], matrices: int | None, depths: list[int] | None) -> Iterator[Job]:
    for n in sizes:
        count, own_depths = ADAPTIVE[n]
        for depth in depths or own_depths:
            for key, _ in cells([n], matrices or count):
                yield {"part": "adaptive", **key, "layers": depth}, lambda key=key, depth=depth: adaptive(key, depth)


def adaptive(key: dict[str, Any], depth: int) -> Errors:
    """Each `J` is one unit: angles fitted on some rows of fields, errors averaged over others."""
    found = []
    n = key["num_spins"]
    for number in range(key["models"]):
        generator = torch.Generator().manual_seed(key["seed"] + 1000 * (number + 1))
        upper = key["sigma_J"] * torch.randn(n, n, dtype=torch.float64, generator=generator).triu(1)
        fields = key["sigma_h"] * torch.randn(FIT_ROWS + TEST_ROWS, n, dtype=torch.float64, generator=generator)
        seen, held_out = (
            ModelSet.recorded(IsingModel(rows, upper + upper.mT)) for rows in (fields[:FIT_ROWS], fields[FIT_ROWS:])
        )
        (batch,) = held_out.batches
        target = BoltzmannTarget(batch)
        found.append(of_populations(target, batch, target.populations(adapted(seen, depth)), SHOTS, SEED + number))
    return {"adaptive": summary(found)}


def recorded_jobs(folder: Path, depths: list[int], max_spins: int, rows: int | None = None) -> Iterator[Job]:
    for path in sorted(folder.glob("*.pt")):
        models = ModelSet.load(path)
        if models.batches[0].num_spins > max_spins:
            continue
        seen, test = (ModelSet((batch,), models.origin) for batch in models.batches)
        (batch,) = test.batches if rows is None else ModelSet.recorded(test.batches[0], rows=rows).batches
        seen = ModelSet.recorded(seen.batches[0], rows=FIT_ROWS)
        key = {"part": "recorded", "name": path.stem, "num_spins": batch.num_spins, "models": batch.fields.shape[1]}
        key |= {"accuracy": models.origin["accuracy"], **strength(models)}

        def rival(batch: IsingModel = batch) -> Errors:
            return controls(BoltzmannTarget(batch), batch, SHOTS, SEED)

        yield {**key, "layers": None}, rival
        for depth in depths:

            def work(depth: int = depth, batch: IsingModel = batch, seen: ModelSet = seen) -> Errors:
                target = BoltzmannTarget(batch)
                schedules = shipped(depth)
                if depth % 2 == 0:
                    schedules |= {f"adaptive, {goal}": adapted(seen, depth, goal, 200) for goal in ("moments", "kl")}
                if depth == 4:
                    for block in (10, 12):
                        if batch.num_spins > block:
                            schedules[f"adaptive, blocks of {block}"] = in_sub_blocks(seen.batches[0], depth, block)
                return {
                    name: target_errors(target, target.populations(schedule), batch, SHOTS, SEED)
                    for name, schedule in schedules.items()
                }

            yield {**key, "layers": depth}, work


def noise_jobs(grid: dict[int, tuple[list[tuple[float, float]], list[int]]], count: int, shots: int) -> Iterator[Job]:
    for n, (wanted, depths) in grid.items():
        for key, models in cells([n], count):
            if (key["sigma_h"], key["sigma_J"]) in wanted:
                ensemble = "weak" if key["sigma_J"] < 0.2 else "middle" if key["sigma_h"] < 1 else "broad"
                for depth in depths:

                    def work(depth: int = depth, ensemble: str = ensemble, models: Any = models) -> Errors:
                        return noise(models(), AnnealingSchedule.fitted(depth, ensemble), BACKEND, shots, SEED)

                    yield {"part": "noise", **key, "layers": depth, "ensemble": ensemble, "shots": shots}, work


def refit_jobs(sizes: list[int]) -> Iterator[Job]:
    for n in sizes:
        yield {"part": "refit", "num_spins": n, "layers": 4, "rows": 12}, lambda n=n: refit_seconds(n)
