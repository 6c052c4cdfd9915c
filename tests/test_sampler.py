"""The simulator as a Qiskit sampler: the circuits it knows, the bits it returns, what it refuses."""

import copy
import pickle

import numpy as np
import pytest
import torch
from qiskit import ClassicalRegister, QuantumCircuit, QuantumRegister, transpile
from qiskit.circuit import Parameter
from qiskit.primitives import StatevectorSampler
from qiskit.quantum_info import Statevector
from strategies import random_couplings

from qboltz import (
    AnnealingSchedule,
    AnnealingSolver,
    IsingModel,
    StatevectorSolver,
    TooManySpinsError,
    annealing_circuit,
)
from qboltz.sampler import AnnealingCircuitSampler, read_circuit
from qboltz.simulator import populations
from qboltz.spins import spins_from_bytes

SCHEDULE = AnnealingSchedule.fitted(2)


def random_model(num_spins=4, shape=(2, 3)):
    generator = torch.Generator().manual_seed(num_spins)
    fields = 0.7 * torch.randn(*shape, num_spins, generator=generator)
    return IsingModel(fields, random_couplings((shape[0], 1), num_spins, 0.4, generator).float())


def exact_probabilities(circuit, values=None):
    """Qiskit's own populations of a circuit, measurements removed, over its qubits in order."""
    unitary = circuit.remove_final_measurements(inplace=False)
    return Statevector(unitary if values is None else unitary.assign_parameters(values)).probabilities()


def simulated_probabilities(pub):
    """What the sampler draws from, ``(rows, 2**n)``."""
    from qiskit.primitives.containers.sampler_pub import SamplerPub

    pub = SamplerPub.coerce(pub, 1)
    anneals, order = read_circuit(pub.circuit).anneals(pub, torch.float64)
    result = np.empty((anneals.num_rows, 2**anneals.num_spins))
    for piece, part in populations(anneals):
        result[order[piece].numpy()] = part.numpy()
    return result


@pytest.mark.parametrize("num_spins", [1, 2, 5])
def test_probabilities_equal_qiskit_for_every_row(num_spins):
    anneal = annealing_circuit(num_spins, SCHEDULE)
    pub = anneal.bind(random_model(num_spins))
    result = simulated_probabilities(pub)
    bound = pub[1].bind_all(anneal.circuit)
    assert result.shape == (6, 2**num_spins)
    for row in range(6):
        np.testing.assert_allclose(result[row], exact_probabilities(bound[row]), atol=1e-12)


def test_free_angles_on_every_gate():
    # No layer is a multiple of another: the angles are read gate by gate, not guessed from a model.
    n, angles = 3, iter(np.linspace(0.1, 2.9, 40))
    circuit = QuantumCircuit(n)
    circuit.h(range(n))
    for mixer in (0.4, 1.1):
        circuit.rzz(next(angles), 2, 0)
        for qubit in range(n):
            circuit.rz(next(angles), qubit)
        circuit.rzz(next(angles), 1, 2)
        circuit.rz(next(angles), 1)
        circuit.barrier()
        circuit.rzz(next(angles), 0, 2)  # the same pair once more
        circuit.rx(mixer, range(n))
    circuit.measure_all()
    result = simulated_probabilities((circuit,))
    np.testing.assert_allclose(result[0], exact_probabilities(circuit), atol=1e-12)
    assert np.ptp(result) > 0.05


def test_parameters_are_bound_by_name_whatever_their_order():
    a, b, mixer = Parameter("z"), Parameter("a"), Parameter("m")
    circuit = QuantumCircuit(2)
    circuit.h([0, 1])
    circuit.rz(a, 0)
    circuit.rz(b, 1)
    circuit.rx(mixer, [0, 1])
    circuit.measure_all()
    rows = {(a, b): [[0.3, 1.4], [0.9, -0.7]], mixer: [0.8, 0.8]}
    result = simulated_probabilities((circuit, rows))
    for row, values in enumerate(({a: 0.3, b: 1.4, mixer: 0.8}, {a: 0.9, b: -0.7, mixer: 0.8})):
        np.testing.assert_allclose(result[row], exact_probabilities(circuit, values), atol=1e-12)


