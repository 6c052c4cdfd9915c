"""Lines on chips, packing of models onto them and back, compilation, its cache, and the check before submission."""

import math
from functools import cache

import numpy as np
import pytest
import qiskit_ibm_runtime.fake_provider as fakes
import rustworkx as rx
from qiskit.circuit import ClassicalRegister, Parameter, ParameterVector, QuantumCircuit
from qiskit.circuit.library import CXGate, CZGate, Measure, RXGate, RZGate, RZZGate, SXGate
from qiskit.primitives import BindingsArray, BitArray
from qiskit.providers.fake_provider import GenericBackendV2
from qiskit.quantum_info import Statevector
from qiskit.transpiler import InstructionProperties, Target

from qboltz import AnnealingSchedule, annealing_circuit
from qboltz.errors import TooManySpinsError
from qboltz.machine import compile as compilation
from qboltz.machine.compile import check_isa, pack
from qboltz.machine.lines import find_lines
from qboltz.machine.network import all_pairs, coupled_pairs, line_network
from qboltz.machine.parts import split

SCHEDULE = AnnealingSchedule.fitted(2)
LARGE = ["FakeFez", "FakeMarrakesh", "FakeKingston", "FakeAachen", "FakeBoston", "FakePittsburgh"]
FAST = [("FakeFez", 8), ("FakeMarrakesh", 8), ("FakeMarrakesh", 12), ("FakeAachen", 8)]
NATIVE = {"FakeWashingtonV2": "cx", "FakeSherbrooke": "ecr", "FakeTorino": "cz", "FakeFez": "cz"}


@cache
def device(name):
    return getattr(fakes, name)()


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    """A folder of compiled circuits for this module, and nothing in memory."""
    monkeypatch.setenv("QBOLTZ_CACHE", str(tmp_path_factory.getbasetemp() / "circuits"))
    compilation._memory.clear()


def usable(target):
    """Edges and qubits with a reported error below a half, straight from the target."""
    gate = next(name for name in ("cx", "cz", "ecr") if name in target.operation_names)
    edges = {}
    for qubits, properties in target[gate].items():
        if properties is not None and properties.error is not None and properties.error < 0.5:
            edge = frozenset(qubits)
            edges[edge] = min(properties.error, edges.get(edge, 1.0))
    readout = {q: p.error for (q,), p in target["measure"].items() if p is not None and p.error < 0.5}
    return edges, readout


# --------------------------------------------------------------------------------------------------------------- lines


@pytest.mark.parametrize(
    ("name", "n", "least"),
    [
        pytest.param(name, n, least, marks=[] if (name, n) in FAST else [pytest.mark.slow])
        for n, least in ((8, 12), (12, 8))
        for name in LARGE
    ],
)
def test_lines_of_the_large_chips(name, n, least):
    target = device(name).target
    lines = find_lines(target, n, num_layers=2)
    assert len(lines) >= least
    edges, readout = usable(target)
    weights = 2 * line_network(n).cx_per_edge
    for line in lines:
        assert len(line.qubits) == len(set(line.qubits)) == n
        path = [edges[frozenset(edge)] for edge in zip(line.qubits, line.qubits[1:], strict=False)]  # all usable
        expected = math.prod((1 - error) ** int(w) for error, w in zip(path, weights, strict=True))
        expected *= math.prod(1 - readout[qubit] for qubit in line.qubits)
        assert line.fidelity == pytest.approx(expected, rel=1e-9)
        assert line.error == pytest.approx(1 - expected, rel=1e-9)
        assert line.two_qubit_errors == tuple(path)
        assert line.readout_errors == tuple(readout[qubit] for qubit in line.qubits)
    used = [qubit for line in lines for qubit in line.qubits]
    assert len(used) == len(set(used))
    fidelities = [line.fidelity for line in lines]
    assert fidelities == sorted(fidelities, reverse=True)


def test_equal_calibrations_give_equal_lines():
    one, other = (find_lines(fakes.FakeFez().target, 6) for _ in range(2))
    assert one == other


@pytest.mark.parametrize(("guard", "least"), [(0, 30), (1, 20), (2, 14), (3, 10)])
def test_guard_qubits_keep_lines_apart(guard, least):
    target = device("FakeAachen").target
    lines = find_lines(target, 4, guard=guard)
    assert len(lines) >= least
    graph = rx.PyGraph()
    graph.add_nodes_from(range(target.num_qubits))
    graph.add_edges_from_no_data(list(target["cz"]))
    distance = rx.distance_matrix(graph)
    between = [distance[np.ix_(one.qubits, other.qubits)].min() for one in lines for other in lines if one is not other]
    assert min(between) == guard + 1


