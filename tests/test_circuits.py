"""The circuit builder against Qiskit's Statevector, dense matrix exponentials and the batched simulator."""

import itertools

import numpy as np
import pytest
import torch
from qiskit.circuit import Parameter
from qiskit.quantum_info import Statevector
from scipy.linalg import expm
from strategies import random_couplings

from qboltz import AnnealingSchedule, IsingModel, annealing_circuit
from qboltz.circuits import SPIN_REGISTER, decoupled_rows
from qboltz.simulator import annealing_probabilities

UNEVEN = AnnealingSchedule((0.3, 0.11, 0.52), (0.21, 0.47, 0.13), (0.83, 0.59, 0.37))


def random_model(n, rows=3, groups=1, seed=0, scale=0.7):
    generator = torch.Generator().manual_seed(seed)
    fields = torch.randn(groups, rows, n, generator=generator, dtype=torch.float64)
    return IsingModel(fields, random_couplings((groups, 1), n, scale, generator))


def statevector_probabilities(model, schedule):
    """Row by row through Qiskit: bind, drop the measurements, evolve."""
    circuit, bindings = annealing_circuit(model.num_spins, schedule).bind(model)
    bound = [bindings.bind(circuit, (row,)) for row in range(bindings.shape[0])]
    return np.stack([Statevector(one.remove_final_measurements(inplace=False)).probabilities() for one in bound])


def expm_probabilities(model, schedule):
    """Dense exponentials of sums of Pauli matrices; qubit 0 is the last factor of the Kronecker product."""
    n = model.num_spins
    z, x = np.diag([1.0, -1.0]), np.array([[0.0, 1.0], [1.0, 0.0]])

    def on(qubits, pauli):
        product = np.eye(1)
        for qubit in reversed(range(n)):
            product = np.kron(product, pauli if qubit in qubits else np.eye(2))
        return product

    rows = []
    groups = model.groups
    for g, r in itertools.product(range(groups.num_groups), range(groups.num_rows)):
        h, J = groups.fields[g, r].numpy(), groups.couplings[g].numpy()
        state = np.full(2**n, 2 ** (-n / 2), dtype=complex)
        for gamma_h, gamma_j, b in schedule.layers():
            phase = gamma_h * sum(h[j] * on({j}, z) for j in range(n))
            phase = phase + gamma_j * sum(
                (J[j, k] * on({j, k}, z) for j, k in itertools.combinations(range(n), 2)), np.zeros((2**n, 2**n))
            )
            state = expm(1j * b * sum(on({j}, x) for j in range(n))) @ expm(1j * phase) @ state
        rows.append(np.abs(state) ** 2)
    return np.stack(rows)


@pytest.mark.parametrize(
    "schedule", [UNEVEN, AnnealingSchedule.linear(1), AnnealingSchedule.fitted(4)], ids=["uneven", "linear1", "fitted4"]
)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_three_ways_to_the_same_probabilities(n, schedule):
    model = random_model(n, groups=2)
    by_qiskit = statevector_probabilities(model, schedule)
    by_expm = expm_probabilities(model, schedule)
    by_simulator = annealing_probabilities(model.groups.fields, model.groups.couplings, schedule).flatten(0, 1).numpy()
    assert np.abs(by_expm - 2.0**-n).max() > 0.05  # the state has moved away from |+>
    assert len(by_qiskit) == 6
    assert np.abs(by_expm[0] - by_expm[3]).max() > 0.02  # rows and groups differ
    np.testing.assert_allclose(by_qiskit, by_expm, atol=1e-12)
    np.testing.assert_allclose(by_simulator, by_expm, atol=1e-12)


def test_a_larger_circuit_agrees_with_the_simulator():
    model = random_model(7, rows=2)
    by_qiskit = statevector_probabilities(model, UNEVEN)
    by_simulator = annealing_probabilities(model.groups.fields, model.groups.couplings, UNEVEN)[0].numpy()
    assert by_qiskit.max() > 4 / 2**7
    np.testing.assert_allclose(by_qiskit, by_simulator, atol=1e-12)


