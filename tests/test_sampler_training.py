"""The quick paths of the benchmarks of training and gradients, and the numbers that their tables rest on."""

import json
import math
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import gradients
import report
import sampler_training

from qboltz import AnnealingSchedule, IsingModel, StatevectorSolver
from qboltz.modelset import ModelSet
from qboltz.simulator import annealing_probabilities


def records(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_quick_training_run_leaves_a_record_and_is_not_repeated(tmp_path, monkeypatch, capsys):
    out = tmp_path / "records.jsonl"
    monkeypatch.setattr(sampler_training, "TEST_SEQUENCES", 16)
    monkeypatch.setattr(sampler_training, "AGREEMENT_SEQUENCES", 4)
    monkeypatch.setattr(sys, "argv", ["sampler_training.py", "--quick", "--out", str(out)])
    threads = torch.get_num_threads()
    sampler_training.main()
    first = records(out)
    assert [record["run"] for record in first] == [*sampler_training.QUICK, sampler_training.AGREEMENT]
    exact, simulated, aer, agreement = first
    assert exact["accuracy"] == exact["exact_accuracy"]
    assert exact["magnetization_rmse"] == 0 < simulated["magnetization_rmse"]
    models = exact["steps"] * sampler_training.BATCH
    assert (exact["circuits"], exact["samples"]) == (0, 0)
    assert (simulated["circuits"], simulated["samples"]) == (models, 256 * models)
    assert (aer["circuits"], aer["samples"]) == (models, 64 * models)
    assert agreement["models"] == 4
    sampler_training.main()
    assert records(out) == first
    torch.set_num_threads(threads)
    assert "recorded" in capsys.readouterr().out


def test_every_run_of_the_grid_can_be_made():
    for name, run in sampler_training.RUNS.items():
        solver = run.solver(0)
        assert solver == "exact" or hasattr(solver, "solve"), name
        if run.samples is not None:
            drawn = getattr(solver, "shots", None) or solver.chains * solver.samples_per_chain
            assert drawn == run.samples, name
        assert str(run.samples) in name or run.samples is None
    assert set(sampler_training.FROM_ZERO) < set(sampler_training.RUNS)


def test_the_distance_from_populations_sees_a_wrong_sampler_and_passes_a_right_one():
    (model,) = ModelSet.random(0.5, 0.3, sizes=(5,), count=40, seed=3).batches
    schedule, other = AnnealingSchedule.fitted(2), AnnealingSchedule.linear(2)
    groups = model.groups
    populations = annealing_probabilities(groups.fields, groups.couplings, schedule)
    right, wrong = (
        sampler_training.distance(StatevectorSolver(s, 1024, seed=0).solve(model).spins, populations)
        for s in (schedule, other)
    )
    assert abs(right["z_log_likelihood"]) < 4
    assert abs(right["mean_z2"] - 1) < 4 * right["mean_z2_error"]
    assert wrong["mean_z2"] - 1 > 4 * wrong["mean_z2_error"]


def test_parameter_shifts_give_the_gradient_of_the_circuit_at_the_known_cost():
    (model,) = ModelSet.random(0.5, 0.3, sizes=(4,), count=3, seed=1).batches
    upstream = torch.randn(model.fields.shape, dtype=torch.float64)
    schedule = AnnealingSchedule.fitted(3)
    total, variance, circuits = gradients.shifted(model, upstream, schedule)
    solver = StatevectorSolver(schedule, gradient="circuit", estimator="plain")
    own = gradients.gradient(solver.solve(model), upstream)
    assert own.norm() > 0.1
    torch.testing.assert_close(total, own, rtol=1e-9, atol=1e-9)
    assert circuits == 2 * 3 * (4 + 6)
    assert (variance > 0).all()


def test_past_the_reach_of_a_schedule_the_covariance_rule_has_the_wrong_sign():
    """What ``docs/dqa.md`` explains runaway fields with: a stronger field then gives a weaker magnetization."""
    schedule, none = AnnealingSchedule.fitted(4), torch.zeros(1, 1, dtype=torch.float64)
    fields = torch.tensor([[1.0], [3.2], [3.6]], dtype=torch.float64)
    model = IsingModel(fields, none)
    m = StatevectorSolver(schedule, estimator="plain").solve(model).magnetization()
    assert m[2] < m[1] - 0.05
    rule, own = (
        StatevectorSolver(schedule, estimator="plain", gradient=gradient).solve(model).pullback(torch.ones_like(m))[0]
        for gradient in ("covariance", "circuit")
    )
    assert (rule > 0).all()
    assert own[0] > 0.1
    assert (own[1:] < -0.1).all()


def test_quick_gradients_pass_their_own_gate_and_leave_records(tmp_path, monkeypatch):
    out = tmp_path / "records.jsonl"
    monkeypatch.setattr(gradients, "COUNT", 2)
    monkeypatch.setattr(gradients, "CELLS", gradients.CELLS[:1])
    monkeypatch.setattr(sys, "argv", ["gradients.py", "--quick", "--out", str(out)])
    threads = torch.get_num_threads()
    gradients.main()
    torch.set_num_threads(threads)
    found = records(out)
    assert [record["layers"] for record in found] == [1, 2]
    for record in found:
        for schedule in record["schedules"].values():
            assert schedule["plain"]["covariance"]["cosine"] <= 1
            assert schedule["plain"]["covariance, 64 shots"]["variance"] > 0


def test_the_gate_of_the_gradients_fails_for_a_wrong_rule(monkeypatch):
    (model,) = ModelSet.random(0.5, 0.3, sizes=(4,), count=2, seed=1).batches
    upstream = torch.randn(model.fields.shape, dtype=torch.float64)
    gradients.check(model, upstream)
    right = gradients.gradient
    monkeypatch.setattr(
        gradients,
        "gradient",
        lambda ensemble, g: right(ensemble, g) * (1.01 if type(ensemble).__name__ == "SampledEnsemble" else 1),
    )
    with pytest.raises(AssertionError):
        gradients.check(model, upstream)


def test_the_interval_of_paired_differences_is_that_of_student():
    assert report.paired_t([0.1, 0.2, 0.3]) == pytest.approx((0.2, 4.30265 * 0.1 / math.sqrt(3)), rel=1e-5)
    mean, half = report.paired_t([0.5])
    assert mean == 0.5
    assert math.isnan(half)
