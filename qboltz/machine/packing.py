"""Many models on one chip at once: a circuit of disjoint lines, its angles, and the way back from bits to rows.

Row ``r`` of a request runs in circuit ``r // K`` on line ``r % K`` of ``K``. Lines are sorted from the best to the
worst, so that a last circuit that is not full leaves the worst ones idle: their angles are zero and their bits are
dropped.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from qiskit.circuit import ClassicalRegister, ParameterVector, QuantumCircuit, QuantumRegister
from qiskit.primitives import BindingsArray, BitArray

from qboltz.circuits import SPIN_REGISTER
from qboltz.machine.lines import Line
from qboltz.machine.network import Pair, append_anneal, check_left_out, line_network
from qboltz.schedule import AnnealingSchedule
from qboltz.spins import num_pairs, pair_indices, spins_from_bytes


@dataclass(frozen=True, eq=False)
class PackedAnneal:
    """``K`` anneals of ``n`` spins side by side in one circuit, compiled for a chip, with fields and couplings open.

    Attributes:
        circuit: in the gates and on the qubits of the chip. Parameter ``h{k}[l * n + j]`` is the field angle of spin
            ``j`` of line ``l`` in layer ``k``; ``J{k}[l * P + c]`` that of pair ``c`` of ``P = n (n - 1) / 2``. Bit
            ``l * n + i`` of the one classical register ``spins`` is spin ``i`` of line ``l``.
        lines: the qubits of each line and their quality, best first.
        num_spins: ``n``.
        schedule: the angles.
        pairs: the pairs ``j < l`` with a coupling; all others must be zero in ``bindings``.
        fidelities: of each line, the product of ``1 - error`` over all its gates and readouts in the circuit.
    """

    circuit: QuantumCircuit
    lines: tuple[Line, ...]
    num_spins: int
    schedule: AnnealingSchedule
    pairs: tuple[Pair, ...] = field(repr=False)
    fidelities: tuple[float, ...]

    @property
    def num_lines(self) -> int:
        """``K``."""
        return len(self.lines)

    @property
    def two_qubit_gates(self) -> int:
        """Two-qubit gates of one line."""
        first = set(self.lines[0].qubits)
        return sum(
            len(step.qubits) == 2 and self.circuit.find_bit(step.qubits[0]).index in first for step in self.circuit.data
        )

    @property
    def two_qubit_depth(self) -> int:
        """Two-qubit gates one after the other."""
        return int(self.circuit.depth(lambda step: len(step.qubits) == 2))

    def num_circuits(self, rows: int) -> int:
        """Circuits that ``rows`` models take: ``ceil(rows / K)``."""
        return -(-rows // self.num_lines)

    def bindings(self, fields: NDArray[np.floating], couplings: NDArray[np.floating]) -> BindingsArray:
        """Angles of ``N`` models, ``fields (N, n)`` and ``couplings (N, n, n)``, as bindings ``(num_circuits(N),)``.

        Raises:
            ValueError: a shape differs from these, or a coupling that the circuit leaves out is not zero.
        """
        n, rows = self.num_spins, len(fields)
        if fields.ndim != 2 or fields.shape[1] != n:
            raise ValueError(f"fields must be (models, {n}), got {fields.shape}.")
        if couplings.shape != (rows, n, n):
            raise ValueError(f"couplings must be ({rows}, {n}, {n}), got {couplings.shape}.")
        check_left_out(couplings, self.pairs)
        first, second = pair_indices(n)
        by_line = {"h": self._on_lines(fields), "J": self._on_lines(couplings[:, first, second])}
        present = {parameter.name for parameter in self.circuit.parameters}
        angles = {}
        for k, layer in enumerate(self.schedule.layers()):
            for letter, angle in (("h", layer.field_angle), ("J", layer.coupling_angle)):
                values = by_line[letter]
                names = [f"{letter}{k}[{index}]" for index in range(values.shape[1])]
                kept = [index for index, name in enumerate(names) if name in present]
                if kept:
                    angles[tuple(names[index] for index in kept)] = -2 * angle * values[:, kept]
        return BindingsArray(angles, shape=(self.num_circuits(rows),))

    def unpack(self, bits: BitArray | NDArray[np.uint8], rows: int) -> NDArray[np.int8]:
        """Spins ``(rows, shots, n)`` from the register ``spins`` of ``num_circuits(rows)`` circuits.

        Args:
            bits: as Qiskit packs them, ``(circuits, shots, bytes)``, or the ``BitArray`` itself.
            rows: models that were bound.

        Raises:
            ValueError: ``bits`` has another shape.
        """
        packed = bits.array if isinstance(bits, BitArray) else bits
        count, width = self.num_circuits(rows), self.num_lines * self.num_spins
        if packed.ndim != 3 or len(packed) != count or packed.shape[-1] != -(-width // 8):
            raise ValueError(f"bits must be ({count}, shots, {-(-width // 8)}) bytes, got {packed.shape}.")
        spins = spins_from_bytes(packed, width)
        spins = spins.reshape(count, packed.shape[1], self.num_lines, self.num_spins).swapaxes(1, 2)
        return np.ascontiguousarray(spins.reshape(count * self.num_lines, packed.shape[1], self.num_spins)[:rows])

    def _on_lines(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """``(N, m)`` to ``(circuits, K * m)``, zeros where a line has no model."""
        rows, size = values.shape
        padded = np.zeros((self.num_circuits(rows) * self.num_lines, size))
        padded[:rows] = values
        return padded.reshape(-1, self.num_lines * size)


def packed_circuit(
    lines: tuple[tuple[int, ...], ...],
    num_qubits: int,
    schedule: AnnealingSchedule,
    pairs: tuple[Pair, ...],
    *,
    any_to_any: bool = False,
) -> QuantumCircuit:
    """Anneals on given lines of a chip, in abstract gates; names and bits as in ``PackedAnneal``.

    Args:
        lines: the qubits of each.
        num_qubits: of the chip.
        schedule: the angles.
        pairs: the pairs ``j < l`` with a coupling.
        any_to_any: couple by plain ``rzz`` instead of a swap network.
    """
    n = len(lines[0])
    vectors: dict[str, list[ParameterVector]] = {"h": [], "J": []}
    for k in range(schedule.num_layers):
        vectors["h"].append(ParameterVector(f"h{k}", len(lines) * n))
        vectors["J"].append(ParameterVector(f"J{k}", len(lines) * num_pairs(n)))
    angles = {letter: [list(vector) for vector in layers] for letter, layers in vectors.items()}
    circuit = QuantumCircuit(
        QuantumRegister(num_qubits, "q"), ClassicalRegister(len(lines) * n, SPIN_REGISTER), name="packed_anneal"
    )
    network = pairs if any_to_any else line_network(n, pairs)
    for number, qubits in enumerate(lines):
        append_anneal(
            circuit,
            qubits,
            range(number * n, (number + 1) * n),
            schedule,
            network,
            [layer[number * n : (number + 1) * n] for layer in angles["h"]],
            [layer[number * num_pairs(n) : (number + 1) * num_pairs(n)] for layer in angles["J"]],
        )
    return circuit
