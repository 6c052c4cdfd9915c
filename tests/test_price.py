"""What a workload costs: the cost model against numbers by hand, estimates against what is really submitted."""

import json
import math

import numpy as np
import pytest
from loopback import CRN
from machine_client import machine
from qiskit.circuit import QuantumCircuit
from qiskit.providers.fake_provider import GenericBackendV2
from qiskit_aer import AerSimulator

from qboltz import AnnealingSchedule
from qboltz.backends.fake import fake_devices
from qboltz.backends.program import SampleRequest
from qboltz.cli import main
from qboltz.errors import TooManySpinsError
from qboltz.machine.backend import Machine, MachineOptions
from qboltz.machine.estimate import estimate
from qboltz.machine.limits import ServiceLimits
from qboltz.machine.price import Tariff, circuit_seconds
from qboltz.machine.store import JobStore

SCHEDULE = AnnealingSchedule.fitted(2)
PROMISED = {"lines", "circuits", "executions", "two_qubit_gates", "two_qubit_depth", "qpu_seconds"}


@pytest.fixture
def no_account(monkeypatch, tmp_path):
    from qiskit_ibm_runtime.accounts import management

    monkeypatch.setattr(management, "_DEFAULT_ACCOUNT_CONFIG_JSON_FILE", str(tmp_path / "none.json"))
    monkeypatch.delenv("QISKIT_IBM_TOKEN", raising=False)


@pytest.fixture(scope="module")
def fez():
    return fake_devices()["fake_fez"]()


@pytest.fixture(scope="module")
def small():
    return fake_devices()["fake_kolkata"]()  # 27 qubits


# -- the model -------------------------------------------------------------------------------------------------------


def test_seconds_by_hand():
    found = Tariff(4e-6).seconds(384 * 256, jobs=3)  # 384 rows of 256 shots, one per circuit
    assert found.repetition == pytest.approx(24.576)
    assert found.circuits == pytest.approx(0.393216)
    assert found.jobs == 6
    assert found.total == pytest.approx(30.969216)
    assert found.rule == pytest.approx(6 + 34.4064)
    assert found.as_dict()["total"] == found.total


def test_the_delay_is_that_of_the_device(fez):
    circuit = QuantumCircuit(1)
    assert Tariff.of(circuit, fez).repetition == 250e-6
    assert Tariff.of(circuit, fake_devices()["fake_miami"]()).repetition == 4e-3
    assert Tariff.of(circuit, fake_devices()["fake_prague"]()).repetition == 250e-6  # it says nothing
    assert Tariff.of(circuit, fez, repetition=1e-3).repetition == 1e-3


def test_the_length_of_a_circuit(fez):
    circuit = QuantumCircuit(156, 1)
    circuit.cz(0, 1)
    circuit.measure(1, 0)
    target = fez.target
    expected = target["cz"][0, 1].duration + target["measure"][1,].duration
    assert circuit_seconds(circuit, fez) == pytest.approx(expected)
    silent = GenericBackendV2(2, basis_gates=["cz", "rz", "sx"], noise_info=False)
    small = QuantumCircuit(2)
    small.cz(0, 1)
    small.cz(0, 1)
    assert circuit_seconds(small, silent) == pytest.approx(2.2e-6)  # a readout and two gates


# -- estimates -------------------------------------------------------------------------------------------------------


def test_an_estimate_counts_rows_lines_and_gates(fez):
    found = estimate(fez, 8, SCHEDULE, 384, 256, steps=3)
    assert found.lines >= 12
    assert found.circuits == 3 * math.ceil(384 / found.lines)
    assert found.executions == 256 * found.circuits
    assert found.jobs == 3
    per_layer = 3 * 8 * 7 / 2 - (8 / 2 - 1), 3 * 8 - 1
    assert 2 * 8 * 7 < found.two_qubit_gates <= 2 * per_layer[0]
    assert found.two_qubit_depth <= 2 * per_layer[1]
    assert len(found.fidelities) == found.lines
    assert 0.1 < min(found.fidelities) < max(found.fidelities) < 0.9
    assert found.result_bytes == found.executions * math.ceil(8 * found.lines / 8)
    assert found.seconds.repetition == pytest.approx(found.executions * 250e-6)
    assert found.seconds.jobs == 6
    assert 0 < found.seconds.circuits < 0.1 * found.seconds.repetition


