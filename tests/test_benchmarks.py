"""The fidelity benchmark: its measures against brute force, its quick run, its tables."""

import json
import sys
from pathlib import Path

import pytest
import torch

from qboltz import ExactSolver, IsingModel
from qboltz.fidelity import BoltzmannTarget
from qboltz.modelset import ModelSet
from qboltz.seeds import SeedStream
from qboltz.spins import spin_table

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(autouse=True)
def scripts(monkeypatch):
    """The scripts import each other by their names."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))


@pytest.fixture
def target():
    return BoltzmannTarget(ModelSet.random(0.5, 0.3, sizes=(4,), count=5, seed=3).batches[0])


def test_both_estimators_are_exact_for_the_boltzmann_distribution(target):
    from fidelity_measures import distances, exact_moments, moments

    exact = exact_moments(target)
    torch.testing.assert_close(
        exact.magnetization, ExactSolver().solve(IsingModel(target.fields, target.couplings[:, None])).magnetization()
    )
    for estimator in ("plain", "conditional"):
        found = distances(moments(target, target.log_p.exp(), estimator), exact)
        assert set(found) == {"magnetization", "attention", "covariance"}
        assert all(float(value.max()) < 1e-12 for value in found.values())
    uniform = torch.full_like(target.log_p, 2.0**-4)
    assert float(distances(moments(target, uniform, "plain"), exact)["magnetization"].mean()) > 0.05


def test_samples_become_populations():
    from fidelity_measures import drawn_spins, empirical

    table = spin_table(3, dtype=torch.int8)
    q = empirical(table[torch.tensor([[[5, 5, 2, 7]]])])
    assert q.flatten().tolist() == [0, 0, 0.25, 0, 0, 0.5, 0, 0.25]
    drawn = empirical(drawn_spins(q, 4000, 3, SeedStream(0)))
    torch.testing.assert_close(drawn, q, atol=4 * 0.5 / 4000**0.5, rtol=0)


def test_the_standard_error_is_that_of_resampling():
    from fidelity_measures import spread

    values = torch.rand(200, generator=torch.Generator().manual_seed(0), dtype=torch.float64).pow(3)
    index = torch.randint(200, (4000, 200), generator=torch.Generator().manual_seed(1))
    value, error = spread(values, root=True)
    resampled = values[index].mean(1).sqrt()
    assert value == pytest.approx(values.mean().sqrt().item(), rel=1e-2)
    assert error == pytest.approx(resampled.std().item(), rel=0.1)


def test_the_control_variate_keeps_the_mean_and_calms_the_noise(target):
    from fidelity_measures import drawn_spins, empirical, moments
    from fidelity_samplers import corrected

    spins = drawn_spins(target.log_p.exp(), 40_000, 4, SeedStream(1))
    pieces = spins.unflatten(2, (400, 100)).unbind(2)
    answers = {
        "corrected": torch.stack([corrected(target, piece) for piece in pieces]),
        "conditional": torch.stack(
            [moments(target, empirical(piece), "conditional").magnetization for piece in pieces]
        ),
    }
    spread = {name: values.std(0) for name, values in answers.items()}
    # Its coefficients come from the same 100 samples: a bias of order 1 / 100 of a small quantity is allowed.
    gap = (answers["corrected"].mean(0) - target.mean).abs()
    assert bool((gap < 5 * spread["corrected"] / 20 + 1e-3).all())
    assert float(spread["corrected"].mean()) < 0.8 * float(spread["conditional"].mean())


def test_numbers_show_their_standard_error():
    from fidelity_records import compact

    assert compact([0.0437, 0.00041]) == "0.0437(4)"
    assert compact([0.0437, 0.00098]) == "0.044(1)"
    assert compact([0.5, 0.0]) == "0.5000"
    assert compact(None) == ""


@pytest.mark.slow
def test_a_quick_run_records_every_part_and_is_not_repeated(tmp_path, monkeypatch):
    import dqa_fidelity
    import recorded_models

    models, out = tmp_path / "models", tmp_path / "records"

    def run(script, *arguments):
        monkeypatch.setattr(sys, "argv", [script.__name__, *map(str, arguments)])
        script.main()

    threads = torch.get_num_threads()
    run(recorded_models, "--only", "brackets_t8", "--steps", 2, "--folder", models)
    run(dqa_fidelity, "--quick", "--models", models, "--out", out)
    files = {path.name: path.read_text() for path in out.iterdir()}
    records = [json.loads(line) for text in files.values() for line in text.splitlines()]
    assert {record["part"] for record in records} == set(dqa_fidelity.PARTS)
    schedules = json.loads(files["schedules_n04.jsonl"].splitlines()[0])
    value, error = schedules["errors"]["linear"]["plain"]["magnetization"]["infinite"]
    assert 0 < error < value < 1
    run(dqa_fidelity, "--quick", "--models", models, "--out", out)
    assert {path.name: path.read_text() for path in out.iterdir()} == files
    torch.set_num_threads(threads)
