"""The batched simulator against dense matrices, against Qiskit's Statevector, and against perturbation theory."""

import numpy as np
import pytest
import torch
from qiskit import QuantumCircuit
from qiskit.quantum_info import Statevector
from scipy.linalg import expm
from strategies import random_couplings

from qboltz import AnnealingSchedule, simulator
from qboltz.simulator import Angles, Anneals, annealing_probabilities, draw, populations
from qboltz.spins import pair_indices, spin_table

PAULI_X, PAULI_Z = np.array([[0, 1], [1, 0]]), np.diag([1, -1])

# Angles with nothing in common, so that no two of them can be mistaken for one another.
DISTINCT = AnnealingSchedule((0.31, 0.47, 0.83), (0.59, 0.23, 0.41), (0.73, 0.52, 0.29))


def random_models(num_groups, num_rows, num_spins, seed=0, scale_h=0.7, scale_j=0.5):
    generator = torch.Generator().manual_seed(seed)
    fields = scale_h * torch.randn(num_groups, num_rows, num_spins, dtype=torch.float64, generator=generator)
    return fields, random_couplings((num_groups,), num_spins, scale_j, generator)


def on_qubits(num_spins, operators):
    """Kronecker product with qubit 0 as the last factor: little endian."""
    result = np.eye(1)
    for qubit in reversed(range(num_spins)):
        result = np.kron(result, operators.get(qubit, np.eye(2)))
    return result


def dense_probabilities(fields, couplings, schedule):
    """Every layer as three dense matrix exponentials of its Hamiltonians."""
    n = len(fields)
    state = np.full(2**n, 2 ** (-n / 2), dtype=complex)
    field_term = sum(fields[j] * on_qubits(n, {j: PAULI_Z}) for j in range(n))
    coupling_term = np.zeros((2**n, 2**n))
    for j, k in zip(*pair_indices(n), strict=True):
        coupling_term = coupling_term + couplings[j, k] * on_qubits(n, {j: PAULI_Z, k: PAULI_Z})
    mixer_term = sum(on_qubits(n, {j: PAULI_X}) for j in range(n))
    for layer in schedule.layers():
        state = expm(1j * layer.field_angle * field_term) @ state
        state = expm(1j * layer.coupling_angle * coupling_term) @ state
        state = expm(1j * layer.mixer_angle * mixer_term) @ state
    return np.abs(state) ** 2


def qiskit_probabilities(fields, couplings, schedule):
    n = len(fields)
    circuit = QuantumCircuit(n)
    circuit.h(range(n))
    for layer in schedule.layers():
        for j in range(n):
            circuit.rz(-2 * layer.field_angle * fields[j], j)
        for j, k in zip(*(index.tolist() for index in pair_indices(n)), strict=True):
            circuit.rzz(-2 * layer.coupling_angle * couplings[j, k], j, k)
        circuit.rx(-2 * layer.mixer_angle, range(n))
    return Statevector(circuit).probabilities()


@pytest.mark.parametrize("num_spins", [1, 2, 3])
def test_three_ways_agree(num_spins):
    fields, couplings = random_models(2, 3, num_spins, seed=num_spins)
    result = annealing_probabilities(fields, couplings, DISTINCT)
    assert result.shape == (2, 3, 2**num_spins)
    assert (result - 2.0**-num_spins).abs().max() > 0.1  # the state has moved: agreement means something
    for g, r in np.ndindex(2, 3):
        model = fields[g, r].numpy(), couplings[g].numpy(), DISTINCT
        np.testing.assert_allclose(result[g, r], dense_probabilities(*model), atol=1e-12)
        np.testing.assert_allclose(result[g, r], qiskit_probabilities(*model), atol=1e-12)


@pytest.mark.parametrize(
    ("num_groups", "num_rows", "num_spins"),
    [
        (1, 1, 5),  # one row
        (1, 40, 5),  # rows innermost
        (3, 20, 6),  # several groups, each row its own table
        (2, 300, 6),  # several groups, one table each
        (30, 1, 7),  # couplings of their own for every row, rows innermost
        (5, 1, 9),  # and outermost
        (1, 3, 11),
        (1, 2, 13),  # large: rows outermost
    ],
)
def test_every_layout_agrees_with_qiskit(num_groups, num_rows, num_spins):
    fields, couplings = random_models(num_groups, num_rows, num_spins, seed=num_spins, scale_j=0.3)
    result = annealing_probabilities(fields, couplings, DISTINCT)
    assert (result.amax(-1) > 2 * 2.0**-num_spins).all()
    for g, r in {(0, 0), (num_groups // 2, num_rows // 2), (num_groups - 1, num_rows - 1)}:
        expected = qiskit_probabilities(fields[g, r].numpy(), couplings[g].numpy(), DISTINCT)
        np.testing.assert_allclose(result[g, r], expected, atol=1e-12)
    single = annealing_probabilities(fields.float(), couplings.float(), DISTINCT)
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), result, atol=1e-5, rtol=0)