def test_fewer_lines_or_a_guard_cost_more(small):
    one, all_lines = (estimate(small, 4, SCHEDULE, 384, 256, lines=lines) for lines in (1, None))
    assert one.circuits == 384
    assert one.seconds.repetition / all_lines.seconds.repetition == pytest.approx(384 / all_lines.circuits)
    assert estimate(small, 4, SCHEDULE, 384, 256, guard=2).circuits > all_lines.circuits
    best = 1 - max(all_lines.fidelities)
    assert estimate(small, 4, SCHEDULE, 384, 256, max_error=best).lines < all_lines.lines


def test_a_large_request_is_several_jobs_and_takes_no_memory(small):
    found = estimate(small, 4, SCHEDULE, 10**7, 100)
    limits = ServiceLimits()
    assert found.jobs >= found.executions / limits.executions > 5
    assert found.seconds.jobs == 2 * found.jobs
    few = estimate(small, 4, SCHEDULE, 1000, 100, limits=ServiceLimits(executions=1000, repetition_seconds=1e-3))
    assert few.jobs == math.ceil(few.executions / 1000)
    assert few.seconds.repetition == pytest.approx(few.executions * 1e-3)


def test_a_simulator_costs_nothing():
    found = estimate(AerSimulator(), 8, SCHEDULE, 384, 256, simulator=True)
    assert (found.lines, found.circuits, found.executions, found.jobs) == (1, 384, 384 * 256, 0)
    assert found.two_qubit_gates == 2 * 28
    assert found.seconds.total == 0
    assert "none: it is a simulator" in "\n".join(found.lines_of_text())


@pytest.mark.parametrize("name", ["rows", "shots", "steps"])
def test_numbers_must_be_positive(small, name):
    values = {"rows": 3, "shots": 4, "steps": 5, name: 0}
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        estimate(small, 4, SCHEDULE, values["rows"], values["shots"], steps=values["steps"])


def test_more_spins_than_a_line_has(small):
    with pytest.raises(TooManySpinsError):
        estimate(small, 200, SCHEDULE, 1, 1)


def test_an_estimate_is_what_is_reserved_and_submitted(service):
    """The bits and angles of a real job, and the seconds in the store, against the estimate."""
    user = machine()
    rows, shots = 7, 16
    rng = np.random.default_rng(0)
    fields = rng.normal(size=(rows, 2))
    couplings = np.zeros((rows, 2, 2))
    couplings[:, 0, 1] = couplings[:, 1, 0] = 0.3
    request = SampleRequest(SCHEDULE, fields, couplings, shots, np.random.SeedSequence(1))
    found = estimate(user.runtime(2).device, 2, SCHEDULE, rows, shots)
    plan = user.plan(request)
    assert (found.jobs, found.circuits, found.executions) == (plan.jobs, plan.circuits, plan.executions)
    assert found.seconds.total == plan.seconds
    user.sample(request)
    (job,) = JobStore().jobs()
    assert job.estimate == found.seconds.total
    assert service.jobs[job.job_id].executions == found.executions
    packed = user.compiled(2, SCHEDULE).packed
    angles = packed.bindings(fields, couplings).as_array(packed.circuit.parameters)
    circuit = len(user.compiled(2, SCHEDULE).qpy)
    assert found.payload_bytes == angles.nbytes + circuit


def test_a_machine_says_its_delay_and_options_may_say_another(service):
    user = Machine("ibm_small", MachineOptions(limits=ServiceLimits(repetition_seconds=1e-3)))
    assert user.compiled(2, SCHEDULE).tariff.repetition == 1e-3
    assert machine().compiled(2, SCHEDULE).tariff.repetition == machine().runtime().device.default_rep_delay


# -- the commands ----------------------------------------------------------------------------------------------------


