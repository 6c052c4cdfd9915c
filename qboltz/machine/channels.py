r"""Exact populations of small noisy circuits for many angles at once: products of transfer matrices.

A density matrix is written in Pauli products, ``r_P = Tr(P rho)``, a gate with its noise as a real matrix on the Pauli
products of its qubits,

.. math:: R_{PQ} = 2^{-k} \; \mathrm{Tr}(P \, \mathcal{E}(U Q U^\dagger)),

and the populations are the Hadamard transform of the coefficients of products of ``I`` and ``Z``. Successive gates on
the same one or two qubits are multiplied first, angles included, so that a step of the swap network is one 16 x 16
matrix per row of angles. Without noise the same walk runs over amplitudes, with unitary matrices.

One noisy row of 8 qubits takes milliseconds, where Aer's density matrix takes half a second; the two agree to the
precision of the arithmetic, which is tested.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from qiskit.circuit import CircuitInstruction, Instruction, Parameter, ParameterExpression, QuantumCircuit

from qboltz.machine.matrices import Matrix, exchanged, gate_matrix, rotation

#: The channel after a gate on these qubits of the circuit, as a matrix on Pauli products; ``None``: no error.
Noise = Callable[[Instruction, tuple[int, ...]], "NDArray[np.float64] | None"]


@dataclass
class Rotation:
    """A gate with one open angle, ``constant + cos(a) even + sin(a) odd`` with ``a`` the angle, or half of it."""

    parameter: ParameterExpression
    constant: Matrix
    even: Matrix
    odd: Matrix
    half: bool = field(kw_only=True)


@dataclass
class Block:
    """Successive gates on the same one or two qubits; matrices act on ``qubits[0]`` (slower index), ``qubits[1]``."""

    qubits: tuple[int, ...]
    factors: list[Matrix | Rotation] = field(default_factory=list)


class SmallCircuit:
    """A circuit of few qubits, its measurements left out, ready for rows of angles.

    Args:
        circuit: gates on one or two qubits, with fixed angles or one open angle; barriers do nothing.
        noise: channel after each gate; ``None`` runs over amplitudes instead of density matrices.

    Raises:
        ValueError: another instruction.
    """

    def __init__(self, circuit: QuantumCircuit, noise: Noise | None) -> None:
        self.num_qubits = circuit.num_qubits
        self.noise = noise
        self.base = 2 if noise is None else 4
        self.parameters = list(circuit.parameters)
        self._known: dict[tuple[str, tuple[int, ...]], Matrix | None] = {}
        self.walk = _walk(self._fused(circuit), self.num_qubits)

    @property
    def bytes_per_row(self) -> int:
        """Memory of the state of one row."""
        return int(self.base**self.num_qubits) * (8 if self.noise is None else 4)

    def populations(self, angles: NDArray[np.float64]) -> torch.Tensor:
        """Probabilities ``(rows, 2**n)``, qubit 0 the lowest bit, for angles ``(rows, parameters)``."""
        rows, n, base = len(angles), self.num_qubits, self.base
        column = {parameter: angles[:, index] for index, parameter in enumerate(self.parameters)}
        start = torch.tensor([1.0, 0.0] if self.noise is None else [1.0, 0.0, 0.0, 1.0])
        state = torch.ones(1)
        for _ in range(n):
            state = torch.outer(state, start).flatten()
        state = state.to(torch.complex64 if self.noise is None else torch.float32).repeat(rows, 1)
        order = list(range(n))  # the qubit of each axis
        for block, wanted in self.walk:
            if order != wanted:
                axes = [1 + order.index(qubit) for qubit in wanted]
                state = state.reshape(rows, *[base] * n).permute(0, *axes)
            size = len(block.qubits)
            matrix = self._matrix(block, column, rows)
            # The qubits of the block go from the front to the back.
            state = torch.matmul(state.reshape(rows, base**size, -1).mT, matrix.mT)
            order = wanted[size:] + wanted[:size]
        axes = [1 + order.index(qubit) for qubit in reversed(range(n))]
        state = state.reshape(rows, *[base] * n).permute(0, *axes)
        if self.noise is None:
            return state.reshape(rows, -1).abs().square()
        for axis in range(1, n + 1):  # I, Z of each qubit to |0>, |1>
            identity, z = state.select(axis, 0), state.select(axis, 3)
            state = torch.stack([identity + z, identity - z], axis) / 2
        return state.reshape(rows, -1).clamp_(min=0)

    def _matrix(self, block: Block, column: Mapping[Parameter, NDArray[np.float64]], rows: int) -> torch.Tensor:
        dtype = torch.complex64 if self.noise is None else torch.float32
        product: torch.Tensor | None = None
        for factor in block.factors:
            if isinstance(factor, Rotation):
                angle = torch.from_numpy(_values(factor.parameter, column, rows) * (0.5 if factor.half else 1.0))
                parts = [torch.from_numpy(np.asarray(part)) for part in (factor.constant, factor.even, factor.odd)]
                cos, sin = angle.cos()[:, None, None], angle.sin()[:, None, None]
                matrix = (parts[0] + cos * parts[1] + sin * parts[2]).to(dtype)
            else:
                matrix = torch.from_numpy(np.asarray(factor)).to(dtype)
            product = matrix if product is None else matrix @ product
        assert product is not None
        return product

    def _fused(self, circuit: QuantumCircuit) -> list[Block]:
        closed: list[Block] = []
        open_blocks: dict[int, Block] = {}
        for step in circuit.data:
            if step.operation.name in ("barrier", "measure"):
                continue
            qubits = tuple(circuit.find_bit(qubit).index for qubit in step.qubits)
            factors = self._factors(step, qubits)
            blocks = list(
                {id(open_blocks[qubit]): open_blocks[qubit] for qubit in qubits if qubit in open_blocks}.values()
            )
            if len(blocks) == 1 and set(qubits) <= set(blocks[0].qubits):
                block = blocks[0]
            else:
                block = Block(tuple(sorted(qubits)))
                for old in blocks:
                    if len(old.qubits) == 1:
                        block.factors += [self._widened(factor, old.qubits, block.qubits) for factor in old.factors]
                    else:
                        closed.append(old)
                    for qubit in old.qubits:
                        del open_blocks[qubit]
                open_blocks |= dict.fromkeys(qubits, block)
            for factor in factors:
                factor = self._widened(factor, qubits, block.qubits)
                if block.factors and not isinstance(factor, Rotation) and not isinstance(block.factors[-1], Rotation):
                    block.factors[-1] = factor @ block.factors[-1]
                else:
                    block.factors.append(factor)
        closed += {id(block): block for block in open_blocks.values()}.values()
        return closed

    def _factors(self, step: CircuitInstruction, qubits: tuple[int, ...]) -> list[Matrix | Rotation]:
        """The gate, then its noise, on axes in the order of ``qubits``."""
        gate = step.operation
        open_angles = [angle for angle in gate.params if isinstance(angle, ParameterExpression) and angle.parameters]
        if len(qubits) > 2 or step.clbits or len(open_angles) > 1 or (len(gate.params) > 1 and open_angles):
            raise ValueError(
                f"circuit must have gates on one or two qubits with at most one open angle, got {gate.name!r} on "
                f"{len(qubits)} qubits with {len(gate.params)} parameters."
            )
        kind: Any = type(gate)
        if open_angles:
            constant, even, odd, half = rotation(kind, self.base)
            opened = Rotation(open_angles[0], constant, even, odd, half=half)
            error = self._error(gate, qubits)
            return [opened] if error is None else [opened, error]
        matrix = np.eye(self.base) if gate.name == "delay" else gate_matrix(kind, _numbers(gate), self.base)
        error = self._error(gate, qubits)
        return [matrix if error is None else error @ matrix]

    def _error(self, gate: Instruction, qubits: tuple[int, ...]) -> Matrix | None:
        if self.noise is None:
            return None
        if gate.name == "delay":
            return self.noise(gate, qubits)
        key = gate.name, qubits
        if key not in self._known:
            self._known[key] = self.noise(gate, qubits)
        return self._known[key]

    def _widened(self, factor: Matrix | Rotation, qubits: tuple[int, ...], onto: tuple[int, ...]) -> Matrix | Rotation:
        if qubits == onto:
            return factor
        if isinstance(factor, Rotation):
            parts = (self._widened_matrix(part, qubits, onto) for part in (factor.constant, factor.even, factor.odd))
            return Rotation(factor.parameter, *parts, half=factor.half)
        return self._widened_matrix(factor, qubits, onto)

    def _widened_matrix(self, factor: Matrix, qubits: tuple[int, ...], onto: tuple[int, ...]) -> Matrix:
        if len(qubits) == 2:
            return exchanged(factor, self.base)
        eye = np.eye(self.base)
        return np.kron(factor, eye) if qubits[0] == onto[0] else np.kron(eye, factor)


def _walk(blocks: list[Block], num_qubits: int) -> list[tuple[Block, list[int]]]:
    """Blocks in an order that their qubits allow, each with the order of axes it wants: its own in front.

    The state is a cycle of axes, of which every block takes two from the front to the back. So blocks that are next in
    the cycle come first, and where none is at the front the whole cycle turns: on a line that is one copy of the state
    for a layer of the brick wall instead of one for every step.
    """
    waiting: dict[int, list[Block]] = {qubit: [] for qubit in range(num_qubits)}
    for block in reversed(blocks):
        for qubit in block.qubits:
            waiting[qubit].append(block)
    order, walk = list(range(num_qubits)), []
    for _ in blocks:
        ready = [
            queue[-1]
            for qubit, queue in waiting.items()
            if queue and queue[-1].qubits[0] == qubit and all(waiting[q][-1] is queue[-1] for q in queue[-1].qubits)
        ]
        block = min(ready, key=lambda block: _place(order, block))
        place = order.index(block.qubits[0])
        wanted = order[place:] + order[:place]
        if tuple(wanted[: len(block.qubits)]) != block.qubits:
            wanted = [*block.qubits, *(qubit for qubit in order if qubit not in block.qubits)]
        walk.append((block, wanted))
        size = len(block.qubits)
        order = wanted[size:] + wanted[:size]
        for qubit in block.qubits:
            waiting[qubit].pop()
    return walk


def _place(order: list[int], block: Block) -> tuple[bool, int]:
    """Blocks whose qubits are not neighbors in the cycle come last."""
    place = order.index(block.qubits[0])
    turned = order[place:] + order[:place]
    return tuple(turned[: len(block.qubits)]) != block.qubits, place


def _numbers(gate: Instruction) -> tuple[float, ...]:
    return tuple(map(float, gate.params))


def _values(
    angle: ParameterExpression, column: Mapping[Parameter, NDArray[np.float64]], rows: int
) -> NDArray[np.float64]:
    if isinstance(angle, Parameter):
        return column[angle]
    symbols: Sequence[Parameter] = list(angle.parameters)
    return np.array([float(angle.bind({symbol: column[symbol][row] for symbol in symbols})) for row in range(rows)])
