"""Circuits per second of the batched simulator against Aer at its best settings, in one run.

    python benchmarks/simulator_speed.py [--quick] [--threads N] [--out FILE]

Correctness first: at n = 8 the probabilities must equal Aer's to 1e-5, or nothing is timed. Then Aer (one pub through
SamplerV2, 256 shots, max_parallel_experiments = threads, runtime parameter binding), the simulator's probabilities
(infinitely many shots), the simulator with 256 shots drawn, and a matrix product of known cost take turns. Medians over
the rounds are recorded, and the median of the ratios within a round. The share of the peak is the rate of the mixers'
matrix products, over the time of the whole simulation, in units of the matrix product rate of the machine.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from records import environment, place, write

SHOTS = 256
NUM_LAYERS = 4
ROWS = {8: 384, 12: 128, 16: 24}
TARGETS = {8: 20.0, 12: 10.0, 16: 8.0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="three rounds instead of nine, under a minute")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="for torch and for Aer")
    parser.add_argument("--out", type=Path, help="default: results/, quick: the temporary folder")
    options = parser.parse_args()
    options.out = place(options.out, "simulator_speed", options.quick)
    os.environ["OMP_NUM_THREADS"] = str(options.threads)  # before torch and Aer load

    import torch

    torch.set_num_threads(options.threads)
    check_probabilities()
    records = [measure(n, rounds=3 if options.quick else 9, threads=options.threads) for n in ROWS]
    write(options.out, records)
    print(f"wrote {len(records)} records to {options.out}")


def random_model(num_spins: int, rows: int) -> Any:
    import torch

    from qboltz import IsingModel

    generator = torch.Generator().manual_seed(num_spins)
    fields = 0.5 * torch.randn(rows, num_spins, generator=generator)
    upper = 0.1 * torch.randn(num_spins, num_spins, generator=generator).triu(1)
    return IsingModel(fields, upper + upper.mT)


def aer(threads: int) -> Any:
    from qiskit_aer import AerSimulator

    return AerSimulator(method="statevector", max_parallel_experiments=threads, runtime_parameter_bind_enable=True)


def check_probabilities() -> None:
    """The gate: no speed is reported for wrong numbers."""
    import numpy as np
    from qiskit_aer.library import SaveProbabilities

    from qboltz import AnnealingSchedule, annealing_circuit
    from qboltz.simulator import annealing_probabilities

    schedule, rows = AnnealingSchedule.fitted(NUM_LAYERS), 16
    model = random_model(8, rows)
    circuit, bindings = annealing_circuit(8, schedule).bind(model)
    expected = []
    for bound in bindings.bind_all(circuit):
        bound = bound.remove_final_measurements(inplace=False)
        bound.append(SaveProbabilities(8), range(8))
        expected.append(aer(1).run(bound).result().data()["probabilities"])
    result = annealing_probabilities(model.groups.fields, model.groups.couplings, schedule)[0].numpy()
    error = float(np.abs(result - np.array(expected)).max())
    print(f"probabilities against Aer's, n = 8, {rows} models: largest difference {error:.1e}")
    if not error <= 1e-5 or np.ptp(result) < 1e-3:
        sys.exit(f"correctness gate failed: probabilities differ by {error:.3g}, allowed 1e-5; nothing was timed")


def measure(num_spins: int, rounds: int, threads: int) -> dict[str, Any]:
    import torch
    from qiskit_aer.primitives import SamplerV2

    from qboltz import AnnealingSchedule, StatevectorSolver, annealing_circuit
    from qboltz.simulator import annealing_probabilities, qubit_groups

    rows, schedule = ROWS[num_spins], AnnealingSchedule.fitted(NUM_LAYERS)
    model = random_model(num_spins, rows)
    groups = model.groups
    sampler = SamplerV2.from_backend(aer(threads), seed=1)
    pub = annealing_circuit(num_spins, schedule).bind(model)
    solver = StatevectorSolver(schedule, shots=SHOTS, seed=1)
    square = torch.randn(1024, 1024)

    contenders: dict[str, Callable[[], object]] = {
        "aer": lambda: sampler.run([pub], shots=SHOTS).result(),
        "probabilities": lambda: annealing_probabilities(groups.fields, groups.couplings, schedule),
        "samples": lambda: solver.solve(model),
        "matmul": lambda: square @ square,
    }
    # Enough repetitions for about 50 ms: one call of a few milliseconds is at the mercy of the machine.
    repeats = {}
    for name, call in contenders.items():
        call()
        repeats[name] = max(1, min(50, round(0.05 / seconds(call, 1))))
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, call in contenders.items():
            times[name].append(seconds(call, repeats[name]))

    peak = statistics.median(2 * 1024**3 / t for t in times["matmul"])
    mixer_flops = rows * NUM_LAYERS * sum(4 * 2 ** (num_spins + size) for _, size in qubit_groups(num_spins))
    share = statistics.median(mixer_flops / t / peak for t in times["probabilities"])
    record: dict[str, Any] = {"benchmark": "simulator_speed", "num_spins": num_spins, "rows": rows}
    record |= {"num_layers": NUM_LAYERS, "shots": SHOTS, "rounds": rounds, "threads": threads}
    for name in ("aer", "probabilities", "samples"):
        speeds = sorted(rows / t for t in times[name])
        record[f"{name}_circuits_per_second"] = statistics.median(speeds)
        record[f"{name}_circuits_per_second_range"] = [speeds[0], speeds[-1]]
    for name in ("probabilities", "samples"):
        ratios = sorted(slow / fast for slow, fast in zip(times["aer"], times[name], strict=True))
        record[f"{name}_ratio"] = statistics.median(ratios)
        record[f"{name}_ratio_range"] = [ratios[0], ratios[-1]]
    record |= {"target_ratio": TARGETS[num_spins], "passed": record["samples_ratio"] >= TARGETS[num_spins]}
    record |= {"matmul_peak_gflops": peak / 1e9, "share_of_peak": share, "seed": 1, **environment()}
    print(
        f"n = {num_spins:2d}, {rows} models: Aer {record['aer_circuits_per_second']:.0f} circuits/s; "
        f"probabilities {record['probabilities_circuits_per_second']:.0f} ({record['probabilities_ratio']:.1f}x), "
        f"{SHOTS} shots {record['samples_circuits_per_second']:.0f} ({record['samples_ratio']:.1f}x, "
        f"target {TARGETS[num_spins]:.0f}x); {100 * share:.0f} % of {peak / 1e9:.0f} Gflop/s"
    )
    return record


def seconds(call: Callable[[], object], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


if __name__ == "__main__":
    main()
