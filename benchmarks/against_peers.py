"""One layer, forward and backward, by this package and by its peers; exact inference by others.

    make peers                                                 # an environment of its own, .venv-peers
    .venv-peers/bin/python benchmarks/against_peers.py [--quick] [--out FILE]

Peers: qiskit-machine-learning, PennyLane and D-Wave's PyTorch plugin for the layer (4 fitted layers, 256 shots), dimod,
dwave-samplers and pgmpy for exact magnetizations. One thread. A cell is one peer at one size: all its methods and
those of this package that it is compared with take turns. Errors are against exact enumeration, and against the
circuits' own expectations and derivatives at infinitely many shots. The correctness gate: methods that claim
expectations must have those of the circuits, and exact inference must agree. Seconds are of the processor. A method
that would take more than 120 s for its cell, by its time for fewer rows in proportion, is not run, and the record says
so. A peer that is not installed is named and left out. Finished cells are not repeated.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SHOTS, NUM_LAYERS, REPEATS, SEED = 256, 4, 3, 20_261_203
SPINS, ROWS = (6, 8), (2, 32, 128)
EXACT_SPINS, EXACT_ROWS = (6, 8, 12, 16), 2
LIMIT = 120.0
#: Largest error of a method without shots, in single precision.
TOLERANCE = 1e-3

#: Modules with the layer by one package each, and the distributions that they import.
LAYERS = {
    "qboltz": ("peers_ours", ("qboltz",)),
    "qiskit-machine-learning": ("peers_qiskit", ("qiskit-machine-learning",)),
    "pennylane": ("peers_pennylane", ("pennylane", "pennylane-lightning")),
    "dwave-pytorch-plugin": ("peers_dwave", ("dwave-pytorch-plugin", "dwave-samplers", "dimod")),
}


@dataclass(frozen=True)
class Sizes:
    spins: tuple[int, ...]
    rows: tuple[int, ...]
    exact_spins: tuple[int, ...]
    num_layers: int
    shots: int
    repeats: int


FULL = Sizes(SPINS, ROWS, EXACT_SPINS, NUM_LAYERS, SHOTS, REPEATS)
QUICK = Sizes((3,), (2,), (4,), 2, 64, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small grid, under a minute, to the temporary folder")
    parser.add_argument("--out", type=Path, help="default: results/, quick: the temporary folder")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"  # before torch and Aer load

    import torch
    from peers_exact import PEERS
    from peers_problem import installed
    from peers_table import table
    from records import place, read

    torch.set_num_threads(1)
    out = place(options.out, "against_peers", options.quick)
    sizes = QUICK if options.quick else FULL
    needs = {peer: distributions for peer, (_, distributions) in LAYERS.items()}
    needs |= {peer: distributions for peer, (distributions, _) in PEERS.items()}
    versions = {peer: installed(distributions) for peer, distributions in needs.items()}
    missing = [peer for peer, found in versions.items() if found is None]
    if missing:
        print(f"not installed, left out: {', '.join(missing)}. To get them: make peers, then run with .venv-peers")
    for num_spins in sizes.spins:
        for rows in sizes.rows:
            for peer in LAYERS:
                run(out, cell_of("layer", peer, num_spins, rows, sizes), sizes, versions[peer])
    for num_spins in sizes.exact_spins:
        for peer in PEERS:
            run(out, cell_of("exact", peer, num_spins, EXACT_ROWS, sizes), sizes, versions[peer])
    print(table(read(out)))


def cell_of(part: str, peer: str, num_spins: int, rows: int, sizes: Sizes) -> dict[str, Any]:
    cell = {"part": part, "peer": peer, "num_spins": num_spins, "rows": rows}
    return cell | ({"num_layers": sizes.num_layers, "shots": sizes.shots} if part == "layer" else {})


def run(out: Path, cell: dict[str, Any], sizes: Sizes, versions: dict[str, str] | None) -> None:
    """Measure and record a cell, unless its peer is missing or it is in the file."""
    from records import append, environment, read

    records = read(out)
    if versions is None or any(record["cell"] == cell for record in records):
        return
    print(f"{cell['part']}, {cell['peer']}, n = {cell['num_spins']}, {cell['rows']} rows", flush=True)
    found = layer(cell, records, sizes) if cell["part"] == "layer" else exact(cell, sizes)
    kept = {"benchmark": "against_peers", "cell": cell, "repeats": sizes.repeats, "seed": SEED, "threads": 1}
    append(out, kept | {"peer_versions": versions} | found | environment())
    for name, values in found["methods"].items():
        print(f"    {name}: {values.get('not_run') or format(values['median_seconds'], '.3g') + ' s'}", flush=True)


def layer(cell: dict[str, Any], records: list[dict[str, Any]], sizes: Sizes) -> dict[str, Any]:
    """The peer's methods that are fast enough and those of ours beside them, in turn."""
    import peers_ours
    from peers_problem import Problem, rounds

    from qboltz import AnnealingSchedule

    schedule = AnnealingSchedule.fitted(cell["num_layers"])
    arguments = cell["num_spins"], schedule, cell["shots"], SEED
    known = peers_ours.methods(*arguments)
    theirs = importlib.import_module(LAYERS[cell["peer"]][0]).methods(*arguments)
    reasons = {name: too_slow(name, cell, records) for name in theirs}
    timed = {name: method for name, method in theirs.items() if reasons[name] is None}
    beside = {name: known[name] for method in timed.values() for name in method.beside}
    problem = Problem.random(cell["num_spins"], cell["rows"], SEED + cell["num_spins"])
    measured = rounds(beside | timed, problem, schedule, sizes.repeats)
    check(measured)
    left_out = {
        name: {"computes": theirs[name].computes, **reason} for name, reason in reasons.items() if reason is not None
    }
    return {"methods": measured | left_out}