def grid_target(rows, columns, errors=None, readout=None, missing=()):
    """A square grid of qubits with chosen errors (0.01 elsewhere); ``missing`` edges are not in the target."""
    size = rows * columns
    edges = [(q, q + 1) for q in range(size) if (q + 1) % columns] + [(q, q + columns) for q in range(size - columns)]
    target = Target(num_qubits=size)
    theta = Parameter("t")
    target.add_instruction(RZGate(theta), {(q,): InstructionProperties(error=0.0) for q in range(size)})
    target.add_instruction(SXGate(), {(q,): InstructionProperties(error=1e-4) for q in range(size)})
    properties = {edge: InstructionProperties(error=(errors or {}).get(edge, 0.01)) for edge in edges}
    target.add_instruction(CZGate(), {edge: value for edge, value in properties.items() if edge not in missing})
    target.add_instruction(
        Measure(), {(q,): InstructionProperties(error=(readout or {}).get(q, 0.02)) for q in range(size)}
    )
    return target


@pytest.mark.parametrize("bad", [1.0, 0.5, None, math.nan])
def test_faulty_and_unreported_edges_and_qubits_carry_no_line(bad):
    fine = grid_target(3, 4)
    assert len(find_lines(fine, 4)) == 3
    broken = grid_target(3, 4, errors={(0, 1): bad, (5, 6): bad}, readout={9: bad}, missing=[(2, 6)])
    lines = find_lines(broken, 4, max_error=1)
    assert lines
    for line in lines:
        assert 9 not in line.qubits
        edges = {frozenset(edge) for edge in zip(line.qubits, line.qubits[1:], strict=False)}
        assert not edges & {frozenset({0, 1}), frozenset({5, 6}), frozenset({2, 6})}
    everything = dict.fromkeys([(q, q + 1) for q in range(3)], bad)
    assert find_lines(grid_target(1, 4, errors={**everything, (0, 1): 0.01}), 3) == ()


def test_the_best_line_and_the_best_set():
    target = grid_target(1, 9, errors={(2, 3): 0.001, (3, 4): 0.001, (7, 8): 0.2})
    (best,) = find_lines(target, 3, limit=1)
    assert set(best.qubits) == {2, 3, 4}
    three = find_lines(target, 3, max_error=1)
    assert [set(line.qubits) for line in three[1:]] == [{0, 1, 2}, {6, 7, 8}] or len(three) == 3
    two = find_lines(target, 3, limit=2)
    assert {frozenset(line.qubits) for line in two} == {frozenset({2, 3, 4}), frozenset({5, 6, 7})}


def test_bad_lines_are_left_out_by_a_bound():
    target = grid_target(1, 6, errors={(4, 5): 0.3})
    good, bad = find_lines(target, 3, max_error=1)
    assert good.error < 0.2 < bad.error
    assert find_lines(target, 3, max_error=0.2) == (good,)
    assert find_lines(target, 3, max_error=0.001) == ()
    awful = grid_target(1, 9, errors={(7, 8): 0.45, (6, 7): 0.45})
    assert len(find_lines(awful, 3, max_error=1)) == 3
    assert len(find_lines(awful, 3)) == 2  # more than three times the median cost


def test_a_target_that_reports_no_errors_is_ideal():
    target = Target(num_qubits=4)
    target.add_instruction(CXGate(), dict.fromkeys([(0, 1), (1, 2), (2, 3)]))
    target.add_instruction(Measure(), {(q,): None for q in range(4)})
    (line,) = find_lines(target, 4)
    assert line.fidelity == 1


def test_lines_longer_than_any_path():
    assert find_lines(device("FakeManilaV2").target, 6) == ()
    assert len(find_lines(device("FakeManilaV2").target, 1, max_error=1)) == 5
    with pytest.raises(TooManySpinsError, match=r"a line of usable qubits on fake_manila \(5 qubits\), got 6"):
        pack(device("FakeManilaV2"), 6, SCHEDULE)


