"""Access to the records of `dqa_fidelity.py`; numbers as `0.0437(4)`, the standard error of the last digit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from records import RESULTS, read

FOLDER = RESULTS / "dqa_fidelity"
Cell = tuple[float, float]
CELLS: list[Cell] = [(0.3, 0.1), (0.5, 0.1), (0.5, 0.3), (1.0, 0.3), (1.0, 0.5)]
SCHEDULES = ("linear", "fitted, weak", "fitted, middle", "fitted, broad", "adaptive")
#: The shipped ensemble that is nearest to a cell.
NEAREST = {(0.3, 0.1): "weak", (0.5, 0.1): "weak", (0.5, 0.3): "middle", (1.0, 0.3): "broad", (1.0, 0.5): "broad"}
MEAN_FIELDS = {"one_step": "one mean-field step", "naive": "naive mean field", "tap": "TAP"}


@cache
def records(part: str) -> list[dict[str, Any]]:
    """The records of one part of the grid, smaller models first."""
    return [record for path in sorted(FOLDER.glob(f"{part}_n*.jsonl")) for record in read(path)]


def place_of(folder: Path, key: Mapping[str, Any]) -> Path:
    """The file of a record: one for each part of the grid and number of spins."""
    return folder / f"{key['part']}_n{key['num_spins']:02d}.jsonl"


def merged(num_spins: int, cell: Cell, layers: int | None) -> dict[str, Any]:
    """Errors of all schedules on one cell at one depth (`None`: of everything that is not an anneal)."""
    found: dict[str, Any] = {}
    for part in ("schedules", "linear", "adaptive") if layers else ("controls",):
        for record in records(part):
            if (record["num_spins"], record["sigma_h"], record["sigma_J"], record.get("layers")) == (
                num_spins,
                *cell,
                layers,
            ):
                found |= record["errors"]
    return found


def value(
    errors: dict[str, Any], name: str, estimator: str, quantity: str = "magnetization", samples: str = "infinite"
) -> list[float] | None:
    """`[value, standard error, ...]`, if it was measured."""
    found: list[float] | None = errors.get(name, {}).get(estimator, {}).get(quantity, {}).get(samples)
    return found


def fitted(cell: Cell) -> str:
    return f"fitted, {NEAREST[cell]}"


def compact(measured: Sequence[float] | None) -> str:
    """`0.0437(4)`: the standard error counts in the last digit."""
    if measured is None:
        return ""
    number, error = measured[:2]
    if error <= 0:
        return f"{number:.4f}"
    digits = max(0, -math.floor(math.log10(error)))
    if round(error * 10**digits) == 10:  # 0.096 is (1) of the digit before
        digits -= 1
    return f"{number:.{digits}f}({round(error * 10**digits)})"


def recorded_names() -> list[str]:
    return list(dict.fromkeys(record["name"] for record in records("recorded")))


def recorded_errors(name: str, layers: int | None) -> dict[str, Any]:
    for record in records("recorded"):
        if (record["name"], record["layers"]) == (name, layers):
            found: dict[str, Any] = record["errors"]
            return found
    return {}