@pytest.mark.parametrize("level", [1, 3])
def test_a_preparation_compiled_without_h_is_read(level):
    anneal = annealing_circuit(3, SCHEDULE)
    with_barrier = anneal.circuit.copy_empty_like()
    for item in anneal.circuit.data:
        with_barrier.append(item)
        if item.operation.name == "h":
            with_barrier.barrier(item.qubits)  # keeps the compiler from merging the preparation with the first layer
    compiled = transpile(with_barrier, basis_gates=["rz", "sx", "rx", "rzz"], optimization_level=level)
    assert "h" not in compiled.count_ops()
    values = np.linspace(-1, 1, len(anneal.circuit.parameters))
    result = simulated_probabilities((compiled, values))
    np.testing.assert_allclose(result[0], exact_probabilities(anneal.circuit, values), atol=1e-12)


def test_shots_follow_the_probabilities():
    shots = 20_000
    model = random_model()
    pub = annealing_circuit(4, SCHEDULE).bind(model)
    result = AnnealingCircuitSampler(seed=3).run([pub], shots=shots).result()[0]
    counts = [result.data.spins.get_int_counts(row) for row in range(6)]
    for row, expected in enumerate(simulated_probabilities(pub)):
        frequencies = np.array([counts[row].get(number, 0) for number in range(16)]) / shots
        assert (np.abs(frequencies - expected) <= 5 * np.sqrt(expected * (1 - expected) / shots)).all()


def test_results_look_like_those_of_qiskit():
    pub = annealing_circuit(4, SCHEDULE).bind(random_model())
    ours = AnnealingCircuitSampler(seed=1).run([pub, (*pub, 7)], shots=5).result()
    theirs = StatevectorSampler(seed=1).run([pub, (*pub, 7)], shots=5).result()
    for one, other in zip(ours, theirs, strict=True):
        assert one.data.shape == other.data.shape
        assert set(one.data.keys()) == set(other.data.keys())
        assert one.data.spins.array.shape == other.data.spins.array.shape
        assert one.data.spins.array.dtype == other.data.spins.array.dtype
        assert one.data.spins.num_bits == other.data.spins.num_bits
        assert one.metadata["shots"] == other.metadata["shots"]


def test_bindings_may_have_any_shape():
    circuit, bindings = annealing_circuit(3, SCHEDULE).bind(random_model(3))
    result = AnnealingCircuitSampler(seed=1).run([(circuit, bindings.reshape(2, 3))], shots=4).result()[0]
    assert result.data.spins.shape == (2, 3)
    flat = AnnealingCircuitSampler(seed=1).run([(circuit, bindings)], shots=4).result()[0]
    np.testing.assert_array_equal(result.data.spins.array.reshape(6, 4, 1), flat.data.spins.array)


def test_bits_go_where_they_are_measured():
    """Two registers, a crossed order, a bit nobody writes, more than a byte, and a qubit that has no gate."""
    first, second = ClassicalRegister(3, "first"), ClassicalRegister(11, "second")
    circuit = QuantumCircuit(QuantumRegister(5, "q"), first, second)
    strong = [1, 2, 4]  # qubits; 0 and 3 have no gates
    circuit.h(strong)
    for qubit, angle in zip(strong, (-np.pi / 2, np.pi / 2, -np.pi / 2), strict=True):
        circuit.rz(angle, qubit)
    circuit.rx(-np.pi / 2, strong)  # the states |0>, |1>, |0>
    circuit.measure(1, first[2])
    circuit.measure(2, second[10])
    circuit.measure(4, second[0])
    expected = StatevectorSampler().run([circuit], shots=3).result()[0].data
    data = AnnealingCircuitSampler().run([circuit], shots=3).result()[0].data
    assert expected.second.get_int_counts() == {2**10: 3}
    for register in ("first", "second"):
        np.testing.assert_array_equal(data[register].array, expected[register].array)


def test_a_strong_field_on_spin_0_is_seen_on_spin_0():
    # And one the other way on spin 9, which is in another byte of the bits.
    fields = torch.zeros(1, 10)
    fields[0, 0], fields[0, 9] = 0.9, -0.9
    pub = annealing_circuit(10, SCHEDULE).bind(IsingModel(fields, torch.zeros(10, 10)))
    bits = AnnealingCircuitSampler(seed=0).run([pub], shots=2000).result()[0].data.spins
    m = spins_from_bytes(bits.array, 10).mean((0, 1))
    assert m[0] > 0.5
    assert m[9] < -0.5
    assert np.abs(m[1:9]).max() < 5 / 2000**0.5


