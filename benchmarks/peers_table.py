"""Tables of the comparison with peers, in markdown: ours from their own cells, peers from theirs.

Ratios are to this package in the same rounds. Cells of the fewest rows are shown for what is not run with more.
"""

from __future__ import annotations

import statistics
from typing import Any

from markdown_table import table as markdown

Record = dict[str, Any]


def table(records: list[Record]) -> str:
    """What each method computes, the layer, and exact inference."""
    return "\n".join(part(records) for part in (computes_table, layer_table, exact_table))


def computes_table(records: list[Record]) -> str:
    computes = {name: values["computes"] for _, name, values, _ in _shown(records)}
    return markdown(["method", "what its numbers are"], [[name, text] for name, text in computes.items()])


def layer_table(records: list[Record]) -> str:
    """Rms error of ``m`` and relative errors of the gradients, against Boltzmann and against the circuits' own."""
    head = ["forward and backward", "n", "rows", "processor time", "circuits", "times ours"]
    head += ["error of m", "of dL/dh, dL/dJ", "of these, against the circuits' own"]
    lines = []
    for cell, name, values, methods in _shown(records):
        line = [name, str(cell["num_spins"]), str(cell["rows"])]
        lines.append(line + (["not run: " + values["not_run"], *[""] * 5] if "not_run" in values else []))
        if "not_run" not in values:
            lines[-1] += _layer_cells(values, methods)
    return markdown(head, lines)


def _shown(records: list[Record]) -> list[tuple[Record, str, Record, dict[str, Record]]]:
    """Cell, name, values and all methods of the cell, in the order of the table."""
    found = []
    for record in records:
        cell, methods = record["cell"], record["methods"]
        if cell["part"] == "layer":
            beside = {ours for values in methods.values() for ours in values.get("beside", ())}
            found += [(cell, name, values, methods) for name, values in methods.items() if name not in beside]
    runs: dict[tuple[str, int], list[int]] = {}
    for cell, name, values, _ in found:
        runs.setdefault((name, cell["num_spins"]), []).extend([cell["rows"]] if "not_run" not in values else [])
    fewest = min((cell["rows"] for cell, *_ in found), default=0)
    names = list(dict.fromkeys(name for _, name, *_ in found))
    shown = [
        entry for entry in found if entry[0]["rows"] > fewest or set(runs[entry[1], entry[0]["num_spins"]]) == {fewest}
    ]
    return sorted(shown, key=lambda entry: (names.index(entry[1]), entry[0]["num_spins"], entry[0]["rows"]))


def _layer_cells(values: Record, methods: dict[str, Record]) -> list[str]:
    exact, circuit = values["against_boltzmann"], values["against_circuit"]
    return [
        _seconds(values["median_seconds"]),
        f"{values['circuits']:,}" if "circuits" in values else f"0 ({values['models']:,} models sampled)",
        ", ".join(f"{ratio(values, methods[ours]):.3g} x {ours}" for ours in values["beside"]),
        f"{exact['magnetization_rmse']:.2g}",
        f"{exact['grad_fields']:.2g}, {exact['grad_pairs']:.2g}",
        "" if "no circuit" in values["computes"] else f"{circuit['grad_fields']:.2g}, {circuit['grad_pairs']:.2g}",
    ]


def ratio(theirs: Record, ours: Record) -> float:
    """Median over the rounds of the ratio within a round."""
    ratios: list[float] = [a / b for a, b in zip(theirs["seconds"], ours["seconds"], strict=True)]
    return statistics.median(ratios)


def exact_table(records: list[Record]) -> str:
    """Seconds per model, one at a time, and how many times ours in the same rounds, one at a time too."""
    found = [record for record in records if record["cell"]["part"] == "exact"]
    sizes = sorted({record["cell"]["num_spins"] for record in found})
    cells: dict[str, dict[int, list[str]]] = {}
    worst: dict[str, float] = {}
    for record in found:
        size, (ours, *_) = record["cell"]["num_spins"], record["methods"]
        for name, values in record["methods"].items():
            text = _seconds(values["median_seconds"])
            if name != ours:
                text += f" ({ratio(values, record['methods'][ours]):.3g} x)"
            cells.setdefault(name, {}).setdefault(size, []).append(text)
            worst[name] = max(worst.get(name, 0.0), values["largest_difference"])
    head = ["exact magnetizations, processor time per model", *(f"n = {size}" for size in sizes), "largest difference"]
    lines = [
        [name, *(", ".join(by_size.get(size, [])) for size in sizes), f"{worst[name]:.1g}"]
        for name, by_size in cells.items()
    ]
    return markdown(head, lines)


def _seconds(value: float) -> str:
    return f"{value:.3g} s" if value >= 1 else f"{1e3 * value:.3g} ms"
