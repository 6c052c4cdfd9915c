"""Which page a path asks for, and writing it whole or not at all."""

from __future__ import annotations

from pathlib import Path

from qboltz.files import write_atomically
from qboltz.report.run_folder import RunFolder, is_run

PAGE = "report.html"


def write_report(path: Path, out: Path | None = None, *, data: Path | None = None, most_examples: int = 6) -> Path:
    """Write the page of a run or of a grid; returns where it is.

    Args:
        path: the directory of a run, a directory with records of a grid, or one file of them.
        out: the page; by default ``report.html`` in the directory, or beside the file with its name.
        data: the text of a run, if it is not where the run found it.
        most_examples: of attention.

    Raises:
        OSError, ValueError: there is nothing to report, or it is damaged; the message says what.
    """
    if not path.exists():
        raise FileNotFoundError(f"No such file or directory: {path}.")
    place = out or (path / PAGE if path.is_dir() else path.with_suffix(".html"))
    if not place.parent.is_dir():
        raise FileNotFoundError(f"No such file or directory: {place.parent}, where {place.name} should go.")
    if path.is_dir() and is_run(path):
        from qboltz.report.run import run_page

        text = run_page(RunFolder.read(path, data), most_examples)
    else:
        from qboltz.report.grid import read_grid
        from qboltz.report.grid_page import grid_page

        text = grid_page(read_grid(path))
    write_atomically(place, text.encode())
    return place