def test_bad_arguments_are_refused():
    target = device("FakeManilaV2").target
    for options, message in [
        ({"guard": -1}, "guard must be at least 0, got -1"),
        ({"limit": 0}, "limit must be at least 1, got 0"),
        ({"max_error": 1.5}, "max_error must be a probability between 0 and 1, got 1.5"),
    ]:
        with pytest.raises(ValueError, match=message):
            find_lines(target, 3, **options)


# --------------------------------------------------------------------------------------------------------- compilation


@pytest.mark.parametrize("name", NATIVE)
@pytest.mark.parametrize(("n", "gates", "depth"), [(8, 81, 23), (12, 193, 35), (16, 353, 47)])
def test_native_gates_and_depth(name, n, gates, depth):
    packed = pack(device(name), n, SCHEDULE, lines=1)
    assert packed.circuit.count_ops()[NATIVE[name]] == packed.two_qubit_gates <= 2 * gates
    assert packed.two_qubit_gates == 2 * line_network(n).num_cx
    assert packed.two_qubit_depth <= 2 * depth
    check_isa(packed.circuit, packed.bindings(np.zeros((1, n)), np.zeros((1, n, n))), device(name).target)
    angles = [angle for step in packed.circuit.data for angle in step.operation.params]
    assert {type(angle).__mro__[1] if isinstance(angle, Parameter) else type(angle) for angle in angles} == {
        Parameter,
        float,
    }  # no expression among them


@pytest.mark.slow
@pytest.mark.parametrize("name", NATIVE)
def test_native_gates_and_depth_of_32_spins(name):
    packed = pack(device(name), 32, AnnealingSchedule.fitted(1), lines=1)
    assert (packed.two_qubit_gates, packed.two_qubit_depth) == (1457, 94)


def test_every_line_of_a_chip_is_a_complete_anneal():
    packed = pack(device("FakeTorino"), 8, SCHEDULE)
    assert packed.num_lines >= 10
    assert packed.circuit.count_ops()["cz"] == packed.num_lines * 2 * 77
    parts = list(split(packed.circuit))
    assert [set(qubits) for _, qubits, _ in parts] == [set(line.qubits) for line in packed.lines]
    assert [bits for _, _, bits in parts] == [
        tuple(range(first, first + 8)) for first in range(0, 8 * packed.num_lines, 8)
    ]


def test_line_fidelities_count_every_gate():
    packed = pack(device("FakeTorino"), 4, SCHEDULE, lines=3)
    target = device("FakeTorino").target
    for (piece, qubits, _), fidelity, line in zip(split(packed.circuit), packed.fidelities, packed.lines, strict=True):
        expected = 1.0
        for step in piece.data:
            on = tuple(qubits[piece.find_bit(qubit).index] for qubit in step.qubits)
            expected *= 1 - target[step.operation.name][on].error
        assert fidelity == pytest.approx(expected, rel=1e-9)
        assert 0.5 * line.fidelity < fidelity < line.fidelity  # and the line counts those on two qubits and readout


def small_probabilities(circuit, order):
    return Statevector(circuit.remove_final_measurements(inplace=False)).probabilities(order)


def only(circuit, qubits):
    """The part of a circuit on some qubits."""
    part = QuantumCircuit(len(qubits), circuit.num_clbits)
    for step in circuit.data:
        on = [circuit.find_bit(qubit).index for qubit in step.qubits]
        if set(on) <= set(qubits):
            bits = [circuit.find_bit(bit).index for bit in step.clbits]
            part.append(step.operation, [qubits.index(qubit) for qubit in on], bits)
    return part


@pytest.mark.parametrize("name", ["FakeManilaV2", "FakeSherbrooke", "FakeTorino"])
@pytest.mark.parametrize("sparse", [False, True])
def test_compiled_lines_anneal_as_the_plain_circuit_does(name, sparse):
    n, num_lines = (2, 2) if name == "FakeManilaV2" else (4, 3)
    rng = np.random.default_rng(5)
    fields, couplings = rng.normal(size=(num_lines, n)), rng.normal(size=(num_lines, n, n))
    couplings = np.triu(couplings, 1)
    if sparse:
        couplings[:, 0, 1:] = 0
    couplings += couplings.swapaxes(1, 2)
    packed = pack(device(name), n, SCHEDULE, pairs=coupled_pairs(couplings), lines=num_lines)
    plain = annealing_circuit(n, SCHEDULE)
    bound = packed.bindings(fields, couplings).bind(packed.circuit, (0,))
    for row, line in enumerate(packed.lines):
        piece, spin_of = only(bound, line.qubits), {}
        for step in piece.data:
            if step.operation.name == "measure":
                spin_of[piece.find_bit(step.clbits[0]).index - row * n] = piece.find_bit(step.qubits[0]).index
        found = small_probabilities(piece, [spin_of[spin] for spin in range(n)])
        expected = small_probabilities(plain.bindings(fields, couplings).bind(plain.circuit, (row,)), range(n))
        assert np.ptp(expected) > 0.02
        np.testing.assert_allclose(found, expected, atol=1e-9)


