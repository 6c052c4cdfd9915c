"""Schedules fitted to Boltzmann distributions: the objective, the fit, and schedules that follow a model."""

import json

import pytest
import torch
from oracle import brute_force
from strategies import random_couplings

from qboltz import AnnealingSchedule, IsingModel, StatevectorSolver, TooManySpinsError
from qboltz.adaptive import AdaptiveSchedule
from qboltz.fidelity import BoltzmannTarget, schedule_fidelity
from qboltz.fitting import fit_schedule
from qboltz.modelset import ModelSet
from qboltz.schedule_table import extend_table, read_table, schedule_of, stretched


def small(seed=0, count=6, size=4, sigma_h=0.5, sigma_J=0.3):
    return ModelSet.random(sigma_h, sigma_J, sizes=(size,), count=count, seed=seed)


def test_target_is_the_boltzmann_distribution():
    (batch,) = small().batches
    target = BoltzmannTarget(batch)
    exact = brute_force(batch.fields, batch.couplings)
    torch.testing.assert_close(target.mean, exact.mean)
    first, second = torch.triu_indices(4, 4, 1)
    covariance = exact.second - exact.mean.unsqueeze(-1) * exact.mean.unsqueeze(-2)
    torch.testing.assert_close(target.covariance, covariance[..., first, second])
    p = target.log_p.exp()
    assert target.kl(p).abs() < 1e-12
    assert max(target.squared_errors(p)) < 1e-24
    torch.testing.assert_close(target.conditional_mean(p), exact.mean)


def test_fidelity_agrees_with_the_statevector_solver():
    schedule, models = AnnealingSchedule.fitted(3), small()
    (batch,) = models.batches
    exact = brute_force(batch.fields, batch.couplings).mean
    fidelity = schedule_fidelity(schedule, models)
    for estimator, error in (("plain", fidelity.magnetization), ("conditional", fidelity.conditional)):
        m = StatevectorSolver(schedule, estimator=estimator).solve(batch).magnetization()
        assert (m - exact).square().mean().sqrt().item() == pytest.approx(error, rel=1e-6)
    assert fidelity.kl > 0


@pytest.mark.parametrize("objective", ["moments", "kl"])
def test_a_fit_improves_on_held_out_models(objective):
    result = fit_schedule(3, small(count=24), objective=objective, restarts=2, max_iterations=60)
    before, after = (
        schedule_fidelity(schedule, small(seed=1, count=40))
        for schedule in (AnnealingSchedule.linear(3), result.schedule)
    )
    assert after.kl < 0.8 * before.kl
    assert after.magnetization < 0.7 * before.magnetization
    assert after.covariance < before.covariance
    assert result.loss == min(result.losses)
    assert len(result.losses) == 2


def test_a_fit_is_reproducible_and_reports_progress():
    seen = []
    options = {"restarts": 2, "seed": 5, "max_iterations": 5}
    first = fit_schedule(2, small(), progress=lambda *event: seen.append(event), **options)
    assert first == fit_schedule(2, small(), **options)
    assert {restart for restart, _, _ in seen} == {0, 1}
    assert len(seen) == first.evaluations


def test_the_gradient_of_the_objective_is_exact():
    from qboltz.fitting import _Loss

    models = small(count=2, size=3)
    schedule = AnnealingSchedule.fitted(2)
    flat = torch.tensor(list(schedule.as_dict().values()), dtype=torch.float64).flatten().numpy()
    for objective in ("moments", "kl"):
        loss = _Loss([BoltzmannTarget(batch) for batch in models.batches], models, objective)
        _, gradient = loss(flat)
        for index in range(len(flat)):
            step = 0 * flat
            step[index] = 1e-5
            slope = (loss(flat + step)[0] - loss(flat - step)[0]) / 2e-5
            assert gradient[index] == pytest.approx(slope, rel=1e-5, abs=1e-9)


def test_two_layers_find_what_is_exact_to_second_order():
    weak = ModelSet.random(0.02, 0.02, sizes=(3,), count=8)
    schedule = fit_schedule(2, weak, restarts=3, max_iterations=300).schedule
    assert (schedule.beta_fields, schedule.beta_couplings) == pytest.approx((1, 1), abs=0.01)


def test_bad_fits_are_refused():
    with pytest.raises(ValueError, match="objective must be one of 'kl', 'moments', got 'tv'"):
        fit_schedule(2, small(), objective="tv")
    with pytest.raises(ValueError, match="restarts must be at least 1, got 0"):
        fit_schedule(2, small(), restarts=0)
    with pytest.raises(ValueError, match="start must have 2 layers, got 3"):
        fit_schedule(2, small(), start=AnnealingSchedule.fitted(3))
    with pytest.raises(TooManySpinsError, match="at most 14 spins to fit on, got 15"):
        fit_schedule(2, small(size=15, count=1))