@pytest.mark.parametrize(("spin", "sign"), [(0, 1), (0, -1), (2, 1)])
def test_a_field_on_one_spin_alone_moves_its_own_bit(spin, sign):
    fields = torch.zeros(1, 3, dtype=torch.float64)
    fields[0, spin] = 1.2 * sign
    model = IsingModel(fields, torch.zeros(3, 3, dtype=torch.float64))
    probabilities = statevector_probabilities(model, AnnealingSchedule.fitted(2))[0]
    bits = np.arange(8)[:, None] >> np.arange(3) & 1
    magnetization = probabilities @ (1 - 2 * bits)
    assert sign * magnetization[spin] > 0.7  # a positive field favors spin +1, which is bit 0
    np.testing.assert_allclose(np.delete(magnetization, spin), 0, atol=1e-12)


def test_every_gate_gets_its_own_angle():
    n = 4
    fields = torch.tensor([[0.11, 0.23, 0.37, 0.53], [0.59, 0.61, 0.73, 0.97]], dtype=torch.float64)
    upper = torch.tensor(
        [[0, 1.01, 1.03, 1.07], [0, 0, 1.09, 1.13], [0, 0, 0, 1.27], [0, 0, 0, 0]], dtype=torch.float64
    )
    model = IsingModel(fields, torch.stack([upper + upper.mT, 2 * (upper + upper.mT)]))
    circuit, bindings = annealing_circuit(n, UNEVEN).bind(model)
    for row in range(2):
        seen = []
        for step in bindings.bind(circuit, (row,)).data:
            qubits = tuple(circuit.find_bit(qubit).index for qubit in step.qubits)
            if step.operation.name in ("rz", "rzz", "rx"):
                seen.append((step.operation.name, qubits, float(step.operation.params[0])))
        expected = []
        for gamma_h, gamma_j, b in UNEVEN.layers():
            expected += [("rz", (j,), -2 * gamma_h * float(fields[row, j])) for j in range(n)]
            expected += [
                ("rzz", (j, k), -2 * gamma_j * (1 + row) * float(upper[j, k]))
                for j, k in itertools.combinations(range(n), 2)
            ]
            expected += [("rx", (j,), -2 * b) for j in range(n)]
        assert [gate[:2] for gate in seen] == [gate[:2] for gate in expected]
        angles = [gate[2] for gate in expected]
        assert len({round(angle, 9) for angle in angles if angle not in [-2 * b for b in UNEVEN.mixer_angles]}) == 30
        np.testing.assert_allclose([gate[2] for gate in seen], angles, rtol=1e-14)


def test_parameters_are_plain_and_sorting_them_would_swap_fields_and_couplings():
    anneal = annealing_circuit(3, UNEVEN)
    angles = [step.operation.params[0] for step in anneal.circuit.data if step.operation.name in ("rz", "rzz")]
    assert all(isinstance(angle, Parameter) for angle in angles)
    assert len(set(angles)) == len(angles) == 3 * (3 + 3)
    names = [parameter.name for parameter in anneal.circuit.parameters]
    assert names[0].startswith("J")
    assert angles[0].name.startswith("h")


def test_the_circuit_holds_only_these_gates_and_measures_spin_i_into_bit_i():
    anneal = annealing_circuit(5, AnnealingSchedule.fitted(2))
    assert dict(anneal.circuit.count_ops()) == {"h": 5, "rz": 10, "rzz": 20, "rx": 10, "measure": 5}
    (register,) = anneal.circuit.cregs
    assert register.name == SPIN_REGISTER
    pairs = [
        (anneal.circuit.find_bit(step.qubits[0]).index, anneal.circuit.find_bit(step.clbits[0]).index)
        for step in anneal.circuit.data
        if step.operation.name == "measure"
    ]
    assert pairs == [(i, i) for i in range(5)]


