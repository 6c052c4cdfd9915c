"""The swap network against the plain annealing circuit, and what it leaves out for sparse couplings."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from qiskit.circuit import Parameter, QuantumCircuit
from qiskit.quantum_info import Operator, Statevector

from qboltz import AnnealingSchedule, annealing_circuit
from qboltz.machine.network import all_pairs, coupled_pairs, line_anneal, line_network

UNEVEN = AnnealingSchedule((0.3, 0.11, 0.52), (0.21, 0.47, 0.13), (0.83, 0.59, 0.37))


def random_rows(n, rows, seed, pairs=None):
    rng = np.random.default_rng(seed)
    fields = rng.normal(size=(rows, n))
    couplings = np.zeros((rows, n, n))
    for first, second in all_pairs(n) if pairs is None else pairs:
        couplings[:, first, second] = couplings[:, second, first] = rng.normal(size=rows)
    return fields, couplings


def probabilities(anneal, bindings, row):
    """By spin, through Qiskit, whatever qubit a spin is measured on."""
    bound = bindings.bind(anneal.circuit, (row,))
    qubit = {}
    for step in bound.data:
        if step.operation.name == "measure":
            qubit[bound.find_bit(step.clbits[0]).index] = bound.find_bit(step.qubits[0]).index
    state = Statevector(bound.remove_final_measurements(inplace=False))
    return state.probabilities([qubit[spin] for spin in range(anneal.num_spins)])


def assert_same_anneal(n, schedule, pairs, seed):
    fields, couplings = random_rows(n, 2, seed, pairs)
    plain, line = annealing_circuit(n, schedule), line_anneal(n, schedule, pairs)
    for row in range(2):
        expected = probabilities(plain, plain.bindings(fields, couplings), row)
        found = probabilities(line, line.bindings(fields, couplings), row)
        assert np.ptp(expected) > 0.02
        np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("n", range(1, 7))
@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_the_network_anneals_as_the_plain_circuit_does(n, num_layers):
    angles = (UNEVEN.field_angles, UNEVEN.coupling_angles, UNEVEN.mixer_angles)
    assert_same_anneal(n, AnnealingSchedule(*(angle[:num_layers] for angle in angles)), None, seed=n)


@settings(max_examples=25)
@given(st.data())
def test_sparse_networks_anneal_as_the_plain_circuit_does(data):
    n = data.draw(st.integers(2, 6))
    pairs = data.draw(st.lists(st.sampled_from(all_pairs(n)), unique=True))
    assert_same_anneal(n, UNEVEN, tuple(pairs), seed=0)


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_one_layer_of_the_network_is_the_product_of_its_phases(n):
    angles = {pair: 0.1 + 0.37 * index for index, pair in enumerate(all_pairs(n))}
    network = line_network(n)
    place, wires = QuantumCircuit(n), QuantumCircuit(n)
    for (first, second), angle in angles.items():
        place.rzz(angle, first, second)
    for step in network.steps:
        wires.rzz(angles[step.pair], step.wire, step.wire + 1)
        if step.swap:
            wires.swap(step.wire, step.wire + 1)
    # Bring spin s from its wire to qubit s, before and after.
    plain = Operator(place).data
    moved = Operator(wires).data
    numbers = np.arange(2**n)

    def on_wires(order):
        return sum((numbers >> spin & 1) << wire for wire, spin in enumerate(order))

    np.testing.assert_allclose(moved[np.ix_(on_wires(network.end), on_wires(network.start))], plain, atol=1e-12)


@given(st.data())
def test_every_wanted_pair_meets_once_on_neighboring_wires(data):
    n = data.draw(st.integers(1, 10))
    pairs = data.draw(st.none() | st.lists(st.sampled_from(all_pairs(n)), unique=True)) if n > 1 else None
    network = line_network(n, None if pairs is None else tuple(pairs))
    for way in (network, network.backwards()):
        line = list(way.start)
        assert sorted(line) == list(range(n))
        met = []
        for step in way.steps:
            here = line[step.wire : step.wire + 2]
            if step.pair is not None:
                assert set(step.pair) == set(here)
                met.append(step.pair)
            assert step.pair is not None or step.swap  # a step does something
            if step.swap:
                line[step.wire : step.wire + 2] = here[::-1]
        assert tuple(line) == way.end
        assert sorted(met) == sorted(all_pairs(n) if pairs is None else pairs)
    assert network.num_cx <= line_network(n).num_cx


@pytest.mark.parametrize("n", [*range(2, 14), 16, 24, 32])
def test_gates_and_depth_of_all_pairs(n):
    network = line_network(n)
    assert network.num_cx == (n - 1) * (3 * n - 2) // 2 <= 3 * n * (n - 1) / 2 - (n / 2 - 1)
    assert network.depth <= 3 * n - 2
    assert network.cx_per_edge.sum() == network.num_cx
    circuit = line_anneal(n, UNEVEN).circuit
    assert circuit.count_ops()["cx"] == 3 * network.num_cx
    assert circuit.depth(lambda step: len(step.qubits) == 2) <= 3 * (3 * n - 1)


def band(n, width):
    return tuple(pair for pair in all_pairs(n) if pair[1] - pair[0] <= width)


@pytest.mark.parametrize(("width", "most"), [(1, 14), (2, 31), (3, 48)])
def test_banded_couplings_take_less(width, most):
    assert line_network(8).num_cx == 77
    assert line_network(8, band(8, width)).num_cx <= most


def test_neighbors_need_no_exchange_and_no_couplings_no_gate():
    chain = line_network(9, band(9, 1))
    assert (chain.num_cx, chain.depth, chain.start) == (16, 4, chain.end)
    assert line_network(6, ()).steps == ()
    assert "cx" not in line_anneal(6, UNEVEN, ()).circuit.count_ops()


def test_masked_spins_stand_aside():
    visible = [1, 2, 4, 7]
    pairs = tuple(pair for pair in all_pairs(8) if set(pair) <= set(visible))
    network = line_network(8, pairs)
    assert network.num_cx == line_network(4).num_cx
    assert sorted(network.start[:4]) == visible
    groups = ((0, 5), (0, 6), (5, 6), (1, 2), (1, 7), (2, 7))  # two groups of three that never meet
    assert line_network(8, groups).num_cx == 2 * line_network(3).num_cx
    assert line_network(8, groups).depth == line_network(3).depth


def test_a_layer_without_coupling_angle_has_no_network():
    schedule = AnnealingSchedule((0.5, 0.0), (0.0, 0.6), (0.5, 0.5))
    line = line_anneal(5, schedule)
    assert line.circuit.count_ops()["cx"] == line_network(5).num_cx
    assert_same_anneal(5, schedule, None, seed=4)


def test_parameters_are_those_of_the_plain_circuit():
    line, plain = line_anneal(4, UNEVEN), annealing_circuit(4, UNEVEN)
    assert set(line.circuit.parameters) == set(plain.circuit.parameters)
    angles = [step.operation.params[0] for step in line.circuit.data if step.operation.name == "rz"]
    assert all(isinstance(angle, Parameter) for angle in angles)
    pairs = ((0, 3), (1, 2))
    sparse = line_anneal(4, UNEVEN, pairs)
    assert len(sparse.circuit.parameters) == 3 * (4 + 2)
    assert sparse.bindings(*random_rows(4, 5, 0, pairs)).num_parameters == 3 * (4 + 2)


def test_couplings_that_were_left_out_must_be_zero():
    couplings = np.zeros((3, 4, 4))
    couplings[2, 1, 3] = couplings[2, 3, 1] = 0.1
    couplings[0, 0, 2] = couplings[0, 2, 0] = -0.2
    assert coupled_pairs(couplings) == ((0, 2), (1, 3))
    line_anneal(4, UNEVEN, coupled_pairs(couplings)).bindings(np.zeros((3, 4)), couplings)
    with pytest.raises(
        ValueError, match=r"zero outside the 1 pairs .*, got one for spins \(1, 3\).*pairs=coupled_pairs"
    ):
        line_anneal(4, UNEVEN, ((0, 2),)).bindings(np.zeros((3, 4)), couplings)


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="num_spins must be at least 1, got 0"):
        line_network(0)
    with pytest.raises(ValueError, match=r"two different spins below 4, got \(1, 4\)"):
        line_anneal(4, UNEVEN, ((1, 4),))
    with pytest.raises(ValueError, match=r"two different spins below 4, got \(2, 2\)"):
        line_network(4, ((2, 2),))
    assert line_network(4, ((2, 1), (1, 2))) == line_network(4, ((1, 2),))
