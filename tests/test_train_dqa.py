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


# -- options that mean nothing, and machines --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--backend", "exact", "--shots", "7"], "--shots would have no effect with --backend exact: leave it out"),
        (
            ["--backend", "mean_field", "--estimator", "plain"],
            "--estimator would have no effect with --backend mean_field",
        ),
        (["--backend", "gibbs", "--layers", "2", "--polish", "1"], "--layers, --polish would have no effect"),
        (["--backend", "statevector", "--readout", "raw"], "Only devices report readout errors"),
        (["--dry-run"], "--dry-run would have no effect with --backend aer_simulator"),
        (["--backend", "fake_fez", "--mode", "batch", "--lines", "2"], "--mode, --lines would have no effect"),
        (["--backend", "exact", "--dry-run", "--variant", "h-only"], "Only machines and their snapshots have a price"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_option_without_effect_is_refused(options, message, main, capsys):
    with pytest.raises(SystemExit) as exit_:
        main(options)
    assert exit_.value.code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


def test_an_option_without_effect_on_a_variant_is_named(main, tmp_path, capsys):
    options = ["--variant", "softmax", "--backend", "exact", "--shots", "8", "--coupling-init", "1", "--no-twin"]
    assert main([*QUICK, *options, "--out", str(tmp_path)]) == 0
    assert "unused with --variant softmax: --backend, --shots, --coupling-init" in capsys.readouterr().out


def test_defaults_depend_on_the_backend():
    def defaults(backend):
        args = parse(make_parser(), ["--backend", backend])
        return args.layers, args.shots, args.estimator, args.eval_size, args.schedule

    assert defaults("aer_simulator") == defaults("exact") == (6, 128, "plain", 512, "fitted")
    assert defaults("ibm_fez") == defaults("least_busy") == (2, 128, "conditional", 64, "fitted")
    assert parse(make_parser(), ["--backend", "ibm_fez", "--layers", "3"]).layers == 3


def test_options_become_the_machine(tmp_path):
    given = "--mode batch --dynamical-decoupling XY4 --twirling gates measurements --guard 1 --lines 3 --timeout 5"
    given += (
        f" --max-line-error .5 --max-qpu-seconds 9 --instance mine --runtime-sampler legacy --jobs-store {tmp_path}/x"
    )
    args = parse(make_parser(), ["--backend", "ibm_fez", "--dry-run", "--readout", "corrected", *given.split()])
    solver = solver_from(args, process=0, run="abc")
    options = solver.backend.options
    assert (options.mode, options.dynamical_decoupling, options.twirling) == ("batch", "XY4", ("gates", "measurements"))
    assert (options.guard, options.lines, options.max_line_error, options.timeout) == (1, 3, 0.5, 5)
    assert (options.max_qpu_seconds, options.dry_run, options.sampler) == (9, True, "legacy")
    assert options.account.instance == "mine"
    assert options.store == tmp_path / "x"
    assert solver.backend.run == "abc"
    assert solver.readout == "reported"


MACHINE = ["--backend", "ibm_small", "--length", "3", "--layers", "1", "--shots", "8", "--no-twin"]


def test_a_run_on_a_machine_says_its_price_first_and_is_resumed_without_repeating_options(
    service, main, tmp_path, capsys
):
    out, store = tmp_path / "run", tmp_path / "asked.sqlite"
    options = ["--max-qpu-seconds", "50", "--jobs-store", str(store), "--out", str(out)]
    assert main([*QUICK, *MACHINE, *options]) == 0
    shown = capsys.readouterr().out
    price, training = shown.index("Price of this run, before anything is submitted"), shown.index("step 1/2")
    assert price < training
    assert " training on ibm_small: 4 rows of 3 spins, 1 layers, 8 shots, 2 times" in shown
    assert " evaluation on ibm_small: 6 rows of 3 spins, 1 layers, 8 shots" in shown
    assert " in all 6." in shown
    assert " on the account 600 s are left" in shown
    assert [job.executions for job in service.jobs.values()] == [32, 32, 48]  # two steps, and ONE evaluation
    summary = summary_of(out)
    assert summary["magnetization_rmse"] > 0
    assert summary["estimator"] == "conditional"
    assert main(["--resume", "--out", str(out)]) == 0  # same store, same budget: everything is collected from there
    assert summary_of(out) | {"seconds": 0, "circuits_per_second": 0} == summary | {
        "seconds": 0,
        "circuits_per_second": 0,
    }
    assert "Price of the rest of this run" in capsys.readouterr().out
    assert len(service.jobs) == 3
    assert not (tmp_path / "jobs.sqlite").exists()  # the default place


def test_a_session_is_closed_before_the_twins_train(service, main, tmp_path, monkeypatch, capsys):
    states = []

    def display(label):
        states.append([session["state"] for session in service.sessions.values()])
        return make_display(label)

    monkeypatch.setattr("qboltz.experiments.comparison.make_display", display)
    options = ["--mode", "session", "--session-seconds", "60", "--out", str(tmp_path / "run")]
    assert main([*QUICK, *MACHINE[:-1], *options]) == 0
    assert states == [[], ["closed"], ["closed"]]  # own, exact twin, softmax twin
    assert all(job.session is not None for job in service.jobs.values())
    assert "a session is billed by the clock" in capsys.readouterr().out


def test_a_budget_stops_a_run_and_a_higher_one_continues_it(service, main, tmp_path, capsys):
    out = tmp_path / "run"
    options = [*QUICK, *MACHINE, "--max-qpu-seconds", "2.5", "--out", str(out)]
    assert main(options) == 1
    shown = capsys.readouterr().out
    assert "--max-qpu-seconds 2.5 stops it after about 1 of 2 steps" in shown
    assert "error: run " in shown
    assert "may use 2.5 QPU seconds" in shown
    assert 1 <= len(service.jobs) < 3
    assert main(["--resume", "--out", str(out), "--max-qpu-seconds", "60"]) == 0
    assert len(service.jobs) == 3, "what was paid for is not paid for again"


def test_a_dry_run_prices_and_checks_and_leaves_nothing(service, main, tmp_path, capsys):
    out = tmp_path / "run"
    assert main([*QUICK, *MACHINE, "--dry-run", "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "in all 6." in shown
    assert "Compiled and checked; nothing was submitted." in shown
    assert not service.count("POST /jobs")
    assert not out.exists()
    fake = ["--backend", "fake_manila", *MACHINE[2:], "--dry-run", "--out", str(out)]
    assert main([*QUICK, *fake]) == 0
    shown = capsys.readouterr().out
    assert "fake_manila is a snapshot that runs here" in shown
    assert "dry run: nothing was run" in shown
    assert not out.exists()


def test_the_least_busy_machine_is_named_and_kept(service, main, tmp_path, capsys):
    options = ["--backend", "least_busy", *MACHINE[2:], "--dry-run", "--out", str(tmp_path / "run")]
    assert main([*QUICK, *options, "--lines", "1"]) == 0
    assert "h+J attention by ibm_loopback" in capsys.readouterr().out


@pytest.mark.parametrize(("heads", "causal", "rows"), [(1, False, 6), (2, False, 12), (1, True, 18)])
def test_every_row_of_a_batch_is_counted(heads, causal, rows):
    from qboltz.experiments.options import model_from, task_from
    from qboltz.experiments.pricing import requests

    form = ["--form", "causal"] if causal else []
    args = parse(make_parser(), ["--task", "brackets", "--length", "6", "--heads", str(heads), *form])
    task = task_from(args)
    batch = task.batch(torch.Generator().manual_seed(0), 6)
    asked = requests(model_from(args, task, "h+J", "exact"), batch, chunk=4)
    assert sum(count for _, count in asked) == rows == heads * batch.rows.numel()
    assert [spins for spins, _ in asked] == [6, 6]
