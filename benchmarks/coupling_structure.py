"""Learned couplings against the distance of their positions: positive at 2 to 4, negative from 6, as the paper says?

    python benchmarks/coupling_structure.py [--quick] [--jobs N] [--dask ADDRESS] [--data FILE]

Its models are those of `length_scaling.py` and `bracket_matching.py` with couplings: what their records lack is run and
appended there. Prints mean couplings with intervals over seeds; the figure is made by `evidence_figures.py`.
"""

from __future__ import annotations

from typing import Any

import bracket_matching
import length_scaling
from evidence import by_distance, find
from evidence_tables import structure
from grid import options, run_grid
from markdown_table import table
from records import RESULTS

#: Lengths of the text and of the brackets (without a feed-forward layer) whose couplings are shown.
LENGTHS = (12, 16)


def main() -> None:
    given = options(__doc__, "coupling_structure")
    more: dict[str, Any] = {"jobs": given.jobs, "dask": given.dask}
    if given.quick:
        cells = [cell for cell in bracket_matching.cells(True) if cell["kind"] == "h+J"]
        run_grid("coupling_structure", cells, bracket_matching.run, given.out, **more)
        found = by_distance(find(given.out.stem, given.out.parent)[0])
        return print(table(["distance", "mean J"], [[str(d), gap.text(3, True)] for d, gap in found.items()]))
    text = length_scaling.Run(None if given.data is None else str(given.data))
    cells = [cell for cell in length_scaling.cells(False) if cell["kind"] == "h+J" and cell["length"] in LENGTHS]
    run_grid("length_scaling", cells, text, RESULTS / "length_scaling.jsonl", **more)
    cells = [
        cell
        for cell in bracket_matching.cells(False)
        if cell["kind"] == "h+J" and cell["length"] in LENGTHS and cell["form"] == "marked" and cell["kinds"] == 1
    ]
    run_grid("bracket_matching", cells, bracket_matching.run, RESULTS / "bracket_matching.jsonl", **more)
    print(structure())


if __name__ == "__main__":
    main()
