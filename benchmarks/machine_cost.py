"""What a step costs on a machine: gates, QPU seconds and errors, against what one would do without qboltz.

    python benchmarks/machine_cost.py [PART ...] [--quick] [--out FILE]

Parts:

gates   One or two Trotter layers of n = 4..32 spins, all coupled, on fakes of 127 (ECR), 133 and 156 qubits (CZ), in
        the two-qubit gates of the chip: the swap network of ``qboltz.machine``; preset level 3 of Qiskit's compiler,
        the best of three seeds; and Qiskit's router for commuting two-qubit gates (Commuting2qGateRouter with
        SwapStrategy.from_line) on the same line of qubits, translated by preset level 3. Correctness first: at n = 4
        every contender's probabilities must be those of the plain circuit, or nothing is counted.

seconds, noise   In machine_errors.py. QPU seconds of one training step at equal error of the magnetizations, from one
        query per circuit with plain averages to packed lines with the conditional estimator, for rows of models trained
        on brackets (a batch of 32) and on text (16 x 8 rows). Errors by depth, estimator and correction on noisy
        fakes, and whether the depth chosen by the noise-aware fit is the best one.

Records are JSON lines, one per (part, chip, n, layers, contender); what the file has is not measured again.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from machine_errors import noise, seconds
from records import append, environment, place, read

CHIPS = ("fake_sherbrooke", "fake_torino", "fake_fez")
SPINS = (4, 6, 8, 12, 16, 24, 32)
LAYERS = (1, 2)
SEEDS = 3
CONTENDERS = ("network", "preset", "commuting")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", help="all by default")
    parser.add_argument("--quick", action="store_true", help="small sizes only, about a minute")
    parser.add_argument("--out", type=Path, help="default: results/, quick: the temporary folder")
    options = parser.parse_args()
    out = place(options.out, "machine_cost", options.quick)
    unknown = set(options.parts) - PARTS.keys()
    if unknown:
        parser.error(f"parts must be among {', '.join(PARTS)}, got {', '.join(sorted(unknown))}")
    for name in options.parts or PARTS:
        PARTS[name](out, options.quick)
    print(f"records are in {out}")


def missing(out: Path, key: dict[str, Any]) -> bool:
    """Whether no record of the file has these values."""
    return not any(all(record.get(name) == value for name, value in key.items()) for record in read(out))


@cache
def device(name: str) -> Any:
    from qboltz.backends.fake import fake_devices

    return fake_devices()[name]()


# -- gates ------------------------------------------------------------------------------------------------------------


def gates(out: Path, quick: bool) -> None:
    for chip in CHIPS:
        check_probabilities(chip)
        for num_spins in SPINS[:3] if quick else SPINS:
            for num_layers in LAYERS[:1] if quick else LAYERS:
                for contender in CONTENDERS:
                    key = {"benchmark": "machine_cost", "part": "gates", "chip": chip, "num_spins": num_spins}
                    key |= {"num_layers": num_layers, "contender": contender}
                    if missing(out, key):
                        append(out, key | count(chip, num_spins, num_layers, contender) | environment())


def count(chip: str, num_spins: int, num_layers: int, contender: str) -> dict[str, Any]:
    """Two-qubit gates and depth, of the best seed where there are several, and all of them."""
    start = time.perf_counter()
    circuits = compiled(chip, num_spins, num_layers, contender)
    seconds = time.perf_counter() - start
    pairs = [two_qubit_cost(circuit) for circuit in circuits]
    best = min(pairs)
    print(
        f"{chip} n = {num_spins:2d} p = {num_layers} {contender:9s}: {best[0]:5d} gates, depth {best[1]:4d}", flush=True
    )
    return {
        "two_qubit_gates": best[0],
        "two_qubit_depth": best[1],
        "gates_of_seeds": [pair[0] for pair in pairs],
        "depth_of_seeds": [pair[1] for pair in pairs],
        "bound_gates": num_layers * (3 * num_spins * (num_spins - 1) / 2 - (num_spins / 2 - 1)),
        "bound_depth": num_layers * (3 * num_spins - 1),
        "seconds": seconds,
        "seeds": list(range(len(pairs))),
    }


def two_qubit_cost(circuit: Any) -> tuple[int, int]:
    """Gates and depth, with every gate between two qubits counted."""
    gates = sum(len(step.qubits) == 2 for step in circuit.data)
    return gates, int(circuit.depth(lambda step: len(step.qubits) == 2))


def compiled(chip: str, num_spins: int, num_layers: int, contender: str) -> list[Any]:
    makers: dict[str, Callable[[str, int, int], list[Any]]] = {
        "network": network_circuits,
        "preset": preset_circuits,
        "commuting": commuting_circuits,
    }
    return makers[contender](chip, num_spins, num_layers)


def network_circuits(chip: str, num_spins: int, num_layers: int) -> list[Any]:
    from qboltz import AnnealingSchedule, annealing_circuit
    from qboltz.backends.fake import placed

    return [placed(device(chip), annealing_circuit(num_spins, AnnealingSchedule.fitted(num_layers)))]


def preset_circuits(chip: str, num_spins: int, num_layers: int) -> list[Any]:
    from qiskit.transpiler import generate_preset_pass_manager

    from qboltz import AnnealingSchedule, annealing_circuit

    plain = annealing_circuit(num_spins, AnnealingSchedule.fitted(num_layers)).circuit
    return [
        generate_preset_pass_manager(optimization_level=3, backend=device(chip), seed_transpiler=seed).run(plain)
        for seed in range(SEEDS)
    ]


def commuting_circuits(chip: str, num_spins: int, num_layers: int) -> list[Any]:
    """Each layer is a block of commuting ``rzz`` with open angles, routed on the network's line.

    As in Qiskit's tutorials: the router with an even-odd edge coloring, the mirror image for the next layer, everything
    in CX so that phases and exchanges on one edge share theirs, then preset level 3 with the line as the layout. (With
    two blocks of 6 qubits in one circuit the router of Qiskit 2.6 raises a KeyError: it asks for the colors of pairs
    that are no edges.)
    """
    from qiskit.circuit import ClassicalRegister, QuantumCircuit, QuantumRegister
    from qiskit.circuit.equivalence_library import SessionEquivalenceLibrary
    from qiskit.circuit.library import CXGate, RZZGate
    from qiskit.dagcircuit import DAGOpNode
    from qiskit.transpiler import PassManager, generate_preset_pass_manager
    from qiskit.transpiler.passes import BasisTranslator, Commuting2qGateRouter, InverseCancellation
    from qiskit.transpiler.passes.routing.commuting_2q_gate_routing import SwapStrategy
    from qiskit.transpiler.passes.routing.commuting_2q_gate_routing.commuting_2q_block import Commuting2qBlock

    from qboltz import AnnealingSchedule, annealing_circuit
    from qboltz.machine.lines import find_lines
    from qboltz.machine.network import all_pairs

    schedule = AnnealingSchedule.fitted(num_layers)
    anneal = annealing_circuit(num_spins, schedule)
    colors = {}
    for qubit in range(num_spins - 1):
        colors[qubit, qubit + 1] = colors[qubit + 1, qubit] = qubit % 2
    router = PassManager([Commuting2qGateRouter(SwapStrategy.from_line(list(range(num_spins))), edge_coloring=colors)])
    circuit = QuantumCircuit(QuantumRegister(num_spins, "q"), ClassicalRegister(num_spins, "spins"))
    circuit.h(range(num_spins))
    spin_on = list(range(num_spins))
    for k, layer in enumerate(schedule.layers()):
        for wire, spin in enumerate(spin_on):
            circuit.rz(anneal.field_vectors[k][spin], wire)
        block = QuantumCircuit(QuantumRegister(num_spins, "q"))
        phases = zip(all_pairs(num_spins), anneal.coupling_vectors[k], strict=True)
        nodes = [DAGOpNode(RZZGate(angle), [block.qubits[q] for q in pair]) for pair, angle in phases]
        block.append(Commuting2qBlock(nodes), block.qubits)
        routed = router.run(block)
        routed = routed.reverse_ops() if k % 2 else routed
        for step in routed.data:
            if step.operation.name == "swap":
                one, other = (routed.find_bit(qubit).index for qubit in step.qubits)
                spin_on[one], spin_on[other] = spin_on[other], spin_on[one]
        circuit.compose(routed, range(num_spins), inplace=True)
        circuit.rx(-2 * layer.mixer_angle, range(num_spins))
    for wire, spin in enumerate(spin_on):
        circuit.measure(wire, spin)

    in_cx = PassManager(
        [
            BasisTranslator(SessionEquivalenceLibrary, ["cx", "rz", "h", "rx", "measure"]),
            InverseCancellation([CXGate()]),
        ]
    ).run(circuit)
    (line,) = find_lines(device(chip).target, num_spins, num_layers=num_layers, limit=1)
    return [
        generate_preset_pass_manager(
            optimization_level=3, backend=device(chip), initial_layout=list(line.qubits), seed_transpiler=seed
        ).run(in_cx)
        for seed in range(SEEDS)
    ]


def check_probabilities(chip: str) -> None:
    """The gate: no cost is reported for circuits that do something else."""
    from qiskit.circuit import QuantumCircuit
    from qiskit.quantum_info import Statevector

    from qboltz import AnnealingSchedule, annealing_circuit

    num_spins = 4
    anneal = annealing_circuit(num_spins, AnnealingSchedule.fitted(2))
    rng = np.random.default_rng(1)
    couplings = np.triu(rng.normal(size=(1, num_spins, num_spins)), 1)
    bindings = anneal.bindings(rng.normal(size=(1, num_spins)), couplings + couplings.swapaxes(1, 2))

    def probabilities(circuit: Any) -> Any:
        bound = bindings.bind(circuit, (0,))
        used = sorted({bound.find_bit(qubit).index for step in bound.data for qubit in step.qubits})
        small, wire = QuantumCircuit(len(used)), {}
        for step in bound.data:
            on = [used.index(bound.find_bit(qubit).index) for qubit in step.qubits]
            if step.operation.name == "measure":
                wire[bound.find_bit(step.clbits[0]).index] = on[0]
            elif step.operation.name != "barrier":
                small.append(step.operation, on)
        return Statevector(small).probabilities([wire[spin] for spin in range(num_spins)])

    expected = probabilities(anneal.circuit)
    if np.ptp(expected) < 0.05:
        sys.exit("the correctness gate tests nothing: the distribution is flat")
    for contender in CONTENDERS:
        error = float(np.abs(probabilities(compiled(chip, num_spins, 2, contender)[0]) - expected).max())
        if not error <= 1e-9:
            sys.exit(f"correctness gate failed: {contender} on {chip} differs by {error:.3g}; nothing was counted")


#: Parts of the benchmark: functions of the file of records and of whether the run is a quick one.
PARTS: dict[str, Callable[[Path, bool], None]] = {"gates": gates, "seconds": seconds, "noise": noise}


if __name__ == "__main__":
    main()
