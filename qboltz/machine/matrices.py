"""Gates as matrices: unitary on amplitudes (base 2), or real on Pauli products (base 4), the first qubit slowest."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from qiskit.quantum_info import PTM, Operator

Matrix: TypeAlias = NDArray[Any]


@lru_cache(maxsize=1024)
def gate_matrix(kind: Any, angles: tuple[float, ...], base: int) -> Matrix:
    """Of the gate ``kind(*angles)``."""
    operator = Operator(kind(*angles))
    return by_qubit(operator.data if base == 2 else PTM(operator).data.real, operator.num_qubits)


@lru_cache(maxsize=64)
def rotation(kind: Any, base: int) -> tuple[Matrix, Matrix, Matrix, bool]:
    """A gate as a constant and one frequency, from three of its angles: 1 for channels and phases, 1/2 for rotations.

    Raises:
        ValueError: it has more than one frequency (a controlled rotation as a channel).
    """
    half = base == 2 and not np.allclose(gate_matrix(kind, (2 * np.pi,), base), gate_matrix(kind, (0.0,), base))
    at = [gate_matrix(kind, (value * (2 if half else 1),), base) for value in (0.0, np.pi / 2, np.pi)]
    constant = (at[0] + at[2]) / 2
    even, odd = (at[0] - at[2]) / 2, at[1] - constant
    test = constant + np.cos(1.1) * even + np.sin(1.1) * odd
    if not np.allclose(test, gate_matrix(kind, (2.2 if half else 1.1,), base), atol=1e-9):
        raise ValueError(f"a gate with an open angle must be a rotation (rz, rx, rzz, ...), got {kind.__name__}.")
    return constant, even, odd, half


def by_qubit(matrix: Matrix, num_qubits: int) -> Matrix:
    """From Qiskit's order of indices, the last qubit slowest, to the first qubit slowest."""
    return exchanged(matrix, round(len(matrix) ** 0.5)) if num_qubits == 2 else matrix


def exchanged(matrix: Matrix, base: int) -> Matrix:
    """The matrix of two qubits with the roles of its qubits exchanged."""
    return matrix.reshape(base, base, base, base).transpose(1, 0, 3, 2).reshape(base**2, base**2)
