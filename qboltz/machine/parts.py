"""A wide circuit falls into parts that never act on each other; each has few qubits and can be simulated alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import rustworkx as rx
import torch
from numpy.typing import NDArray
from qiskit.circuit import ClassicalRegister, QuantumCircuit, QuantumRegister

from qboltz.machine.channels import SmallCircuit


@dataclass(frozen=True, eq=False)
class Part:
    """Qubits of a circuit that act on each other, and what they are measured into.

    Attributes:
        simulator: of their gates.
        parameters: names, in the order of the simulator.
        measured: qubit of the part and classical bit of the whole circuit, in ascending order of the bits.
        confusion: for each of these ``P(read | is)``, ``(2, 2)``, or ``None`` without readout errors.
    """

    simulator: SmallCircuit
    parameters: tuple[str, ...]
    measured: tuple[tuple[int, int], ...]
    confusion: tuple[NDArray[np.float64], ...] | None

    def probabilities(self, angles: NDArray[np.float64]) -> torch.Tensor:
        """``(rows, 2**m)`` of the measured bits, the first bit lowest, readout errors included."""
        rows, n = len(angles), self.simulator.num_qubits
        axes = [1 + n - 1 - qubit for qubit, _ in reversed(self.measured)]  # the last bit slowest
        populations = self.simulator.populations(angles).reshape(rows, *[2] * n).double()
        populations = populations.permute(0, *axes, *sorted(set(range(1, n + 1)) - set(axes)))
        size = len(self.measured)
        populations = populations.reshape(rows, *[2] * size, -1).sum(-1)
        for index, matrix in enumerate(self.confusion or ()):
            axis = size - index
            populations = (populations.movedim(axis, -1) @ torch.from_numpy(matrix)).movedim(-1, axis)
        return populations.reshape(rows, -1)


def split(circuit: QuantumCircuit) -> Iterator[tuple[QuantumCircuit, tuple[int, ...], tuple[int, ...]]]:
    """Circuits of the measured parts that never act on each other, with their qubits and classical bits.

    Parts come in the order of their first classical bit, the qubits of a line in its order; a qubit that is not
    measured and meets no measured one is left out, since it cannot be seen.
    """
    graph = rx.PyGraph()
    graph.add_nodes_from(range(circuit.num_qubits))
    steps = [
        (
            step.operation,
            [circuit.find_bit(q).index for q in step.qubits],
            [circuit.find_bit(c).index for c in step.clbits],
        )
        for step in circuit.data
        if step.operation.name != "barrier"
    ]
    graph.add_edges_from_no_data([(qubits[0], other) for _, qubits, _ in steps for other in qubits[1:]])
    part_of = {qubit: number for number, part in enumerate(rx.connected_components(graph)) for qubit in part}
    own: dict[int, list[tuple[Any, list[int], list[int]]]] = {}
    for step in steps:
        own.setdefault(part_of[step[1][0]], []).append(step)
    found = []
    for number, part_steps in own.items():
        qubits = _along(graph, sorted({qubit for _, on, _ in part_steps for qubit in on}))
        bits = tuple(sorted({bit for _, _, into in part_steps for bit in into}))
        if bits:
            found.append((bits, qubits, number))
    for bits, qubits, number in sorted(found):
        piece = QuantumCircuit(QuantumRegister(len(qubits), "q"), ClassicalRegister(len(bits), "c"))
        place, slot = ({name: index for index, name in enumerate(names)} for names in (qubits, bits))
        for operation, on, into in own[number]:
            piece.append(operation, [place[qubit] for qubit in on], [slot[bit] for bit in into])
        yield piece, qubits, bits


def _along(graph: Any, qubits: list[int]) -> tuple[int, ...]:
    """Connected qubits from one end on, so that neighbors on a line are neighbors in the list."""
    end = min(qubits, key=lambda qubit: (len(set(graph.neighbors(qubit))), qubit))
    found, stack = [], [end]
    while stack:
        qubit = stack.pop()
        if qubit not in found:
            found.append(qubit)
            stack += sorted(set(graph.neighbors(qubit)) - set(found), reverse=True)
    return tuple(found)


def measured_qubits(piece: QuantumCircuit, bits: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Qubit and classical bit of each measurement, in the order of the bits."""
    measured: dict[int, int] = {}
    done: set[int] = set()
    for step in piece.data:
        qubits = [piece.find_bit(qubit).index for qubit in step.qubits]
        if done & set(qubits):
            raise ValueError(f"circuit must end with its measurements, got {step.operation.name!r} after one.")
        if step.operation.name == "measure":
            done.add(qubits[0])
            measured[piece.find_bit(step.clbits[0]).index] = qubits[0]
    return tuple((measured[slot], bit) for slot, bit in enumerate(bits))
