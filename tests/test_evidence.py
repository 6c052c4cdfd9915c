"""The evidence: tasks of joint choice against enumeration by hand, the statistics of its tables, the quick runs."""

import itertools
import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import evidence
import protocol
from joint_tasks import CuesTask, LatestTask, RingTask, SegmentTask
from started import best_rate, combinations, reported, tuning_cells

from qboltz.experiments.optimization import data_generator

TASKS = [SegmentTask(), SegmentTask(15, num_segments=4), LatestTask(), CuesTask(), RingTask(), RingTask(6)]


def segment_answer(task, tokens, row):
    parts, current = [], []
    for token in tokens[:-1]:
        parts, current = ([*parts, current], []) if token == 0 else (parts, [*current, token])
    parts.append(current)
    (part,) = [part for part in parts if tokens[-1] in part]
    (value,) = [token for token in part if token >= 2 + task.num_keys]
    return value - 2 - task.num_keys


def latest_answer(task, tokens, row):
    memory = dict(zip(tokens[0:-1:2], tokens[1:-1:2], strict=True))  # later pairs overwrite
    return memory[tokens[-1]] - task.num_keys


def cues_answer(task, tokens, row):
    asked = tokens[-1] - 2 * task.num_features - task.num_values
    items = [tokens[i : i + 3] for i in range(0, len(tokens) - 1, 3)]
    both = divmod(asked, task.num_features)
    (value,) = [v for a, b, v in items if (a, b - task.num_features) == both]
    assert any(a == both[0] and b - task.num_features != both[1] for a, b, _ in items)
    assert any(a != both[0] and b - task.num_features == both[1] for a, b, _ in items)
    return value - 2 * task.num_features


def ring_answer(task, tokens, row):
    marked = tokens[row] >= task.num_levels
    assert marked
    assert sum(token >= task.num_levels for token in tokens) == 1
    levels = [token % task.num_levels + 1 for token in tokens]
    n = len(levels)
    sets = [
        chosen
        for size in range(n + 1)
        for chosen in itertools.combinations(range(n), size)
        if all((j + 1) % n not in chosen for j in chosen)
    ]
    sums = sorted((sum(levels[j] for j in chosen), chosen) for chosen in sets)
    assert sums[-1][0] > sums[-2][0]
    return int(row in sums[-1][1])


ANSWERS = {"segments": segment_answer, "latest": latest_answer, "cues": cues_answer, "ring": ring_answer}


@pytest.mark.parametrize("task", TASKS, ids=lambda task: f"{task.name}{task.length}")
def test_answers_of_joint_tasks_are_those_found_by_hand(task):
    batch = task.batch(data_generator(0, "train"), 200)
    assert batch.tokens.shape == (200, task.length)
    assert 0 <= int(batch.tokens.min()) <= int(batch.tokens.max()) < task.vocab_size
    answer = ANSWERS[task.name]
    for tokens, (row,), (target,) in zip(
        batch.tokens.tolist(), batch.rows.tolist(), batch.targets.tolist(), strict=True
    ):
        assert answer(task, tokens, row) == target
    assert len(batch.targets.unique()) == task.num_classes  # 200 draws of at most 8 classes miss one with p < 1e-10


@pytest.mark.parametrize("task", TASKS, ids=lambda task: f"{task.name}{task.length}")
def test_joint_tasks_keep_train_and_test_apart(task):
    train = task.batch(data_generator(0, "train"), 2000)
    test = task.batch(data_generator(0, "test"), 500, "test")
    where = slice(None) if task.name == "ring" else slice(0, -1)

    def contexts(batch):
        tokens = batch.tokens % task.num_levels if task.name == "ring" else batch.tokens
        extra = batch.rows if task.name == "ring" else batch.rows[:, :0]
        return {tuple(row) for row in torch.cat([tokens[:, where], extra], 1).tolist()}

    if task.name == "ring":  # the levels alone decide
        assert not {c[:-1] for c in contexts(train)} & {c[:-1] for c in contexts(test)}
    assert not contexts(train) & contexts(test)


def record(**entries):
    return {"cell": {}} | entries


def test_gaps_are_paired_over_seeds():
    ours, base = record(loss=[1.0, 2.0], accuracy=[0.9, 0.5]), record(loss=[1.1, 2.2], accuracy=[0.8, 0.5])
    expected = np.mean([100 * (1 - math.exp(-0.1)), 100 * (1 - math.exp(-0.2))])
    assert evidence.percent_gap(ours, base).mean == pytest.approx(expected)
    assert evidence.point_gap(ours, base).mean == pytest.approx(5.0)
    assert evidence.point_gap(ours, base).low == pytest.approx(0.0)
    with pytest.raises(ValueError, match="shorter|strict|argument"):
        evidence.percent_gap(ours, record(loss=[1.0]))


def test_numbers_over_pairs_stand_at_their_positions():
    pairs = [0.1 * (10 * j + k) for j, k in itertools.combinations(range(4), 2)]
    dense = evidence.pair_matrix(record(pairs=[pairs, [2 * value for value in pairs]]))
    for j, k in itertools.combinations(range(4), 2):
        assert dense[0, j, k] == dense[0, k, j] == pytest.approx(0.1 * (10 * j + k))
    found = evidence.by_distance(record(pairs=[pairs, [2 * value for value in pairs]]))
    assert found[3].mean == pytest.approx(1.5 * 0.3)
    assert (found[3].low, found[3].high) == pytest.approx((0.3, 0.6))
    assert found[2].mean == pytest.approx(1.5 * np.mean([0.2, 1.3]))


