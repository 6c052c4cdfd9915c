"""The protocol of the evidence, as code: what ``docs/protocol.md`` fixes in words. Every claim's script imports it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import torch
from records import RESULTS, read
from torch import Tensor

from qboltz.experiments.optimization import TrainingConfig, data_generator
from qboltz.experiments.side_by_side import Curves, stacked, train_side_by_side
from qboltz.experiments.stacked import StackedTransformer
from qboltz.tasks import make_task
from qboltz.tasks.base import Batch, Task

KINDS = ("softmax", "softmax+bias", "softmax+mixing", "h-only", "h+bias", "J-only", "h+J")
#: Kinds with a number per pair of positions: half of their budget of tuning goes to its own learning rate.
WITH_PAIRS = ("softmax+bias", "softmax+mixing", "h+bias", "J-only", "h+J")

#: Six settings (learning rate, factor for the numbers over pairs) for every kind; text, which costs most, has four.
TUNING_WITHOUT_PAIRS = [(lr, 1.0) for lr in (1e-3, 2e-3, 4e-3, 8e-3, 16e-3, 32e-3)]
TUNING_WITH_PAIRS = [(lr, factor) for lr in (2e-3, 6e-3, 18e-3) for factor in (1.0, 10.0)]
TEXT_WITHOUT_PAIRS, TEXT_WITH_PAIRS = TUNING_WITHOUT_PAIRS[1:5], TUNING_WITH_PAIRS[2:]
TUNING_SEEDS = (1000, 1001, 1002)

STEPS = {"brackets": 1500, "shakespeare": 1500}
WIDTHS = {"brackets": 32, "shakespeare": 64}
BATCHES = {"brackets": 64, "shakespeare": 32}
TUNED_LENGTH = {"brackets": 12, "shakespeare": 12}
#: Test sequences, the same for all kinds and seeds; those of tuning are others.
TEST_SIZE, TEST_SEED, TUNING_TEST_SEED = 2048, 77_001, 77_002
#: Evaluations on the way: steps to 95 % are reported for brackets.
EVALUATIONS = {"brackets": 20, "shakespeare": 5}
EVALUATIONS_ELSEWHERE = 15


def settings(task: str, kind: str) -> list[tuple[float, float]]:
    """What is tried for a kind: as many settings, whichever it is."""
    if task == "shakespeare":
        return TEXT_WITH_PAIRS if kind in WITH_PAIRS else TEXT_WITHOUT_PAIRS
    return TUNING_WITH_PAIRS if kind in WITH_PAIRS else TUNING_WITHOUT_PAIRS


def train_kind(
    tasks: Sequence[Task],
    kind: str,
    seeds: Sequence[int],
    lr: float,
    factor: float,
    *,
    steps: int,
    test_seed: int = TEST_SEED,
    ffn: bool = True,
    coupling_init: float | Tensor = 0.0,
    qk_norm: bool = False,
    width: int | None = None,
    batch_size: int | None = None,
    evaluations: int | None = None,
) -> tuple[StackedTransformer, Curves, Batch]:
    """Train all seeds of one kind side by side, each on its task; the model, its curves and the test sequences."""
    task = tasks[0]
    model = StackedTransformer.for_task(
        task,
        kind,  # type: ignore[arg-type]
        seeds,
        width=width or WIDTHS[task.name],
        ffn=ffn,
        coupling_init=coupling_init,
        qk_norm=qk_norm,
    )
    config = TrainingConfig(
        steps=steps, batch_size=batch_size or BATCHES[task.name], lr=lr, coupling_lr_factor=factor, warmup=0.1
    )
    test = stacked(each.batch(data_generator(test_seed, "test"), TEST_SIZE, "test") for each in tasks)
    every = max(1, steps // (evaluations or EVALUATIONS.get(task.name, EVALUATIONS_ELSEWHERE)))
    return model, train_side_by_side(model, tasks, config, seeds, test, evaluate_every=every), test


def outcome(model: StackedTransformer, curves: Curves) -> dict[str, Any]:
    """What a record keeps of a stack: final figures and curves seed by seed, and the numbers over pairs."""
    matrix = model.couplings
    result: dict[str, Any] = {
        "parameters": model.num_parameters,
        "loss": curves.loss[-1],
        "accuracy": curves.accuracy[-1],
        "curve_steps": curves.steps,
        "curve_loss": [[round(value, 5) for value in row] for row in curves.loss],
        "curve_accuracy": [[round(value, 5) for value in row] for row in curves.accuracy],
        "note": f"accuracy {statistics.mean(curves.accuracy[-1]):.4f}, loss {statistics.mean(curves.loss[-1]):.4f}",
    }
    if matrix is not None:
        first, second = torch.triu_indices(model.length, model.length, 1)
        pairs = matrix.detach()[:, first, second]
        result["pairs"] = [[round(value, 4) for value in row] for row in pairs.tolist()]
    return result


def best_setting(task: str, kind: str, ffn: bool) -> tuple[float, float]:
    """The setting with the least mean loss over the tuning seeds.

    Raises:
        LookupError: tuning of this kind is not complete.
    """
    found = {}
    for record in read(RESULTS / "tuning.jsonl"):
        cell = record["cell"]
        if (cell["task"], cell["kind"], cell["ffn"]) == (task, kind, ffn):
            found[cell["lr"], cell["factor"]] = statistics.mean(record["loss"])
    missing = [setting for setting in settings(task, kind) if setting not in found]
    if missing:
        raise LookupError(f"tuning of {kind} on {task} (ffn={ffn}) lacks {missing}: run benchmarks/tuning.py first.")
    return min(found, key=lambda setting: found[setting])


def make(task: str, length: int, data: str | None = None, **options: Any) -> Task:
    """A task of the protocol: brackets of one kind, marked, unless said otherwise."""
    if task == "brackets":
        return make_task(task, length=length, **({"kinds": 1, "form": "marked"} | options))
    if task == "shakespeare":
        return make_task(task, length=length, data=data, **options)
    return make_task(task, length=length, **options)
