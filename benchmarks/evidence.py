"""What the evidence says: figures per seed from the records of the grids, and their paired differences."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from paired import Interval, difference, interval
from protocol import KINDS
from records import RESULTS, read

Record = dict[str, Any]
TEXT_LENGTHS, BRACKET_LENGTHS = (4, 6, 8, 10, 12, 16, 20), (8, 10, 12, 14, 16, 20)
MAIN_FORM = {"kinds": 1, "form": "marked"}


def find(name: str, folder: Path = RESULTS, **cell: Any) -> list[Record]:
    """Records of a grid whose cells have these entries."""
    records = read(folder / f"{name}.jsonl")
    return [record for record in records if all(record["cell"].get(key) == value for key, value in cell.items())]


def one(name: str, folder: Path = RESULTS, **cell: Any) -> Record | None:
    """The record of one cell, ``None`` if it has not been run.

    Raises:
        LookupError: several cells fit.
    """
    found = find(name, folder, **cell)
    if len(found) > 1:
        raise LookupError(f"one cell of {name} must fit {cell}, got {len(found)}.")
    return found[0] if found else None


def perplexities(record: Record) -> list[float]:
    """Of every seed."""
    return [math.exp(loss) for loss in record["loss"]]


def accuracies(record: Record) -> list[float]:
    """Of every seed, in percent."""
    return [100 * value for value in record["accuracy"]]


def percent_gap(record: Record, other: Record) -> Interval:
    """How much lower the perplexity is than that of ``other``, percent, seed by seed."""
    pairs = zip(record["loss"], other["loss"], strict=True)
    return interval([100 * (1 - math.exp(loss - base)) for loss, base in pairs])


def point_gap(record: Record, other: Record) -> Interval:
    """Accuracy minus that of ``other``, points, seed by seed."""
    return difference(accuracies(record), accuracies(other))


def across(
    records: Callable[[int, str], Record | None],
    lengths: Sequence[int],
    kind: str,
    measure: Callable[[Record, Record], Interval],
    base: str = "softmax",
) -> dict[int, Interval]:
    """A paired difference at every length that has been run."""
    found = {}
    for length in lengths:
        record, other = records(length, kind), records(length, base)
        if record is not None and other is not None:
            found[length] = measure(record, other)
    return found


def text(length: int, kind: str) -> Record | None:
    return one("length_scaling", length=length, kind=kind)


def brackets(ffn: bool, **form: Any) -> Callable[[int, str], Record | None]:
    """Records by length and kind, in one form of the task."""
    chosen = MAIN_FORM | form
    return lambda length, kind: one("bracket_matching", length=length, kind=kind, ffn=ffn, **chosen)


def growth(gaps: dict[int, Interval]) -> float | None:
    """Slope of the mean differences against length, per token, by least squares; ``None`` for fewer than three."""
    if len(gaps) < 3:
        return None
    return float(np.polyfit(list(gaps), [gap.mean for gap in gaps.values()], 1)[0])


def steps_to(record: Record, accuracy: float) -> list[float]:
    """Steps of each seed until the curve first reaches ``accuracy``; infinite if it does not."""
    curves = np.array(record["curve_accuracy"])  # (E, S)
    steps = np.array(record["curve_steps"], dtype=float)
    reached = curves >= accuracy
    return [float(steps[column.argmax()]) if column.any() else math.inf for column in reached.T]


def pair_matrix(record: Record) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The numbers over pairs of each seed as symmetric matrices, ``(S, T, T)``."""
    pairs = np.array(record["pairs"])
    length = round((1 + math.sqrt(1 + 8 * pairs.shape[1])) / 2)
    dense = np.zeros((len(pairs), length, length))
    first, second = np.triu_indices(length, 1)
    dense[:, first, second] = pairs
    return dense + dense.swapaxes(1, 2)


def by_distance(record: Record) -> dict[int, Interval]:
    """Mean number over pairs at each distance, with the interval over seeds."""
    dense = pair_matrix(record)
    return {
        d: interval(np.diagonal(dense, d, 1, 2).mean(1).tolist())  # (S,)
        for d in range(1, dense.shape[1])
    }


def kinds_run(records: Callable[[int, str], Record | None], lengths: Sequence[int]) -> list[str]:
    """Kinds with a record at some of the lengths."""
    return [kind for kind in KINDS if any(records(length, kind) is not None for length in lengths)]
