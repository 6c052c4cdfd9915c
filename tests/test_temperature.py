"""Effective temperatures, and calibrations made of them, against plain loops, simulation and brute force."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from strategies import random_couplings
from test_ensemble import draw, exact_weights, random_model

from qboltz import (
    AnnealingSchedule,
    AnnealingSolver,
    GibbsSolver,
    IsingModel,
    ModelSet,
    SampledEnsemble,
    StatevectorSolver,
)
from qboltz.backends import SampleRequest, resolve_backend
from qboltz.backends.fake import FakeBackend
from qboltz.calibrating import calibrate
from qboltz.calibration import TemperatureCalibration
from qboltz.circuits import decoupled_rows
from qboltz.cli import main
from qboltz.errors import ConvergenceError
from qboltz.fidelity import BoltzmannTarget
from qboltz.simulator import annealing_probabilities
from qboltz.spins import spin_table
from qboltz.temperature import Temperatures, effective_temperatures

BETAS = 1.2, 0.8


def at(model: IsingModel, betas: tuple[float, float]) -> IsingModel:
    return IsingModel(model.fields * betas[0], model.couplings * betas[1], model.visible)


def estimates(found: Temperatures) -> tuple[list[float], list[float]]:
    return [found.beta_fields, found.beta_couplings], [found.fields_error, found.couplings_error]


# ------------------------------------------------------------------------------------------------------ the estimate


@pytest.mark.parametrize("masked", [False, True])
def test_infinitely_many_boltzmann_samples_give_their_temperatures_exactly(masked):
    visible = torch.tensor([[True] * 5, [True, False, True, True, False]] * 3) if masked else None
    model = random_model(visible=visible)
    ensemble = SampledEnsemble(model, spin_table(5), exact_weights(at(model, BETAS)))
    found = effective_temperatures(ensemble)
    assert estimates(found)[0] == pytest.approx(BETAS, abs=1e-10)
    assert estimates(found)[1] == [0, 0]
    assert found.fields_interval == (found.beta_fields, found.beta_fields)


def by_loops(model: IsingModel, spins: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Estimate and standard errors, one conditional after the other, with numerical derivatives of a scalar loss."""
    h, J = model.groups.fields.numpy(), model.groups.couplings.numpy()
    visible = np.ones(h.shape, bool) if model.visible is None else model.groups.visible.numpy()

    def log_conditionals(beta, g, r, m):
        s = spins[g, r, m] * visible[g, r]
        total = 0.0
        for k in range(len(s)):
            if visible[g, r, k]:
                field = beta[0] * h[g, r, k] + beta[1] * sum(J[g, k, j] * s[j] for j in range(len(s)))
                total += -math.log1p(math.exp(-2 * s[k] * field))
        return total

    samples = list(np.ndindex(spins.shape[:3]))

    def loss(beta):
        return -sum(log_conditionals(beta, *sample) for sample in samples)

    beta = minimize(loss, np.ones(2), method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-10}).x
    steps = 1e-4 * np.eye(2)
    scores = {
        sample: np.array(
            [(log_conditionals(beta + e, *sample) - log_conditionals(beta - e, *sample)) / 2e-4 for e in steps]
        )
        for sample in samples
    }
    hessian = np.array(
        [
            [(loss(beta + a + b) - loss(beta + a - b) - loss(beta - a + b) + loss(beta - a - b)) / 4e-8 for a in steps]
            for b in steps
        ]
    )
    M = spins.shape[2]
    by_model = [np.array([scores[g, r, m] for m in range(M)]) for g, r in np.ndindex(spins.shape[:2])]
    centered = [rows - rows.mean(0) for rows in by_model]
    sums = np.array([rows.sum(0) for rows in by_model])
    variances = {
        "sample": sum(rows.T @ rows for rows in centered) * M / (M - 1),
        "model": sums.T @ sums * len(sums) / (len(sums) - 1),
    }
    inverse = np.linalg.inv(hessian)
    return beta, {name: np.sqrt(np.diag(inverse @ value @ inverse)) for name, value in variances.items()}


