"""Into the gates of a device, and the check that a circuit with its angles may run there, before anything is sent."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from qiskit.circuit import CircuitInstruction, ParameterExpression, QuantumCircuit
from qiskit.circuit.equivalence_library import SessionEquivalenceLibrary
from qiskit.primitives import BindingsArray
from qiskit.transpiler import PassManager, Target
from qiskit.transpiler.passes import BasisTranslator, GateDirection, Optimize1qGatesDecomposition


def translate(circuit: QuantumCircuit, target: Target) -> QuantumCircuit:
    """The circuit in the gates of a target, on the qubits it is written for: no layout, no routing.

    Each CX becomes one two-qubit gate of the device, turned around where the device has it in one direction only.
    Single-qubit gates are merged, but not across an open angle: an ``rz`` with a parameter keeps its plain parameter,
    which costs nothing on the device and binds much faster than an expression.
    """
    translation = [BasisTranslator(SessionEquivalenceLibrary, target_basis=None, target=target)]
    if target.build_coupling_map() is not None:
        translation += [GateDirection(None, target=target), *translation]
    return PassManager([*translation, Optimize1qGatesDecomposition(target=target)]).run(circuit)


def check_isa(circuit: QuantumCircuit, bindings: BindingsArray, target: Target) -> None:
    """Raise ``ValueError`` unless the device can run every gate of the circuit with every one of the angles.

    Checked are the qubits and gates (each gate on just these qubits, in this direction), that every parameter has a
    value and no value is without a parameter, that all are finite, and the ranges of angles that the target states
    (``rzz`` of IBM machines with fractional gates: 0 to pi/2).
    """
    if circuit.num_qubits > target.num_qubits:
        raise ValueError(f"circuit must have at most {target.num_qubits} qubits, got {circuit.num_qubits}.")
    values = _values(circuit, bindings)
    for step in circuit.data:
        name = step.operation.name
        if name == "barrier":
            continue
        qubits = tuple(circuit.find_bit(qubit).index for qubit in step.qubits)
        if not target.instruction_supported(name, qubits):
            raise ValueError(
                f"every gate must be one of the device, which has no {name!r} on {_where(qubits)}. "
                "Compile the circuit for this device and its present calibration."
            )
        if target.gate_has_angle_bounds(name):
            _check_angles(step, qubits, values, target)


def _values(circuit: QuantumCircuit, bindings: BindingsArray) -> dict[str, NDArray[np.float64]]:
    """Values of each parameter, one per binding, all present and finite."""
    values: dict[str, NDArray[np.float64]] = {}
    for names, array in bindings.data.items():
        values |= {name: array[..., index].reshape(-1) for index, name in enumerate(names)}
    expected = {parameter.name for parameter in circuit.parameters}
    if expected != values.keys():
        missing, unknown = sorted(expected - values.keys()), sorted(values.keys() - expected)
        raise ValueError(
            f"bindings must give a value to each of the {len(expected)} parameters of the circuit and to nothing else, "
            f"got {len(missing)} without a value {missing[:3]} and {len(unknown)} unknown {unknown[:3]}."
        )
    for name, column in values.items():
        if not np.isfinite(column).all():
            row = int(np.flatnonzero(~np.isfinite(column))[0])
            raise ValueError(f"every angle must be finite, got {column[row]} for {name} in circuit {row}.")
    return values


def _check_angles(
    step: CircuitInstruction, qubits: tuple[int, ...], values: dict[str, NDArray[np.float64]], target: Target
) -> None:
    angles = [_evaluate(parameter, values) for parameter in step.operation.params]
    for pick in (np.min, np.max):  # the allowed ranges are intervals
        extreme = [float(pick(column)) for column in angles if column.size]
        if len(extreme) == len(angles) and not target.supported_angle_bound(step.operation.name, extreme):
            raise ValueError(
                f"angles of {step.operation.name!r} must be in the range the device takes, got "
                f"{', '.join(f'{angle:.4g}' for angle in extreme)} on {_where(qubits)}. Compile without fractional "
                "gates: service.backend(name, use_fractional_gates=False)."
            )


def _evaluate(parameter: ParameterExpression | float, values: dict[str, NDArray[np.float64]]) -> NDArray[np.float64]:
    if not isinstance(parameter, ParameterExpression):
        return np.array([float(parameter)])
    columns = {symbol: values[symbol.name] for symbol in parameter.parameters}
    rows = len(next(iter(columns.values()))) if columns else 1
    return np.array(
        [float(parameter.bind({symbol: column[row] for symbol, column in columns.items()})) for row in range(rows)]
    )


def _where(qubits: tuple[int, ...]) -> str:
    return f"qubit {qubits[0]}" if len(qubits) == 1 else f"qubits {', '.join(map(str, qubits))}"
