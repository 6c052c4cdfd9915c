"""Runs whose couplings may start between neighbors: what recall and the tasks of joint choice share.

Every kind of attention is tried at both learning rates on tuning seeds, and reported at the better one on others. A
rival's matrix starts where the couplings start, so that a start helps all alike.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from grid import Cell
from protocol import KINDS, TUNING_SEEDS, TUNING_TEST_SEED, outcome, train_kind
from records import read

from qboltz.tasks.base import Task

RATES = (2e-3, 6e-3)
#: Numbers over pairs learn at this multiple of the rate.
FACTOR = 3.0
WIDTH, BATCH, STEPS, SEEDS = 64, 64, 1500, 5
#: Kinds that are run from a start between neighbors too.
STARTED = ("softmax+mixing", "h+J")


def combinations(start: float) -> list[tuple[str, float]]:
    """Kinds and starts: all kinds from zero, the last two also from ``start``."""
    return [(kind, 0.0) for kind in KINDS] + [(kind, start) for kind in STARTED]


def train_cell(task: Task, kind: str, start: float, ffn: bool, lr: float, seeds: list[int], steps: int) -> Cell:
    """Train seeds ``seeds[0]`` to ``seeds[1] - 1`` side by side; what a record keeps."""
    chosen = range(*seeds)
    tuning = chosen[0] in TUNING_SEEDS
    model, curves, _ = train_kind(
        [task] * len(chosen),
        kind,
        chosen,
        lr,
        FACTOR,
        steps=steps,
        ffn=ffn,
        coupling_init=start,
        qk_norm=True,
        width=WIDTH,
        batch_size=BATCH,
        **({"test_seed": TUNING_TEST_SEED, "evaluations": 1} if tuning else {}),
    )
    result = outcome(model, curves)
    if tuning:
        return {name: result[name] for name in ("parameters", "loss", "accuracy", "note")}
    return result


def tuning_cells(fixed: Cell, start: float) -> list[Cell]:
    """Both rates for every kind and start; ``fixed`` names the task."""
    seeds = [TUNING_SEEDS[0], TUNING_SEEDS[-1] + 1]
    return [
        fixed | {"kind": kind, "start": begin, "ffn": False, "lr": lr, "seeds": seeds, "steps": STEPS}
        for kind, begin in combinations(start)
        for lr in RATES
    ]


def best_rate(path: Path, fixed: Cell, kind: str, start: float) -> float:
    """The rate with the least mean loss over the tuning seeds; a start that was not tuned takes that of its kind.

    Raises:
        LookupError: tuning of this kind is not complete.
    """
    wanted = fixed | {"kind": kind, "seeds": [TUNING_SEEDS[0], TUNING_SEEDS[-1] + 1]}
    found: dict[float, dict[float, float]] = {}
    for record in read(path):
        cell = record["cell"]
        if all(cell[name] == value for name, value in wanted.items()):
            found.setdefault(cell["start"], {})[cell["lr"]] = statistics.mean(record["loss"])
    tuned = found.get(start) or next((rates for begin, rates in found.items() if begin), None)
    if tuned is None or set(tuned) != set(RATES):
        raise LookupError(
            f"tuning of {kind} from {start} for {fixed} is not complete in {path}: run this script again."
        )
    return min(tuned, key=lambda lr: tuned[lr])


def reported(fixed: Cell, kind: str, start: float, path: Path, tuned_at: Cell, ffn: bool = False) -> Cell:
    """A cell of the reported seeds, at the rate that tuning chose."""
    rate = best_rate(path, tuned_at, kind, start)
    return fixed | {"kind": kind, "start": start, "ffn": ffn, "lr": rate, "seeds": [0, SEEDS], "steps": STEPS}


def quick_cells(fixed: Cell, start: float) -> list[Cell]:
    """Two kinds, two seeds, a few steps."""
    rest: dict[str, Any] = {"ffn": False, "lr": RATES[0], "seeds": [0, 2], "steps": 10}
    return [fixed | {"kind": kind, "start": begin} | rest for kind, begin in (("softmax", 0.0), ("h+J", start))]