@pytest.mark.parametrize("masked", [False, True])
def test_estimate_and_sandwich_agree_with_plain_loops(masked):
    generator = torch.Generator().manual_seed(2)
    fields = 0.6 * torch.randn(2, 3, 3, dtype=torch.float64, generator=generator)
    visible = torch.tensor([[True] * 3, [True, False, True], [False] * 3]) if masked else None
    model = IsingModel(fields, random_couplings((2, 1), 3, 0.6, generator), visible)
    spins = draw(model, 9, seed=4)
    beta, errors = by_loops(model, spins.numpy().astype(float))
    if masked:  # of the 6 models 4 see something, and the factor of the variance is 4 / 3 instead of 6 / 5
        errors["model"] = errors["model"] * math.sqrt((4 / 3) / (6 / 5))
    for cluster in ("sample", "model"):
        found = effective_temperatures(SampledEnsemble(model, spins), cluster=cluster)
        assert estimates(found)[0] == pytest.approx(beta, rel=1e-5)
        assert estimates(found)[1] == pytest.approx(errors[cluster], rel=1e-4)
    assert (found.num_models, found.num_samples) == ((4, 36) if masked else (6, 54))


def test_intervals_cover_the_truth_although_conditionals_depend_on_each_other():
    """200 data sets of 12 models, 64 samples: 95 % cover within 3.3 sigma. (The inverse Hessian covers 88 %.)"""
    (model,) = ModelSet.random(0.5, 0.6, sizes=(5,), count=12, seed=1).batches
    spins = draw(at(model, BETAS), 64 * 200, seed=5)
    hits = np.zeros(2)
    standardized = []
    for part in spins.split(64, dim=-2):
        found = effective_temperatures(SampledEnsemble(model, part))
        intervals = found.fields_interval, found.couplings_interval
        hits += [low < beta < high for (low, high), beta in zip(intervals, BETAS, strict=True)]
        standardized.append((np.array(estimates(found)[0]) - BETAS) / estimates(found)[1])
    assert (hits / 200 > 0.899).all()
    assert np.std(standardized, 0) == pytest.approx(1, abs=0.165)  # 3.3 sigma


def test_dependent_samples_are_one_draw():
    model = random_model()
    spins = draw(model, 20, seed=0)
    alone = effective_temperatures(SampledEnsemble(model, spins))
    repeated = SampledEnsemble(model, spins.repeat_interleave(4, dim=-2))
    as_draws = effective_temperatures(repeated, dependent=4)
    assert estimates(as_draws)[0] == pytest.approx(estimates(alone)[0])
    assert estimates(as_draws)[1] == pytest.approx(estimates(alone)[1])
    naive = effective_temperatures(repeated)
    assert naive.fields_error == pytest.approx(alone.fields_error / 2, rel=0.05)
    with pytest.raises(
        ValueError, match="dependent must divide the 20 samples of a model into at least two draws, got 3"
    ):
        effective_temperatures(SampledEnsemble(model, spins), dependent=3)


def test_gibbs_chains_are_at_temperature_one():
    model = ModelSet.named("middle", sizes=(8,), count=24, seed=3).batches[0]
    chains = GibbsSolver(seed=0).solve(model)
    found = effective_temperatures(chains, confidence=1 - 1e-6, dependent=chains.samples_per_chain)
    assert found.fields_interval[0] < 1 < found.fields_interval[1]
    assert found.couplings_interval[0] < 1 < found.couplings_interval[1]
    assert found.couplings_error < 0.02


# ----------------------------------------------------------------------------------------------- what cannot be known


def test_a_temperature_without_information_has_an_infinite_interval():
    model = random_model()
    spins = draw(model, 50, seed=0)
    no_fields = effective_temperatures(SampledEnsemble(IsingModel(0 * model.fields, model.couplings), spins))
    assert math.isnan(no_fields.beta_fields)
    assert no_fields.fields_error == math.inf
    assert no_fields.fields_interval == (-math.inf, math.inf)
    assert math.isfinite(no_fields.couplings_error)
    no_couplings = effective_temperatures(SampledEnsemble(IsingModel(model.fields, 0 * model.couplings), spins))
    assert no_couplings.couplings_interval == (-math.inf, math.inf)
    # J = 0: the average of s sign(h) for one field strength is tanh(beta h), pooled
    free = IsingModel(torch.full((4, 3), 0.5).double(), torch.zeros(3, 3).double())
    drawn = draw(free, 100, seed=1)
    found = effective_temperatures(SampledEnsemble(free, drawn))
    assert found.beta_fields == pytest.approx(math.atanh(drawn.double().mean()) / 0.5)


