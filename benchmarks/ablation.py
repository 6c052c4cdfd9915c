"""The four-way table of the paper (softmax, h-only, J-only, h+J), with the classical rivals of J, on both tasks.

    python benchmarks/ablation.py [--quick] [--jobs N] [--dask ADDRESS] [--data FILE]

Its cells are those of `length_scaling.py` and `bracket_matching.py` at T = 12 and 16: what their records lack is run
and appended there. Prints the table; with --quick, that of a few steps on short sequences.
"""

from __future__ import annotations

from typing import Any

import bracket_matching
import length_scaling
from evidence import accuracies, find
from evidence_tables import ablation
from grid import Cell, options, run_grid
from markdown_table import table
from paired import interval
from protocol import KINDS
from records import RESULTS

LENGTHS = (12, 16)


def text_cells() -> list[Cell]:
    """Every kind at both lengths."""
    return [cell for cell in length_scaling.cells(False) if cell["length"] in LENGTHS]


def bracket_cells() -> list[Cell]:
    """Every kind at both lengths, with and without the feed-forward layer, in the main form."""
    form = bracket_matching.MAIN
    return [
        cell
        for cell in bracket_matching.cells(False)
        if cell["length"] in LENGTHS and all(cell[key] == value for key, value in form.items())
    ]


def main() -> None:
    given = options(__doc__, "ablation")
    more: dict[str, Any] = {"jobs": given.jobs, "dask": given.dask}
    if given.quick:
        base = bracket_matching.cells(True)[0]
        cells = [base | {"kind": kind} for kind in KINDS]
        run_grid("ablation", cells, bracket_matching.run, given.out, **more)
        found = find(given.out.stem, given.out.parent)
        rows = [[f"`{record['cell']['kind']}`", interval(accuracies(record)).text(1)] for record in found]
        return print(table(["accuracy, percent", f"brackets, T = {base['length']}"], rows))
    text = length_scaling.Run(None if given.data is None else str(given.data))
    run_grid("length_scaling", text_cells(), text, RESULTS / "length_scaling.jsonl", **more)
    run_grid("bracket_matching", bracket_cells(), bracket_matching.run, RESULTS / "bracket_matching.jsonl", **more)
    print(ablation())


if __name__ == "__main__":
    main()
