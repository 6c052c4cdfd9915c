"""Bracket matching trained with every sampler: what samples, schedules, estimators and gradients do to a model.

    python benchmarks/sampler_training.py [--quick] [--only NAME ...] [--starts J ...] [--seeds N] [--out FILE]

One layer, one head, no feed-forward part. Runs of one seed start with equal weights and see equal data, so that a
difference to the run with exact enumeration is the sampler's; the couplings start at 0, or at 1 between neighbors. Each
record (one JSON line) has accuracy and loss on held-out sequences, with the sampler the model was trained with and with
exact enumeration, and what the training took. Steps and learning rate were chosen with exact enumeration on seeds
100 to 105, such that the task is learned, but not to the end. Runs that the file already holds are not repeated.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from recall_ladder import DrawnSolver
from records import append, environment, place, read
from torch import Tensor

from qboltz import (
    AnnealingSchedule,
    AnnealingSolver,
    ExactSolver,
    GibbsSolver,
    IsingModel,
    MeanFieldSolver,
    StatevectorSolver,
)
from qboltz.ensemble import ESTIMATORS, Estimator, Solver, SpinEnsemble
from qboltz.errors import ConvergenceError
from qboltz.experiments.evaluation import evaluate, magnetization_rmse, using_solver
from qboltz.experiments.model import OneLayerTransformer
from qboltz.experiments.optimization import TrainingConfig, data_generator
from qboltz.experiments.training import train
from qboltz.simulator import annealing_probabilities
from qboltz.solvers.mean_field_equation import METHODS, Method
from qboltz.solvers.statevector import Gradient
from qboltz.tasks.brackets import BracketTask

TASK = BracketTask(8, kinds=3, form="marked")
WIDTH = 32
STEPS = 300
BATCH = 32
LR = 1e-2
TEST_SEQUENCES = 512
RMSE_SEQUENCES = 128
#: Couplings between neighbors at the start of training.
STARTS = (1.0, 0.0)
#: Solves between refits of an adaptive schedule.
REFIT_EVERY = 50
#: Shots and sequences of the comparison of Aer with the batched simulator.
AGREEMENT_SHOTS = 1024
AGREEMENT_SEQUENCES = 256

Make = Callable[[int], Solver | str]


@dataclass(frozen=True)
class Run:
    """Who answers for the magnetizations, with how many samples of each model (``None``: no samples)."""

    solver: Make
    samples: int | None = None
    variant: str = "h+J"


def schedule_options(schedule: str, layers: int) -> dict[str, Any]:
    if schedule == "adaptive":
        return {"schedule": "adaptive", "num_layers": layers, "refit_every": REFIT_EVERY}
    return {"schedule": getattr(AnnealingSchedule, schedule)(layers)}


def circuits(
    schedule: str, layers: int, shots: int | None, estimator: Estimator, gradient: Gradient = "covariance"
) -> Run:
    """The batched simulator."""
    options: dict[str, Any] = {"shots": shots, "estimator": estimator, "gradient": gradient}
    return Run(
        lambda seed: StatevectorSolver(**schedule_options(schedule, layers), **options, seed=seed), samples=shots
    )


def aer(shots: int, estimator: Estimator) -> Run:
    options: dict[str, Any] = {"shots": shots, "estimator": estimator}
    return Run(
        lambda seed: AnnealingSolver("aer_simulator", **schedule_options("fitted", 4), **options, seed=seed),
        samples=shots,
    )


def gibbs(samples: int, estimator: Estimator) -> Run:
    """16 chains, 50 sweeps of warm-up."""
    return Run(lambda seed: GibbsSolver(16, samples // 16, warmup=50, estimator=estimator, seed=seed), samples=samples)


def mean_field(method: Method) -> Run:
    return Run(lambda seed: MeanFieldSolver(method))


def drawn(samples: int, estimator: Estimator) -> Run:
    return Run(lambda seed: DrawnSolver("exact", samples, estimator, seed), samples=samples)


def shots_name(shots: int | None) -> str:
    return "infinite shots" if shots is None else f"{shots} shots"


SCHEDULES = ("linear", "fitted", "adaptive")
RUNS: dict[str, Run] = {
    "exact": Run(lambda seed: "exact"),
    "softmax": Run(lambda seed: "exact", variant="softmax"),
    "h-only": Run(lambda seed: "exact", variant="h-only"),
    **{f"exact samples, {samples}, plain": drawn(samples, "plain") for samples in (64, 256)},
    **{
        f"circuits, {schedule} p=4, {shots_name(shots)}, {estimator}": circuits(schedule, 4, shots, estimator)
        for shots in (None, 256)
        for schedule in SCHEDULES
        for estimator in ESTIMATORS
    },
    **{f"circuits, fitted p=4, {shots} shots, plain": circuits("fitted", 4, shots, "plain") for shots in (64, 1024)},
    **{f"Aer, fitted p=4, {shots} shots, plain": aer(shots, "plain") for shots in (64, 256, 1024)},
    "Aer, fitted p=4, 256 shots, conditional": aer(256, "conditional"),
    **{f"Gibbs, {samples} samples, plain": gibbs(samples, "plain") for samples in (64, 256, 1024)},
    **{f"mean field, {method}": mean_field(method) for method in METHODS},
    "circuits, fitted p=1, infinite shots, plain": circuits("fitted", 1, None, "plain"),
    "circuits, fitted p=2, infinite shots, plain": circuits("fitted", 2, None, "plain"),
    "circuits, fitted p=2, 256 shots, plain": circuits("fitted", 2, 256, "plain"),
    **{
        f"circuits, fitted p={layers}, {shots_name(shots)}, plain, circuit gradient": circuits(
            "fitted", layers, shots, "plain", "circuit"
        )
        for layers, shots in ((1, None), (2, None), (2, 256), (4, None), (4, 256))
    },
}
#: Runs that have no couplings, and runs that are repeated with couplings that start at 0.
UNCOUPLED = ("softmax", "h-only")
FROM_ZERO = (
    "exact",
    *UNCOUPLED,
    "exact samples, 256, plain",
    "circuits, linear p=4, infinite shots, plain",
    "circuits, fitted p=4, infinite shots, plain",
    "circuits, fitted p=4, 256 shots, plain",
    "circuits, fitted p=4, 256 shots, conditional",
    "Aer, fitted p=4, 256 shots, plain",
    "Gibbs, 256 samples, plain",
    "mean field, one_step",
    "mean field, naive",
)
QUICK = ("exact", "circuits, fitted p=4, 256 shots, plain", "Aer, fitted p=4, 64 shots, plain")
AGREEMENT = "agreement"


def belongs(name: str, start: float) -> bool:
    """Whether a run is part of the grid of one start."""
    return name in FROM_ZERO if start == 0 else name not in UNCOUPLED


def trained(name: str, start: float, seed: int, steps: int) -> tuple[OneLayerTransformer, dict[str, Any]]:
    """A model, and what its training took; raises what the solver raises."""
    spec = RUNS[name]
    solver = spec.solver(seed)
    model = OneLayerTransformer.for_task(
        TASK, seed=seed, width=WIDTH, variant=spec.variant, solver=solver, coupling_init=start, ffn=False
    )
    config = TrainingConfig(steps=steps, batch_size=BATCH, lr=LR, seed=seed)
    started = time.perf_counter()
    result = train(model, TASK, config, count_circuits=lambda: getattr(solver, "circuits_run", 0))
    seconds = time.perf_counter() - started
    models = steps * BATCH  # one row of a sequence asks
    return model, {
        "steps": steps,
        "batch_size": BATCH,
        "models": models,
        "circuits": result.circuits,
        "samples": models * (spec.samples or 0),
        "seconds": seconds,
    }


def run(name: str, start: float, seed: int, steps: int) -> dict[str, Any]:
    """Train and evaluate one model."""
    model, record = trained(name, start, seed, steps)
    test = TASK.batch(data_generator(seed, "test"), TEST_SEQUENCES, "test")
    own = evaluate(model, test)
    record |= {"accuracy": own.accuracy, "loss": own.loss}
    if RUNS[name].variant != "softmax":
        with using_solver(model, ExactSolver()):
            exact = evaluate(model, test)
        record |= {"exact_accuracy": exact.accuracy, "exact_loss": exact.loss}
        record["magnetization_rmse"] = magnetization_rmse(model, test.part(0, RMSE_SEQUENCES), model.attention.solver)
        assert model.attention.logit_scale is not None
        record["largest_field"] = model.attention.logit_scale.detach().exp().max().item()
    if RUNS[name].variant == "h+J":
        first, second = torch.triu_indices(TASK.length, TASK.length, 1)
        couplings = model.attention.couplings.detach()[0, first, second]
        record["couplings_rms"] = couplings.square().mean().sqrt().item()
    return record


class Asked:
    """Exact answers, and the models that were asked for."""

    def __init__(self) -> None:
        self.models: list[IsingModel] = []

    def solve(self, model: IsingModel) -> SpinEnsemble:
        self.models.append(model)
        return ExactSolver().solve(model)


def agreement(start: float, seed: int, steps: int) -> dict[str, Any]:
    """Aer and the batched simulator against the populations of the same circuits, on models of a trained layer.

    ``z`` of the summed log-likelihood of all samples is standard normal for samples of these populations; the mean of
    the squared ``z`` of the magnetizations is 1.
    """
    model, _ = trained("exact", start, seed, steps)
    asked = Asked()
    with using_solver(model, asked):
        evaluate(model, TASK.batch(data_generator(seed, "test"), AGREEMENT_SEQUENCES, "test"))
    free = asked.models[0].decoupled()
    groups = free.groups
    record: dict[str, Any] = {"shots": AGREEMENT_SHOTS, "models": groups.fields.shape[:2].numel()}
    for schedule_name in ("linear", "fitted"):
        schedule = getattr(AnnealingSchedule, schedule_name)(4)
        populations = annealing_probabilities(groups.fields.double(), groups.couplings.double(), schedule)
        for sampler in (
            AnnealingSolver("aer_simulator", schedule, AGREEMENT_SHOTS, "plain", seed=seed),
            StatevectorSolver(schedule, AGREEMENT_SHOTS, estimator="plain", seed=seed),
        ):
            spins = sampler.solve(free).spins  # type: ignore[attr-defined]
            record[f"{type(sampler).__name__}, {schedule_name}"] = distance(spins, populations)
    return record


def distance(spins: Tensor, populations: Tensor) -> dict[str, float]:
    """Samples ``(G, R, M, n)`` against populations ``(G, R, 2**n)``, as numbers of standard errors."""
    n, shots = spins.shape[-1], spins.shape[-2]
    bits = 2 ** torch.arange(n)
    numbers = ((spins < 0).long() * bits).sum(-1)  # (G, R, M)
    log_p = populations.clamp_min(torch.finfo(populations.dtype).tiny).log()
    mean = (populations * log_p).sum(-1)
    variance = (populations * log_p.square()).sum(-1) - mean.square()
    total = (log_p.gather(-1, numbers) - mean.unsqueeze(-1)).sum()
    table = 1 - 2 * ((torch.arange(2**n).unsqueeze(-1) & bits) > 0).double()
    m = populations @ table
    squares = (spins.double().mean(-2) - m).square() / ((1 - m.square()) / shots).clamp_min(1e-12)
    rows = squares.mean(-1).flatten()
    return {
        "z_log_likelihood": (total / (shots * variance.sum()).sqrt()).item(),
        "mean_z2": rows.mean().item(),
        "mean_z2_error": (rows.std() / len(rows) ** 0.5).item(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="three runs of a few steps, under a minute")
    parser.add_argument("--only", nargs="+", choices=[*RUNS, AGREEMENT], metavar="NAME", help="these runs")
    parser.add_argument("--starts", type=float, nargs="+", choices=STARTS, default=STARTS)
    parser.add_argument("--seeds", type=int, default=5, help="seeds 0 .. N-1 (5)")
    parser.add_argument("--threads", type=int, default=1, help="of torch (1)")
    parser.add_argument("--out", type=Path, help="default: results/, quick: the temporary folder")
    options = parser.parse_args()
    options.out = place(options.out, "sampler_training", options.quick)
    steps = STEPS
    if options.quick:
        options.only, options.starts, options.seeds, steps = [*QUICK, AGREEMENT], [1.0], 1, 5
    torch.set_num_threads(options.threads)
    key = ("run", "start", "seed", "steps")
    done = {tuple(record[name] for name in key) for record in read(options.out)}
    todo = [
        (name, start, seed)
        for seed in range(options.seeds)
        for start in options.starts
        for name in options.only or [*RUNS, AGREEMENT]
        if belongs(name, start)
        if (name, start, seed, steps) not in done
    ]
    for number, (name, start, seed) in enumerate(todo, 1):
        record: dict[str, Any] = {"benchmark": "sampler_training", "run": name, "start": start, "seed": seed}
        record["steps"] = steps
        try:
            record |= agreement(start, seed, steps) if name == AGREEMENT else run(name, start, seed, steps)
        except (ConvergenceError, FloatingPointError) as error:  # a sampler that fails is a result too
            record["failed"] = str(error)
        append(options.out, record | environment())
        outcome = f"{record['accuracy']:.3f} in {record['seconds']:.0f} s" if "accuracy" in record else "recorded"
        print(f"{number}/{len(todo)} J={start} seed {seed} {name}: {outcome}", flush=True)


if __name__ == "__main__":
    main()
