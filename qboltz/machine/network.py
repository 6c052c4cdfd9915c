"""The anneal on a line of qubits as a circuit: the swap network of ``qboltz.machine.bricks`` in h, rz, rx and cx."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from qiskit.circuit import ClassicalRegister, ParameterVector, QuantumCircuit, QuantumRegister
from qiskit.primitives import BindingsArray

from qboltz.circuits import SPIN_REGISTER, AnnealingCircuit, annealing_circuit
from qboltz.machine.bricks import Network, Pair, Step, all_pairs, checked_pairs, line_network
from qboltz.schedule import AnnealingSchedule
from qboltz.spins import num_pairs

__all__ = [
    "LineAnneal",
    "Network",
    "Pair",
    "Step",
    "all_pairs",
    "append_anneal",
    "check_left_out",
    "checked_pairs",
    "coupled_pairs",
    "line_anneal",
    "line_network",
]


@dataclass(frozen=True, eq=False)
class LineAnneal(AnnealingCircuit):
    """The anneal on ``n`` wires of a line: only h, rz, rx, cx between neighbors, and measurements.

    It has the parameters of ``annealing_circuit``, but for those of pairs that were left out, and classical bit ``i``
    is spin ``i`` wherever the spin ends.

    Attributes:
        pairs: the pairs with a coupling; all others must be zero in ``bindings``.
        network: the steps of a layer.
    """

    pairs: tuple[Pair, ...]
    network: Network

    def bindings(self, fields: NDArray[np.floating], couplings: NDArray[np.floating]) -> BindingsArray:
        """As ``AnnealingCircuit.bindings``.

        Raises:
            ValueError: a shape differs, or a coupling that the circuit leaves out is not zero.
        """
        complete = super().bindings(fields, couplings)
        check_left_out(couplings, self.pairs)
        present = {parameter.name for parameter in self.circuit.parameters}
        angles = {}
        for names, values in complete.data.items():
            kept = [index for index, name in enumerate(names) if name in present]
            if kept:
                angles[tuple(names[index] for index in kept)] = values[..., kept]
        return BindingsArray(angles, shape=complete.shape)


@lru_cache(maxsize=64)
def line_anneal(num_spins: int, schedule: AnnealingSchedule, pairs: tuple[Pair, ...] | None = None) -> LineAnneal:
    """The anneal of ``annealing_circuit`` for a line of ``num_spins`` qubits.

    Args:
        num_spins: ``n``.
        schedule: the angles. A layer whose coupling angle is zero gets no network.
        pairs: pairs ``(j, l)`` whose coupling may differ from zero; ``None`` for all.

    Raises:
        TypeError, ValueError: as ``annealing_circuit``, or a pair that is none.
    """
    anneal = annealing_circuit(num_spins, schedule)
    wanted = all_pairs(num_spins) if pairs is None else checked_pairs(num_spins, pairs)
    network = line_network(num_spins, wanted)
    circuit = QuantumCircuit(
        QuantumRegister(num_spins, "q"), ClassicalRegister(num_spins, SPIN_REGISTER), name="line_anneal"
    )
    append_anneal(
        circuit, range(num_spins), range(num_spins), schedule, network, anneal.field_vectors, anneal.coupling_vectors
    )
    return LineAnneal(
        circuit, num_spins, schedule, anneal.field_vectors, anneal.coupling_vectors, pairs=wanted, network=network
    )


def append_anneal(
    circuit: QuantumCircuit,
    qubits: Sequence[int],
    bits: Sequence[int],
    schedule: AnnealingSchedule,
    network: Network | tuple[Pair, ...],
    fields: Sequence[Sequence[object] | ParameterVector],
    couplings: Sequence[Sequence[object] | ParameterVector],
) -> None:
    """Append one anneal, measured, to a circuit.

    Args:
        circuit: is changed.
        qubits: of the line, wire by wire.
        bits: the classical bit of each spin.
        schedule: the angles.
        network: of a line; or a tuple of pairs, which are then coupled by plain ``rzz``.
        fields: angle of spin ``j`` in layer ``k``: ``fields[k][j]``.
        couplings: of pair number ``c`` (in the order of ``qboltz.spins``): ``couplings[k][c]``.
    """
    num_spins = len(qubits)
    number = {pair: index for index, pair in enumerate(all_pairs(num_spins))}
    order = network.start if isinstance(network, Network) else tuple(range(num_spins))
    circuit.h(list(qubits))
    for k, layer in enumerate(schedule.layers()):
        for wire, spin in enumerate(order):
            circuit.rz(fields[k][spin], qubits[wire])
        if layer.coupling_angle != 0:
            if isinstance(network, Network):
                for step in network.steps:
                    _append_step(circuit, qubits, step, None if step.pair is None else couplings[k][number[step.pair]])
                order, network = network.end, network.backwards()
            else:
                for first, second in network:
                    circuit.rzz(couplings[k][number[first, second]], qubits[first], qubits[second])
        circuit.rx(-2 * layer.mixer_angle, list(qubits))
    for wire, spin in enumerate(order):
        circuit.measure(qubits[wire], bits[spin])


def _append_step(circuit: QuantumCircuit, qubits: Sequence[int], step: Step, angle: object | None) -> None:
    # The odd wire is always the first target: the single-qubit gates that turn CX into ECR or CZ then cancel between
    # a step and the next one on that wire.
    b = step.wire if step.wire % 2 else step.wire + 1
    a = 2 * step.wire + 1 - b
    circuit.cx(qubits[a], qubits[b])
    if angle is not None:
        circuit.rz(angle, qubits[b])
    if step.swap:
        circuit.cx(qubits[b], qubits[a])
    circuit.cx(qubits[a], qubits[b])


def coupled_pairs(couplings: ArrayLike) -> tuple[Pair, ...]:
    """The pairs that any of the models with ``couplings (..., n, n)`` couples: the ``pairs`` of a circuit for them."""
    stacked = np.asarray(couplings)
    nonzero = (stacked != 0).reshape(-1, *stacked.shape[-2:]).any(0)
    return tuple(zip(*(index.tolist() for index in np.nonzero(np.triu(nonzero | nonzero.T, 1))), strict=True))


def check_left_out(couplings: NDArray[np.floating], pairs: tuple[Pair, ...]) -> None:
    """Raise ``ValueError`` if a pair outside ``pairs`` has a coupling in ``couplings (N, n, n)``."""
    num_spins = couplings.shape[-1]
    if len(pairs) == num_pairs(num_spins):
        return
    missing = sorted(set(coupled_pairs(couplings)) - set(pairs)) if len(couplings) else []
    if missing:
        raise ValueError(
            f"couplings must be zero outside the {len(pairs)} pairs the circuit was built for, got one for spins "
            f"{missing[0]}. Build it with pairs=coupled_pairs(couplings)."
        )
