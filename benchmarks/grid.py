"""A grid of runs: each cell once, recorded as soon as it is done, on this machine or on a Dask cluster.

A cell is a dictionary of plain values; a record holds it under ``"cell"`` beside what ``run(**cell)`` returned. Cells
that the file already holds are not run again, so that an interrupted grid goes on where it stopped. Cells are handed
out by joblib: ``jobs`` processes here, or with ``dask`` the workers of the scheduler at that address, which must have
this folder and the package on their path; a cell whose worker dies is run again elsewhere.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import joblib
import torch
from records import append, environment, place, read

Cell = dict[str, Any]


def key(cell: Cell) -> str:
    """Equal cells have equal keys, whatever the order of their entries."""
    return json.dumps(cell, sort_keys=True)


def run_grid(
    benchmark: str,
    cells: Iterable[Cell],
    run: Callable[..., dict[str, Any]],
    out: Path,
    *,
    jobs: int = 1,
    dask: str | None = None,
) -> None:
    """Run what is missing in ``out``, in order; one record per cell, appended when it is done.

    Args:
        benchmark: name in the records.
        cells: all of them, finished or not.
        run: a function of a module (workers import it); its arguments are the entries of a cell.
        out: a file of JSON lines.
        jobs: processes on this machine.
        dask: address of a Dask scheduler, instead.
    """
    done = {key(record["cell"]) for record in read(out)}
    missing = [cell for cell in cells if key(cell) not in done]
    print(f"{benchmark}: {len(missing)} cells to run, {len(done)} done, in {out}", flush=True)
    started = time.monotonic()
    with _workers(dask):
        parallel = joblib.Parallel(n_jobs=-1 if dask else jobs, return_as="generator_unordered")
        results = parallel(joblib.delayed(_one)(run, cell) for cell in missing)
        for number, (cell, result) in enumerate(results, 1):
            append(out, {"benchmark": benchmark, "cell": cell} | result | environment())
            spent = time.monotonic() - started
            left = spent / number * (len(missing) - number)
            note = result.get("note", "")
            print(f"[{number}/{len(missing)}, {left / 60:.0f} min left] {key(cell)} {note}", flush=True)


def _one(run: Callable[..., dict[str, Any]], cell: Cell) -> tuple[Cell, dict[str, Any]]:
    torch.set_num_threads(1)  # one cell, one core
    began = time.perf_counter()
    result = run(**cell)
    return cell, result | {"seconds": time.perf_counter() - began}


@contextlib.contextmanager
def _workers(dask: str | None) -> Iterator[None]:
    if dask is None:
        yield
        return
    from distributed import Client

    with Client(dask) as client:
        folder = os.fspath(Path(__file__).parent)
        client.run(_find_scripts, folder)
        with joblib.parallel_config("dask"):
            yield


def _find_scripts(folder: str) -> None:
    import sys

    if folder not in sys.path:
        sys.path.insert(0, folder)


def options(doc: str | None, name: str) -> argparse.Namespace:
    """The command line that all grids share; ``.out`` is where records go."""
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small grid, under a minute, to the temporary folder")
    parser.add_argument("--jobs", type=int, default=1, help="processes on this machine (1)")
    parser.add_argument("--dask", metavar="ADDRESS", help="run on the workers of this Dask scheduler")
    parser.add_argument("--data", type=Path, help="Tiny Shakespeare as a local file, instead of fetching it")
    parser.add_argument("--out", type=Path, help="default: results/, quick: the temporary folder")
    given = parser.parse_args()
    given.out = place(given.out, name, given.quick)
    return given
