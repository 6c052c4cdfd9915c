"""Records of a grid of runs, read: cells, what was measured for each seed, and cells that differ only in the kind."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from qboltz.experiments.paired import Interval, difference, interval
from qboltz.report.lines import read_lines
from qboltz.report.run_folder import is_run

#: What a cell is compared with.
REFERENCE = "softmax"
QUANTITIES = ("accuracy", "loss")


@dataclass(frozen=True)
class Cell:
    """One cell of a grid over its seeds.

    Attributes:
        options: what it is, without kind and seed.
        kind: of attention, if the grid varies it.
        values: of each quantity, by seed.
        record: what else was recorded (of the last seed, where each has its own record).
        seconds: of all its runs.
    """

    options: Mapping[str, Any]
    kind: str | None
    values: Mapping[str, Mapping[int, float]]
    record: Mapping[str, Any] = field(repr=False)
    seconds: float = 0.0

    def interval(self, quantity: str) -> Interval | None:
        """Of the mean over seeds."""
        values = self.values.get(quantity)
        return interval(list(values.values())) if values else None

    def minus(self, other: Cell, quantity: str) -> Interval | None:
        """Of the paired difference; ``None`` unless both have the quantity on the same seeds."""
        own, others = self.values.get(quantity, {}), other.values.get(quantity, {})
        if not own or own.keys() != others.keys():
            return None
        return difference([own[seed] for seed in own], [others[seed] for seed in own])


@dataclass(frozen=True)
class Grid:
    """The cells of one benchmark.

    Attributes:
        name: of the benchmark.
        cells: in the order of their records.
        records: all of them.
        repeated: records that a later one of the same cell has replaced.
    """

    name: str
    cells: Sequence[Cell]
    records: Sequence[Mapping[str, Any]] = field(repr=False)
    repeated: int = 0

    @cached_property
    def varied(self) -> list[str]:
        """Options that differ between cells."""
        names = dict.fromkeys(name for cell in self.cells for name in cell.options)
        return [name for name in names if len({_key(cell.options.get(name)) for cell in self.cells}) > 1]

    @cached_property
    def fixed(self) -> dict[str, Any]:
        """Options that all cells share."""
        return {name: value for name, value in self.cells[0].options.items() if name not in self.varied}

    def groups(self, leave_out: str | None = None) -> list[list[Cell]]:
        """Cells that differ in nothing but their kind (and the option that is left out)."""
        found: dict[str, list[Cell]] = {}
        for cell in sorted(self.cells, key=lambda cell: [_order(cell.options.get(name)) for name in self.varied]):
            kept = {name: value for name, value in cell.options.items() if name != leave_out}
            found.setdefault(_key(kept), []).append(cell)
        return list(found.values())

    def in_order(self) -> list[Cell]:
        """All cells, group by group."""
        return [cell for group in self.groups() for cell in group]

    def reference(self, cell: Cell) -> Cell | None:
        """The cell that differs from this one only in that its kind is softmax."""
        if cell.kind in (None, REFERENCE):
            return None
        same = (one for one in self.cells if one.kind == REFERENCE and one.options == cell.options)
        return next(same, None)

    def label(self, cell: Cell) -> str:
        """The options in which its group differs from others."""
        return ", ".join(f"{name.replace('_', ' ')} {plain(cell.options.get(name))}" for name in self.varied)


@dataclass(frozen=True)
class Grids:
    """All that was found below a path.

    Attributes:
        path: where.
        grids: by benchmark.
        notes: what was left out, and why.
    """

    path: Path
    grids: Sequence[Grid]
    notes: Sequence[str]


def read_grid(path: Path) -> Grids:
    """The grids in a file of JSON lines, or in all files ``*.jsonl`` of a directory.

    Raises:
        OSError, ValueError: there is none, or a file is damaged.
    """
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    if not files:
        raise ValueError(_nothing(path))
    notes: list[str] = []
    records: dict[str, list[dict[str, Any]]] = {}
    for file in files:
        lines = read_lines(file)
        if lines.torn:
            notes.append(f"The last line of {file.name} is half written and left out: the grid may still be running.")
        with_cell = [record for record in lines.records if isinstance(record.get("cell"), dict)]
        if len(with_cell) < len(lines.records):
            count = len(lines.records) - len(with_cell)
            notes.append(f"{count} records of {file.name} name no cell: they are none of a grid, and are not shown.")
        for record in with_cell:
            records.setdefault(str(record.get("benchmark", file.stem)), []).append(record)
    if not records:
        said = " ".join(notes) or f"{', '.join(file.name for file in files)}: empty."
        raise ValueError(f"{path} holds no record of a grid (an object with a 'cell'). {said}")
    return Grids(path, [_grid(name, found) for name, found in records.items()], notes)


def plain(value: object) -> str:
    """A value of an option as people write it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _grid(name: str, records: Sequence[dict[str, Any]]) -> Grid:
    last = {_key(record["cell"]): record for record in records}  # a cell that was run again counts once
    found: dict[str, list[dict[str, Any]]] = {}
    for record in last.values():
        found.setdefault(_key({k: v for k, v in record["cell"].items() if k != "seed"}), []).append(record)
    return Grid(name, [_cell(group) for group in found.values()], list(last.values()), len(records) - len(last))


def _cell(records: Sequence[dict[str, Any]]) -> Cell:
    """Of records that differ in their seed alone."""
    options = {name: value for name, value in records[-1]["cell"].items() if name not in ("kind", "seed")}
    values: dict[str, dict[int, float]] = {quantity: {} for quantity in QUANTITIES}
    for record in records:
        for quantity in QUANTITIES:
            measured, seed = record.get(quantity), record["cell"].get("seed", 0)
            if isinstance(measured, list):
                values[quantity] |= dict(enumerate(map(float, measured)))
            elif isinstance(measured, (int, float)):
                values[quantity][seed] = float(measured)
    seconds = sum(float(record.get("seconds", 0)) for record in records)
    kind = records[-1]["cell"].get("kind")
    return Cell(options, kind, {name: known for name, known in values.items() if known}, records[-1], seconds)


def _order(value: object) -> tuple[int, float, str]:
    """Numbers by size, before words by the alphabet."""
    return (0, value, "") if isinstance(value, (int, float)) else (1, 0, str(value))


def _key(value: object) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _nothing(path: Path) -> str:
    runs = sorted(entry.name for entry in path.iterdir() if entry.is_dir() and is_run(entry))
    if runs:
        return f"{path} holds runs, {', '.join(runs[:5])}{', ...' if len(runs) > 5 else ''}: give one of them."
    return f"{path} holds neither a run (checkpoint.pt, metrics.jsonl or summary.json) nor records of a grid (*.jsonl)."
