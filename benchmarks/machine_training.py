"""Bracket matching trained on noisy chips, many queries packed on each, beside the noiseless circuits.

    python benchmarks/machine_training.py [--quick] [--jobs N] [--dask ADDRESS] [--out FILE]

Fake devices of 127, 133 and 156 qubits, n = 6 and 8, two layers of the fitted schedule, 128 shots, conditional
estimator; the twin has the same seed, data, schedule and shots on the ideal simulator. Accuracy on the test sequences
with the model's own sampler and with exact enumeration, beside chance; median seconds of a step.
"""

from __future__ import annotations

import itertools
import statistics
import time
from typing import Any

from grid import Cell, options, run_grid

from qboltz import AnnealingSchedule, AnnealingSolver, ExactSolver, StatevectorSolver
from qboltz.experiments.evaluation import evaluate, magnetization_rmse, using_solver
from qboltz.experiments.model import OneLayerTransformer
from qboltz.experiments.optimization import TrainingConfig, data_generator
from qboltz.experiments.training import train
from qboltz.tasks.brackets import BracketTask

CHIPS = {"fake_sherbrooke": 127, "fake_torino": 133, "fake_fez": 156}
LAYERS, SHOTS, STEPS, BATCH, TEST = 2, 128, 200, 16, 128


def cells(quick: bool) -> list[Cell]:
    """Chips and the simulator, at both lengths."""
    if quick:
        return [{"backend": "fake_torino", "length": 4, "seed": 0, "steps": 2}]
    return [
        {"backend": backend, "length": length, "seed": 0, "steps": STEPS}
        for length in (6, 8)
        for backend in ("noiseless", *CHIPS)
    ]


def run(backend: str, length: int, seed: int, steps: int) -> dict[str, Any]:
    """Train and evaluate one model."""
    task = BracketTask(length, kinds=3)
    schedule = AnnealingSchedule.fitted(LAYERS)
    if backend == "noiseless":
        solver: Any = StatevectorSolver(schedule, shots=SHOTS, seed=seed)
    else:
        solver = AnnealingSolver(backend, schedule, shots=SHOTS, seed=seed)
    model = OneLayerTransformer.for_task(task, seed=seed, width=32, solver=solver, ffn=False)
    test = task.batch(data_generator(seed, "test"), TEST, "test")
    ends: list[float] = []

    class Clock:
        """Notes when each step ends."""

        def start(self, steps: int, done: int) -> None:
            ends.append(time.perf_counter())

        def step(self, record: dict[str, Any]) -> None:
            ends.append(time.perf_counter())

        def stop(self) -> None:
            pass

    train(model, task, TrainingConfig(steps=steps, batch_size=BATCH, lr=1e-2, seed=seed), display=Clock())
    accuracy = evaluate(model, test).accuracy
    error = magnetization_rmse(model, test, solver)
    with using_solver(model, ExactSolver()):
        exact = evaluate(model, test).accuracy
    seconds = [after - before for before, after in itertools.pairwise(ends)]
    return {
        "qubits": CHIPS.get(backend),
        "chance": task.chance,
        "accuracy": accuracy,
        "exact_accuracy": exact,
        "magnetization_rmse": error,
        "step_seconds": statistics.median(seconds),
        "first_step_seconds": seconds[0],
        "rows_per_step": BATCH,
        "layers": LAYERS,
        "shots": SHOTS,
        "test_sequences": TEST,
        "note": f"accuracy {accuracy:.3f}, chance {task.chance:.3f}, {statistics.median(seconds):.2f} s a step",
    }


def main() -> None:
    given = options(__doc__, "machine_training")
    run_grid("machine_training", cells(given.quick), run, given.out, jobs=given.jobs, dask=given.dask)


if __name__ == "__main__":
    main()
