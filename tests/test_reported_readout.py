"""Readout errors that a device reports, for rows that sit on different lines of a chip."""

import numpy as np
import pytest
import torch
from machine_client import machine, request

import qboltz
from qboltz.backends import resolve_backend
from qboltz.backends.fake import FakeBackend, fake_devices
from qboltz.backends.program import SampleRequest
from qboltz.backends.readout import measured_lines, target_readout
from qboltz.machine.compile import pack
from qboltz.readout import ReadoutErrors

SCHEDULE = qboltz.AnnealingSchedule.fitted(1)
CHIP = "fake_kolkata"


@pytest.fixture(scope="module")
def device():
    return fake_devices()[CHIP]()


def asked(rows, n=4, limit=None):
    couplings = np.full((rows, n, n), 0.1) * (1 - np.eye(n))
    return SampleRequest(SCHEDULE, np.zeros((rows, n)), couplings, 8, np.random.SeedSequence(1), limit)


def test_each_spin_is_on_the_qubit_whose_bit_it_reads(device):
    """Against the packing's own way from bits to rows: bit b of a qubit's number, put where the qubit is measured."""
    packed = pack(device, 4, SCHEDULE)
    rows = 2 * packed.num_lines + 1
    places = measured_lines(packed, rows)
    circuit = packed.circuit
    width = circuit.num_clbits
    numbers = np.zeros(width, dtype=int)
    for step in circuit.data:
        if step.operation.name == "measure":
            numbers[circuit.find_bit(step.clbits[0]).index] = circuit.find_bit(step.qubits[0]).index
    assert len(set(numbers)) == width, "each bit has its own qubit"
    found = np.zeros_like(places)
    for bit in range(5):
        bits = np.packbits(numbers >> bit & 1, bitorder="little")[::-1]
        shot = np.broadcast_to(bits, (packed.num_circuits(rows), 1, len(bits)))
        found += (packed.unpack(shot, rows)[:, 0] < 0).astype(int) << bit
    np.testing.assert_array_equal(places, found)


def test_rows_in_several_pubs_keep_their_lines(device):
    backend = FakeBackend(CHIP)
    whole, parts = backend.readout(asked(12)), backend.readout(asked(12, limit=4))
    first = backend.readout(asked(4))
    assert whole.p10.shape == (12, 4)
    torch.testing.assert_close(parts.p10[:4], first.p10)
    torch.testing.assert_close(parts.p10[4:8], first.p10)  # each pub starts on the best line again
    assert not torch.equal(parts.p10, whole.p10)
    errors = [device.target["measure"][qubit,].error for qubit in range(27)]
    assert set(np.round(whole.p10.unique().tolist(), 9)) <= set(np.round(errors, 9))


def test_a_solver_corrects_the_rows_that_were_run():
    fields = torch.tensor([[1.5, -1.5, 1.0, -1.0]] * 7)
    visible = torch.ones(7, 4, dtype=torch.bool)
    visible[2] = False
    model = qboltz.IsingModel(fields, torch.zeros(4, 4), visible)
    solver = qboltz.AnnealingSolver(CHIP, SCHEDULE, shots=4096, estimator="plain", seed=1, readout="reported")
    ensemble = solver.solve(model)
    assert ensemble.readout.p10.shape == (7, 4)
    assert not ensemble.readout.p10[2].any()
    expected = FakeBackend(CHIP).readout(asked(6))
    run = [0, 1, 3, 4, 5, 6]
    # Without couplings the circuits are others, on the same lines: which qubits they are is the packing's choice.
    assert ensemble.readout.p10[run].shape == expected.p10.shape
    raw = qboltz.SampledEnsemble(model, ensemble.spins, estimator="plain").magnetization()[run]
    ratio = (ensemble.magnetization()[run] / raw).mean()
    gain = float((1 - 2 * ensemble.readout.p10[run]).mean())
    assert float(ratio) == pytest.approx(1 / gain, rel=0.01)


def test_a_machine_reports_both_directions(service):
    user = machine()
    found = user.readout(request(rows=3))
    packed = user.compiled(2, request().schedule).packed
    places = measured_lines(packed, 3)
    properties = user.runtime().device.properties()
    for name, errors in (("prob_meas1_prep0", found.p10), ("prob_meas0_prep1", found.p01)):
        for row, spin in np.ndindex(3, 2):
            values = properties.qubits[places[row, spin]]
            assert errors[row, spin] == next(item.value for item in values if item.name == name)
    assert not torch.equal(found.p10, found.p01)
    corrected = qboltz.AnnealingSolver(user, request().schedule, shots=64, seed=1, readout="reported")
    assert corrected.solve(qboltz.IsingModel(torch.ones(3, 2), torch.zeros(2, 2))).readout is not None


def test_what_reports_nothing_says_so():
    solver = qboltz.AnnealingSolver("aer_simulator", SCHEDULE, readout="reported")
    with pytest.raises(
        ValueError, match="readout must be ReadoutErrors on aer_simulator, which reports none of its own"
    ):
        solver.solve(qboltz.IsingModel(torch.ones(2), torch.zeros(2, 2)))
    with pytest.raises(ValueError, match="readout must be one of 'reported', got 'measured'"):
        qboltz.AnnealingSolver(CHIP, SCHEDULE, readout="measured")
    assert resolve_backend(CHIP).label == CHIP


def test_errors_of_some_rows_among_all():
    errors = ReadoutErrors(torch.tensor([[0.1, 0.2], [0.3, 0.4]]), torch.tensor([[0.2, 0.1], [0.1, 0.1]]))
    wide = errors.at_rows([0, 2], 3)
    torch.testing.assert_close(wide.p10, torch.tensor([[0.1, 0.2], [0, 0], [0.3, 0.4]], dtype=torch.float64))
    torch.testing.assert_close(wide.p01[2], errors.p01[1])
    one = ReadoutErrors.symmetric([0.1, 0.2])
    assert one.at_rows([0, 2], 3) is one


def test_large_chips_and_single_models(device):
    """More spins than a density matrix takes: one model at a time, all on the best line."""
    found = FakeBackend(CHIP).readout(asked(3, n=13))
    assert torch.equal(found.p10[0], found.p10[2])
    assert target_readout(device, [0, 1]).p10.shape == (2,)