def output(capsys, *arguments):
    assert main(list(arguments)) == 0
    return capsys.readouterr().out


WORK = ["--spins", "8", "--rows", "384", "--layers", "2", "--shots", "256"]


def test_estimate_of_a_fake_device_needs_no_account(no_account, capsys, fez):
    found = json.loads(output(capsys, "estimate", "--backend", "fake_fez", *WORK, "--json"))
    assert found.keys() >= PROMISED
    expected = estimate(fez, 8, SCHEDULE, 384, 256)
    assert found == {**expected.as_dict(), "qpu_seconds_left": None}
    assert found["qpu_seconds"] == expected.seconds.total == pytest.approx(sum(found["qpu_seconds_parts"].values()))
    text = output(capsys, "estimate", "--backend", "fake_kolkata", *WORK, "--steps", "10", "--lines", "2")
    assert "384 rows of 8 spins, 2 layers, 256 shots, 10 times" in text
    assert "1,920 in 10 steps (2 lines of 8 qubits), 491,520 executions, 10 jobs" in text
    for part in ("delays between executions", "circuits", "overhead of jobs", "IBM's quick rule"):
        assert part in text
    assert "a fake device runs here and costs nothing" in text


def test_estimate_of_a_machine_says_what_is_left(service, capsys):
    arguments = ["estimate", "--backend", "ibm_small", "--spins", "2", "--rows", "10", "--shots", "100"]
    assert json.loads(output(capsys, *arguments, "--json"))["qpu_seconds_left"] == 600
    assert "on account   600 s left\n" in output(capsys, *arguments)
    assert "600 s left: NOT ENOUGH" in output(capsys, *arguments, "--steps", "1000")
    assert not service.count("POST /jobs")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--backend", "fake_fezz", *WORK], "Did you mean 'fake_fez'"),
        (["--backend", "ibm_fez", *WORK], "no IBM Quantum account was found"),
        (["--backend", "fake_fez", *WORK, "--spins", "200"], "num_spins must be at most"),
        (["--backend", "fake_fez", *WORK, "--rows", "0"], "rows must be at least 1"),
        (["--backend", "fake_fez", *WORK, "--layers", "9"], "num_layers must be one of"),
        (["--spins", "8"], "required: --backend, --rows"),
    ],
)
def test_estimates_that_cannot_be_made(no_account, capsys, arguments, words):
    with pytest.raises(SystemExit) as stop:
        main(["estimate", *arguments])
    assert stop.value.code == 2
    assert words in capsys.readouterr().err


def test_backends_without_an_account(no_account, capsys):
    found = json.loads(output(capsys, "backends", "--json"))
    names = [row["name"] for row in found["backends"]]
    assert names[0] == "aer_simulator"
    assert set(names[1:]) == set(fake_devices())
    assert found["account"].startswith("no IBM Quantum account was found")
    fez = found["backends"][names.index("fake_fez")]
    assert fez["qubits"] == 156
    assert 0.001 < fez["two_qubit_error"] < 0.01
    text = output(capsys, "backends")
    assert "fake_fez" in text
    assert text.count("no IBM Quantum account was found") == 1


def test_backends_of_an_account(service, capsys):
    service.status = "internal"
    found = json.loads(output(capsys, "backends", "--json"))
    large, small = found["backends"][:2]
    assert (large["name"], small["name"]) == ("ibm_loopback", "ibm_small")
    assert large["kind"] == "machine"
    assert (large["queue"], large["status"]) == (0, "internal")
    assert found["account"] == f"2 in instance {CRN}, 600 QPU seconds left"
    fake = next(row for row in found["backends"] if row["name"] == "fake_fez")  # the same
    for name in ("qubits", "two_qubit_error", "readout_error"):
        assert large[name] == pytest.approx(fake[name]), name


def test_backends_with_a_refused_account_are_still_listed(service, capsys, monkeypatch):
    monkeypatch.setenv("QISKIT_IBM_TOKEN", "wrong")
    found = json.loads(output(capsys, "backends", "--json"))
    assert "was refused" in found["account"]
    assert len(found["backends"]) > 50
