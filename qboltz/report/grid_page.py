"""The page of a grid: tables and paired differences, curves, couplings, seconds, environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from qboltz.experiments.paired import Interval, intervals
from qboltz.report.costs import environment_of_records
from qboltz.report.couplings import couplings_of_grid
from qboltz.report.grid import QUANTITIES, REFERENCE, Cell, Grid, Grids, plain
from qboltz.report.page import Html, Section, element, facts, figure, note, page, paragraph, table
from qboltz.report.pictures import Band, bands

#: Groups of cells that get figures of their own.
MOST_GROUPS = 24
#: Options that say how much was done, not what.
_EFFORT = ("seeds", "steps")
DIGITS = {"accuracy": 3, "loss": 4}


def grid_page(found: Grids) -> str:
    """HTML of all grids of a path, a group of sections each."""
    many = len(found.grids) > 1
    sections: list[Section] = []
    for grid in found.grids:
        prefix = f"{grid.name}: " if many else ""
        axis = axis_of(grid)
        parts = [
            ("results", _summary(grid)),
            (f"against {axis}".replace("_", " "), [] if axis is None else _trend(grid, axis)),
            ("learning curves", _curves(grid)),
            ("couplings", _couplings(grid)),
            ("costs and environment", _costs(grid)),
        ]
        sections += [
            Section((prefix + title).capitalize() if not many else prefix + title, part)
            for title, part in parts
            if part
        ]
    names = ", ".join(grid.name for grid in found.grids)
    cells = sum(len(grid.cells) for grid in found.grids)
    head = [paragraph(f"{names}: {cells} cells.", class_="lead"), *(note(said) for said in found.notes)]
    return page(f"Grid {found.path.resolve().name}", head, sections)


def _summary(grid: Grid) -> list[Html]:
    known = [name for name in QUANTITIES if any(name in cell.values for cell in grid.cells)]
    compared = any(grid.reference(cell) for cell in grid.cells)
    said = "Means over seeds with 95 % bootstrap intervals."
    if compared:
        said += (
            f" Differences are paired, seed by seed, with the cell that differs only in having {REFERENCE} attention; "
            "those whose interval leaves out zero are bold."
        )
    parts = [paragraph(said)]
    if grid.fixed:
        same = "; ".join(f"{name.replace('_', ' ')} {plain(value)}" for name, value in grid.fixed.items())
        parts.insert(0, paragraph(f"The same in all cells: {same}."))
    if grid.repeated:
        parts.append(note(f"{grid.repeated} records were replaced by later ones of the same cell."))
    for quantity in known:
        parts += [element("h3", quantity.capitalize()), _table(grid, quantity, compared)]
    return parts if known else [*parts, note("The records hold neither accuracy nor loss.")]


def _table(grid: Grid, quantity: str, compared: bool) -> Html:
    """A row for each cell; cells that differ in their kind alone stand together."""
    counts = [len(cell.values.get(quantity, {})) for cell in grid.cells]
    head = [*_names(grid), *(["seeds"] if len(set(counts)) > 1 else []), quantity]
    head += [f"minus {REFERENCE}"] if compared else []
    guessed = quantity == "accuracy" and any("chance" in cell.record for cell in grid.cells)
    head += ["chance"] if guessed else []
    rows = []
    for cell in grid.in_order():
        row: list[object] = _values(grid, cell)
        row += [len(cell.values.get(quantity, {}))] if "seeds" in head[len(_names(grid)) :] else []
        row.append(_text(cell.interval(quantity), quantity))
        if compared:
            other = grid.reference(cell)
            row.append(_difference(None if other is None else cell.minus(other, quantity), quantity))
        if guessed:
            chance = cell.record.get("chance")
            row.append("" if chance is None else f"{chance:.3f}")
        rows.append(row)
    return table(head, rows, f"{counts[0]} seeds in every cell" if len(set(counts)) == 1 else None)


def _names(grid: Grid) -> list[str]:
    """Heads of the columns that tell cells apart."""
    kinds = any(cell.kind is not None for cell in grid.cells)
    return [*(name.replace("_", " ") for name in grid.varied), *(["kind"] if kinds else [])]


def _values(grid: Grid, cell: Cell) -> list[object]:
    kinds = any(one.kind is not None for one in grid.cells)
    return [*(plain(cell.options.get(name, "")) for name in grid.varied), *([cell.kind or ""] if kinds else [])]


def _text(found: Interval | None, quantity: str) -> str:
    if found is None:
        return ""
    return f"{found.mean:.{DIGITS[quantity]}f}" if found.low == found.high else found.text(DIGITS[quantity])


def _difference(found: Interval | None, quantity: str) -> Html | str:
    if found is None:
        return ""
    said = found.text(DIGITS[quantity], sign=True)
    return element("strong", said) if found.side else said


def axis_of(grid: Grid) -> str | None:
    """The numeric option that takes most values, at least three: what the others are drawn against."""
    numeric = {
        name: {cell.options[name] for cell in grid.cells}
        for name in grid.varied
        if name not in _EFFORT and all(_is_number(cell.options.get(name)) for cell in grid.cells)
    }
    name = max(numeric, key=lambda option: len(numeric[option]), default=None)
    return name if name is not None and len(numeric[name]) >= 3 else None


def _trend(grid: Grid, name: str) -> list[Html]:
    """Quantities against an option, a figure for each setting of the others."""
    span = [float(cell.options[name]) for cell in grid.cells]
    log = min(span) > 0 and max(span) >= 10 * min(span)
    parts = []
    groups = _groups_apart_from(grid, name)
    for title, cells in list(groups.items())[:MOST_GROUPS]:
        panels = {}
        for quantity in QUANTITIES:
            lines = {}
            for kind in dict.fromkeys(cell.kind for cell in cells):
                of_kind = sorted(
                    (c for c in cells if c.kind == kind and quantity in c.values), key=lambda c: c.options[name]
                )
                if of_kind:
                    lines[kind or "mean"] = _band(
                        [c.options[name] for c in of_kind], [c.interval(quantity) for c in of_kind]
                    )
            if lines:
                panels[quantity] = lines
        if panels and any(len(band.x) > 1 for lines in panels.values() for band in lines.values()):
            caption = f"{title or 'All cells'}: mean over seeds and 95 % intervals, against {name.replace('_', ' ')}."
            parts.append(figure(bands(panels, name.replace("_", " "), log_x=log), caption))
    return parts


def _groups_apart_from(grid: Grid, name: str) -> dict[str, list[Cell]]:
    """Cells by the options that vary, except ``name`` and what follows from it (as seeds may)."""
    others = [option for option in grid.varied if option != name and option not in _EFFORT]
    found: dict[str, list[Cell]] = {}
    for cell in grid.cells:
        title = ", ".join(f"{option.replace('_', ' ')} {plain(cell.options.get(option))}" for option in others)
        found.setdefault(title, []).append(cell)
    return found


def _curves(grid: Grid) -> list[Html]:
    parts = []
    for cells in grid.groups()[:MOST_GROUPS]:
        panels: dict[str, dict[str, Band]] = {}
        for cell in cells:
            steps = cell.record.get("curve_steps")
            for quantity in QUANTITIES:
                curve = cell.record.get(f"curve_{quantity}")
                if steps and curve:
                    lines = panels.setdefault(f"test {quantity}", {})
                    lines[cell.kind or "mean"] = Band(steps, *intervals(np.asarray(curve, dtype=float).T))
        if panels:
            caption = f"{grid.label(cells[0]) or 'All cells'}: mean over seeds and 95 % intervals during training."
            parts.append(figure(bands(panels, "step"), caption))
    return _with_rest(parts, grid)


def _couplings(grid: Grid) -> list[Html]:
    parts: list[Html] = []
    for cells in grid.groups()[:MOST_GROUPS]:
        pairs = {cell.kind or "J": cell.record["pairs"] for cell in cells if cell.record.get("pairs")}
        if pairs:
            title = element("h3", grid.label(cells[0]) or "All cells")
            parts += [title, *couplings_of_grid(pairs)]
    return _with_rest(parts, grid)


def _with_rest(parts: list[Html], grid: Grid) -> list[Html]:
    rest = len(grid.groups()) - MOST_GROUPS
    return [*parts, note(f"{rest} more groups of cells are in the table alone.")] if parts and rest > 0 else parts


def _costs(grid: Grid) -> list[Html]:
    seconds = sum(cell.seconds for cell in grid.cells)
    longest = max(grid.cells, key=lambda cell: cell.seconds)
    which = ", ".join(part for part in (grid.label(longest), longest.kind or "") if part)
    pairs = [
        ("cells", str(len(grid.cells))),
        ("seconds in all", f"{seconds:,.0f}"),
        ("longest cell", f"{longest.seconds:,.1f} s{f' ({which})' if which else ''}"),
        *environment_of_records(grid.records),
    ]
    sized = any("parameters" in cell.record for cell in grid.cells)
    head = [*_names(grid), *(["parameters"] if sized else []), "seconds"]
    rows = [
        [*_values(grid, cell), *([cell.record.get("parameters", "")] if sized else []), f"{cell.seconds:.1f}"]
        for cell in grid.in_order()
    ]
    return [facts(pairs), table(head, rows)]


def _band(x: Sequence[Any], found: Sequence[Interval | None]) -> Band:
    known = [one for one in found if one is not None]
    mean, low, high = (np.array([one[index] for one in known]) for index in range(3))
    return Band([float(value) for value in x], mean, low, high)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