@pytest.mark.parametrize(
    ("fields", "pair", "spins"),
    [
        ([[1.0, 1.0]], 0.0, [[1, 1], [1, 1]]),  # saturated: every spin follows its field
        ([[0.0, 0.0]], 1.0, [[1, 1], [-1, -1]]),  # every spin follows the other one
        ([[1.0, -1.0]], 0.7, [[1, 1], [-1, -1]]),  # fields lose, couplings win
        ([[1.0, 1.0], [1.0, 1.0]], 0.7, [[1, 1], [1, 1]]),  # nothing varies at all
    ],
)
def test_saturated_samples_are_refused(fields, pair, spins):
    J = torch.tensor([[0.0, pair], [pair, 0.0]], dtype=torch.float64)
    model = IsingModel(torch.tensor(fields, dtype=torch.float64), J)
    drawn = torch.tensor(spins, dtype=torch.int8).expand(1, len(fields), -1, -1)
    with pytest.raises(ValueError, match=r"must fix the temperature of its .*\(saturated: only a lower bound exists\)"):
        effective_temperatures(SampledEnsemble(model, drawn))


def test_nearly_saturated_samples_have_a_finite_answer():
    fields = torch.full((1, 1), 8.0, dtype=torch.float64)
    spins = torch.ones(1, 1, 4001, 1, dtype=torch.int8)
    spins[..., 0, :] = -1
    model = IsingModel(fields, torch.zeros(1, 1, dtype=torch.float64))
    found = effective_temperatures(SampledEnsemble(model, spins))
    assert found.beta_fields == pytest.approx(math.log(4000) / 16)


def test_bad_arguments_are_named():
    model = random_model()
    ensemble = SampledEnsemble(model, draw(model, 4, 0))
    with pytest.raises(TypeError, match="ensemble must be a SampledEnsemble, which has samples, got IsingModel"):
        effective_temperatures(model)
    with pytest.raises(ValueError, match="confidence must be between 0 and 1, got 95"):
        effective_temperatures(ensemble, 95)
    with pytest.raises(ValueError, match="cluster must be one of 'model', 'sample', got 'row'"):
        effective_temperatures(ensemble, cluster="row")
    nothing = IsingModel(torch.zeros(2, 3), torch.zeros(3, 3))
    with pytest.raises(ValueError, match="must have a field or a coupling that is not 0"):
        effective_temperatures(SampledEnsemble(nothing, draw(nothing, 4, 0)))
    blind = IsingModel(torch.ones(2, 3), torch.zeros(3, 3), torch.zeros(3, dtype=torch.bool))
    with pytest.raises(ValueError, match="must have at least one sample of a model with a visible spin, got none"):
        effective_temperatures(SampledEnsemble(blind, torch.ones(4, 3)))


# ------------------------------------------------------------------------------------------------------- calibrations

RIGHT = AnnealingSchedule.fitted(4)
#: Everything 1.3 times too strong.
WRONG = AnnealingSchedule(
    tuple(1.3 * angle for angle in RIGHT.field_angles),
    tuple(1.3 * angle for angle in RIGHT.coupling_angles),
    RIGHT.mixer_angles,
)


def made_by_hand(**changes) -> TemperatureCalibration:
    content = {
        "backend": "statevector",
        "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "schedule": WRONG,
        "num_spins": 5,
        "beta_fields": 1.3,
        "beta_couplings": 1.3,
        "fields_interval": (1.2, 1.4),
        "couplings_interval": (1.2, 1.4),
        "confidence": 0.95,
        "uncalibrated": (1.3, 1.3),
        "calibrated": (1.0, 1.0),
        "models": {"kind": "random", "sizes": (5,)},
        "rows": 4,
        "shots": 16,
        "rounds": 1,
        "version": "0.1.0",
    }
    return TemperatureCalibration(**{**content, **changes})


def rms(solver, batch: IsingModel) -> float:
    difference = solver.solve(batch).magnetization() - BoltzmannTarget(batch).mean
    return float(difference.square().mean().sqrt())


