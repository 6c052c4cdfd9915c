"""A chip as a sampler: against Aer's noise and density matrices, and packed against unpacked anneals."""

from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
import qiskit_ibm_runtime.fake_provider as fakes
import torch
from qiskit.circuit import ClassicalRegister, Delay, Parameter, ParameterVector, QuantumCircuit, QuantumRegister
from qiskit.circuit.library import CXGate, CZGate, ECRGate, Measure, SXGate
from qiskit.primitives import BindingsArray
from qiskit.quantum_info import PTM, SuperOp
from qiskit.transpiler import InstructionProperties, Target
from qiskit_aer import AerSimulator
from qiskit_aer.noise import NoiseModel, thermal_relaxation_error
from qiskit_aer.noise.device import basic_device_gate_errors, basic_device_readout_errors

from qboltz import AnnealingSchedule, AnnealingSolver, IsingModel
from qboltz.backends import SampleRequest
from qboltz.backends.aer import aer_sampler
from qboltz.backends.fake import FakeBackend, cut
from qboltz.circuits import annealing_circuit
from qboltz.errors import TooManySpinsError
from qboltz.machine.chip import ChipSampler
from qboltz.machine.compile import pack
from qboltz.machine.noise import gate_noise, readout_noise
from qboltz.machine.parts import split

SCHEDULE = AnnealingSchedule.fitted(2)


@cache
def device(name):
    return getattr(fakes, name)()


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("QBOLTZ_CACHE", str(tmp_path_factory.getbasetemp() / "circuits"))


def random_rows(rows, n, seed=0, scale=0.6):
    rng = np.random.default_rng(seed)
    couplings = np.triu(scale * rng.normal(size=(rows, n, n)), 1)
    return rng.normal(size=(rows, n)), couplings + couplings.swapaxes(1, 2)


# --------------------------------------------------------------------------------------------------------------- noise


@pytest.mark.parametrize(
    ("name", "gate"), [("FakeManilaV2", CXGate()), ("FakeSherbrooke", ECRGate()), ("FakeTorino", CZGate())]
)
def test_gate_noise_is_that_of_aer(name, gate):
    """Qubits 0 to 4 and what acts between them; matrices with the first qubit slowest, Qiskit's with the last."""
    target = device(name).target
    circuit = QuantumCircuit(target.num_qubits)
    circuit.sx(range(5))
    _, small = cut(circuit, target)
    compared = set()
    for operation, qubits, error in basic_device_gate_errors(target=small):
        if operation not in ("sx", gate.name):
            continue
        expected = PTM(SuperOp(error)).data.real
        if len(qubits) == 2:
            expected = expected.reshape(4, 4, 4, 4).transpose(1, 0, 3, 2).reshape(16, 16)
        found = gate_noise(target, SXGate() if len(qubits) == 1 else gate, tuple(qubits))
        assert np.abs(expected - np.eye(len(expected))).max() > 1e-5
        np.testing.assert_allclose(found, expected, atol=1e-9)
        compared.add((operation, len(qubits)))
    assert compared == {("sx", 1), (gate.name, 2)}


def test_large_errors_and_ideal_gates():
    target = fakes.FakeManilaV2().target
    for error in (0.0, 1e-6, 0.9, 1.0):
        properties = target["cx"][0, 1]
        properties.error = error
        target.update_instruction_properties("cx", (0, 1), properties)
        _, small = cut(only_cx(5), target)
        (expected,) = [
            e for name, qubits, e in basic_device_gate_errors(target=small) if (name, qubits) == ("cx", (0, 1))
        ]
        expected = PTM(SuperOp(expected)).data.real.reshape(4, 4, 4, 4).transpose(1, 0, 3, 2).reshape(16, 16)
        np.testing.assert_allclose(gate_noise(target, CXGate(), (0, 1)), expected, atol=1e-9)
    assert gate_noise(target, CXGate(), (0, 4)) is None


def only_cx(num_qubits):
    circuit = QuantumCircuit(num_qubits)
    for qubit in range(num_qubits - 1):
        circuit.cx(qubit, qubit + 1)
    return circuit


