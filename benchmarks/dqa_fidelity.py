"""How far the annealing circuits are from the Boltzmann distribution, beside what a user would run instead.

    python benchmarks/dqa_fidelity.py [--quick] [--sizes N ...] [--out FILE]

Random models, `h ~ N(0, sigma_h)` and `J ~ N(0, sigma_J)`, of seeds that no schedule was fitted on, 24 per cell. At
infinite shots what remains is the error of the schedule: linear, calibrated; fitted to each ensemble; adaptive,
refitted to each model's own J on some fields and measured on others. With 256 shots: circuits, with and without polish,
beside Gibbs chains of equally many samples, random spins with the same polish, and mean field. Finished cells are not
repeated.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from records import append, environment, place, read

from qboltz import AnnealingSchedule, ExactSolver, IsingModel, StatevectorSolver
from qboltz.ensemble import SampledEnsemble
from qboltz.errors import ConvergenceError
from qboltz.fidelity import schedule_fidelity
from qboltz.fitting import fit_schedule
from qboltz.gibbs import polish
from qboltz.modelset import ModelSet
from qboltz.seeds import SeedStream
from qboltz.solvers.gibbs import GibbsSolver
from qboltz.solvers.mean_field import MeanFieldSolver

CELLS = [(0.3, 0.1), (0.5, 0.1), (0.5, 0.3), (1.0, 0.3), (1.0, 0.5)]
DEPTHS = [1, 2, 3, 4, 5, 6, 7, 8]
SHOTS = 256
COUNT = 24
SEED = 20_261_201
ADAPTIVE_MODELS = 8
Cell = tuple[int, float, float]


def schedules(cell: Cell, models: ModelSet, depth: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Infinite-shot errors of every schedule of one depth."""
    yield "linear", schedule_fidelity(AnnealingSchedule.linear(depth), models).as_dict()
    for ensemble in ("weak", "middle", "broad"):
        yield f"fitted, {ensemble}", schedule_fidelity(AnnealingSchedule.fitted(depth, ensemble), models).as_dict()
    if cell[0] <= 8 and depth in (2, 4, 6, 8):
        yield "adaptive", adaptive(cell, depth)


def adaptive(cell: Cell, depth: int) -> dict[str, float]:
    """Angles refitted to one J on 12 rows of fields, measured on 50 others; mean over several J."""
    num_spins, sigma_h, sigma_j = cell
    totals: dict[str, float] = {}
    for number in range(ADAPTIVE_MODELS):
        generator = torch.Generator().manual_seed(SEED + number)
        upper = sigma_j * torch.randn(num_spins, num_spins, dtype=torch.float64, generator=generator).triu(1)
        fields = sigma_h * torch.randn(62, num_spins, dtype=torch.float64, generator=generator)
        seen, held_out = (ModelSet.recorded(IsingModel(part, upper + upper.mT)) for part in (fields[:12], fields[12:]))
        start = AnnealingSchedule.fitted(depth, "weak" if sigma_j < 0.2 else "middle")
        schedule = fit_schedule(depth, seen, restarts=1, start=start, max_iterations=100).schedule
        for name, value in schedule_fidelity(schedule, held_out).as_dict().items():
            squared = name in ("magnetization", "conditional", "covariance")
            totals[name] = totals.get(name, 0.0) + (value**2 if squared else value) / ADAPTIVE_MODELS
    return {
        name: value**0.5 if name in ("magnetization", "conditional", "covariance") else value
        for name, value in totals.items()
    }


def samplers(models: ModelSet) -> Iterator[tuple[str, dict[str, float]]]:
    """Magnetization errors at 256 samples per model, and of mean field."""
    (batch,) = models.batches
    exact = ExactSolver().solve(batch).magnetization()

    def error(magnetization: torch.Tensor) -> dict[str, float]:
        return {"magnetization": (magnetization - exact).square().mean().sqrt().item()}

    for estimator in ("plain", "conditional"):
        for sweeps in (0, 1):
            solver = StatevectorSolver(
                AnnealingSchedule.fitted(4), shots=SHOTS, estimator=estimator, seed=SEED, polish=sweeps
            )
            yield f"circuits p=4, {estimator}, polish {sweeps}", error(solver.solve(batch).magnetization())
            groups = batch.groups
            shape = groups.num_groups, groups.num_rows, SHOTS, groups.num_spins
            coins = 2 * torch.randint(2, shape, generator=torch.Generator().manual_seed(SEED), dtype=torch.int8) - 1
            if sweeps:
                coins = polish(batch, coins, sweeps, SeedStream(SEED).next())
            random = SampledEnsemble(batch, coins, estimator=estimator)
            yield f"random spins, {estimator}, polish {sweeps}", error(random.magnetization())
        gibbs = GibbsSolver(chains=32, samples_per_chain=SHOTS // 32, estimator=estimator, seed=SEED)
        yield f"Gibbs, {estimator}", error(gibbs.solve(batch).magnetization())
    for method in ("one_step", "naive", "tap"):
        try:
            yield f"mean field, {method}", error(MeanFieldSolver(method).solve(batch).magnetization())
        except ConvergenceError as failure:
            yield f"mean field, {method}", {"failed": str(failure)}  # type: ignore[dict-item]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="n = 4 only")
    parser.add_argument("--sizes", type=int, nargs="+", default=[4, 6, 8, 10, 12])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, help="default: results/, quick: the temporary folder")
    options = parser.parse_args()
    options.out = place(options.out, "dqa_fidelity", options.quick)
    torch.set_num_threads(options.threads)
    done = {(r["num_spins"], r["sigma_h"], r["sigma_J"], r["layers"]) for r in read(options.out)}
    for num_spins in [4] if options.quick else options.sizes:
        for sigma_h, sigma_j in CELLS:
            models = ModelSet.random(sigma_h, sigma_j, sizes=(num_spins,), count=COUNT, seed=SEED + num_spins)
            for layers in [*DEPTHS, None]:
                if (num_spins, sigma_h, sigma_j, layers) in done:
                    continue
                cell = num_spins, sigma_h, sigma_j
                rows: dict[str, Any] = dict(samplers(models) if layers is None else schedules(cell, models, layers))
                record = {"benchmark": "dqa_fidelity", "num_spins": num_spins, "sigma_h": sigma_h, "sigma_J": sigma_j}
                record |= {"layers": layers, "models": COUNT, "seed": SEED, "errors": rows}
                append(options.out, record | environment())
                first = next(iter(rows.items()))
                print(f"n={num_spins} ({sigma_h}, {sigma_j}) layers={layers}: {first[0]} {first[1]}", flush=True)


if __name__ == "__main__":
    main()