def test_devices_where_all_qubits_meet_take_plain_rzz():
    target = Target(num_qubits=11)
    theta = Parameter("t")
    for gate in (RZZGate(theta), RXGate(theta), RZGate(theta), Measure()):
        target.add_instruction(gate)
    ions = GenericBackendV2(11, seed=0)
    ions._target = target
    packed = pack(ions, 5, SCHEDULE)
    assert [line.qubits for line in packed.lines] == [(0, 1, 2, 3, 4), (5, 6, 7, 8, 9)]
    assert packed.circuit.count_ops()["rzz"] == 2 * 2 * 10
    sparse = pack(ions, 5, SCHEDULE, pairs=((0, 4), (1, 2)), lines=1)
    assert sparse.circuit.count_ops()["rzz"] == 2 * 2
    full = pack(GenericBackendV2(4, seed=1), 4, SCHEDULE)  # all pairs, but cx only: two per pair, no exchange
    assert (full.two_qubit_gates, full.circuit.count_ops()["cx"]) == (2 * 12, 2 * 12)


# --------------------------------------------------------------------------------------------------------------- cache


@pytest.fixture
def compilations(monkeypatch, tmp_path):
    monkeypatch.setenv("QBOLTZ_CACHE", str(tmp_path / "circuits"))
    done = []
    original = compilation.translate

    def counted(circuit, target):
        done.append(circuit)
        return original(circuit, target)

    monkeypatch.setattr(compilation, "translate", counted)
    return done


def same(one, other):
    return (one.circuit, one.lines, one.fidelities, one.pairs, one.schedule) == (
        other.circuit,
        other.lines,
        other.fidelities,
        other.pairs,
        other.schedule,
    )


def test_a_circuit_is_compiled_once_and_kept_on_disk(compilations, tmp_path):
    manila = device("FakeManilaV2")
    first = pack(manila, 3, SCHEDULE)
    assert pack(manila, 3, SCHEDULE) is first
    compilation._memory.clear()  # as in another process
    again = pack(manila, 3, SCHEDULE)
    assert again is not first
    assert same(again, first)
    rows = np.linspace(-1, 1, 6).reshape(2, 3), np.zeros((2, 3, 3))
    names = [parameter.name for parameter in first.circuit.parameters]
    np.testing.assert_array_equal(again.bindings(*rows).as_array(names), first.bindings(*rows).as_array(names))
    assert len(compilations) == 1
    for options in ({"guard": 1}, {"lines": 1}, {"max_error": 0.9}, {"pairs": ((0, 1),)}):
        pack(manila, 3, SCHEDULE, **options)
    pack(manila, 3, AnnealingSchedule.fitted(1))
    pack(manila, 2, SCHEDULE)
    assert len(compilations) == 7
    assert len(list((tmp_path / "circuits").glob("*.qpy"))) == 7


def test_a_new_calibration_is_compiled_anew(compilations):
    manila = fakes.FakeManilaV2()
    pack(manila, 3, SCHEDULE)
    changed = manila.target["cx"][0, 1]
    manila.target.update_instruction_properties(
        "cx", (0, 1), InstructionProperties(error=changed.error * 1.01, duration=changed.duration)
    )
    pack(manila, 3, SCHEDULE)
    assert len(compilations) == 2


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-20], lambda data: b"", lambda data: data[:-9] + b"x" + data[-8:]]
)
def test_a_damaged_file_is_compiled_again(compilations, tmp_path, damage):
    manila = device("FakeManilaV2")
    first = pack(manila, 3, SCHEDULE)
    (path,) = (tmp_path / "circuits").glob("*.qpy")
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    compilation._memory.clear()
    again = pack(manila, 3, SCHEDULE)
    assert (again.lines, again.fidelities) == (first.lines, first.fidelities)
    assert again.circuit.count_ops() == first.circuit.count_ops()
    assert len(compilations) == 2
    compilation._memory.clear()
    pack(manila, 3, SCHEDULE)
    assert len(compilations) == 2  # the file was mended


