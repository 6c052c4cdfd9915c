"""The command ``qboltz report``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_report_parser(subparsers: Any) -> None:
    """Add the command to the parsers of ``qboltz``."""
    text = "one self-contained HTML page of a run or a grid: curves, couplings, attention, fidelity, circuit, costs"
    parser = subparsers.add_parser("report", help=text, description=text)
    add = parser.add_argument
    add("path", type=Path, metavar="DIR", help="directory of a run; directory, or one file, of records of a grid")
    add("--out", type=Path, metavar="FILE", help="the page (DIR/report.html)")
    add("--data", type=Path, metavar="FILE", help="the text of a run, if it is not where the run found it")
    add("--examples", type=int, default=6, metavar="N", help="sequences with their attention, at most (6)")
    parser.set_defaults(run=_report)


def _report(arguments: argparse.Namespace) -> None:
    from qboltz.report.write import write_report

    if arguments.examples < 1:
        raise ValueError(f"--examples must be at least 1, got {arguments.examples}.")
    page = write_report(arguments.path, arguments.out, data=arguments.data, most_examples=arguments.examples)
    print(f"{page} is written ({page.stat().st_size / 1e3:,.0f} kB)")