def test_the_walk_that_autograd_follows_is_the_walk_in_place():
    for shape in [(1, 40, 5), (30, 1, 6), (2, 3, 1), (1, 2, 13)]:
        fields, couplings = random_models(*shape)
        followed = annealing_probabilities(fields.clone().requires_grad_(), couplings, DISTINCT)
        assert followed.requires_grad
        torch.testing.assert_close(
            followed.detach(), annealing_probabilities(fields, couplings, DISTINCT), atol=1e-13, rtol=0
        )


def test_one_strong_field_on_spin_0_is_seen_on_spin_0():
    # Endianness: spin 0 is the lowest bit, and a positive field makes it +1, which is bit 0.
    fields = torch.zeros(1, 1, 5, dtype=torch.float64)
    fields[..., 0] = 0.8
    p = annealing_probabilities(fields, torch.zeros(1, 5, 5, dtype=torch.float64), AnnealingSchedule.fitted(2))
    m = p[0, 0] @ spin_table(5, dtype=torch.float64)
    assert m[0] > 0.5
    assert m[1:].abs().max() < 1e-12
    assert p[0, 0, 0] > 2 * p[0, 0, 1]


@pytest.mark.parametrize(
    "schedule", [DISTINCT, AnnealingSchedule.fitted(4), AnnealingSchedule.linear(3), AnnealingSchedule.linear(1)]
)
def test_small_models_have_the_temperatures_of_the_schedule(schedule):
    """To leading order ``m = beta_h h``, ``<ss> = beta_J J`` and ``dm_i / d(J_ij h_j) = K_hJ``."""
    eps, n = 1e-3, 4
    table = spin_table(n, dtype=torch.float64)
    fields, couplings = random_models(1, 1, n)
    zero_h, zero_j = torch.zeros_like(fields), torch.zeros_like(couplings)

    def moments(h, J):
        p = annealing_probabilities(h, J, schedule)[0, 0]
        return p @ table, table.mT @ (p[:, None] * table) - torch.eye(n, dtype=torch.float64)

    mean, _ = moments(eps * fields, zero_j)
    torch.testing.assert_close(mean / eps, schedule.beta_fields * fields[0, 0], atol=1e-4, rtol=0)
    _, second = moments(zero_h, eps * couplings)
    torch.testing.assert_close(second / eps, schedule.beta_couplings * couplings[0], atol=1e-2, rtol=0)
    # The part of m that is odd in J: its coefficient of J h.
    plus, _ = moments(eps * fields, eps * couplings)
    minus, _ = moments(eps * fields, -eps * couplings)
    mixed = (plus - minus) / (2 * eps**2)
    torch.testing.assert_close(mixed, schedule.k_hj * couplings[0] @ fields[0, 0], atol=1e-3, rtol=0)
    assert (couplings[0] @ fields[0, 0]).abs().min() > 0.05  # not zero against zero


def test_without_fields_nothing_is_magnetized():
    fields, couplings = random_models(2, 3, 5)
    p = annealing_probabilities(torch.zeros_like(fields), couplings, DISTINCT)
    assert (p @ spin_table(5, dtype=torch.float64)).abs().max() < 1e-13
    assert (p - p.mean(-1, keepdim=True)).abs().max() > 0.01


def test_a_decoupled_spin_is_free_and_changes_nothing():
    fields, couplings = random_models(1, 2, 5)
    keep = [0, 1, 3, 4]
    fields[..., 2] = 0
    couplings[:, 2, :] = couplings[:, :, 2] = 0
    p = annealing_probabilities(fields, couplings, DISTINCT).view(1, 2, 4, 2, 4)
    torch.testing.assert_close(p[..., 0, :], p[..., 1, :], atol=1e-14, rtol=0)
    restricted = annealing_probabilities(fields[..., keep], couplings[:, keep][:, :, keep], DISTINCT)
    torch.testing.assert_close(p.sum(-2).view(1, 2, 16), restricted, atol=1e-13, rtol=0)


def test_relabeling_spins_and_turning_all_of_them_over():
    fields, couplings = random_models(1, 20, 6)
    p = annealing_probabilities(fields, couplings, DISTINCT)
    flipped = annealing_probabilities(-fields, couplings, DISTINCT)
    torch.testing.assert_close(flipped, p.flip(-1), atol=1e-13, rtol=0)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    relabeled = annealing_probabilities(fields[..., order], couplings[:, order][:, :, order], DISTINCT)
    table = spin_table(6, dtype=torch.float64)
    torch.testing.assert_close(relabeled @ table, (p @ table)[..., order], atol=1e-13, rtol=0)