def test_model_sets_are_seeded_and_survive_a_file(tmp_path):
    models = ModelSet.named("broad", sizes=(3, 5), count=4, seed=2)
    assert models.num_models == 8
    models.save(tmp_path / "models.pt")
    loaded = ModelSet.load(tmp_path / "models.pt")
    assert loaded.origin == models.origin
    for saved, again, fresh in zip(
        models.batches, loaded.batches, ModelSet.named("broad", sizes=(3, 5), count=4, seed=2).batches, strict=True
    ):
        assert torch.equal(saved.fields, again.fields)
        assert torch.equal(saved.couplings, fresh.couplings)
    assert [path.name for path in tmp_path.iterdir()] == ["models.pt"]


def test_recorded_models_are_decoupled_rows_of_the_layer():
    J = random_couplings((2, 1), 4, 0.5, torch.Generator().manual_seed(0))
    visible = torch.ones(4, 4, dtype=torch.bool).tril()
    model = IsingModel(torch.randn(2, 4, 4, dtype=torch.float64), J, visible)
    (batch,) = ModelSet.recorded(model).batches
    assert batch.visible is None
    torch.testing.assert_close(batch.fields, model.fields * visible)
    assert ModelSet.recorded(model, rows=2).num_models == 4


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"sigma_h": 0.0}, "sigma_h must be a positive number or an ascending pair"),
        ({"sigma_J": (0.5, 0.1)}, r"sigma_J must be .* got \(0.5, 0.1\)"),
        ({"sizes": ()}, "sizes must be positive integers"),
        ({"count": 0}, "count must be at least 1"),
    ],
)
def test_bad_model_sets_are_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        ModelSet.random(**({"sigma_h": 0.5, "sigma_J": 0.1} | arguments))


def test_an_adaptive_schedule_follows_strong_couplings():
    chain = torch.diag(torch.full((3,), 1.2, dtype=torch.float64), 1)
    model = IsingModel(0.5 * torch.randn(20, 4, dtype=torch.float64), chain + chain.mT)
    adaptive = AdaptiveSchedule(AnnealingSchedule.linear(6), refit_every=3, max_iterations=60)
    fitted = adaptive.for_model(model)
    held_out = ModelSet.recorded(IsingModel(0.5 * torch.randn(30, 4, dtype=torch.float64), chain + chain.mT))
    before, after = (schedule_fidelity(s, held_out) for s in (AnnealingSchedule.linear(6), fitted))
    assert after.conditional < 0.5 * before.conditional
    assert adaptive.refits == 1
    assert adaptive.for_model(model) == adaptive.for_model(model) == fitted
    assert adaptive.for_model(model) != fitted
    assert adaptive.refits == 2


def test_an_adaptive_schedule_resumes_bit_for_bit():
    model = IsingModel(torch.randn(8, 4), random_couplings((), 4, 0.5, torch.Generator().manual_seed(0)).float())
    first = AdaptiveSchedule(AnnealingSchedule.fitted(2), refit_every=2, max_iterations=3)
    first.for_model(model)
    state = json.loads(json.dumps(first.state_dict()))
    second = AdaptiveSchedule(AnnealingSchedule.fitted(2), refit_every=2, max_iterations=3)
    second.load_state_dict(state)
    for _ in range(4):
        assert first.for_model(model) == second.for_model(model)


def test_large_models_are_followed_through_sub_blocks():
    J = random_couplings((), 16, 0.1, torch.Generator().manual_seed(0))
    model = IsingModel(torch.randn(3, 16, dtype=torch.float64), J, torch.ones(16, dtype=torch.bool))
    adaptive = AdaptiveSchedule(AnnealingSchedule.fitted(2), block_spins=4, max_iterations=3)
    assert adaptive.for_model(model) != AnnealingSchedule.fitted(2)


def test_the_table_is_extended_entry_by_entry(tmp_path, monkeypatch):
    monkeypatch.setattr("qboltz.schedule_table.FIT_SIZES", (3,))
    monkeypatch.setattr("qboltz.schedule_table.FIT_COUNT", 4)
    monkeypatch.setattr("qboltz.schedule_table.HELD_OUT_COUNT", 4)
    monkeypatch.setattr("qboltz.schedule_table.HELD_OUT_SIZE", 3)
    options = {"restarts": 1, "max_iterations": 3}
    path = tmp_path / "table.json"
    reported = []
    extend_table(path, [1, 2], ["weak"], **options, report=lambda *entry: reported.append(entry[:2]))
    extend_table(path, [1, 2, 3], ["weak"], **options, report=lambda *entry: reported.append(entry[:2]))
    assert reported == [("weak", 1), ("weak", 2), ("weak", 3)]
    entry = read_table(path)["weak"]["3"]
    assert schedule_of(entry).num_layers == 3
    assert entry["provenance"]["models"]["kind"] == "random"
    assert entry["held_out"]["magnetization"] > 0
    assert [file.name for file in tmp_path.iterdir()] == ["table.json"]


def test_stretching_keeps_constant_angles():
    schedule = AnnealingSchedule((0.3, 0.3), (0.2, 0.2), (0.5, 0.5))
    assert stretched(schedule, 5) == AnnealingSchedule((0.3,) * 5, (0.2,) * 5, (0.5,) * 5)