def test_steps_to_an_accuracy_are_of_each_seed():
    curves = record(curve_steps=[10, 20, 30], curve_accuracy=[[0.5, 0.96], [0.95, 0.9], [0.9, 0.97]])
    assert evidence.steps_to(curves, 0.95) == [20, 10]
    assert evidence.steps_to(curves, 0.97) == [math.inf, 30]


def test_every_kind_has_the_same_budget_of_tuning():
    for task in ("brackets", "shakespeare"):
        assert len({len(set(protocol.settings(task, kind))) for kind in protocol.KINDS}) == 1


def test_the_setting_with_the_least_loss_is_chosen_and_gaps_in_tuning_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(protocol, "RESULTS", tmp_path)
    tried = protocol.settings("brackets", "h+J")
    cells = [{"task": "brackets", "kind": "h+J", "ffn": True, "lr": lr, "factor": factor} for lr, factor in tried]
    losses = [[0.5, 0.7], [0.1, 2.0], [0.3, 0.3], [0.9, 0.9], [0.4, 0.4], [0.6, 0.6]]
    lines = [json.dumps({"cell": cell, "loss": loss}) for cell, loss in zip(cells, losses, strict=True)]
    (tmp_path / "tuning.jsonl").write_text("\n".join(lines) + "\n")
    assert protocol.best_setting("brackets", "h+J", True) == tried[2]
    (tmp_path / "tuning.jsonl").write_text("\n".join(lines[:-1]) + "\n")
    with pytest.raises(LookupError, match=r"h\+J on brackets.*lacks"):
        protocol.best_setting("brackets", "h+J", True)


def test_a_start_that_was_not_tuned_takes_the_rate_of_its_kind(tmp_path):
    path = tmp_path / "records.jsonl"
    cells = tuning_cells({"pairs": 4}, 1.0)
    assert {(cell["kind"], cell["start"]) for cell in cells} == set(combinations(1.0))
    best = {("h+J", 0.0): 2e-3, ("h+J", 1.0): 6e-3}
    lines = [
        json.dumps({"cell": cell, "loss": [1.0 - (cell["lr"] == best.get((cell["kind"], cell["start"])))]})
        for cell in cells
    ]
    path.write_text("\n".join(lines) + "\n")
    assert best_rate(path, {"pairs": 4}, "h+J", 0.0) == 2e-3
    assert best_rate(path, {"pairs": 4}, "h+J", 1.0) == 6e-3
    assert best_rate(path, {"pairs": 4}, "h+J", 2.0) == 6e-3
    cell = reported({"pairs": 6}, "h+J", 2.0, path, {"pairs": 4})
    assert (cell["pairs"], cell["lr"], cell["seeds"]) == (6, 6e-3, [0, 5])
    with pytest.raises(LookupError, match="not complete"):
        best_rate(path, {"pairs": 5}, "h+J", 0.0)


QUICK = [
    "tuning",
    "length_scaling",
    "bracket_matching",
    "ablation",
    "coupling_structure",
    "planted_couplings",
    "associative_recall",
    "joint_choice",
    "ring_choice",
    "dqa_training",
    "exploration",
]


@pytest.mark.slow
@pytest.mark.parametrize("script", QUICK)
def test_quick_runs_leave_records_and_are_not_repeated(script, tmp_path, monkeypatch, capsys):
    out, text = tmp_path / "quick.jsonl", tmp_path / "text.txt"
    text.write_text("the boltzmann machine attends to what its couplings say. " * 40)
    monkeypatch.setattr(sys, "argv", [f"{script}.py", "--quick", "--data", str(text), "--out", str(out)])
    module = __import__(script)
    threads = torch.get_num_threads()
    module.main()
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert records
    assert all(entry["benchmark"] == script and entry["seconds"] < 60 for entry in records)
    before = out.read_text()
    module.main()
    torch.set_num_threads(threads)
    assert out.read_text() == before
    assert "0 cells to run" in capsys.readouterr().out


def test_seeds_of_a_stack_are_solved_each_by_its_own_solver():
    from dqa_training import SeedBySeed

    from qboltz import ExactSolver, IsingModel, StatevectorSolver

    generator = torch.Generator().manual_seed(0)
    fields = torch.randn(2, 3, 1, 4, generator=generator, dtype=torch.float64)
    couplings = torch.randn(2, 1, 1, 4, 4, generator=generator, dtype=torch.float64)
    couplings = couplings + couplings.mT
    couplings.diagonal(dim1=-2, dim2=-1).zero_()
    model, grad = IsingModel(fields, couplings), torch.randn(fields.shape, generator=generator, dtype=torch.float64)
    joined, whole = SeedBySeed([ExactSolver(), ExactSolver()]).solve(model), ExactSolver().solve(model)
    torch.testing.assert_close(joined.magnetization(), whole.magnetization())
    for one, other in zip(joined.pullback(grad), whole.pullback(grad), strict=True):
        torch.testing.assert_close(one, other)
    solvers = [StatevectorSolver("adaptive", num_layers=2, estimator="plain", seed=0) for _ in range(2)]
    SeedBySeed(solvers).solve(model)
    assert solvers[0].schedule != solvers[1].schedule
    with pytest.raises(ValueError, match="leading dimension of 3 seeds"):
        SeedBySeed([ExactSolver()] * 3).solve(model)