@pytest.mark.parametrize("estimator", ["plain", "conditional"])
def test_a_schedule_that_is_too_strong_is_as_good_as_the_right_one_once_calibrated(estimator):
    calibration = calibrate(StatevectorSolver(WRONG), ModelSet.named("broad", sizes=(6,), count=64, seed=11))
    assert calibration.fields_interval[0] < 1.3 < calibration.fields_interval[1]
    assert calibration.calibrated == pytest.approx((1, 1), abs=0.02)
    (held_out,) = ModelSet.named("broad", sizes=(6,), count=64, seed=12).batches
    right = rms(StatevectorSolver(RIGHT, estimator=estimator), held_out)
    wrong = rms(StatevectorSolver(WRONG, estimator=estimator), held_out)
    calibrated = rms(StatevectorSolver(WRONG, estimator=estimator, calibration=calibration), held_out)
    assert wrong > 1.7 * right  # plain .0855 and .0274, conditional .0272 and .0149
    assert calibrated < 1.1 * right  # .0291, .0144


def test_on_aer_with_samples_as_well():
    models = ModelSet.named("broad", sizes=(5,), count=40, seed=11)
    calibration = calibrate(AnnealingSolver("aer_simulator", WRONG, shots=256, seed=1), models, confidence=0.999)
    assert (calibration.backend, calibration.shots, calibration.rows) == ("aer_simulator", 256, 40)
    assert calibration.fields_interval[0] < 1.3 < calibration.fields_interval[1]
    (held_out,) = ModelSet.named("broad", sizes=(5,), count=60, seed=12).batches
    wrong, calibrated = (
        rms(AnnealingSolver("aer_simulator", WRONG, 512, "plain", seed=2, calibration=chosen), held_out)
        for chosen in (None, calibration)
    )
    assert calibrated < 0.75 * wrong  # shot noise of 512 samples alone is .04


@pytest.mark.parametrize("estimator", ["plain", "conditional"])
def test_only_the_circuits_are_rescaled(estimator):
    """Estimator and gradients know the original fields and couplings: the ensemble of rescaled circuits, by hand."""
    model = random_model()
    calibration = made_by_hand(beta_fields=1.4, beta_couplings=0.7)
    groups = model.groups
    weights = annealing_probabilities(groups.fields / 1.4, groups.couplings / 0.7, WRONG)
    by_hand = SampledEnsemble(model, spin_table(5, dtype=torch.float64), weights, estimator)
    ensemble = StatevectorSolver(WRONG, estimator=estimator, calibration=calibration).solve(model)
    assert ensemble.model is model
    upstream = torch.randn_like(model.fields)
    torch.testing.assert_close(ensemble.magnetization(), by_hand.magnetization())
    for got, want in zip(ensemble.pullback(upstream), by_hand.pullback(upstream), strict=True):
        torch.testing.assert_close(got, want)


class Asked(type(resolve_backend("aer_simulator"))):
    """Keeps what a solver asks for."""

    request = None

    def sample(self, request):
        self.request = request
        return super().sample(request)


def test_a_backend_is_asked_for_rescaled_models_and_the_ensemble_keeps_the_original_ones():
    backend = Asked()
    model = random_model(rows=2)
    calibration = made_by_hand(backend="aer_simulator", beta_fields=1.4, beta_couplings=0.7)
    ensemble = AnnealingSolver(backend, WRONG, shots=8, seed=0, calibration=calibration).solve(model)
    assert ensemble.model is model
    np.testing.assert_allclose(backend.request.fields, model.fields.flatten(0, 1).numpy() / 1.4)
    np.testing.assert_allclose(backend.request.couplings, model.couplings.repeat(1, 2, 1, 1).flatten(0, 1) / 0.7)


