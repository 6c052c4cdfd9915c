"""Ising models of trained attention, recorded for `dqa_fidelity.py`: brackets, text, and recall.

    python benchmarks/recorded_models.py --data FILE [--only NAME ...] [--folder DIR]

Each model is trained with exact enumeration, about a minute on one core. A file `results/models/NAME.pt` is a
`ModelSet` of two batches, fields `(1, rows, T)` with the couplings of the one head: rows of training sequences, on
which adaptive schedules are fitted, and rows of test sequences, on which everything is measured. A row is the query
that is asked; in text it is the last one of a window, which sees all `T` keys. `--data` is the text (Tiny Shakespeare);
without it text is fetched. Files that exist are kept.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from records import RESULTS, environment

from qboltz import ExactSolver, IsingModel
from qboltz.ensemble import SpinEnsemble
from qboltz.experiments.evaluation import evaluate, using_solver
from qboltz.experiments.model import OneLayerTransformer
from qboltz.experiments.optimization import TrainingConfig, data_generator
from qboltz.experiments.training import train
from qboltz.modelset import ModelSet
from qboltz.tasks.base import Batch, Task
from qboltz.tasks.brackets import BracketTask
from qboltz.tasks.recall import RecallTask
from qboltz.tasks.shakespeare import ShakespeareTask

MODELS = RESULTS / "models"
FIT_ROWS, TEST_ROWS = 32, 128


@dataclass(frozen=True)
class Recipe:
    """How a model is trained; `task` takes the path of the text."""

    task: Callable[[Path | None], Task]
    steps: int
    coupling_init: float = 0.0
    ffn: bool = True
    lr: float = 3e-3
    coupling_lr_factor: float = 1.0


RECIPES = {
    "brackets_t8": Recipe(lambda _: BracketTask(8), 800),
    "brackets_t12": Recipe(lambda _: BracketTask(12), 800),
    "text_t8": Recipe(lambda data: ShakespeareTask(8, data), 800),
    "text_t12": Recipe(lambda data: ShakespeareTask(12, data), 800),
    "recall_p4": Recipe(lambda _: RecallTask(9), 400, 1.0, ffn=False),
    "recall_p6": Recipe(lambda _: RecallTask(13, 16, 16), 600, 1.0, ffn=False),
    "recall_p6_long": Recipe(lambda _: RecallTask(13, 16, 16), 2500, 1.0, ffn=False, lr=2e-3, coupling_lr_factor=3.0),
}


class Recorder:
    """Exact inference that keeps the last model it was asked for."""

    def __init__(self) -> None:
        self.model: IsingModel | None = None

    def solve(self, model: IsingModel) -> SpinEnsemble:
        self.model = model
        return ExactSolver().solve(model)


def rows(model: OneLayerTransformer, batch: Batch) -> IsingModel:
    """The Ising models that the last query of each sequence asks for, all keys visible: fields `(1, B, T)`."""
    recorder = Recorder()
    with torch.no_grad(), using_solver(model, recorder):
        model(batch.tokens, batch.rows[:, -1:])
    asked = recorder.model
    assert asked is not None
    assert asked.visible is None or bool(asked.visible.all()), "the last query of a window sees every key"
    return IsingModel(asked.groups.fields, asked.groups.couplings.unsqueeze(1))


def record(name: str, data: Path | None, steps: int | None = None) -> ModelSet:
    """Train a model and record its rows."""
    recipe = RECIPES[name]
    task = recipe.task(data)
    config = TrainingConfig(
        steps=steps or recipe.steps, lr=recipe.lr, coupling_lr_factor=recipe.coupling_lr_factor, seed=0
    )
    model = OneLayerTransformer.for_task(task, seed=0, coupling_init=recipe.coupling_init, ffn=recipe.ffn)
    started = time.perf_counter()
    train(model, task, config)
    seconds = time.perf_counter() - started
    model.eval()
    seen = rows(model, task.batch(data_generator(0, "train", config.steps), FIT_ROWS))
    test = task.batch(data_generator(0, "test"), max(1024, TEST_ROWS), "test")
    held_out = rows(model, test.part(0, TEST_ROWS))
    origin: dict[str, Any] = {
        "task": type(task).__name__,
        "length": task.length,
        "steps": config.steps,
        "accuracy": round(evaluate(model, test).accuracy, 4),
        "seconds": round(seconds, 1),
    }
    origin |= {key: environment()[key] for key in ("versions", "commit")}
    batches = (ModelSet.recorded(seen).batches[0], ModelSet.recorded(held_out).batches[0])
    return ModelSet(batches, {"kind": "recorded", "name": name, **origin})


def strength(models: ModelSet) -> dict[str, float]:
    """How strong the couplings and fields of the test rows are."""
    batch = models.batches[1]
    n = batch.num_spins
    first, second = torch.triu_indices(n, n, 1)
    J = batch.couplings.reshape(-1, n, n)[0]
    return {
        "rms_J": round(J[first, second].square().mean().sqrt().item(), 4),
        "max_J": round(J.abs().max().item(), 4),
        "mean_h": round(batch.fields.mean().item(), 4),
        "std_h": round(batch.fields.std().item(), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, help="a text file; fetched by default")
    parser.add_argument("--only", nargs="+", choices=sorted(RECIPES), metavar="NAME", help="these models")
    parser.add_argument("--folder", type=Path, default=MODELS)
    parser.add_argument("--steps", type=int, help="instead of those of the recipe")
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in options.only or RECIPES:
        path = options.folder / f"{name}.pt"
        if path.exists():
            continue
        models = record(name, options.data, options.steps)
        models.save(path)
        print(f"{name}: accuracy {models.origin['accuracy']:.3f}, {models.origin['seconds']:.0f} s, {strength(models)}")


if __name__ == "__main__":
    main()