def test_a_circuit_is_built_once():
    anneal = annealing_circuit(3, AnnealingSchedule.fitted(2))
    assert annealing_circuit(3, AnnealingSchedule.fitted(2)) is anneal
    assert annealing_circuit(3, AnnealingSchedule.fitted(3)) is not anneal
    assert (anneal.num_spins, anneal.schedule) == (3, AnnealingSchedule.fitted(2))
    with pytest.raises(AttributeError):
        anneal.num_spins = 4


def test_rows_are_those_of_the_groups():
    generator = torch.Generator().manual_seed(3)
    fields = torch.randn(2, 3, 4, 2, generator=generator, dtype=torch.float64)
    model = IsingModel(fields, random_couplings((3, 1), 2, 1.0, generator))  # the middle dimension is the heads
    bound_fields, bound_couplings = decoupled_rows(model)
    assert bound_fields.shape == (24, 2)
    for row, (head, batch, query) in enumerate(itertools.product(range(3), range(2), range(4))):
        np.testing.assert_array_equal(bound_fields[row], fields[batch, head, query])
        np.testing.assert_array_equal(bound_couplings[row], model.couplings[head, 0])
    some = np.array([23, 0, 9])
    for part, whole in zip(decoupled_rows(model, some), (bound_fields, bound_couplings), strict=True):
        np.testing.assert_array_equal(part, whole[some])


def test_invisible_spins_get_no_angle():
    model = random_model(4, rows=2)
    visible = torch.tensor([[True, False, True, True], [False, True, False, False]])
    masked = IsingModel(model.fields, model.couplings, visible)
    _, bindings = annealing_circuit(4, UNEVEN).bind(masked)
    field_angles, pair_angles = bindings.data.values()
    assert field_angles.shape == (2, 3 * 4)
    assert (field_angles.reshape(2, 3, 4) != 0).tolist() == [[row] * 3 for row in visible.tolist()]
    pairs = [visible[:, j] & visible[:, k] for j, k in itertools.combinations(range(4), 2)]
    assert ((pair_angles.reshape(2, 3, 6) != 0) == torch.stack(pairs, -1).numpy()[:, None]).all()
    decoupled = masked.decoupled()
    np.testing.assert_allclose(
        statevector_probabilities(masked, UNEVEN), statevector_probabilities(decoupled, UNEVEN), atol=1e-14
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_low_precision_models_are_bound(dtype):
    model = IsingModel(torch.randn(2, 3).to(dtype), torch.zeros(3, 3, dtype=dtype))
    _, bindings = annealing_circuit(3, UNEVEN).bind(model)
    expected = -2 * UNEVEN.field_angles[0] * model.fields.double().numpy()
    np.testing.assert_allclose(next(iter(bindings.data.values()))[:, :3], expected, rtol=1e-12)


def test_bad_arguments_are_refused():
    schedule = AnnealingSchedule.fitted(2)
    with pytest.raises(ValueError, match="num_spins must be at least 1, got 0"):
        annealing_circuit(0, schedule)
    with pytest.raises(TypeError, match="num_spins must be an integer, got 2.5"):
        annealing_circuit(2.5, schedule)
    with pytest.raises(TypeError, match="num_spins must be an integer, got True"):
        annealing_circuit(True, schedule)
    with pytest.raises(TypeError, match="schedule must be an AnnealingSchedule, got int"):
        annealing_circuit(2, 4)
    anneal = annealing_circuit(3, schedule)
    with pytest.raises(ValueError, match="model must have 3 spins, as the circuit has, got 2"):
        anneal.bind(random_model(2))
    with pytest.raises(ValueError, match=r"fields must be \(models, 3\), got \(3,\)"):
        anneal.bindings(np.zeros(3), np.zeros((1, 3, 3)))
    with pytest.raises(ValueError, match=r"couplings must be \(2, 3, 3\), got \(1, 3, 3\)"):
        anneal.bindings(np.zeros((2, 3)), np.zeros((1, 3, 3)))