def test_a_folder_that_cannot_be_written_is_said(compilations, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("QBOLTZ_CACHE", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="cannot be kept in .*file.*set QBOLTZ_CACHE"):
        pack(device("FakeManilaV2"), 3, SCHEDULE)


def test_old_files_are_removed(compilations, tmp_path, monkeypatch):
    monkeypatch.setattr(compilation, "MAX_ON_DISK", 2)
    for num_layers in (1, 2, 3):
        pack(device("FakeManilaV2"), 2, AnnealingSchedule.fitted(num_layers))
    assert len(list((tmp_path / "circuits").glob("*.qpy"))) == 2


# ------------------------------------------------------------------------------------------------------------- packing


def columns(bindings, names):
    values = {}
    for known, array in bindings.data.items():
        values |= {name: array[:, index] for index, name in enumerate(known)}
    return np.stack([values[name] for name in names], axis=1)


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 4, 7])
def test_rows_come_back_where_they_went(rows):
    """Bits made from the bound angles alone: spin i of a row tells the sign of its own field."""
    n, schedule = 5, AnnealingSchedule.linear(2)
    packed = pack(device("FakeTorino"), n, schedule, lines=3)
    rng = np.random.default_rng(rows)
    signs = 1 - 2 * (np.arange(rows)[:, None] * 7 + 3 >> np.arange(n) & 1)  # every row another pattern
    fields = signs * rng.uniform(0.5, 1, size=(rows, n))
    bindings = packed.bindings(fields, np.zeros((rows, n, n)))
    assert bindings.shape == (packed.num_circuits(rows),) == (-(-rows // 3),)
    angles = columns(
        bindings, [f"h1[{bit}]" for bit in range(3 * n)]
    )  # (circuits, 15): bit l * n + i belongs to parameter l * n + i
    idle = packed.num_circuits(rows) * 3 - rows
    assert (angles == 0).sum() == idle * n
    measured = angles > 0  # the angle is -2 gamma h: positive for a negative field, which favors spin -1, bit 1
    shots = np.repeat(measured[:, None], 4, axis=1)
    shots[:, 3] = ~shots[:, 3]
    bits = BitArray.from_bool_array(shots, order="little")
    spins = packed.unpack(bits, rows)
    assert (spins.shape, spins.dtype) == ((rows, 4, n), np.int8)
    np.testing.assert_array_equal(spins[:, :3], np.repeat(signs[:, None], 3, axis=1))
    np.testing.assert_array_equal(spins[:, 3], -signs)
    np.testing.assert_array_equal(packed.unpack(bits.array, rows), spins)


def test_couplings_come_to_their_pairs_and_layers():
    n, schedule = 4, AnnealingSchedule((0.3, 0.2), (0.5, 0.7), (0.4, 0.1))
    packed = pack(device("FakeTorino"), n, schedule, lines=2)
    couplings = np.zeros((3, n, n))
    for row in range(3):
        for number, (first, second) in enumerate(all_pairs(n)):
            couplings[row, first, second] = couplings[row, second, first] = 10 * row + number + 1
    bindings = packed.bindings(np.zeros((3, n)), couplings)
    for layer, gamma in enumerate((0.5, 0.7)):
        values = columns(bindings, [f"J{layer}[{index}]" for index in range(2 * 6)])
        expected = -2 * gamma * np.array([[*range(1, 7), *range(11, 17)], [*range(21, 27), *[0] * 6]])
        np.testing.assert_allclose(values, expected)


def test_bad_shapes_are_refused():
    packed = pack(device("FakeManilaV2"), 2, SCHEDULE)
    assert packed.num_lines == 2
    with pytest.raises(ValueError, match=r"fields must be \(models, 2\), got \(3,\)"):
        packed.bindings(np.zeros(3), np.zeros((3, 2, 2)))
    with pytest.raises(ValueError, match=r"couplings must be \(3, 2, 2\), got \(2, 2, 2\)"):
        packed.bindings(np.zeros((3, 2)), np.zeros((2, 2, 2)))
    with pytest.raises(ValueError, match=r"bits must be \(2, shots, 1\) bytes, got \(1, 9, 1\)"):
        packed.unpack(np.zeros((1, 9, 1), dtype=np.uint8), 3)
    sparse = pack(device("FakeManilaV2"), 2, SCHEDULE, pairs=())
    with pytest.raises(ValueError, match="couplings must be zero outside the 0 pairs"):
        sparse.bindings(np.zeros((1, 2)), np.ones((1, 2, 2)))


# ----------------------------------------------------------------------------------------------------------- ISA check


NO_ANGLES = BindingsArray({})


def test_gates_that_the_device_lacks_are_refused():
    target = device("FakeSherbrooke").target
    (control, goal), *_ = [qubits for qubits, properties in target["ecr"].items() if properties.error < 0.5]
    fine = QuantumCircuit(127)
    fine.sx(0)
    fine.ecr(control, goal)
    fine.barrier()
    fine.add_register(ClassicalRegister(1))
    fine.measure(3, 0)
    check_isa(fine, NO_ANGLES, target)
    backwards = QuantumCircuit(127)
    backwards.ecr(goal, control)
    with pytest.raises(ValueError, match=f"no 'ecr' on qubits {goal}, {control}"):
        check_isa(backwards, NO_ANGLES, target)
    apart = QuantumCircuit(127)
    apart.ecr(0, 100)
    with pytest.raises(ValueError, match="no 'ecr' on qubits 0, 100"):
        check_isa(apart, NO_ANGLES, target)
    other = QuantumCircuit(1)
    other.h(0)
    with pytest.raises(ValueError, match="no 'h' on qubit 0"):
        check_isa(other, NO_ANGLES, target)
    with pytest.raises(ValueError, match="at most 127 qubits, got 128"):
        check_isa(QuantumCircuit(128), NO_ANGLES, target)


def test_angles_that_cannot_be_are_refused():
    target = device("FakeManilaV2").target
    vector = ParameterVector("a", 2)
    circuit = QuantumCircuit(2)
    circuit.rz(vector[0], 0)
    circuit.rz(vector[1], 1)
    names = ("a[0]", "a[1]")
    check_isa(circuit, BindingsArray({names: np.full((3, 2), 40.0)}), target)
    with pytest.raises(ValueError, match=r"every angle must be finite, got nan for a\[1\] in circuit 2"):
        check_isa(circuit, BindingsArray({names: np.array([[0, 0], [0, 0], [0, np.nan]])}), target)
    with pytest.raises(ValueError, match=r"finite, got inf for a\[0\]"):
        check_isa(circuit, BindingsArray({names: np.array([[np.inf, 0]])}), target)
    with pytest.raises(ValueError, match=r"1 without a value \['a\[1\]'\] and 0 unknown"):
        check_isa(circuit, BindingsArray({"a[0]": np.zeros(3)}), target)
    with pytest.raises(ValueError, match=r"0 without a value \[\] and 1 unknown \['b'\]"):
        check_isa(circuit, BindingsArray({names: np.zeros((3, 2)), "b": np.zeros(3)}), target)


@pytest.mark.parametrize(("low", "high", "fits"), [(0, 1.5, True), (-0.1, 1.5, False), (0.2, 1.6, False)])
@pytest.mark.parametrize("expression", [False, True])
def test_ranges_of_fractional_gates(low, high, fits, expression):
    target = device("FakeFractionalBackend").target
    theta = Parameter("theta")
    circuit = QuantumCircuit(2)
    circuit.rzz(theta / 2 if expression else theta, 0, 1)
    bindings = BindingsArray({"theta": np.array([low, 0.7, high]) * (2 if expression else 1)})
    if fits:
        check_isa(circuit, bindings, target)
    else:
        with pytest.raises(ValueError, match=r"angles of 'rzz' must be in the range .* on qubits 0, 1.*use_fractional"):
            check_isa(circuit, bindings, target)


def test_a_device_with_fractional_gates_gets_the_swap_network():
    packed = pack(device("FakeFractionalBackend"), 4, SCHEDULE)
    assert set(packed.circuit.count_ops()) <= {"cx", "rz", "sx", "x", "rx", "measure"}
    fields, couplings = np.full((2, 4), -3.0), np.full((2, 4, 4), 5.0)
    check_isa(packed.circuit, packed.bindings(fields, couplings), device("FakeFractionalBackend").target)
