"""The comparison with other packages: measuring, resuming, tables; where they are installed, their numbers."""

import json
import sys
from pathlib import Path

import pytest
import torch

from qboltz import AnnealingSchedule
from qboltz.spins import spin_table

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
SCHEDULE = AnnealingSchedule.fitted(2)


@pytest.fixture(autouse=True)
def scripts(monkeypatch):
    """The scripts import each other by their names."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))


@pytest.fixture
def problem():
    from peers_problem import Problem

    return Problem.random(3, 4, seed=5, dtype=torch.float64)


@pytest.fixture
def small(monkeypatch):
    """The script with a grid of one layer, ours alone; its number of threads is its own."""
    import against_peers

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    threads = torch.get_num_threads()
    monkeypatch.setattr(against_peers, "QUICK", against_peers.Sizes((2,), (1, 2), (3,), 1, 8, 2))
    monkeypatch.setattr(against_peers, "LAYERS", {"qboltz": ("peers_ours", ("qboltz",))})
    monkeypatch.setattr("peers_exact.PEERS", {"none": (("no-such-distribution",), {})})
    yield against_peers
    torch.set_num_threads(threads)


def enumerated(problem):
    """Magnetizations by summing over all configurations, one row and one configuration at a time."""

    def forward(fields, pairs):
        rows = []
        spins = spin_table(problem.num_spins, dtype=fields.dtype)
        for h in fields:
            energies = []
            for s in spins:
                products = [s[i] * s[j] for i in range(len(h)) for j in range(i + 1, len(h))]
                energies.append(-(h @ s) - (pairs @ torch.stack(products)))
            rows.append(torch.softmax(-torch.stack(energies), 0) @ spins)
        return torch.stack(rows)

    return forward


def test_the_truth_is_enumeration_and_its_derivative(problem):
    from peers_problem import boltzmann, differentiate, errors

    found = errors(boltzmann(problem), differentiate(problem, enumerated(problem)))
    assert max(found.values()) < 1e-12


def test_the_circuits_truth_is_a_derivative_of_its_magnetizations(problem):
    from peers_problem import Problem, circuit

    step = circuit(problem, SCHEDULE)
    shift = 1e-5
    for number in range(len(problem.pairs)):
        losses = []
        for sign in (1, -1):
            pairs = problem.pairs.clone()
            pairs[number] += sign * shift
            m = circuit(Problem(problem.fields, pairs, problem.upstream), SCHEDULE).magnetization
            losses.append((m * problem.upstream).sum())
        assert float((losses[0] - losses[1]) / (2 * shift) - step.grad_pairs[number]) == pytest.approx(0, abs=1e-8)


def test_errors_are_relative_and_add_up_over_repetitions(problem):
    from peers_problem import Method, Step, boltzmann, rounds

    truth = boltzmann(problem)
    factors = iter([1.0, 1.0, 1.3, 1.4])  # the first is the warm-up on one row
    calls = []

    def step(given):
        factor = next(factors)
        calls.append(len(given.fields))
        if len(given.fields) == 1:
            return truth
        return Step(truth.magnetization + factor - 1, factor * truth.grad_fields, truth.grad_pairs)

    method = Method(step, "test", lambda: sum(calls))
    found = rounds({"test": method}, problem, SCHEDULE, repeats=3)["test"]
    assert calls == [1, 4, 4, 4]
    assert found["circuits"] == 4
    assert len(found["seconds"]) == 3
    mean_square = (0.3**2 + 0.4**2) / 3
    assert found["against_boltzmann"]["grad_fields"] == pytest.approx(mean_square**0.5)
    assert found["against_boltzmann"]["magnetization_rmse"] == pytest.approx(mean_square**0.5)
    assert found["against_boltzmann"]["grad_pairs"] < 1e-12


def test_our_methods_count_circuits_and_those_without_shots_are_exact(problem):
    import peers_ours
    from against_peers import check
    from peers_problem import rounds

    found = rounds(peers_ours.methods(3, SCHEDULE, 512, 0), problem, SCHEDULE, repeats=1)
    assert found[peers_ours.AER]["circuits"] == 4
    assert found["`ExactSolver`"]["circuits"] == 0
    assert max(found["`ExactSolver`"]["against_boltzmann"].values()) < 1e-12
    assert max(found[peers_ours.CIRCUIT]["against_circuit"].values()) < 1e-12
    for name in (peers_ours.AER, peers_ours.SAMPLED):
        assert 0 < found[name]["against_circuit"]["magnetization_rmse"] < 4 / 512**0.5
    check(found)
    found[peers_ours.CIRCUIT]["against_circuit"]["grad_pairs"] = 0.1
    with pytest.raises(SystemExit, match="correctness gate failed"):
        check(found)


def test_a_quick_run_without_peers_names_them_and_is_not_repeated(small, tmp_path, monkeypatch, capsys):
    out = tmp_path / "records.jsonl"
    monkeypatch.setattr(sys, "argv", ["against_peers.py", "--quick", "--out", str(out)])
    small.main()
    assert "not installed, left out: none" in capsys.readouterr().out
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert [record["cell"]["rows"] for record in records] == [1, 2]
    assert all(record["versions"]["torch"] and record["peer_versions"]["qboltz"] for record in records)
    small.main()
    assert len(out.read_text().splitlines()) == 2


def test_slow_methods_are_left_out_with_their_time_for_fewer_rows():
    from against_peers import too_slow

    cell = {"part": "layer", "peer": "slow", "num_spins": 6, "rows": 2}
    records = [{"cell": cell, "methods": {"way": {"median_seconds": 20.0}, "other": {"not_run": "..."}}}]
    reason = too_slow("way", cell | {"rows": 32}, records)
    assert "2 rows take 20 s" in reason["not_run"]
    assert "320 s" in reason["not_run"]
    assert reason["smaller"] == {"rows": 2, "median_seconds": 20.0}
    assert too_slow("way", cell | {"rows": 4}, records) is None
    assert too_slow("way", cell | {"rows": 5}, records) is not None
    assert too_slow("other", cell | {"rows": 32}, records) is None
    assert too_slow("way", cell | {"rows": 32, "num_spins": 8}, records) is None


def test_the_table_shows_ratios_within_rounds_and_what_was_not_run():
    from peers_table import table

    errors = {"magnetization_rmse": 0.01, "grad_fields": 0.02, "grad_pairs": 0.03}
    both = {"against_boltzmann": errors, "against_circuit": errors}
    ours = {
        "computes": "samples",
        "beside": [],
        "seconds": [1.0, 2.0, 4.0],
        "median_seconds": 2.0,
        "circuits": 4,
        **both,
    }
    theirs = ours | {"beside": ["ours"], "seconds": [3.0, 4.0, 40.0], "median_seconds": 4.0, "circuits": 1000}
    left_out = {"computes": "samples", "not_run": "too slow"}
    records = [
        {
            "cell": {"part": "layer", "peer": "p", "num_spins": 6, "rows": 2},
            "methods": {"ours": ours, "theirs": theirs},
        },
        {"cell": {"part": "layer", "peer": "p", "num_spins": 6, "rows": 32}, "methods": {"theirs": left_out}},
        {"cell": {"part": "layer", "peer": "us", "num_spins": 6, "rows": 32}, "methods": {"ours": ours}},
        {
            "cell": {"part": "exact", "peer": "e", "num_spins": 12, "rows": 2},
            "methods": {
                "ours": {"seconds": [0.001], "median_seconds": 0.001, "largest_difference": 0.0},
                "e": {"seconds": [0.005], "median_seconds": 0.005, "largest_difference": 2e-15},
            },
        },
    ]
    text = table(records)
    assert "| theirs | 6 | 2 | 4 s | 1,000 | 3 x ours | 0.01 | 0.02, 0.03 | 0.02, 0.03 |" in text
    assert "| theirs | 6 | 32 | not run: too slow |" in text
    assert "| ours | 6 | 32 | 2 s | 4 |" in text
    assert "| e | 5 ms (5 x) | 2e-15 |" in text
    columns = {line.count("|") for line in text.split("\n\n")[1].splitlines()}
    assert len(columns) == 1


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("peer", ["qiskit-machine-learning", "pennylane", "dwave-pytorch-plugin"])
def test_a_peer_computes_the_layer(peer):
    """Errors of 12 sampled magnetizations within 5 standard errors of one shot each; expectations as ours."""
    import importlib

    from against_peers import LAYERS
    from peers_problem import Problem, rounds

    problem = Problem.random(3, 4, seed=1)
    shots = 2048
    methods = importlib.import_module(LAYERS[peer][0]).methods(3, SCHEDULE, shots, 0)
    found = rounds(methods, problem, SCHEDULE, repeats=1)
    for name, values in found.items():
        truth = values["against_boltzmann" if "no circuit" in values["computes"] else "against_circuit"]
        if values["computes"].startswith("expectations"):
            assert max(truth.values()) < 1e-5, name
        else:
            assert 0 < truth["magnetization_rmse"] < 5 / shots**0.5, name
            assert 0 < truth["grad_fields"] < 0.2, name
        if "parameter shifts" in values["computes"]:
            parameters = 3 + 3
            assert values["circuits"] == 4 * (1 + 2 * SCHEDULE.num_layers * parameters), name


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("peer", ["dimod", "dwave-samplers", "pgmpy"])
def test_exact_inference_of_a_peer_agrees(peer):
    from peers_exact import PEERS, measure

    found = measure(5, 2, PEERS[peer][1], repeats=1, seed=0)
    assert len(found["methods"]) == 1 + len(PEERS[peer][1])
    assert all(values["largest_difference"] < 1e-12 for values in found["methods"].values())