def too_slow(name: str, cell: dict[str, Any], records: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Why a method is not run: its time for the most rows that were run, in proportion, is beyond the limit."""
    same = [
        record
        for record in records
        if all(record["cell"].get(entry) == value for entry, value in cell.items() if entry != "rows")
        and record["cell"]["rows"] < cell["rows"]
        and "median_seconds" in record["methods"].get(name, {})
    ]
    if not same:
        return None
    largest = max(same, key=lambda record: record["cell"]["rows"])
    rows, seconds = largest["cell"]["rows"], largest["methods"][name]["median_seconds"]
    expected = seconds * cell["rows"] / rows
    if REPEATS * expected <= LIMIT:
        return None
    return {
        "not_run": f"{rows} rows take {seconds:.3g} s, {cell['rows']} would in proportion take about {expected:.0f} s, "
        f"and the limit is {LIMIT:.0f} s for {REPEATS} steps",
        "smaller": {"rows": rows, "median_seconds": seconds},
    }


def check(measured: dict[str, dict[str, Any]]) -> None:
    """The gate: without shots, the circuits' expectations and derivatives; no time is reported for wrong numbers."""
    for name, values in measured.items():
        wrong = {key: error for key, error in values["against_circuit"].items() if not error <= TOLERANCE}
        if values["computes"].startswith("expectations") and wrong:
            sys.exit(f"correctness gate failed: {name} differs from the circuits by {wrong}, allowed {TOLERANCE}")


def exact(cell: dict[str, Any], sizes: Sizes) -> dict[str, Any]:
    from peers_exact import PEERS, measure

    found: dict[str, Any] = measure(cell["num_spins"], cell["rows"], PEERS[cell["peer"]][1], sizes.repeats, SEED)
    for name, values in found["methods"].items():
        if not values["largest_difference"] <= 1e-9:
            sys.exit(f"correctness gate failed: {name} differs by {values['largest_difference']}, allowed 1e-9")
    return found


if __name__ == "__main__":
    main()