def test_delays_relax_their_qubit():
    target = device("FakeFez").target
    for qubit, capped in ((87, True), (2, False)):
        t1, t2 = target.qubit_properties[qubit].t1, target.qubit_properties[qubit].t2
        assert (t2 > 2 * t1) == capped  # calibrations may say so; no channel can
        expected = PTM(SuperOp(thermal_relaxation_error(t1, min(t2, 2 * t1), 1e-5))).data.real
        np.testing.assert_allclose(gate_noise(target, Delay(1e-5, "s"), (qubit,)), expected, atol=1e-9)
        in_dt = Delay(round(1e-5 / target.dt), "dt")
        np.testing.assert_allclose(gate_noise(target, in_dt, (qubit,)), expected, rtol=1e-4, atol=1e-9)


class Asymmetric(InstructionProperties):
    """As some targets report a readout: how often each state is misread."""

    prob_meas1_prep0, prob_meas0_prep1 = 0.02, 0.07


def test_readout_noise_is_that_of_aer():
    target = Target(num_qubits=3)
    target.add_instruction(
        Measure(), {(0,): InstructionProperties(error=0.03), (1,): Asymmetric(error=0.045), (2,): None}
    )
    errors = {qubits[0]: error.probabilities for qubits, error in basic_device_readout_errors(target=target)}
    assert errors[1][0][1] != errors[1][1][0]
    for qubit in range(3):
        np.testing.assert_allclose(readout_noise(target, qubit), errors.get(qubit, np.eye(2)))


# ------------------------------------------------------------------------------------------------------- probabilities


def aer_probabilities(circuit, device):
    """Of the classical bits of a bound circuit under Aer's model of the whole device, readout errors applied."""
    noise = NoiseModel.from_backend(device)
    measured = {}
    bare = circuit.copy_empty_like()
    for step in circuit.data:
        if step.operation.name == "measure":
            measured[circuit.find_bit(step.clbits[0]).index] = circuit.find_bit(step.qubits[0]).index
        else:
            bare.append(step)
    bare.save_probabilities([measured[bit] for bit in sorted(measured)])
    run = AerSimulator(method="density_matrix", noise_model=noise).run(bare, shots=1)
    errors = {qubits[0]: error.probabilities for qubits, error in basic_device_readout_errors(target=device.target)}
    confusion = np.eye(1)
    for bit in sorted(measured):
        confusion = np.kron(errors[measured[bit]], confusion)
    return run.result().data()["probabilities"] @ confusion


@pytest.mark.parametrize("n", [2, 4])
def test_probabilities_are_those_of_aers_density_matrix(n):
    manila = device("FakeManilaV2")
    packed = pack(manila, n, SCHEDULE)
    bindings = packed.bindings(*random_rows(2 * packed.num_lines, n))
    (*_, last) = [bindings.bind(packed.circuit, (row,)) for row in range(2)]
    expected = aer_probabilities(last, manila)
    product = torch.ones(1, dtype=torch.float64)
    for part in ChipSampler(manila).parts(packed.circuit):
        names = [parameter.name for parameter in packed.circuit.parameters]
        angles = bindings.as_array(packed.circuit.parameters)[:, [names.index(name) for name in part.parameters]]
        product = torch.outer(part.probabilities(angles)[1], product).flatten()
    assert np.ptp(expected) > 0.1
    np.testing.assert_allclose(product.numpy(), expected, atol=1e-6)


def test_any_circuit_of_one_and_two_qubit_gates():
    """Gates across a line, in both directions, fixed and open angles, a qubit that is not measured, an expression."""
    theta, phi = Parameter("theta"), Parameter("phi")
    circuit = QuantumCircuit(5, 3)
    circuit.sx([0, 1, 2])
    circuit.cx(2, 1)
    circuit.rz(theta, 1)
    circuit.sx(1)
    circuit.cx(0, 1)
    circuit.rz(2 * phi + 0.3, 0)
    circuit.sx(0)
    circuit.x(2)
    circuit.cx(1, 2)
    circuit.cx(1, 0)
    circuit.sx(1)
    circuit.cx(2, 3)
    circuit.rz(theta, 3)
    circuit.sx(3)
    circuit.measure([3, 0, 1], [0, 2, 1])
    manila = device("FakeManilaV2")
    values = {"theta": np.array([0.4, 1.9]), "phi": np.array([-0.8, 0.25])}
    (part,) = ChipSampler(manila).parts(circuit)
    found = part.probabilities(np.stack([values[name] for name in part.parameters], axis=1))
    for row in range(2):
        bound = circuit.assign_parameters({theta: values["theta"][row], phi: values["phi"][row]})
        np.testing.assert_allclose(found[row].numpy(), aer_probabilities(bound, manila), atol=1e-6)


