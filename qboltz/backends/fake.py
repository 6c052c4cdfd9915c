"""Fake devices: snapshots of real machines, simulated by Aer with the noise of the qubits that are used."""

from __future__ import annotations

from functools import cache, lru_cache

from qiskit.circuit import QuantumCircuit, QuantumRegister
from qiskit.providers import BackendV2
from qiskit.transpiler import Target

from qboltz.backends.aer import aer_sampler, num_cores
from qboltz.backends.program import Backend, Program, compile_for
from qboltz.circuits import AnnealingCircuit, annealing_circuit
from qboltz.schedule import AnnealingSchedule


class FakeBackend(Backend):
    """A snapshot of ``qiskit_ibm_runtime.fake_provider``, by its name or as the object."""

    ideal = False

    def __init__(self, device: str | BackendV2) -> None:
        super().__init__(device if isinstance(device, str) else device.name)
        self._device = device

    def compile(self, anneal: AnnealingCircuit) -> Program:
        if isinstance(self._device, str):
            return _named_program(self._device, anneal.num_spins, anneal.schedule)
        return noisy_program(self._device, anneal)


@cache
def fake_devices() -> dict[str, type[BackendV2]]:
    """Name to class of all fake devices (importing them takes seconds, making one reads its files)."""
    from qiskit_ibm_runtime import fake_provider
    from qiskit_ibm_runtime.fake_provider.fake_backend import FakeBackendV2

    classes = (value for value in vars(fake_provider).values() if isinstance(value, type))
    return {
        kind.backend_name: kind for kind in classes if issubclass(kind, FakeBackendV2) and hasattr(kind, "backend_name")
    }


@cache
def _named_device(name: str) -> BackendV2:
    return fake_devices()[name]()


@lru_cache(maxsize=64)
def _named_program(name: str, num_spins: int, schedule: AnnealingSchedule) -> Program:
    return noisy_program(_named_device(name), annealing_circuit(num_spins, schedule))


def noisy_program(device: BackendV2, anneal: AnnealingCircuit) -> Program:
    """The anneal compiled for the device, on the qubits that it uses and with the noise of these alone.

    Aer's noise model of a whole chip takes seconds to build and slows every run down; the errors of the used
    qubits give the same samples. The noise is that of ``NoiseModel.from_backend``: gate errors with
    relaxation, and readout.
    """
    from qiskit_aer import AerSimulator
    from qiskit_aer.noise import NoiseModel
    from qiskit_aer.noise.device import basic_device_gate_errors, basic_device_readout_errors

    circuit, target = cut(compile_for(anneal.circuit, device), device.target)
    noise = NoiseModel(basis_gates=list(target.operation_names))
    for qubits, error in basic_device_readout_errors(target=target):
        noise.add_readout_error(error, qubits)
    for name, qubits, error in basic_device_gate_errors(target=target):
        noise.add_quantum_error(error, name, qubits)
    simulator = AerSimulator(noise_model=noise, max_parallel_experiments=num_cores())
    return Program(circuit, lambda seed: aer_sampler(simulator, seed))


def cut(circuit: QuantumCircuit, target: Target) -> tuple[QuantumCircuit, Target]:
    """A circuit on a device, and the device, reduced to the qubits that the circuit acts on, in ascending order."""
    used = sorted({circuit.find_bit(qubit).index for step in circuit.data for qubit in step.qubits})
    place = {qubit: index for index, qubit in enumerate(used)}
    small = QuantumCircuit(QuantumRegister(len(used), "q"), *circuit.cregs, name=circuit.name)
    for step in circuit.data:
        small.append(step.operation, [place[circuit.find_bit(qubit).index] for qubit in step.qubits], step.clbits)

    properties = target.qubit_properties
    part = Target(
        num_qubits=len(used),
        dt=target.dt,
        qubit_properties=None if properties is None else [properties[qubit] for qubit in used],
    )
    for name in target.operation_names:
        everywhere = target[name] or {}
        here = {
            tuple(place[qubit] for qubit in qubits): value
            for qubits, value in everywhere.items()
            if qubits is not None and place.keys() >= set(qubits)
        }
        if here:
            part.add_instruction(target.operation_from_name(name), here, name=name)
    return small, part
