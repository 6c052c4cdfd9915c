"""Models trained through annealing circuits beside models trained exactly, and each evaluated with the other's solver.

    python benchmarks/dqa_training.py [--quick] [--jobs N] [--dask ADDRESS] [--data FILE] [--out FILE]

Bracket matching (no feed-forward layer) and text at T = 8 and 12, five paired seeds side by side through the batched
simulator. Text is asked at its last position only, where all T characters are keys: one circuit a window. Every record
of couplings holds the distance of Aer's samples from the populations of the same circuits in the batched simulator, on
models of the trained layer: the squared z of the magnetizations, 1 if they agree. (`sampler_training.py` trains through
Aer too.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from grid import Cell, options, run_grid
from protocol import BATCHES, TEST_SEED, WIDTHS, best_setting, make, outcome
from sampler_training import Asked, distance
from torch import Tensor

from qboltz import AnnealingSchedule, AnnealingSolver, ExactSolver, IsingModel, StatevectorSolver
from qboltz.ensemble import Solver, SpinEnsemble
from qboltz.experiments.optimization import TrainingConfig, data_generator
from qboltz.experiments.side_by_side import evaluate_each, stacked, train_side_by_side
from qboltz.experiments.stacked import KINDS, StackedTransformer
from qboltz.simulator import annealing_probabilities
from qboltz.tasks.base import Batch, Split, Task

SEEDS, STEPS, TEST_SIZE = 5, 600, 1024
LAYERS, SHOTS = 4, 256
REFIT_EVERY = 50
AGREEMENT_SHOTS, AGREEMENT_MODELS = 1024, 32

#: Who answers while training; `None` in place of a maker: exact enumeration.
TRAINERS: dict[str, tuple[str, Callable[[int], Solver] | None]] = {
    "softmax": ("softmax", None),
    "h-only": ("h-only", None),
    "exact": ("h+J", None),
    "circuits, plain": ("h+J", lambda seed: circuits(seed, estimator="plain")),
    "circuits, conditional": ("h+J", lambda seed: circuits(seed, estimator="conditional")),
    "circuits, plain, circuit gradient": ("h+J", lambda seed: circuits(seed, estimator="plain", gradient="circuit")),
    "adaptive circuits, plain": ("h+J", lambda seed: adaptive(seed, REFIT_EVERY)),
}
#: What costs most, or has its like in the other rows, at some cells only.
ONLY_AT = {
    "circuits, plain, circuit gradient": (("brackets", 8), ("brackets", 12)),
    "circuits, conditional": (("brackets", 8), ("brackets", 12)),
}
#: Also with normalized queries and keys, which bound the fields.
BOUNDED_AT = (("brackets", 12), ("shakespeare", 8))
BOUNDED = ("exact", "circuits, plain", "adaptive circuits, plain", "circuits, plain, circuit gradient")


def circuits(seed: int, **choices: Any) -> StatevectorSolver:
    """Fitted angles, four layers, 256 shots, the batched simulator."""
    return StatevectorSolver(AnnealingSchedule.fitted(LAYERS), shots=SHOTS, seed=seed, **choices)


def adaptive(seed: int, refit_every: int) -> StatevectorSolver:
    """The same with angles refitted to the model, at the first solve and then every ``refit_every``."""
    return StatevectorSolver(
        "adaptive", shots=SHOTS, estimator="plain", seed=seed, num_layers=LAYERS, refit_every=refit_every
    )


class SeedBySeed:
    """A solver for each seed of a stack: its own draws, and angles refitted to its own couplings alone."""

    def __init__(self, solvers: Sequence[Solver]) -> None:
        self.solvers = solvers

    def solve(self, model: IsingModel) -> SpinEnsemble:
        """Models with a leading dimension of seeds, in fields and couplings alike."""
        if not len(model.fields) == len(model.couplings) == len(self.solvers) or model.visible is not None:
            raise ValueError(
                f"model must have a leading dimension of {len(self.solvers)} seeds in both parts and no mask, "
                f"got fields {tuple(model.fields.shape)} and couplings {tuple(model.couplings.shape)}."
            )
        pairs = zip(model.fields, model.couplings, strict=True)
        return Joined(
            model, [solver.solve(IsingModel(*pair)) for solver, pair in zip(self.solvers, pairs, strict=True)]
        )


class Joined(SpinEnsemble):
    """Ensembles of the seeds, stacked."""

    def __init__(self, model: IsingModel, parts: Sequence[SpinEnsemble]) -> None:
        self.model, self.parts = model, parts

    def magnetization(self) -> Tensor:
        """``(S, ...)``."""
        return torch.stack([part.magnetization() for part in self.parts])

    def pullback(self, grad: Tensor) -> tuple[Tensor, Tensor]:
        """Of every seed."""
        found = [part.pullback(one) for part, one in zip(self.parts, grad, strict=True)]
        fields, couplings = zip(*found, strict=True)
        return torch.stack(fields), torch.stack(couplings)


class LastRow:
    """A task of text, asked at its last position only."""

    def __init__(self, task: Task) -> None:
        self.task, self.length, self.causal = task, task.length, False
        self.name, self.vocab_size, self.num_classes = task.name, task.vocab_size, task.num_classes
        self.chance, self.chance_note = task.chance, task.chance_note

    def batch(self, generator: torch.Generator, size: int, split: Split = "train") -> Batch:
        """One row a window, which sees all of it."""
        drawn = self.task.batch(generator, size, split)
        return Batch(drawn.tokens, drawn.rows[:, -1:], drawn.targets[:, -1:])


def cells(quick: bool) -> list[Cell]:
    """The short sequences first."""
    if quick:
        return [
            {"task": "brackets", "length": 8, "trained": name, "seeds": 2, "steps": 4}
            for name in ("exact", "circuits, plain")
        ]
    bounded = [
        {"task": task, "length": length, "trained": name, "seeds": SEEDS, "steps": STEPS, "qk_norm": True}
        for task, length in BOUNDED_AT
        for name in BOUNDED
    ]
    every = bounded + [
        {"task": task, "length": length, "trained": name, "seeds": SEEDS, "steps": STEPS}
        for task in ("shakespeare", "brackets")
        for length in (8, 12)
        for name in TRAINERS
        if (task, length) in ONLY_AT.get(name, ((task, length),))
    ]
    return sorted(every, key=lambda cell: "circuit gradient" in cell["trained"])  # what takes longest last


class Run:
    """A cell's run, with the place of the text."""

    def __init__(self, data: str | None) -> None:
        self.data = data

    def __call__(
        self, task: str, length: int, trained: str, seeds: int, steps: int, qk_norm: bool = False
    ) -> dict[str, Any]:
        kind, maker = TRAINERS[trained]
        ffn = task == "shakespeare"
        if task == "brackets":
            tasks: list[Task] = [make(task, length, fold=seed) for seed in range(seeds)]
        else:
            tasks = [LastRow(make(task, length, self.data))] * seeds
        lr, factor = best_setting(task, kind, ffn) if steps == STEPS else (3e-3, 1.0)
        model = StackedTransformer.for_task(
            tasks[0],
            kind,  # type: ignore[arg-type]
            range(seeds),
            width=WIDTHS[task],
            ffn=ffn,
            qk_norm=qk_norm,
            solver=None if maker is None else SeedBySeed([maker(seed) for seed in range(seeds)]),
        )
        config = TrainingConfig(steps=steps, batch_size=BATCHES[task], lr=lr, coupling_lr_factor=factor, warmup=0.1)
        test = stacked(each.batch(data_generator(TEST_SEED, "test"), TEST_SIZE, "test") for each in tasks)
        curves = train_side_by_side(model, tasks, config, range(seeds), test, evaluate_every=max(1, steps // 5))
        return (
            outcome(model, curves)
            | {"lr": lr, "factor": factor, "kind": kind, "layers": LAYERS, "shots": SHOTS}
            | self._with_each_solver(model, test)
        )

    @staticmethod
    def _with_each_solver(model: StackedTransformer, test: Batch) -> dict[str, Any]:
        """Loss and accuracy by exact enumeration and by circuits, however the model was trained."""
        if KINDS[model.kind] != "h+J":
            return {}
        found: dict[str, Any] = {}
        solvers: dict[str, Solver] = {
            "exact": ExactSolver(),
            "circuits": SeedBySeed([circuits(seed, estimator="plain") for seed in range(model.num_seeds)]),
            "adaptive": SeedBySeed([adaptive(seed, refit_every=10**6) for seed in range(model.num_seeds)]),
        }
        for name, solver in solvers.items():
            model.solver = solver
            loss, accuracy = evaluate_each(model, test)
            found[f"with {name}"] = {"loss": loss, "accuracy": accuracy}
        return found | {"aer": agreement(model, test)}


@torch.no_grad()
def agreement(model: StackedTransformer, test: Batch) -> dict[str, float]:
    """Samples by Aer against the populations of the same circuits in the batched simulator, on models of the layer."""
    model.solver = asked = Asked()
    model(test.tokens[:, :AGREEMENT_MODELS], test.rows[:, :AGREEMENT_MODELS])
    groups = asked.models[0].decoupled().groups
    schedule = AnnealingSchedule.fitted(LAYERS)
    free = IsingModel(groups.fields, groups.couplings.unsqueeze(1))
    sampler = AnnealingSolver("aer_simulator", schedule, AGREEMENT_SHOTS, "plain", seed=5)
    spins: Tensor = sampler.solve(free).spins  # type: ignore[attr-defined]
    populations = annealing_probabilities(groups.fields.double(), groups.couplings.double(), schedule)
    result = distance(spins.view(*groups.fields.shape[:2], AGREEMENT_SHOTS, -1), populations)
    if not all(math.isfinite(value) for value in result.values()):
        raise FloatingPointError(f"agreement with Aer must be finite, got {result}.")
    return result


def main() -> None:
    given = options(__doc__, "dqa_training")
    run = Run(None if given.data is None else str(given.data))
    run_grid("dqa_training", cells(given.quick), run, given.out, jobs=given.jobs, dask=given.dask)


if __name__ == "__main__":
    main()
