r"""The noise of a device as matrices on Pauli products: what Aer's ``NoiseModel.from_backend`` makes of a target.

A gate of duration ``t`` is followed by a depolarizing channel and then by relaxation of each of its qubits,

.. math:: X, Y \to e^{-t/T_2} \{X, Y\}, \qquad Z \to e^{-t/T_1} Z + (1 - e^{-t/T_1}) I,

where the depolarizing probability is what brings the average infidelity of both to the reported error of the gate. A
delay relaxes alone, and a readout flips its bit. There is neither crosstalk nor any coherent error.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from qiskit.circuit import Instruction
from qiskit.transpiler import Target


def gate_noise(target: Target, gate: Instruction, qubits: tuple[int, ...]) -> NDArray[np.float64] | None:
    """Matrix ``(4**k, 4**k)`` of the channel after a gate, its first qubit slowest; ``None`` if there is no error.

    Args:
        target: of the device.
        gate: or delay.
        qubits: of the device.
    """
    if gate.name == "delay":
        seconds = _delay_seconds(gate, target)
        return _relaxation(target, qubits, seconds)
    reported = (target[gate.name] or {}).get(qubits) if gate.name in target.operation_names else None
    if reported is None:
        return None
    if not reported.error and not reported.duration:
        return None
    relaxation = _relaxation(target, qubits, reported.duration or 0.0)
    depolarizing = _depolarizing(reported.error or 0.0, relaxation)
    shrink = np.full(4 ** len(qubits), 1 - depolarizing)
    shrink[0] = 1
    return relaxation * shrink  # the depolarizing channel acts first


def readout_noise(target: Target, qubit: int) -> NDArray[np.float64]:
    """``P(read | is)``: row 0 for a qubit in ``|0>``, row 1 in ``|1>``."""
    reported = (target["measure"] or {}).get((qubit,)) if "measure" in target.operation_names else None
    if reported is None:
        return np.eye(2)
    both = reported.error or 0.0
    up, down = getattr(reported, "prob_meas1_prep0", both), getattr(reported, "prob_meas0_prep1", both)
    return np.array([[1 - up, up], [down, 1 - down]])


def _relaxation(target: Target, qubits: tuple[int, ...], seconds: float) -> NDArray[np.float64]:
    product: NDArray[np.float64] = np.eye(1)
    for qubit in qubits:
        properties = None if target.qubit_properties is None else target.qubit_properties[qubit]
        t1, t2 = getattr(properties, "t1", None), getattr(properties, "t2", None)
        t1 = math.inf if t1 is None else t1
        t2 = min(math.inf if t2 is None else t2, 2 * t1)
        keep, phase = math.exp(-seconds / t1), math.exp(-seconds / t2)
        matrix = np.diag([1.0, phase, phase, keep])
        matrix[3, 0] = 1 - keep
        product = np.kron(product, matrix).astype(np.float64)
    return product


def _depolarizing(error: float, relaxation: NDArray[np.float64]) -> float:
    """Probability of the depolarizing channel that makes up for what relaxation leaves of an average gate error."""
    dimension = math.isqrt(len(relaxation))
    fidelity = (float(np.trace(relaxation)) / dimension + 1) / (dimension + 1)
    if error <= 1 - fidelity:
        return 0.0
    most = dimension**2 / (dimension**2 - 1)
    return min(dimension * (error - (1 - fidelity)) / (dimension * fidelity - 1), most)


def _delay_seconds(delay: Instruction, target: Target) -> float:
    units = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "ps": 1e-12, "dt": target.dt or 0.0}
    return float(delay.duration) * units[delay.unit]