@pytest.mark.parametrize("method", ["rx", "ry", "rzz", "rxx", "p"])
def test_every_rotation_may_have_an_open_angle(method):
    theta = Parameter("theta")
    circuit = QuantumCircuit(2, 2)
    circuit.ry(0.4, 0)
    circuit.h(1)
    getattr(circuit, method)(theta, *range(2 if len(method) == 3 else 1))
    circuit.cz(0, 1)
    circuit.h([0, 1])
    circuit.measure([0, 1], [0, 1])
    angles = np.array([[0.3], [-2.2], [5.0]])
    for noise in (False, True):
        (part,) = ChipSampler(device("FakeManilaV2"), noise=noise).parts(circuit)
        part = type(part)(part.simulator, part.parameters, part.measured, None)
        found = part.probabilities(angles)
        for row in range(3):
            bound = circuit.assign_parameters([angles[row, 0]]).remove_final_measurements(inplace=False)
            bound.save_probabilities()
            expected = AerSimulator(method="statevector").run(bound).result().data()["probabilities"]
            np.testing.assert_allclose(found[row].numpy(), expected, atol=1e-6)


def test_open_angles_of_noisy_gates():
    theta, phi = Parameter("theta"), Parameter("phi")
    circuit = QuantumCircuit(2, 2)
    circuit.sx([0, 1])
    circuit.rzz(theta, 0, 1)
    circuit.rx(phi, 0)
    circuit.sx(1)
    circuit.measure([0, 1], [0, 1])
    fractional = device("FakeFractionalBackend")
    (part,) = ChipSampler(fractional).parts(circuit)
    values = {"theta": 0.9, "phi": 0.7}
    found = part.probabilities(np.array([[values[name] for name in part.parameters]]))[0].numpy()
    expected = aer_probabilities(circuit.assign_parameters(values), fractional)
    ideal = ChipSampler(fractional, noise=False).parts(circuit)[0]
    noiseless = ideal.probabilities(np.array([[values[name] for name in ideal.parameters]]))[0].numpy()
    assert np.abs(noiseless - expected).max() > 1e-3
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_readout_errors_need_not_be_symmetric():
    target = Target(num_qubits=2)
    target.add_instruction(Measure(), {(q,): Asymmetric() for q in range(2)})
    circuit = QuantumCircuit(2, 2)
    circuit.x(1)
    circuit.cx(1, 0)
    circuit.x(1)
    circuit.measure([1, 0], [0, 1])  # |0> is misread by 0.02 into bit 0, |1> by 0.07 into bit 1
    (part,) = ChipSampler(SimpleNamespace(target=target)).parts(circuit)
    expected = [0.98 * 0.07, 0.02 * 0.07, 0.98 * 0.93, 0.02 * 0.93]
    np.testing.assert_allclose(part.probabilities(np.zeros((1, 0)))[0], expected, atol=1e-6)


# --------------------------------------------------------------------------------------------------------- the sampler


def test_packed_and_unpacked_shots_are_equal_on_ideal_lines():
    torino = device("FakeTorino")
    fields, couplings = random_rows(8, 4)
    spins = {}
    for lines in (1, 3):
        packed = pack(torino, 4, SCHEDULE, lines=lines)
        sampler = ChipSampler(torino, seed=11, noise=False)
        result = sampler.run([(packed.circuit, packed.bindings(fields, couplings))], shots=300).result()
        spins[lines] = packed.unpack(result[0].data.spins, 8)
    plain = annealing_circuit(4, SCHEDULE)
    result = ChipSampler(torino, seed=11, noise=False).run(
        [(plain.circuit, plain.bindings(fields, couplings))], shots=300
    )
    assert np.ptp(spins[1].mean(1)) > 1
    np.testing.assert_array_equal(spins[3], spins[1])
    # The plain circuit is one part of four qubits per row as well.
    np.testing.assert_array_equal(pack(torino, 4, SCHEDULE, lines=1).unpack(result.result()[0].data.spins, 8), spins[1])


