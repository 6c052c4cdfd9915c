"""What the evidence says: figures per seed from the records of the grids, and their paired differences."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from bracket_matching import MAIN
from paired import Interval, difference, interval
from records import RESULTS, read

Record = dict[str, Any]
TEXT_LENGTHS, BRACKET_LENGTHS = (4, 6, 8, 10, 12, 16, 20), (8, 10, 12, 14, 16, 20)


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
    found = {length: gap_at(records, length, kind, measure, base) for length in lengths}
    return {length: gap for length, gap in found.items() if gap is not None}


def gap_at(
    records: Callable[[int, str], Record | None],
    length: int,
    kind: str,
    measure: Callable[[Record, Record], Interval],
    base: str = "softmax",
) -> Interval | None:
    """A paired difference at one length, ``None`` unless both have been run."""
    record, other = records(length, kind), records(length, base)
    return None if record is None or other is None else measure(record, other)


def text(length: int, kind: str) -> Record | None:
    return one("length_scaling", length=length, kind=kind)


def brackets(ffn: bool, **form: Any) -> Callable[[int, str], Record | None]:
    """Records by length and kind, in one form of the task."""
    chosen = MAIN | form
    return lambda length, kind: one("bracket_matching", length=length, kind=kind, ffn=ffn, **chosen)


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