@pytest.mark.parametrize(("num_groups", "num_rows"), [(2, 2), (1, 13), (13, 1)])
def test_gradcheck(num_groups, num_rows):
    fields, couplings = random_models(num_groups, num_rows, 3)
    angles = [angle.clone().requires_grad_() for angle in Angles.of(AnnealingSchedule.fitted(2))]
    fields, couplings = fields.requires_grad_(), couplings.requires_grad_()

    def run(h, upper, *angles):
        J = upper.triu(1)
        return annealing_probabilities(h, J + J.mT, Angles(*angles))

    assert torch.autograd.gradcheck(run, (fields, couplings, *angles), atol=1e-8)


def test_both_entries_of_a_pair_get_half_of_the_derivative():
    fields, couplings = random_models(1, 2, 3)
    couplings.requires_grad_()
    annealing_probabilities(fields, couplings, DISTINCT)[0, 0, 0].backward()
    torch.testing.assert_close(couplings.grad, couplings.grad.mT)
    assert couplings.grad[0, 0, 1].abs() > 1e-3
    step = torch.zeros(1, 3, 3, dtype=torch.float64)
    step[0, 0, 1] = step[0, 1, 0] = 1e-6
    plus, minus = (annealing_probabilities(fields, couplings.detach() + s, DISTINCT) for s in (step, -step))
    slope = (plus - minus)[0, 0, 0] / 2e-6
    torch.testing.assert_close(2 * couplings.grad[0, 0, 1], slope, atol=1e-8, rtol=0)


def test_pieces_do_not_change_the_result(monkeypatch):
    for shape in [(1, 37, 5), (37, 1, 5), (3, 10, 5)]:
        fields, couplings = random_models(*shape)
        whole = annealing_probabilities(fields, couplings, DISTINCT)
        with monkeypatch.context() as patch:
            patch.setattr(simulator, "CHUNK_AMPLITUDES", 7 * 2**5)
            pieces = annealing_probabilities(fields, couplings, DISTINCT)
            rows = torch.arange(shape[0]).repeat_interleave(shape[1])
            walked = list(populations(Anneals.of(fields.flatten(0, 1), couplings, rows, DISTINCT)))
        assert max(len(part) for _, part in walked) <= 7
        torch.testing.assert_close(pieces, whole, atol=1e-13, rtol=0)


def test_a_first_call_in_inference_mode_spoils_nothing():
    for function in (simulator._spin_table, simulator._flips):
        function.cache_clear()
    fields, couplings = random_models(1, 2, 3)
    with torch.inference_mode():
        annealing_probabilities(fields, couplings, DISTINCT)
    fields.requires_grad_()
    annealing_probabilities(fields, couplings, DISTINCT)[..., 0].sum().backward()
    assert fields.grad.abs().max() > 0


def test_no_rows():
    assert annealing_probabilities(torch.zeros(2, 0, 3), torch.zeros(2, 3, 3), DISTINCT).shape == (2, 0, 8)
    empty = torch.zeros(0, 2, 3, requires_grad=True)
    assert annealing_probabilities(empty, torch.zeros(0, 3, 3), DISTINCT).shape == (0, 2, 8)


def test_shapes_are_checked():
    with pytest.raises(ValueError, match=r"fields must be \(groups, rows, spins\).*got \(2, 3\)"):
        annealing_probabilities(torch.zeros(2, 3), torch.zeros(1, 3, 3), DISTINCT)
    with pytest.raises(ValueError, match=r"couplings .*\(1, 3, 3\)"):
        annealing_probabilities(torch.zeros(2, 1, 3), torch.zeros(1, 3, 3), DISTINCT)


def test_drawn_configurations_follow_their_probabilities():
    weights = torch.tensor([[0.5, 0.0, 0.2, 0.3], [0.0, 0.0, 1.0, 0.0]])
    shots = 40_000
    numbers = draw(weights, torch.rand(2, shots, dtype=torch.float64))
    counts = torch.stack([torch.bincount(row, minlength=4) for row in numbers]).double()
    expected = weights.double() * shots
    spread = (expected * (1 - weights)).sqrt()
    assert ((counts - expected).abs() <= 5 * spread).all()  # and what is impossible never occurs


def test_draw_at_the_edges_of_the_unit_interval():
    weights = torch.tensor([[0.0, 0.25, 0.75, 0.0]])
    uniforms = torch.tensor([[0.0, 0.25 - 1e-12, 0.25 + 1e-12, 1 - 2**-53]], dtype=torch.float64)
    assert draw(weights, uniforms).tolist() == [[1, 1, 2, 2]]