def test_packed_and_unpacked_moments_agree_with_noise():
    """Each row of a packed circuit against Aer on the line it was packed on, alone: 18 moments, 6000 shots."""
    torino, n, shots = device("FakeTorino"), 3, 6000
    packed = pack(torino, n, SCHEDULE, lines=3)
    fields, couplings = random_rows(3, n, seed=2)
    bindings = packed.bindings(fields, couplings)
    result = ChipSampler(torino, seed=1).run([(packed.circuit, bindings)], shots=shots).result()
    spins = packed.unpack(result[0].data.spins, 3)
    bound = bindings.bind(packed.circuit, (0,))
    scores = []
    for row, (piece, qubits, _) in enumerate(split(bound)):
        wide = QuantumCircuit(QuantumRegister(133), ClassicalRegister(n, "spins"))
        wide.compose(piece, qubits=qubits, clbits=range(n), inplace=True)
        narrow, target = cut(wide, torino.target)
        noise = NoiseModel(basis_gates=list(target.operation_names))
        for on, error in basic_device_readout_errors(target=target):
            noise.add_readout_error(error, on)
        for name, on, error in basic_device_gate_errors(target=target):
            noise.add_quantum_error(error, name, on)
        simulator = AerSimulator(method="density_matrix", noise_model=noise)
        alone = aer_sampler(simulator, np.random.SeedSequence(row)).run([(narrow, None)], shots=shots).result()
        other = 1 - 2 * alone[0].data.spins.to_bool_array(order="little").astype(int)
        for first in range(n):
            for second in range(first, n):
                one, two = (s[:, first] * (s[:, second] if second > first else 1) for s in (spins[row], other))
                scores.append((one.mean() - two.mean()) / np.sqrt((one.var() + two.var()) / shots))
    assert len(scores) == 18
    assert np.abs(scores).max() < 4.2  # fails by chance once in 2000


def test_seeds_and_shapes():
    manila = device("FakeManilaV2")
    packed = pack(manila, 2, SCHEDULE)
    bindings = packed.bindings(*random_rows(8, 2))
    one, other = ChipSampler(manila, seed=3), ChipSampler(manila, seed=3)
    first, second = (one.run([(packed.circuit, bindings)], shots=50).result()[0].data.spins for _ in range(2))
    assert not np.array_equal(first.array, second.array)
    assert np.array_equal(first.array, other.run([(packed.circuit, bindings)], shots=50).result()[0].data.spins.array)
    assert not np.array_equal(first.array[0], first.array[1])
    square = BindingsArray(bindings.data).reshape((2, 2))
    again = ChipSampler(manila, seed=3).run([(packed.circuit, square)], shots=50).result()[0].data.spins
    assert (again.shape, again.num_shots, again.num_bits) == ((2, 2), 50, 4)
    np.testing.assert_array_equal(again.array.reshape(first.array.shape), first.array)
    assert ChipSampler(manila, default_shots=7).run([(packed.circuit, bindings)]).result()[0].data.spins.num_shots == 7


def test_chunks_of_rows_do_not_change_the_shots(monkeypatch):
    manila = device("FakeManilaV2")
    packed = pack(manila, 2, SCHEDULE)
    pub = packed.circuit, packed.bindings(*random_rows(20, 2))
    whole = ChipSampler(manila, seed=3).run([pub], shots=9).result()[0].data.spins.array
    monkeypatch.setattr("qboltz.machine.chip.CHUNK_BYTES", 1)
    np.testing.assert_array_equal(ChipSampler(manila, seed=3).run([pub], shots=9).result()[0].data.spins.array, whole)


