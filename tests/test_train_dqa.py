"""The main job from the outside: what it prints and writes, bad options, Ctrl-C and resume."""

import importlib.util
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from qboltz.experiments.checkpoint import load_checkpoint, read_metrics
from qboltz.experiments.options import make_parser, parse, settings, solver_from
from qboltz.experiments.progress import make_display
from qboltz.schedule import AnnealingSchedule

SCRIPT = Path(__file__).parents[1] / "examples" / "train_dqa.py"
QUICK = ["--steps", "2", "--batch-size", "4", "--eval-size", "6", "--width", "8"]
PROMISED = {
    "task": "recall",
    "backend": "aer_simulator",
    "variant": "h+J",
    "length": 5,
    "steps": 2,
    "shots": 16,
    "layers": 2,
    "seed": 3,
}


@pytest.fixture
def main():
    """``main`` of the script, in this process."""
    spec = importlib.util.spec_from_file_location("train_dqa", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    threads = torch.get_num_threads()
    yield module.main
    torch.set_num_threads(threads)


def command(*arguments):
    return [sys.executable, str(SCRIPT), *map(str, arguments)]


def summary_of(folder):
    return json.loads((folder / "summary.json").read_text())


def test_a_run_on_aer_from_the_shell(tmp_path):
    out = tmp_path / "run"
    options = ["--length", 5, "--shots", 16, "--layers", 2, "--seed", 3, "--out", out]
    result = subprocess.run(command(*QUICK, *options), capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    summary = summary_of(out)
    assert PROMISED.items() <= summary.items()
    for name in ("accuracy", "exact_eval_accuracy", "exact_twin_accuracy", "softmax_twin_accuracy", "chance"):
        assert 0 <= summary[name] <= 1, name
        assert name == "chance" or round(6 * summary[name], 9) % 1 == 0, name  # six test sequences
    assert summary["loss"] > 0
    assert 0 < summary["magnetization_rmse"] < 1
    assert summary["circuits"] == 2 * 4
    assert summary["circuits_per_second"] == pytest.approx(8 / summary["seconds"])
    for place in (out, out / "exact-twin", out / "softmax-twin"):
        assert [record["step"] for record in read_metrics(place)] == [1, 2]
    for name in ("learning_curves.png", "couplings.png"):
        assert (out / name).stat().st_size > 1000
    for expected in ("chance", "h+J: step 2/2", "circuits/s", "exact twin", "rms magnetization error"):
        assert expected in result.stdout


def test_help_names_every_option(capsys, main):
    with pytest.raises(SystemExit) as exit_:
        main(["--help"])
    assert exit_.value.code == 0
    shown = capsys.readouterr().out
    ours = "backend task length variant steps batch-size layers schedule shots"
    for option in f"{ours} estimator seed data out resume".split():
        assert f"--{option} " in shown


@pytest.mark.parametrize("variant", ["softmax", "h-only", "J-only"])
def test_variants(variant, main, tmp_path):
    options = ["--variant", variant, "--backend", "statevector", "--shots", "8", "--out", str(tmp_path)]
    assert main([*QUICK, *options]) == 0
    summary = summary_of(tmp_path)
    assert summary["softmax_twin_accuracy"] is not None
    spin_fields = ["exact_eval_accuracy", "exact_twin_accuracy", "magnetization_rmse", "shots", "layers"]
    for name in spin_fields:
        assert (summary[name] is None) == (variant == "softmax"), name
    if variant == "softmax":
        assert summary["softmax_twin_accuracy"] == summary["accuracy"]
        assert summary["circuits"] == 0
    assert (tmp_path / "couplings.png").exists() == (variant == "J-only")


@pytest.mark.parametrize(
    "options",
    [
        ["--task", "brackets", "--length", "6", "--form", "causal"],
        ["--task", "brackets", "--length", "6", "--kinds", "1", "--max-depth", "2", "--no-ffn"],
        ["--task", "shakespeare", "--length", "1"],
        ["--task", "shakespeare", "--length", "4", "--heads", "2"],
    ],
    ids=" ".join,
)
def test_tasks_with_the_exact_solver(options, main, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("to be or not to be, that is the question; " * 20, encoding="utf-8")
    data = ["--data", str(text)] if "shakespeare" in options else []
    assert main([*QUICK, *options, *data, "--backend", "exact", "--out", str(tmp_path / "run")]) == 0
    summary = summary_of(tmp_path / "run")
    assert summary["accuracy"] == summary["exact_eval_accuracy"] == summary["exact_twin_accuracy"]
    assert summary["magnetization_rmse"] < 1e-5
    assert (summary["shots"], summary["layers"], summary["circuits"]) == (None, None, 0)


def test_more_spins_than_enumeration_takes(main, tmp_path):
    options = ["--task", "brackets", "--length", "26", "--no-twin", "--variant", "softmax"]
    assert main([*QUICK, *options, "--out", str(tmp_path)]) == 0
    assert summary_of(tmp_path)["softmax_twin_accuracy"] is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--length", "6"], "length of recall must be odd"),
        (["--task", "brackets", "--length", "5"], "length of brackets must be even"),
        (["--task", "sorting"], "invalid choice: 'sorting'"),
        (["--form", "causal"], "option of task recall must be one of"),
        (["--backend", "quantum"], "solver must be one of"),
        (["--layers", "9"], "num_layers must be one of 1, 2, 3, 4, 5, 6, 7, 8 for a fitted schedule, got 9"),
        (["--shots", "0"], "--shots must be at least 1"),
        (["--steps", "0"], "steps must be an integer of at least 1, got 0"),
        (["--eval-size", "0"], "--eval-size must be at least 1, got 0"),
        (["--resume"], "--resume needs --out"),
        (["--task", "shakespeare", "--data", "/does/not/exist"], "No such file"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_options_end_with_one_clear_line(options, message, main, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as exit_:
        main(options)
    assert exit_.value.code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert not list(tmp_path.rglob("checkpoint.pt"))


def test_a_run_is_neither_overwritten_nor_resumed_with_other_options(main, tmp_path, capsys):
    run = ["--backend", "statevector", "--shots", "8", "--out", str(tmp_path)]
    assert main([*QUICK, *run]) == 0
    first = summary_of(tmp_path)

    def refused(*options):
        with pytest.raises(SystemExit) as exit_:
            main(list(options))
        assert exit_.value.code == 2
        return capsys.readouterr().err.splitlines()[-1]

    assert "holds a finished run" in refused(*QUICK, *run)
    message = refused("--resume", "--out", str(tmp_path), "--shots", "9", "--lr", "0.1")
    assert "lr was 0.003, is 0.1; shots was 8, is 9" in message
    assert main(["--resume", "--out", str(tmp_path)]) == 0  # only evaluates again, with the same shots
    assert summary_of(tmp_path) == first
    assert main([*QUICK, *run, "--steps", "1", "--overwrite"]) == 0
    assert summary_of(tmp_path)["steps"] == 1


def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path):
    options = ["--backend", "exact", "--length", 3, "--steps", 10**6, "--out", tmp_path]
    with subprocess.Popen(command(*options), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while not (tmp_path / "metrics.jsonl").exists() or not (tmp_path / "metrics.jsonl").read_text():
            assert process.poll() is None, process.stderr.read()
            try:
                process.wait(0.1)
            except subprocess.TimeoutExpired:
                continue
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert f"Continue with: python {SCRIPT} --resume --out {tmp_path}" in out
    done = load_checkpoint(tmp_path)["step"]
    assert done == len(read_metrics(tmp_path)) > 0


def test_a_stop_between_the_models_is_resumed(main, tmp_path, monkeypatch):
    """Ctrl-C while the twin trains: the summary ends up as that of one session."""
    run = ["--backend", "statevector", "--shots", "8"]
    assert main([*QUICK, *run, "--out", str(tmp_path / "whole")]) == 0

    def interrupt(label):
        if label == "h+J, exact twin":
            signal.raise_signal(signal.SIGINT)
        return make_display(label)

    with monkeypatch.context() as patch:
        patch.setattr("qboltz.experiments.comparison.make_display", interrupt)
        assert main([*QUICK, *run, "--out", str(tmp_path / "parts")]) == 130
    assert load_checkpoint(tmp_path / "parts")["step"] == 2
    assert load_checkpoint(tmp_path / "parts" / "exact-twin")["step"] == 1
    assert not (tmp_path / "parts" / "summary.json").exists()
    assert main(["--resume", "--out", str(tmp_path / "parts")]) == 0
    ignored = {"seconds": 0, "circuits_per_second": 0}
    assert summary_of(tmp_path / "parts") | ignored == summary_of(tmp_path / "whole") | ignored


def test_options_become_the_solver():
    def solver(*options):
        return solver_from(parse(make_parser(), list(options)), process=1)

    sampler = solver("--backend", "statevector", "--shots", "0", "--layers", "6", "--schedule", "linear")
    assert sampler.shots is None
    assert sampler.schedule == AnnealingSchedule.linear(6)
    assert sampler.seeds.key == (1,)
    assert solver("--backend", "statevector", "--estimator", "plain").estimator == "plain"
    assert not hasattr(solver("--backend", "exact"), "seeds")
    args = parse(make_parser(), ["--task", "brackets"])
    assert args.coupling_init == 0
    assert not {"out", "resume", "overwrite", "threads"} & settings(args).keys()
