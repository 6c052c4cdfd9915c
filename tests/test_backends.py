"""Names and objects that become backends; fake devices with the noise of the used qubits."""

import copy
import pickle

import numpy as np
import pytest
import torch
from qiskit.primitives import BackendSamplerV2, StatevectorSampler
from qiskit.providers.basic_provider import BasicSimulator
from qiskit.providers.fake_provider import GenericBackendV2
from qiskit_aer import AerSimulator
from qiskit_aer.noise import NoiseModel
from qiskit_aer.primitives import SamplerV2
from qiskit_ibm_runtime.fake_provider import FakeManilaV2

from qboltz import AnnealingSchedule, AnnealingSolver, IsingModel, annealing_circuit
from qboltz.backends import Backend, resolve_backend
from qboltz.backends.aer import AerBackend
from qboltz.backends.fake import FakeBackend, fake_devices, placed
from qboltz.backends.given import DeviceBackend, SamplerBackend
from qboltz.errors import BackendNotFoundError, TooManySpinsError
from qboltz.machine.backend import Machine
from qboltz.sampler import AnnealingCircuitSampler

SCHEDULE = AnnealingSchedule.fitted(2)
MODEL = IsingModel(torch.tensor([[1.2, -0.4, 0.1], [-0.3, 0.2, -1.2]]), torch.zeros(3, 3))


def signs_are_right(backend, shots=400):
    """The two strong fields of MODEL decide, noise or not."""
    m = AnnealingSolver(backend, SCHEDULE, shots, "plain", seed=1).solve(MODEL).magnetization()
    return bool(m[0].argmax() == 0 and m[0, 0] > 0.3 and m[1].argmin() == 2 and m[1, 2] < -0.3)


# ---------------------------------------------------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("name", "kind", "ideal", "billed"),
    [
        ("aer_simulator", AerBackend, True, False),
        ("fake_torino", FakeBackend, False, False),
        ("ibm_fez", Machine, False, True),
        ("least_busy", Machine, False, True),
    ],
)
def test_names(name, kind, ideal, billed):
    backend = resolve_backend(name)
    assert type(backend) is kind
    assert (backend.label, backend.ideal, backend.billed) == (name, ideal, billed)
    assert resolve_backend(backend) is backend


@pytest.mark.parametrize(
    ("name", "close"),
    [
        ("aer_simulatr", "'aer_simulator'"),
        ("fake_torin", "'fake_torino'"),
        ("torino", "'fake_torino'"),
        ("least_buzy", "'least_busy'"),
    ],
)
def test_an_unknown_name_is_named_with_close_matches(name, close):
    with pytest.raises(BackendNotFoundError, match=rf"backend '{name}' was not found: .*fake_provider.*mean .*{close}"):
        AnnealingSolver(name)


def test_a_name_like_no_other_gets_no_suggestion():
    with pytest.raises(BackendNotFoundError, match=r"'\?' was not found.*'least_busy'\.$"):
        resolve_backend("?")


def test_all_fake_devices_are_known():
    assert len(fake_devices()) > 50
    assert all(name.startswith("fake_") for name in fake_devices())


# ------------------------------------------------------------------------------------------------- fake devices


def test_a_fake_device_samples_with_noise_on_the_qubits_it_uses():
    assert signs_are_right("fake_manila")
    program = resolve_backend("fake_manila").program(3, SCHEDULE)
    assert program.circuit.num_qubits == 3  # of 5
    assert set(program.circuit.count_ops()) <= {"rz", "sx", "x", "cx", "measure"}
    simulator = program.sampler(np.random.SeedSequence(0))._backend
    assert set(simulator.options.noise_model.noise_qubits) == {0, 1, 2}


def test_a_large_fake_device_is_cut():
    assert signs_are_right("fake_torino")
    program = resolve_backend("fake_torino").program(3, SCHEDULE)
    assert program.circuit.num_qubits == 3  # of 133
    assert set(program.sampler(np.random.SeedSequence(0))._backend.options.noise_model.noise_qubits) == {0, 1, 2}


def test_the_cut_noise_is_that_of_the_whole_device():
    """Populations and readout errors under the cut model and under Aer's model of the whole device."""
    device = FakeManilaV2()
    anneal = annealing_circuit(3, SCHEDULE)
    whole = placed(device, anneal)
    program = FakeBackend(device).program(3, SCHEDULE)
    cut_noise = program.sampler(np.random.SeedSequence(0))._backend.options.noise_model
    whole_noise = NoiseModel.from_backend(device)
    bindings = anneal.bindings(MODEL.fields.double().numpy(), np.zeros((2, 3, 3)))
    populations, readout = [], []
    for circuit, noise in ((program.circuit, cut_noise), (whole, whole_noise)):
        bound = bindings.bind(circuit, (0,))
        measured = {}
        for step in bound.data:
            if step.operation.name == "measure":
                measured[bound.find_bit(step.clbits[0]).index] = bound.find_bit(step.qubits[0]).index
        qubits = [measured[bit] for bit in range(3)]
        bound = _without_measurements(bound)
        bound.save_probabilities(qubits)
        run = AerSimulator(method="density_matrix", noise_model=noise).run(bound, shots=1)
        populations.append(run.result().data()["probabilities"])
        errors = {
            tuple(error["gate_qubits"][0]): error["probabilities"]
            for error in noise.to_dict()["errors"]
            if error["type"] == "roerror"
        }
        readout.append([errors[(qubit,)] for qubit in qubits])
    ideal = AnnealingSolver(AerSimulator(), SCHEDULE, 4000, "plain", seed=0).solve(MODEL)
    assert abs(populations[0] @ (1 - 2 * (np.arange(8) & 1)) - float(ideal.magnetization()[0, 0])) > 0.02  # noise acts
    np.testing.assert_allclose(populations[0], populations[1], atol=1e-10)
    np.testing.assert_allclose(readout[0], readout[1])


