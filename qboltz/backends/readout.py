"""The readout errors that a device reports of itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from qiskit.circuit import QuantumCircuit
from qiskit.providers import BackendV2

from qboltz.circuits import SPIN_REGISTER
from qboltz.machine.packing import PackedAnneal
from qboltz.readout import ReadoutErrors


def reported_readout(
    device: BackendV2, qubits: Sequence[int] | Sequence[Sequence[int]] | NDArray[np.int64]
) -> ReadoutErrors:
    """Readout errors of the qubits that spins are measured on.

    Both directions are taken from the device's properties (``prob_meas1_prep0``, ``prob_meas0_prep1``) where it has
    them. Otherwise the target's error of ``measure``, the mean of both, stands for each. Aer's noise models are made
    from the target, so for a fake device ask for :func:`target_readout`.

    Args:
        device: a ``BackendV2``.
        qubits: ``(n,)`` the qubit of every spin, or ``(rows, n)``.

    Raises:
        ValueError: a qubit has no reported error, or is not one of the device.
    """
    properties = getattr(device, "properties", lambda: None)()
    if properties is None:
        return target_readout(device, qubits)
    places = _places(device, qubits)
    p10, p01 = ({q: _reported(properties, int(q), name) for q in set(places.flat)} for name in _NAMES)
    if None in (*p10.values(), *p01.values()):
        return target_readout(device, qubits)
    return ReadoutErrors(*(np.vectorize(errors.get, otypes=[float])(places) for errors in (p10, p01)))


#: p(1 | 0) and p(0 | 1).
_NAMES = ("prob_meas1_prep0", "prob_meas0_prep1")


def _reported(properties: Any, qubit: int, name: str) -> float | None:
    values = properties.qubits[qubit] if qubit < len(properties.qubits) else []
    return next((float(item.value) for item in values if item.name == name), None)


def target_readout(
    device: BackendV2, qubits: Sequence[int] | Sequence[Sequence[int]] | NDArray[np.int64]
) -> ReadoutErrors:
    """The error of ``measure`` in the device's target, for both directions.

    Raises:
        ValueError: as :func:`reported_readout`.
    """
    places = _places(device, qubits)
    measure = device.target["measure"] if "measure" in device.target.operation_names else {}
    reported = {q: getattr(measure.get((q,)), "error", None) for q in set(places.flat)}
    missing = sorted(int(q) for q, error in reported.items() if error is None)
    if missing:
        raise ValueError(f"qubits must have a readout error in the target of {device.name}, got {missing} without.")
    return ReadoutErrors.symmetric(np.vectorize(reported.get, otypes=[float])(places))


def _places(
    device: BackendV2, qubits: Sequence[int] | Sequence[Sequence[int]] | NDArray[np.int64]
) -> np.ndarray[Any, np.dtype[np.int64]]:
    places = np.asarray(qubits)
    if places.ndim not in (1, 2) or not np.issubdtype(places.dtype, np.integer):
        raise ValueError(f"qubits must be integers (spins,) or (rows, spins), got {qubits!r}.")
    limit = device.num_qubits
    if places.size and (places.min() < 0 or (limit is not None and places.max() >= limit)):
        raise ValueError(
            f"qubits must be from 0 to {limit - 1} on {device.name}, got {places.min()} to {places.max()}."
        )
    return places


def measured_qubits(circuit: QuantumCircuit) -> tuple[int, ...]:
    """Which qubit each spin is measured on: the qubit of classical bit ``i`` of the register ``spins`` for spin ``i``.

    Raises:
        ValueError: the circuit has no such register, or does not measure all of it.
    """
    register = next((register for register in circuit.cregs if register.name == SPIN_REGISTER), None)
    if register is None:
        raise ValueError(f"circuit must have a classical register {SPIN_REGISTER!r}, got {circuit.cregs}.")
    place = {
        step.clbits[0]: circuit.find_bit(step.qubits[0]).index
        for step in circuit.data
        if step.operation.name == "measure"
    }
    unread = [number for number, bit in enumerate(register) if bit not in place]
    if unread:
        raise ValueError(f"circuit must measure every bit of {SPIN_REGISTER!r}, bits {unread} are not.")
    return tuple(place[bit] for bit in register)


def measured_lines(packed: PackedAnneal, num_rows: int) -> NDArray[np.int64]:
    """``(rows, n)``: the qubit that each spin of each row of a packed circuit is measured on; row ``r`` has line
    ``r % K``."""
    lines = np.array(measured_qubits(packed.circuit), dtype=np.int64).reshape(packed.num_lines, packed.num_spins)
    return lines[np.arange(num_rows) % packed.num_lines]