def test_seeds():
    pub = annealing_circuit(3, SCHEDULE).bind(random_model(3))
    sampler, twin = AnnealingCircuitSampler(seed=5), AnnealingCircuitSampler(seed=5)
    first = sampler.run([pub], shots=50).result()[0].data.spins.array
    np.testing.assert_array_equal(first, twin.run([pub], shots=50).result()[0].data.spins.array)
    copies = copy.deepcopy(sampler), pickle.loads(pickle.dumps(sampler))
    second = sampler.run([pub], shots=50).result()[0].data.spins.array
    assert (first != second).any()
    for other in copies:
        np.testing.assert_array_equal(second, other.run([pub], shots=50).result()[0].data.spins.array)


def test_the_annealing_solver_runs_on_it():
    model = random_model()
    solver = AnnealingSolver(AnnealingCircuitSampler(seed=2), SCHEDULE, shots=4000, estimator="plain")
    ensemble = solver.solve(model)
    m = StatevectorSolver(SCHEDULE, estimator="plain").solve(model).magnetization()
    assert ((ensemble.magnetization() - m).abs() <= 5 * ((1 - m * m) / 4000).sqrt()).all()


def refused(build, match):
    circuit = QuantumCircuit(2, 2)
    build(circuit)
    rows = {parameter: [0.5] for parameter in circuit.parameters}
    with pytest.raises(ValueError, match=match):
        AnnealingCircuitSampler().run([(circuit, rows)] if rows else [circuit])


def test_other_circuits_are_refused_by_instruction():
    def plus(circuit):
        circuit.h([0, 1])
        return circuit

    refused(lambda c: plus(c).cx(0, 1), r"got cx on qubit 0, 1: this instruction has no place")
    refused(lambda c: c.rz(0.3, 1), r"got rz\(0.3\) on qubit 1: it does not prepare")
    refused(lambda c: c.rzz(0.3, 0, 1), r"got rzz\(0.3\) on qubit 0, 1: a qubit has not been prepared")
    refused(lambda c: plus(c).h(0), r"got h on qubit 0: the qubit is prepared already")
    refused(lambda c: plus(c).rz(2 * Parameter("a"), 0), r"got rz\(2\*a\) on qubit 0: an angle must be")
    refused(lambda c: plus(c), "has no layer")

    def uneven(circuit):
        plus(circuit).rx(0.3, 0)

    refused(uneven, r"\[1, 0\] rx gates")

    def across_layers(circuit):
        plus(circuit).rx(0.3, 0)
        circuit.rzz(0.1, 0, 1)

    refused(across_layers, r"rzz\(0.1\).*different layers, \[0, 1\]")

    def after_measurement(circuit):
        plus(circuit).rx(0.3, [0, 1])
        circuit.measure(0, 0)
        circuit.rz(0.1, 0)

    refused(after_measurement, "measured before")

    def open_layer(circuit):
        plus(circuit).rx(0.3, [0, 1])
        circuit.rz(0.1, 0)

    refused(open_layer, "rx gates on its qubits, and each needs 2")


def test_unequal_mixers_are_refused():
    circuit = QuantumCircuit(2, 2)
    circuit.h([0, 1])
    circuit.rx(0.3, 0)
    circuit.rx(0.4, 1)
    circuit.measure([0, 1], [0, 1])
    with pytest.raises(ValueError, match=r"rx angles of a layer must be the same .* spread of 0.1 in layer 0"):
        AnnealingCircuitSampler().run([circuit]).result()


def test_limits_and_bad_arguments():
    circuit = QuantumCircuit(25)
    circuit.h(range(25))
    circuit.rx(0.3, range(25))
    circuit.measure_all()
    with pytest.raises(TooManySpinsError, match=r"max_spins = 20 qubits, got 25.*0.25 GiB"):
        AnnealingCircuitSampler().run([circuit])
    with pytest.raises(ValueError, match="default_shots must be a positive integer, got 0"):
        AnnealingCircuitSampler(default_shots=0)
    with pytest.raises(ValueError, match=r"dtype must be .* got torch.float16"):
        AnnealingCircuitSampler(dtype=torch.float16)