def _without_measurements(circuit):
    bare = circuit.copy_empty_like()
    for step in circuit.data:
        if step.operation.name != "measure":
            bare.append(step)
    return bare


def test_compiled_circuits_are_shared_by_solvers_and_keep_their_parameters():
    program = resolve_backend("fake_manila").program(3, SCHEDULE)
    assert resolve_backend("fake_manila").program(3, SCHEDULE).circuit is program.circuit
    assert set(program.circuit.parameters) == set(annealing_circuit(3, SCHEDULE).circuit.parameters)


def test_a_device_with_too_few_qubits_is_refused():
    model = IsingModel(torch.zeros(6), torch.zeros(6, 6))
    with pytest.raises(TooManySpinsError, match="num_spins must be at most 5, the qubits of fake_manila, got 6"):
        AnnealingSolver("fake_manila", SCHEDULE).solve(model)


# ------------------------------------------------------------------------------------------------- objects


OBJECTS = {
    "Aer simulator": (lambda: AerSimulator(method="density_matrix"), AerBackend, True),
    "noisy Aer simulator": (lambda: AerSimulator.from_backend(FakeManilaV2()), AerBackend, False),
    "Aer sampler": (lambda: SamplerV2(seed=3), SamplerBackend, True),
    "noisy Aer sampler": (lambda: SamplerV2.from_backend(FakeManilaV2(), seed=3), SamplerBackend, False),
    "Qiskit sampler": (lambda: StatevectorSampler(seed=3), SamplerBackend, True),
    "generic sampler": (lambda: BackendSamplerV2(backend=AerSimulator()), SamplerBackend, False),
    "own sampler": (lambda: AnnealingCircuitSampler(seed=3), SamplerBackend, False),
    "fake device": (FakeManilaV2, FakeBackend, False),
    "Qiskit device": (BasicSimulator, DeviceBackend, False),
    "generic device": (lambda: GenericBackendV2(4, seed=1), DeviceBackend, False),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_objects(name):
    make, kind, ideal = OBJECTS[name]
    backend = resolve_backend(make())
    assert type(backend) is kind
    assert (backend.ideal, backend.billed) == (ideal, False)
    assert signs_are_right(backend)  # this runs the self-test too; from here on it is left out
    one, other = (AnnealingSolver(backend, SCHEDULE, 64, seed=5) for _ in range(2))
    one._tested = other._tested = True
    first, second = one.solve(MODEL).spins, one.solve(MODEL).spins
    assert not torch.equal(first, second)  # also where the object came with a fixed seed
    assert torch.equal(first, other.solve(MODEL).spins)
    for copied in (copy.deepcopy(other), pickle.loads(pickle.dumps(other))):
        copied._tested = True
        assert torch.equal(copied.solve(MODEL).spins, second)


def test_a_seed_handed_in_with_a_sampler_is_kept():
    one, other = (AnnealingSolver(SamplerV2(seed=3), SCHEDULE, 64).solve(MODEL).spins for _ in range(2))
    assert torch.equal(one, other)
    assert not torch.equal(one, AnnealingSolver(SamplerV2(seed=4), SCHEDULE, 64).solve(MODEL).spins)
    assert not torch.equal(one, AnnealingSolver(SamplerV2(), SCHEDULE, 64).solve(MODEL).spins)


def test_rows_of_a_seeded_qiskit_sampler_differ():
    model = IsingModel(torch.full((3, 3), 0.2), torch.zeros(3, 3))
    spins = AnnealingSolver(StatevectorSampler(seed=3), SCHEDULE, 64).solve(model).spins[0]
    assert len({tuple(row.flatten().tolist()) for row in spins}) == 3


def test_a_frozen_seed_that_cannot_be_changed_is_reported():
    class Frozen(StatevectorSampler):
        pass

    with pytest.warns(UserWarning, match="Frozen has the fixed seed 3.*freezes the noise"):
        AnnealingSolver(Frozen(seed=3))


def test_a_new_backend_needs_only_compile():
    class Mine(Backend):
        def compile(self, anneal):
            return resolve_backend(AnnealingCircuitSampler()).compile(anneal)

    assert signs_are_right(Mine("mine"))
