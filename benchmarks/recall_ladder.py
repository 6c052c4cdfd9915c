"""Associative recall trained through annealing circuits: which depth, shots, estimator and start are enough.

    python benchmarks/recall_ladder.py [--quick] [--only NAME ...] [--pairs P ...] [--seeds N] [--out FILE]

One layer, one head, no feed-forward part, 8 keys and 8 values; every run differs from `Run()` in what its name says.
Each record (one JSON line) holds the accuracy on held-out sequences with the sampler the model was trained with, and
with exact enumeration. Runs that the file already holds are not repeated: an interrupted grid goes on where it stopped.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from records import append, environment, place, read

from qboltz import AnnealingSchedule, AnnealingSolver, ExactSolver, IsingModel, SampledEnsemble, StatevectorSolver
from qboltz.ensemble import Solver
from qboltz.errors import ConvergenceError
from qboltz.experiments.evaluation import evaluate, magnetization_rmse, using_solver
from qboltz.experiments.model import OneLayerTransformer
from qboltz.experiments.optimization import TrainingConfig, data_generator
from qboltz.experiments.training import train
from qboltz.gibbs import polish
from qboltz.seeds import SeedStream, integer_seed
from qboltz.solvers.mean_field import MeanFieldSolver
from qboltz.tasks.recall import RecallTask

STEPS = {2: 150, 3: 200, 4: 300}
TEST_SEQUENCES = 1024


class DrawnSolver:
    """Samples drawn without any circuit: from the exact distribution, or from one that knows nothing of ``J``.

    ``"exact"`` separates shot noise from the error of the anneal. ``"product"`` draws each spin from its field alone
    and ``"random"`` tosses coins: what then still learns is the work of the estimator.
    """

    def __init__(self, kind: str, shots: int, estimator: str, seed: int, sweeps: int = 0) -> None:
        self.kind, self.shots, self.estimator, self.seeds = kind, shots, estimator, SeedStream(seed)
        self.sweeps = sweeps

    def solve(self, model: IsingModel) -> SampledEnsemble:
        groups = model.groups
        generator = torch.Generator().manual_seed(integer_seed(self.seeds.next()))
        if self.kind == "exact":
            drawn = ExactSolver().solve(model).sample(self.shots, generator=generator)
            spins = drawn.reshape(groups.num_groups, groups.num_rows, self.shots, groups.num_spins)
        else:
            mean = torch.tanh(groups.fields) if self.kind == "product" else torch.zeros_like(groups.fields)
            up = (
                torch.rand(*mean.shape[:2], self.shots, mean.shape[2], generator=generator)
                < (1 + mean.unsqueeze(2)) / 2
            )
            spins = (2 * up.to(torch.int8) - 1).to(torch.int8)
        if self.sweeps:
            spins = polish(model, spins, self.sweeps, self.seeds.next())
        return SampledEnsemble(model, spins, estimator=self.estimator)


@dataclass(frozen=True)
class Run:
    """What differs from the recipe: fitted schedule, plain estimator, 256 shots, couplings of 1 between neighbors."""

    solver: Callable[[int], Solver | str]
    variant: str = "h+J"
    coupling_init: float = 1.0
    qk_norm: bool = True
    coupling_lr_factor: float = 1.0
    steps_factor: int = 1
    pairs: tuple[int, ...] = (2, 3, 4)


def statevector(
    layers: int, shots: int | None = 256, estimator: str = "plain", linear: bool = False, **options: Any
) -> Any:
    make = AnnealingSchedule.linear if linear else AnnealingSchedule.fitted
    return lambda seed: StatevectorSolver(make(layers), shots=shots, estimator=estimator, seed=seed, **options)


def adaptive(layers: int, refit_every: int) -> Any:
    return lambda seed: StatevectorSolver(
        "adaptive", shots=256, estimator="plain", seed=seed, num_layers=layers, refit_every=refit_every
    )


def aer(layers: int, shots: int = 256, estimator: str = "plain") -> Any:
    return lambda seed: AnnealingSolver(
        "aer_simulator", AnnealingSchedule.fitted(layers), shots=shots, estimator=estimator, seed=seed
    )


def drawn(kind: str, estimator: str, sweeps: int = 0) -> Any:
    return lambda seed: DrawnSolver(kind, 256, estimator, seed, sweeps)


RUNS: dict[str, Run] = {
    "softmax": Run(lambda seed: "exact", variant="softmax"),
    "softmax, 10x steps": Run(lambda seed: "exact", variant="softmax", steps_factor=10, pairs=(3,)),
    "h-only, exact": Run(lambda seed: "exact", variant="h-only"),
    "J-only, exact": Run(lambda seed: "exact", variant="J-only"),
    "exact": Run(lambda seed: "exact"),
    "exact samples": Run(drawn("exact", "plain")),
    "Aer, fitted p=3": Run(aer(3)),
    "Aer, fitted p=4": Run(aer(4)),
    "Aer, fitted p=3, 64 shots": Run(aer(3, 64), pairs=(4,)),
    "circuits, fitted p=1": Run(statevector(1)),
    "circuits, fitted p=2": Run(statevector(2)),
    "circuits, fitted p=3": Run(statevector(3)),
    "circuits, fitted p=4": Run(statevector(4)),
    "circuits, fitted p=6": Run(statevector(6)),
    "circuits, linear p=4": Run(statevector(4, linear=True)),
    "circuits, linear p=8": Run(statevector(8, linear=True)),
    "circuits, linear p=16": Run(statevector(16, linear=True)),
    "circuits, fitted p=4, infinite shots": Run(statevector(4, None)),
    "circuits, fitted p=4, 64 shots": Run(statevector(4, 64)),
    "circuits, fitted p=4, 16 shots": Run(statevector(4, 16)),
    "circuits, fitted p=4, J start 0": Run(statevector(4), coupling_init=0.0),
    "circuits, fitted p=4, J start 1.5": Run(statevector(4), coupling_init=1.5),
    "circuits, fitted p=4, no q-k norm": Run(statevector(4), qk_norm=False),
    "circuits, fitted p=4, J at 3x rate": Run(statevector(4), coupling_lr_factor=3.0),
    "circuits, fitted p=4, 5x steps": Run(statevector(4), steps_factor=5, pairs=(3, 4)),
    "circuits, adaptive p=2, refit every 10": Run(adaptive(2, 10), pairs=(4,)),
    "circuits, adaptive p=2, refit every 50": Run(adaptive(2, 50), pairs=(4,)),
    "circuits, adaptive p=2, refit every 200": Run(adaptive(2, 200), pairs=(4,)),
    "circuits, adaptive p=3, refit every 50": Run(adaptive(3, 50), pairs=(4,)),
    "circuits, fitted p=2, polish 1": Run(statevector(2, polish=1), pairs=(4,)),
    "random spins, polish 1": Run(drawn("random", "plain", 1), pairs=(4,)),
    "circuits, fitted p=1, circuit gradient": Run(statevector(1, gradient="circuit"), pairs=(4,)),
    "circuits, fitted p=2, circuit gradient": Run(statevector(2, gradient="circuit"), pairs=(4,)),
    "circuits, fitted p=4, J start 1.5, circuit gradient": Run(
        statevector(4, gradient="circuit"), coupling_init=1.5, pairs=(4,)
    ),
    "conditional, circuits, fitted p=1": Run(statevector(1, estimator="conditional")),
    "conditional, circuits, fitted p=4": Run(statevector(4, estimator="conditional")),
    "conditional, product states that ignore J": Run(drawn("product", "conditional")),
    "plain, product states that ignore J": Run(drawn("product", "plain"), pairs=(3,)),
    "conditional, random spins": Run(drawn("random", "conditional")),
    "mean field, naive": Run(lambda seed: MeanFieldSolver("naive")),
    "mean field, one step": Run(lambda seed: MeanFieldSolver("one_step")),
}


def run(name: str, pairs: int, seed: int) -> dict[str, Any]:
    """Train and evaluate one model; raises what the solver raises."""
    spec, task = RUNS[name], RecallTask(2 * pairs + 1)
    config = TrainingConfig(
        steps=STEPS[pairs] * spec.steps_factor, coupling_lr_factor=spec.coupling_lr_factor, seed=seed
    )
    solver = spec.solver(seed)
    model = OneLayerTransformer.for_task(
        task,
        seed=seed,
        variant=spec.variant,
        solver=solver,
        coupling_init=spec.coupling_init,
        qk_norm=spec.qk_norm,
        ffn=False,
    )
    started = time.perf_counter()
    result = train(model, task, config)
    seconds = time.perf_counter() - started
    test = task.batch(data_generator(seed, "test"), TEST_SEQUENCES, "test")
    record: dict[str, Any] = {
        "benchmark": "recall_ladder",
        "run": name,
        "pairs": pairs,
        "seed": seed,
        "accuracy": evaluate(model, test).accuracy,
        "chance": task.chance,
        "steps": config.steps,
        "batch_size": config.batch_size,
        "training_accuracy": [
            round(float(np.mean([step["accuracy"] for step in part])), 4)
            for part in np.array_split(np.asarray(result.history, dtype=object), 10)
        ],
        "seconds": seconds,
    }
    if spec.variant != "softmax":
        with using_solver(model, ExactSolver()):
            record["exact_accuracy"] = evaluate(model, test).accuracy
        record["magnetization_rmse"] = magnetization_rmse(model, test, model.attention.solver)
    if spec.variant == "h+J":
        couplings = model.attention.couplings.detach()[0]
        record["neighbor_couplings"] = [round(float(J), 3) for J in couplings.diagonal(1)]
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two runs with 2 pairs and one seed, under a minute")
    parser.add_argument("--only", nargs="+", choices=sorted(RUNS), metavar="NAME", help="these runs")
    parser.add_argument("--pairs", type=int, nargs="+", default=[2, 3, 4])
    parser.add_argument("--seeds", type=int, default=3, help="seeds 0 .. N-1 (3)")
    parser.add_argument("--threads", type=int, default=1, help="of torch (1)")
    parser.add_argument("--out", type=Path, help="default: results/, quick: the temporary folder")
    options = parser.parse_args()
    options.out = place(options.out, "recall_ladder", options.quick)
    if options.quick:
        options.only, options.pairs, options.seeds = ["softmax", "circuits, fitted p=3"], [2], 1
    torch.set_num_threads(options.threads)
    done = {(record["run"], record["pairs"], record["seed"]) for record in read(options.out)}
    todo = [
        (name, pairs, seed)
        for seed in range(options.seeds)
        for name in options.only or RUNS
        for pairs in options.pairs
        if pairs in RUNS[name].pairs and (name, pairs, seed) not in done
    ]
    for number, (name, pairs, seed) in enumerate(todo, 1):
        try:
            record = run(name, pairs, seed)
        except (ConvergenceError, FloatingPointError) as error:  # a rival that does not converge is a result too
            record = {"benchmark": "recall_ladder", "run": name, "pairs": pairs, "seed": seed, "failed": str(error)}
        append(options.out, record | environment())
        outcome = f"{record['accuracy']:.3f} in {record['seconds']:.0f} s" if "accuracy" in record else "failed"
        print(f"{number}/{len(todo)} P={pairs} seed {seed} {name}: {outcome}", flush=True)


if __name__ == "__main__":
    main()
