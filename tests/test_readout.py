"""Readout errors undone, against spins that were misread on purpose and against brute force."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from oracle import brute_force
from qiskit.circuit import ClassicalRegister, QuantumCircuit, QuantumRegister
from strategies import random_couplings
from test_ensemble import copies, draw, exact_weights, oracle_gradients, random_model

from qboltz import AnnealingSolver, IsingModel, SampledEnsemble
from qboltz.backends import resolve_backend
from qboltz.backends.readout import measured_qubits, reported_readout, target_readout
from qboltz.errors import TooManySpinsError
from qboltz.readout import ReadoutErrors, undo_readout
from qboltz.spins import spin_table

ESTIMATORS = ["plain", "conditional"]


def some_errors(n: int, rows: int | None = None, seed: int = 0) -> ReadoutErrors:
    """Unequal everywhere, up to 15 and 25 per cent."""
    generator = np.random.default_rng(seed)
    shape = (n,) if rows is None else (rows, n)
    return ReadoutErrors(generator.uniform(0.01, 0.15, shape), generator.uniform(0.05, 0.25, shape))


def confusion(p10: float, p01: float) -> np.ndarray:
    """``[measured, true]`` with bit 0 (spin +1) first."""
    return np.array([[1 - p10, p01], [p10, 1 - p01]])


def misread(weights: torch.Tensor, errors: ReadoutErrors) -> torch.Tensor:
    """What a perfectly counted experiment would see of ``(G, R, 2**n)``: dense Kronecker products, row by row."""
    flat = weights.flatten(0, 1)
    rows = [part.expand(len(flat), -1).numpy() for part in (errors.p10, errors.p01)]
    seen = []
    for row, distribution in enumerate(flat.numpy()):
        matrix = np.eye(1)
        for p10, p01 in zip(rows[0][row], rows[1][row], strict=True):
            matrix = np.kron(confusion(p10, p01), matrix)  # spin 0 is the lowest bit
        seen.append(matrix @ distribution)
    return torch.tensor(np.array(seen)).view(weights.shape)


def flipped(spins: torch.Tensor, errors: ReadoutErrors, seed: int) -> torch.Tensor:
    """Samples ``(G, R, M, n)`` misread spin by spin."""
    lead = spins.shape[:2]
    p10, p01 = (part.expand(lead.numel(), -1).view(*lead, 1, -1) for part in (errors.p10, errors.p01))
    uniform = torch.rand(spins.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return torch.where(uniform < torch.where(spins > 0, p10, p01), -spins, spins)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("rows", [None, 12])
@pytest.mark.parametrize("masked", [False, True])
def test_perfectly_counted_misread_spins_give_exact_moments_and_gradients(estimator, rows, masked):
    visible = torch.tensor([[True] * 5, [True, False, True, True, False]] * 3) if masked else None
    model = random_model(visible=visible)  # 2 groups of 6 rows of 5 spins
    errors = some_errors(5, rows)
    seen = misread(exact_weights(model), errors)
    table = spin_table(5, dtype=torch.float64)
    upstream = torch.randn(2, 6, 5, dtype=torch.float64)
    exact = brute_force(model.fields, model.couplings, visible).mean
    raw = SampledEnsemble(model, table, seen, estimator)
    assert (raw.magnetization() - exact).abs().max() > 0.02  # there is something to correct
    ensemble = SampledEnsemble(model, table, seen, estimator, readout=errors)
    torch.testing.assert_close(ensemble.magnetization(), exact)
    expected = oracle_gradients(model.fields, model.couplings, visible, upstream)
    for got, want in zip(ensemble.pullback(upstream), expected, strict=True):
        torch.testing.assert_close(got, want)
    assert torch.equal(ensemble.standard_error(), torch.zeros_like(exact))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_few_misread_samples_are_unbiased(estimator):
    """Four samples of each of 2000 copies: a factor M / (M - 1) left out, or equal indices, would show at z > 8."""
    visible = torch.tensor([[True] * 5, [True, False, True, True, False]] * 3)
    model = random_model(visible=visible)
    errors = some_errors(5)
    many = copies(model, 2000)
    ensemble = SampledEnsemble(many, flipped(draw(many, 4, seed=1), errors, 2), None, estimator, readout=errors)
    upstream = torch.randn(2, 6, 5, dtype=torch.float64)
    expected = (
        brute_force(model.fields, model.couplings, visible).mean,
        *oracle_gradients(model.fields, model.couplings, visible, upstream),
    )
    got = (ensemble.magnetization(), *ensemble.pullback(upstream.expand(many.fields.shape)))
    for values, exact in zip(got, expected, strict=True):
        error = values.std(0) / 2000**0.5
        z = (values.mean(0) - exact) / torch.where(error > 0, error, 1)
        assert z.abs().max() < 5.5  # about 170 numbers in all


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_standard_errors_count_what_the_correction_amplifies(estimator):
    model = random_model(scale_j=0.8)
    errors = some_errors(5, rows=12 * 300)
    errors = ReadoutErrors(errors.p10[:12].repeat(300, 1), errors.p01[:12].repeat(300, 1))
    many = copies(model, 300)
    ensemble = SampledEnsemble(many, flipped(draw(many, 64, seed=3), errors, 4), None, estimator, readout=errors)
    spread = ensemble.magnetization().std(0)
    claimed = ensemble.standard_error().square().mean(0).sqrt()
    torch.testing.assert_close(claimed, spread, rtol=0.2, atol=0)  # 300 draws: 4 % (1 sigma), largest of 60
    uncorrected = SampledEnsemble(many, ensemble.spins, None, estimator).standard_error().square().mean(0).sqrt()
    assert (claimed > uncorrected).all()


def test_for_plain_averages_the_table_and_the_closed_form_agree():
    model = random_model()
    errors = some_errors(5)
    spins = flipped(draw(model, 50, seed=5), errors, 6)
    ensemble = SampledEnsemble(model, spins, None, "plain", readout=errors)
    numbers = ((spins < 0).long() << torch.arange(5)).sum(-1)
    shares = torch.zeros(2, 6, 32, dtype=torch.float64).scatter_add_(-1, numbers, torch.full((2, 6, 50), 0.02).double())
    weights = undo_readout(shares, errors.gain, errors.offset)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 6, dtype=torch.float64))
    torch.testing.assert_close(ensemble.magnetization(), weights @ spin_table(5, dtype=torch.float64))


def test_the_inverse_and_its_transpose_are_those_of_the_dense_matrix():
    errors = some_errors(3)
    matrix = np.eye(1)
    for p10, p01 in zip(errors.p10.tolist(), errors.p01.tolist(), strict=True):
        matrix = np.kron(confusion(p10, p01), matrix)
    inverse = torch.tensor(np.linalg.inv(matrix))
    values = torch.randn(4, 8, dtype=torch.float64)
    torch.testing.assert_close(undo_readout(values, errors.gain, errors.offset), values @ inverse.mT)
    torch.testing.assert_close(undo_readout(values, errors.gain, errors.offset, of_function=True), values @ inverse)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_perfect_readout_changes_nothing(estimator):
    model = random_model(visible=torch.rand(2, 6, 5) < 0.7)
    spins = draw(model, 40, seed=7)
    none, perfect = (
        SampledEnsemble(model, spins, None, estimator, readout=readout)
        for readout in (None, ReadoutErrors.symmetric([0.0] * 5))
    )
    upstream = torch.randn(2, 6, 5, dtype=torch.float64)
    torch.testing.assert_close(perfect.magnetization(), none.magnetization())
    torch.testing.assert_close(perfect.standard_error(), none.standard_error())
    for got, want in zip(perfect.pullback(upstream), none.pullback(upstream), strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_pieces_do_not_change_the_result(estimator, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    model = IsingModel(torch.randn(3, 4, 4, generator=generator).double(), random_couplings((3, 1), 4, 0.5, generator))
    errors = some_errors(4, rows=12)
    spins = draw(model, 10, 1)
    upstream = torch.randn(3, 4, 4, dtype=torch.float64)

    def results():
        ensemble = SampledEnsemble(model, spins, None, estimator, readout=errors)
        return ensemble.magnetization(), ensemble.standard_error(), *ensemble.pullback(upstream)

    whole = results()
    for elements in (1, 130):
        monkeypatch.setattr(SampledEnsemble, "chunk_elements", elements)
        for got, want in zip(results(), whole, strict=True):
            torch.testing.assert_close(got, want)


def test_single_precision_stays_close():
    model = random_model()
    single = IsingModel(model.fields.float(), model.couplings.float())
    errors = some_errors(5)
    spins = flipped(draw(model, 200, seed=5), errors, 6)
    for estimator in ESTIMATORS:
        want = SampledEnsemble(model, spins, None, estimator, readout=errors).magnetization()
        got = SampledEnsemble(single, spins, None, estimator, readout=errors).magnetization()
        assert got.dtype == torch.float32
        torch.testing.assert_close(got.double(), want, atol=1e-5, rtol=0)


def test_results_name_estimator_polish_and_correction():
    model = random_model()
    spins = draw(model, 8, 0)
    assert "estimator='plain', polish=0, readout_corrected=True" in repr(
        SampledEnsemble(model, spins, estimator="plain", readout=some_errors(5))
    )
    assert "estimator='conditional', polish=2, readout_corrected=False" in repr(SampledEnsemble(model, spins, polish=2))


def test_what_cannot_be_corrected_is_refused():
    with pytest.raises(
        ValueError, match=r"p10 \+ p01 must be below 1 for every spin, got 1: its readout tells nothing"
    ):
        ReadoutErrors([0.1, 0.5], [0.1, 0.5])
    with pytest.raises(ValueError, match="p01 must be probabilities below 1, got -0.1 to 0.1"):
        ReadoutErrors([0.1, 0.1], [0.1, -0.1])
    with pytest.raises(ValueError, match=r"p10 and p01 must have one shape, got \(2,\), \(3,\)"):
        ReadoutErrors([0.1, 0.1], [0.1, 0.1, 0.1])
    with pytest.raises(ValueError, match=r"p10 must be \(spins,\) or \(rows, spins\), got \(\)"):
        ReadoutErrors(0.1, 0.1)
    model = random_model()
    with pytest.raises(ValueError, match=r"readout must be of \(5,\) or \(12, 5\) spins, got \(4,\)"):
        SampledEnsemble(model, draw(model, 2, 0), readout=some_errors(4))
    with pytest.raises(ValueError, match="polish must be 0 with readout"):
        SampledEnsemble(model, draw(model, 2, 0), readout=some_errors(5), polish=1)
    large = IsingModel(torch.zeros(1, 15), torch.zeros(15, 15))
    with pytest.raises(TooManySpinsError, match="at most 14 spins, got 15.*Use estimator='plain'"):
        SampledEnsemble(large, torch.ones(1, 1, 2, 15), readout=some_errors(15))
    SampledEnsemble(large, torch.ones(1, 1, 2, 15), estimator="plain", readout=some_errors(15)).magnetization()


# --------------------------------------------------------------------------------------------- what devices report


def test_devices_report_both_directions_or_their_mean():
    device = resolve_backend("fake_torino").device
    both = reported_readout(device, [3, 0, 3])
    of_qubit_3 = {item.name: item.value for item in device.properties().qubits[3]}
    assert both.p10[[0, 2]].tolist() == [of_qubit_3["prob_meas1_prep0"]] * 2
    assert both.p01[[0, 2]].tolist() == [of_qubit_3["prob_meas0_prep1"]] * 2
    assert float(both.p10[0]) != float(both.p01[0])
    mean = target_readout(device, [[3, 0], [5, 3]])
    assert mean.p10.shape == (2, 2)
    assert torch.equal(mean.p10, mean.p01)
    assert mean.p10[1, 1].item() == device.target["measure"][(3,)].error
    assert mean.p10[1, 1].item() == pytest.approx(float(both.gain[0].neg() + 1) / 2, abs=1e-3)
    with pytest.raises(ValueError, match="qubits must be from 0 to 132 on fake_torino, got 3 to 133"):
        target_readout(device, [3, 133])
    with pytest.raises(ValueError, match=r"qubits must be integers \(spins,\) or \(rows, spins\)"):
        target_readout(device, [0.5])


def test_the_qubit_of_a_spin_is_the_one_its_bit_is_measured_on():
    circuit = QuantumCircuit(QuantumRegister(4, "q"), ClassicalRegister(2, "spins"))
    circuit.measure(3, 0)
    circuit.measure(1, 1)
    assert measured_qubits(circuit) == (3, 1)
    unread = QuantumCircuit(QuantumRegister(2, "q"), ClassicalRegister(2, "spins"))
    unread.measure(0, 0)
    with pytest.raises(ValueError, match="circuit must measure every bit of 'spins', bits \\[1\\] are not"):
        measured_qubits(unread)
    with pytest.raises(ValueError, match="circuit must have a classical register 'spins'"):
        measured_qubits(QuantumCircuit(2))


def test_a_solver_undoes_what_its_backend_reports():
    """Same samples, as measured and corrected: ``m / a`` with a reported error. (63 shots: no ``m`` is 0.)"""
    model = IsingModel(torch.randn(7, 3).double(), torch.zeros(3, 3).double())
    raw, corrected = (
        AnnealingSolver("fake_manila", shots=63, estimator="plain", seed=0, num_layers=2, readout=readout).solve(model)
        for readout in (None, "reported")
    )
    assert torch.equal(raw.spins, corrected.spins)
    error = {target_error(q) for q in range(5)}
    gains = (raw.magnetization() / corrected.magnetization()).flatten()  # a, since b = 0
    nearest = torch.tensor([[min(abs(gain - (1 - 2 * e)) for e in error)] for gain in gains.tolist()])
    assert nearest.max() < 1e-6
    assert "readout_corrected=True" in repr(corrected)
    with pytest.raises(ValueError, match="readout must be left out with polish=1: the errors would be undone twice"):
        AnnealingSolver("fake_manila", polish=1, readout="reported")
    with pytest.raises(ValueError, match="aer_simulator, which reports none of its own"):
        AnnealingSolver("aer_simulator", shots=4, readout="reported").solve(model)


def target_error(qubit: int) -> float:
    return resolve_backend("fake_manila").device.target["measure"][(qubit,)].error