@pytest.mark.parametrize("estimator", ["plain", "conditional"])
def test_the_gradient_of_the_circuit_goes_through_the_rescaling(estimator):
    calibration = made_by_hand(num_spins=3, beta_fields=1.4, beta_couplings=0.7)
    solver = StatevectorSolver(WRONG, gradient="circuit", estimator=estimator, calibration=calibration)
    generator = torch.Generator().manual_seed(0)
    h = torch.randn(2, 3, dtype=torch.float64, generator=generator)
    J = random_couplings((), 3, 0.5, generator)
    upstream = torch.randn(2, 3, dtype=torch.float64, generator=generator)

    def value(h, J):
        return float((solver.solve(IsingModel(h, J)).magnetization() * upstream).sum())

    grad_h, grad_j = solver.solve(IsingModel(h, J)).pullback(upstream)
    for index in np.ndindex(2, 3):
        step = torch.zeros_like(h)
        step[index] = 1e-5
        assert float(grad_h[index]) == pytest.approx((value(h + step, J) - value(h - step, J)) / 2e-5, abs=1e-7)
    step = torch.zeros_like(J)
    step[0, 2] = step[2, 0] = 1e-5
    slope = (value(h, J + step) - value(h, J - step)) / 2e-5
    assert float(grad_j[0, 2] + grad_j[2, 0]) == pytest.approx(slope, abs=1e-7)


def test_rescaling_that_does_not_help_is_an_error():
    """Two layers and strong couplings: stronger angles make the couplings look weaker still."""
    models = ModelSet.named("broad", sizes=(6,), count=64, seed=11)
    short = AnnealingSchedule.linear(2)
    with pytest.raises(ConvergenceError, match="2 layers are too few for models of this strength"):
        calibrate(StatevectorSolver(short), models, rounds=1)
    with pytest.raises(ValueError, match="couplings on statevector must be positive beyond doubt"):
        calibrate(StatevectorSolver(short), models, rounds=3)


def test_what_cannot_be_calibrated_is_refused():
    models = ModelSet.named("broad", sizes=(5,), count=4)
    with pytest.raises(ValueError, match="polish 0 and no calibration when it is calibrated, got polish 2 and no"):
        calibrate(StatevectorSolver(polish=2), models)
    with pytest.raises(ValueError, match="got polish 0 and a calibration"):
        calibrate(StatevectorSolver(WRONG, calibration=made_by_hand()), models)
    with pytest.raises(ValueError, match="models must have one number of spins, got 2 batches"):
        calibrate(StatevectorSolver(), ModelSet.named("broad", sizes=(4, 5), count=4))
    with pytest.raises(ValueError, match=r"the spins it measured \(gradient='covariance'\)"):
        calibrate(StatevectorSolver(gradient="circuit"), models)


def test_a_file_gives_the_calibration_back(tmp_path):
    path = tmp_path / "calibration.json"
    calibration = made_by_hand(qubits=(3, 4, 5, 6, 7))
    calibration.save(path)
    assert TemperatureCalibration.load(path) == calibration
    assert TemperatureCalibration.load(path, max_age_hours=99).max_age_hours == 99
    assert [item.name for item in tmp_path.iterdir()] == ["calibration.json"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"beta_fields": -1.0}, "beta_fields must be a positive number, got -1.0"),
        ({"beta_couplings": "1"}, "beta_couplings must be a positive number, got '1'"),
        ({"time": "yesterday"}, "time must be ISO 8601 with its zone, got 'yesterday'"),
        ({"time": "2026-01-31T12:00:00"}, "time must have its zone"),
        ({"fields_interval": [1.0]}, "fields_interval must be two numbers"),
        ({"rows": 0}, "rows must be at least 1"),
        ({"schedule": {"field_angles": [1.0]}}, "must be a calibration as `qboltz schedule calibrate` writes it"),
        ({"color": "red"}, "unknown entries \\['color'\\]"),
    ],
)
def test_a_damaged_file_is_refused(change, words, tmp_path):
    path = tmp_path / "calibration.json"
    made_by_hand().save(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(ValueError, match=words):
        TemperatureCalibration.load(path)
    path.write_text("{")
    with pytest.raises(ValueError, match="must be a calibration"):
        TemperatureCalibration.load(path)


def ago(**span) -> str:
    return (datetime.now(timezone.utc) - timedelta(**span)).isoformat()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"backend": "fake_torino"}, "calibration must be of backend 'statevector', got one of 'fake_torino'"),
        ({"schedule": AnnealingSchedule.fitted(3)}, "calibration must be of 4 layers, got one of 3"),
        ({"schedule": RIGHT}, "calibration must be of the schedule in use"),
        ({"time": ago(hours=25)}, r"at most 24 hours old, got one of .* \(25.\d hours\)"),
        ({"time": ago(hours=-2)}, "calibration must not be of the future"),
    ],
)
def test_a_calibration_of_something_else_is_refused(change, words):
    with pytest.raises(ValueError, match=words + ".*qboltz schedule calibrate --backend statevector --layers 4"):
        StatevectorSolver(WRONG, calibration=made_by_hand(**change))