def test_registers_and_bits_of_any_circuit():
    """Three parts, two registers, bits in no order: X on some qubits, almost no noise."""
    circuit = QuantumCircuit(QuantumRegister(5), ClassicalRegister(2, "a"), ClassicalRegister(9, "b"))
    circuit.x([0, 3])
    circuit.cx(3, 4)
    circuit.measure(0, 1)  # a[1] = 1
    circuit.measure(1, 0)  # a[0] = 0
    circuit.measure(3, 10)  # b[8] = 1
    circuit.measure(4, 4)  # b[2] = 1
    data = ChipSampler(device("FakeManilaV2"), noise=False).run([circuit], shots=20).result()[0].data
    assert data.a.get_counts() == {"10": 20}
    assert data.b.get_counts() == {"100000100": 20}


def test_what_cannot_be_sampled_is_refused():
    sampler = ChipSampler(device("FakeTorino"))
    chain = QuantumCircuit(13, 1)
    for qubit in range(12):
        chain.cz(qubit, qubit + 1)
    chain.measure(0, 0)
    with pytest.raises(TooManySpinsError, match="at most 12 qubits that act on each other with noise, got 13"):
        sampler.run([chain])
    late = QuantumCircuit(1, 1)
    late.measure(0, 0)
    late.x(0)
    with pytest.raises(ValueError, match="must end with its measurements, got 'x' after one"):
        sampler.run([late])
    wide = QuantumCircuit(3, 1)
    wide.ccx(0, 1, 2)
    wide.measure(2, 0)
    with pytest.raises(ValueError, match="gates on one or two qubits .*, got 'ccx' on 3 qubits"):
        sampler.run([wide])
    controlled = QuantumCircuit(2, 1)
    controlled.crx(Parameter("theta"), 0, 1)
    controlled.measure(1, 0)
    with pytest.raises(ValueError, match="must be a rotation .*, got CRXGate"):
        sampler.run([(controlled, [0.3])])
    angles = ParameterVector("a", 3)
    many = QuantumCircuit(1, 1)
    many.u(*angles, 0)
    many.measure(0, 0)
    with pytest.raises(ValueError, match="at most one open angle, got 'u' on 1 qubits with 3 parameters"):
        sampler.run([(many, [1, 2, 3])])


# -------------------------------------------------------------------------------------------------------- fake devices


def test_a_fake_device_packs_models_on_lines():
    backend, rows, n = FakeBackend("fake_torino"), 50, 3
    fields, couplings = random_rows(rows, n)
    request = SampleRequest(SCHEDULE, fields, couplings, 40, np.random.SeedSequence(1))
    packed = backend.packed(request)
    assert packed.num_lines >= 20
    spins = backend.sample(request)
    assert spins.shape == (rows, 40, n)
    sampler = ChipSampler(backend.device, seed=0)
    strong = np.where(np.abs(fields) > 1.2)
    assert len(strong[0]) > 10
    assert (np.sign(spins.mean(1)[strong]) == np.sign(fields[strong])).mean() > 0.9
    assert len(sampler.parts(packed.circuit)) == packed.num_lines
    few = SampleRequest(SCHEDULE, fields[:2], couplings[:2], 40, np.random.SeedSequence(1))
    assert backend.packed(few).num_lines == 2
    assert backend.packed(few).lines[0].fidelity >= packed.lines[0].fidelity - 1e-12


def test_a_fake_device_without_a_line_runs_one_by_one():
    backend, n = FakeBackend("fake_yorktown"), 5  # a bow tie of five qubits has a line; a T of five has none
    request = SampleRequest(SCHEDULE, *random_rows(2, n), 10, np.random.SeedSequence(1))
    assert backend.packed(request).num_lines == 1
    other = FakeBackend("fake_vigo")
    assert other.packed(request) is None
    assert other.sample(request).shape == (2, 10, n)


def test_a_solver_on_a_fake_device_keeps_rows_apart():
    fields = torch.tensor([[1.5, 0, 0], [0, -1.5, 0], [0, 0, 1.5], [-1.5, 0, 0], [0, 1.5, 0]])
    model = IsingModel(fields, torch.zeros(3, 3))
    m = AnnealingSolver("fake_torino", SCHEDULE, 400, "plain", seed=1).solve(model).magnetization()
    strong = fields != 0
    assert (m[strong] * fields[strong].sign() > 0.4).all()
    assert m[~strong].abs().max() < 0.4
