"""AnnealingSolver on Aer, everything included, against the bare Aer sampler with one pub at its best settings.

    python benchmarks/annealing_overhead.py [--quick] [--repeats N] [--threads N] [--seed N] [--out FILE]

Everything: binding, run, spins, magnetizations and the pullback of a gradient. Bare: a `SamplerV2` that runs the same
circuit with bindings made beforehand and hands out its bits. The correctness gate comes first: thousands of plain
averages of both must lie within 6 standard errors of the exact distribution of the circuits, else exit status 1. Then
both run in turn, and beside them (not with --quick) other settings of Aer. A record (one JSON line per case) holds
medians over the repeats, quartiles and the fraction of the bare sampler's speed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
from qiskit_aer.primitives import SamplerV2
from records import environment, in_turn, place, summary, write
from torch import Tensor

from qboltz import AnnealingSchedule, AnnealingSolver, IsingModel, annealing_circuit
from qboltz.backends.aer import aer_options
from qboltz.circuits import SPIN_REGISTER
from qboltz.ensemble import SampledEnsemble
from qboltz.simulator import annealing_probabilities
from qboltz.spins import spin_table, spins_from_bytes, to_torch

CASES = [(8, 384), (12, 384)]
SCHEDULE, SHOTS = AnnealingSchedule.fitted(4), 256
REQUIRED = 0.85
MAX_STANDARD_ERRORS = 6.0
#: Settings tried beside those of the package, as changes to them; Aer's own defaults are none of them.
ALTERNATIVES: dict[str, dict[str, Any]] = {
    "single precision": {"precision": "single"},
    "no fusion": {"fusion_enable": False},
    "fusion of 3 qubits": {"fusion_max_qubit": 3},
    "parameters bound before the run": {"runtime_parameter_bind_enable": False},
}


def problem(num_spins: int, rows: int, seed: int) -> tuple[IsingModel, Tensor]:
    """Models of the scale of a trained attention layer with shared couplings, and an upstream gradient."""
    generator = torch.Generator().manual_seed(seed)
    fields = 0.5 * torch.randn(rows, num_spins, generator=generator)
    upper = 0.1 * torch.randn(num_spins, num_spins, generator=generator).triu(1)
    return IsingModel(fields, upper + upper.mT), torch.randn(rows, num_spins, generator=generator)


def standard_errors_off(model: IsingModel, spins: Tensor) -> float:
    """Largest distance of the plain averages from the circuit's own magnetizations, in standard errors."""
    weights = annealing_probabilities(model.groups.fields, model.groups.couplings, SCHEDULE)
    exact = SampledEnsemble(model, spin_table(model.num_spins), weights, "plain").magnetization()
    error = ((1 - exact.square()) / spins.shape[-2]).sqrt()
    return float(((SampledEnsemble(model, spins, estimator="plain").magnetization() - exact) / error).abs().max())


def everything(solver: AnnealingSolver, model: IsingModel, grad: Tensor) -> None:
    ensemble = solver.solve(model)
    ensemble.magnetization()
    ensemble.pullback(grad)


def bare(sampler: SamplerV2, pub: tuple[Any, Any]) -> Any:
    return sampler.run([pub], shots=SHOTS).result()[0].data[SPIN_REGISTER]


def measure(num_spins: int, rows: int, seed: int, repeats: int, quick: bool) -> dict[str, Any]:
    """The record of one case; its key ``wrong`` says that the gate is red, and then there are no timings."""
    model, grad = problem(num_spins, rows, seed)
    solver = AnnealingSolver("aer_simulator", SCHEDULE, SHOTS, seed=seed)
    pub = annealing_circuit(num_spins, SCHEDULE).bind(model)
    settings = {"bare": aer_options()}
    if not quick:
        settings |= {name: {**aer_options(), **change} for name, change in ALTERNATIVES.items()}
    samplers = {name: SamplerV2(seed=seed, options={"backend_options": options}) for name, options in settings.items()}

    drawn = to_torch(spins_from_bytes(bare(samplers["bare"], pub).array, num_spins), model.fields)
    worst = [standard_errors_off(model, spins) for spins in (solver.solve(model).spins, drawn.unsqueeze(0))]
    record: dict[str, Any] = {
        "benchmark": "annealing_overhead",
        "num_spins": num_spins,
        "rows": rows,
        "shots": SHOTS,
        "num_layers": SCHEDULE.num_layers,
        "seed": seed,
        "threads": torch.get_num_threads(),
        "standard_errors_off": worst,
        "wrong": not max(worst) <= MAX_STANDARD_ERRORS,
    }
    if record["wrong"]:
        return record
    before = solver.circuits_run
    calls = [partial(everything, solver, model, grad), *(partial(bare, sampler, pub) for sampler in samplers.values())]
    ours, *others = in_turn(calls, repeats)
    assert solver.circuits_run - before == rows * (repeats + 1)
    timings = dict(zip(samplers, others, strict=True))
    fractions = [theirs / own for own, theirs in zip(ours, timings["bare"], strict=True)]
    return record | {
        "repeats": repeats,
        "solver": summary(ours),
        **{name.replace(" ", "_"): summary(seconds) for name, seconds in timings.items()},
        "circuits_per_second": rows / statistics.median(ours),
        "bare_circuits_per_second": rows / statistics.median(timings["bare"]),
        "fraction_of_bare": statistics.median(fractions),
        "fraction_quartiles": statistics.quantiles(fractions, n=4),
        "required": REQUIRED,
        **environment(),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Overhead of AnnealingSolver over the bare Aer sampler.")
    parser.add_argument("--quick", action="store_true", help="few repeats and no other settings: half a minute")
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="of torch")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="default: results/, quick: the temporary folder")
    options = parser.parse_args()
    options.out = place(options.out, "annealing_overhead", options.quick)
    torch.set_num_threads(options.threads)
    repeats = options.repeats or (3 if options.quick else 15)

    records = []
    for num_spins, rows in CASES:
        record = measure(num_spins, rows, options.seed, repeats, options.quick)
        print(f"n={num_spins} rows={rows}: at most {max(record['standard_errors_off']):.1f} standard errors off")
        if record["wrong"]:
            print("The samples are wrong: no timing is worth reporting.", file=sys.stderr)
            return 1
        records.append(record)
        print(
            f"  {record['circuits_per_second']:.0f} circuits/s, bare {record['bare_circuits_per_second']:.0f}: "
            f"{record['fraction_of_bare']:.0%} (required {REQUIRED:.0%})"
        )
        for name in ALTERNATIVES if not options.quick else ():
            print(f"  {name}: {1e3 * rows / record[name.replace(' ', '_')]['median_ms']:.0f} circuits/s bare")
    write(options.out, records)
    if any(record["fraction_of_bare"] < REQUIRED for record in records):
        print("A requirement is not met.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