def test_age_is_judged_at_every_solve_and_can_be_allowed():
    old = made_by_hand(time=ago(hours=25))
    StatevectorSolver(WRONG, calibration=replace(old, max_age_hours=48)).solve(random_model())
    solver = StatevectorSolver(WRONG, calibration=made_by_hand())
    solver.calibration = old
    with pytest.raises(ValueError, match="at most 24 hours old"):
        solver.solve(random_model())


def test_calibrations_go_with_fixed_schedules_and_on_noisy_backends_with_their_number_of_spins():
    with pytest.raises(ValueError, match="calibration must be left out with an adaptive schedule"):
        StatevectorSolver("adaptive", calibration=made_by_hand())
    noisy = AnnealingSolver("fake_manila", WRONG, calibration=made_by_hand(backend="fake_manila", num_spins=4))
    with pytest.raises(ValueError, match="calibration must be of 3 spins, got one of 4"):
        noisy.solve(IsingModel(torch.zeros(1, 3), torch.zeros(3, 3)))
    assert "calibrated=True" in repr(noisy)


# ------------------------------------------------------------------------------------------------------- the command


def test_the_command_calibrates(capsys, tmp_path):
    schedule, output = tmp_path / "wrong.json", tmp_path / "calibration.json"
    schedule.write_text(json.dumps(WRONG.as_dict()))
    command = ["schedule", "calibrate", "--backend", "aer_simulator", "--schedule", str(schedule), "--num-spins", "4"]
    command += ["--rows", "40", "--shots", "512", "--output", str(output)]
    assert main([*command, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    calibration = TemperatureCalibration.load(output)
    assert printed == json.loads(output.read_text())
    assert 1.1 < calibration.beta_fields < 1.5
    calibration.check("aer_simulator", WRONG, 4)
    assert main([*command, "--backend", "statevector"]) == 0
    text = capsys.readouterr().out
    assert "statevector, 4 layers, 4 spins, 40 models of 512 shots" in text
    assert "couplings" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--backend", "exact"], "backend must run annealing circuits, got 'exact'"),
        (["--backend", "statevector", "--ensemble", "strong"], "ensemble must be one of"),
        (["--backend", "statevector", "--output", "/does/not/exist/c.json"], "No such file or directory"),
        (["--backend", "statevector", "--schedule", "/does/not/exist.json"], "No such file or directory"),
        (
            ["--backend", "statevector", "--schedule", "linear", "--layers", "2", "--ensemble", "broad"],
            "must be positive beyond doubt",
        ),
    ],
)
def test_the_command_names_what_is_wrong(arguments, words, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["schedule", "calibrate", *arguments])
    assert stop.value.code == 2
    assert words in capsys.readouterr().err


def test_a_calibration_names_the_qubits_that_were_measured(tmp_path):
    solver = AnnealingSolver("fake_manila", AnnealingSchedule.fitted(2), shots=256, estimator="plain", seed=0)
    models = ModelSet.named("weak", sizes=(3,), count=12, seed=0)
    calibration = calibrate(solver, models)
    (model,) = models.batches
    h, J = decoupled_rows(IsingModel(model.fields, model.couplings), np.arange(12))
    request = SampleRequest(solver.schedule, h, J, 256, np.random.SeedSequence(0))
    packed = FakeBackend("fake_manila").packed(request)
    (bits,) = packed.circuit.cregs
    assert len(bits) == len(calibration.qubits) == 3  # one line of three on a chip of five
    measured = [step.qubits[0] for step in packed.circuit.data if step.operation.name == "measure"]
    assert sorted(packed.circuit.find_bit(qubit).index for qubit in measured) == list(calibration.qubits)
    calibration.save(tmp_path / "calibration.json")
    assert TemperatureCalibration.load(tmp_path / "calibration.json").qubits == calibration.qubits
    assert StatevectorSolver(AnnealingSchedule.fitted(2)).qubits(IsingModel(model.fields, model.couplings)) is None
