"""Model, loop and files: bit-for-bit resume, refusals, metrics that agree with the checkpoint."""

import io
import itertools
import json
import math
import signal
import threading

import pytest
import torch
from rich.console import Console
from torch.nn import functional as F

from qboltz import ExactSolver, TooManySpinsError, make_solver
from qboltz.experiments.checkpoint import (
    CHECKPOINT,
    METRICS,
    MetricsLog,
    load_checkpoint,
    read_metrics,
    save_checkpoint,
    write_atomically,
)
from qboltz.experiments.evaluation import evaluate, magnetization_rmse, summed_loss, using_solver
from qboltz.experiments.figures import pairs_by_distance, running_mean, save_couplings, save_learning_curves
from qboltz.experiments.model import OneLayerTransformer, neighbor_couplings
from qboltz.experiments.optimization import TrainingConfig, data_generator, lr_factor, make_optimizer
from qboltz.experiments.processes import Processes, StopSignal
from qboltz.experiments.progress import LineDisplay, LiveDisplay, make_display, print_table
from qboltz.experiments.runs import claim, clear, next_folder, write_summary
from qboltz.experiments.training import train
from qboltz.tasks import IGNORED, Batch, BracketTask, RecallTask

TASK = RecallTask(5, 4, 4)
CAUSAL = BracketTask(6, form="causal")


def small_model(task=TASK, seed=0, variant="h+J", solver="exact", **options):
    return OneLayerTransformer.for_task(
        task, seed=seed, variant=variant, solver=solver, width=8, coupling_init=0.5, **options
    )


class StopAfter:
    """Stands for a person who presses Ctrl-C during a step."""

    def __init__(self, steps):
        self.steps = steps
        self.asked = 0

    @property
    def requested(self):
        self.asked += 1
        return self.asked >= self.steps


# --- model ---


def test_rows_of_the_model_are_rows_of_the_full_answer():
    model = small_model(CAUSAL)
    batch = CAUSAL.batch(data_generator(0, "train"), 5)
    every = model(batch.tokens)
    assert every.shape == (5, 6, 6)
    chosen = every.gather(1, batch.rows.unsqueeze(-1).expand(-1, -1, 6))
    torch.testing.assert_close(model(batch.tokens, batch.rows), chosen)
    with torch.no_grad():  # without what attention adds, a row is a function of its own token and position
        model.attention.out_proj.weight.zero_()
    embedded = model.token(batch.tokens) + model.position
    torch.testing.assert_close(model(batch.tokens), model.head(embedded + model.ffn(embedded)))


def test_a_causal_model_does_not_see_what_comes_later():
    model = small_model(CAUSAL)
    tokens = CAUSAL.batch(data_generator(0, "train"), 5).tokens
    changed = tokens.clone()
    changed[:, 3:] = (changed[:, 3:] + 1) % 4
    torch.testing.assert_close(model(changed)[:, :3], model(tokens)[:, :3])
    assert not torch.allclose(model(changed)[:, 3:], model(tokens)[:, 3:])


def test_models_of_one_seed_start_with_equal_weights_in_all_variants():
    reference = dict(small_model().named_parameters())
    for variant in ("softmax", "h-only", "J-only"):
        model = small_model(variant=variant)
        assert model.variant == variant
        for name, parameter in model.named_parameters():
            assert torch.equal(parameter, reference[name]), name
    assert not torch.equal(small_model(seed=1).token.weight, reference["token.weight"])


def test_neighbor_couplings_and_short_sequences():
    assert neighbor_couplings(3, 2.0).tolist() == [[0, 2, 0], [2, 0, 2], [0, 2, 0]]
    assert neighbor_couplings(1, 2.0).tolist() == [[0]]
    model = OneLayerTransformer(4, 3, 1, 8, causal=True, ffn=False)  # T = 1
    assert model(torch.tensor([[2], [1]])).shape == (2, 1, 3)
    assert small_model().attention.couplings[0, 1, 2] == 0.5


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: OneLayerTransformer(0, 3, 4), "vocab_size must be a positive integer, got 0"),
        (lambda: OneLayerTransformer(3, 3, 4, 10, num_heads=3), "embed_dim must be divisible by num_heads"),
        (lambda: small_model()(torch.zeros(2, 6, dtype=torch.int64)), r"with T <= 5, got \(2, 6\)"),
    ],
)
def test_bad_model_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# --- loss, optimizer, learning rate ---


def test_padded_rows_count_for_nothing():
    logits = torch.randn(2, 3, 4)
    targets = torch.tensor([[1, 2, IGNORED], [0, IGNORED, IGNORED]])
    loss, right = summed_loss(logits, targets)
    counted = targets != IGNORED
    expected = F.cross_entropy(logits[counted], targets[counted], reduction="sum")
    torch.testing.assert_close(loss, expected)
    assert right == (logits[counted].argmax(-1) == targets[counted]).sum()
    assert Batch(targets, targets, targets).num_targets == 3


def test_couplings_learn_faster_and_without_decay():
    config = TrainingConfig(lr=0.1, coupling_lr_factor=3)
    model = small_model()
    groups = make_optimizer(model, config).param_groups
    assert groups[0]["params"] == [model.attention.coupling_weights]
    assert (groups[0]["peak_lr"], groups[0]["weight_decay"]) == (pytest.approx(0.3), 0)
    assert all(parameter.dim() < 2 for parameter in groups[1]["params"])
    assert groups[1]["weight_decay"] == 0 < groups[2]["weight_decay"]
    assert sum(len(group["params"]) for group in groups) == len(list(model.parameters()))
    assert len(make_optimizer(small_model(variant="softmax"), config).param_groups) == 2


def test_the_learning_rate_warms_up_and_anneals():
    config = TrainingConfig(steps=100, warmup=0.1)
    factors = [lr_factor(step, config) for step in range(100)]
    assert factors[:10] == pytest.approx([0.1 * (k + 1) for k in range(10)])
    assert factors[10] == 1
    assert all(a > b for a, b in itertools.pairwise(factors[10:]))
    assert 0 < factors[-1] < 1e-3
    assert 0 < lr_factor(0, TrainingConfig(steps=1)) <= 1
    assert lr_factor(0, TrainingConfig(warmup=0.0)) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "steps must be an integer of at least 1, got 0"),
        ({"batch_size": 2.5}, "batch_size must be an integer"),
        ({"seed": -1}, "seed must be an integer of at least 0, got -1"),
        ({"lr": math.nan}, "lr must be a non-negative number, got nan"),
        ({"warmup": 1.0}, r"warmup must be in \[0, 1\), got 1.0"),
        ({"clip": 0.0}, "clip must be positive or None, got 0.0"),
    ],
)
def test_bad_training_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        TrainingConfig(**options)


def test_data_is_a_pure_function_of_seed_split_and_step():
    def tokens(*key):
        return TASK.batch(data_generator(*key), 8).tokens

    assert torch.equal(tokens(1, "train", 5), tokens(1, "train", 5))
    for other in ((2, "train", 5), (1, "train", 6), (1, "test", 5)):
        assert not torch.equal(tokens(1, "train", 5), tokens(*other))


# --- the loop ---


def test_the_loop_does_what_four_lines_of_torch_do():
    config = TrainingConfig(steps=3, batch_size=4, clip=None)
    model, reference = small_model(CAUSAL), small_model(CAUSAL)
    history = train(model, CAUSAL, config).history
    optimizer = make_optimizer(reference, config)
    for step in range(3):
        batch = CAUSAL.batch(data_generator(0, "train", step), 4)
        for group in optimizer.param_groups:
            group["lr"] = group["peak_lr"] * lr_factor(step, config)
        loss = F.cross_entropy(reference(batch.tokens, batch.rows).flatten(0, 1), batch.targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert history[step]["loss"] == pytest.approx(loss.item(), rel=1e-5)
        assert history[step]["step"] == step + 1
    for mine, theirs in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs)


def without_times(history):
    return [{key: value for key, value in record.items() if key != "seconds"} for record in history]


@pytest.mark.parametrize("backend", ["exact", "statevector", "aer_simulator"])
def test_a_stopped_and_resumed_run_ends_with_the_same_bits(tmp_path, backend):
    def session(folder, stop=None, resume=False):
        solver = make_solver(backend, **({} if backend == "exact" else {"seed": 3, "shots": 16}))
        model = small_model(solver=solver, dropout=0.2)
        stateful = {"solver": solver} if hasattr(solver, "state_dict") else {}
        config = TrainingConfig(steps=6, batch_size=5, checkpoint_every=4)
        count = lambda: getattr(solver, "circuits_run", 0)  # noqa: E731
        torch.manual_seed(99)  # whatever ran before must not matter
        result = train(model, TASK, config, folder, resume=resume, stateful=stateful, count_circuits=count, stop=stop)
        return model, result

    whole, whole_result = session(tmp_path / "whole")
    _, stopped = session(tmp_path / "parts", stop=StopAfter(2))
    assert (stopped.interrupted, stopped.steps) == (True, 2)
    _, stopped = session(tmp_path / "parts", stop=StopAfter(3), resume=True)
    assert (stopped.interrupted, stopped.steps) == (True, 5)
    resumed, result = session(tmp_path / "parts", resume=True)

    assert not result.interrupted
    assert without_times(result.history) == without_times(whole_result.history)
    assert without_times(read_metrics(tmp_path / "parts")) == without_times(whole_result.history)
    for name, parameter in whole.named_parameters():
        assert torch.equal(parameter, dict(resumed.named_parameters())[name]), name
    assert result.circuits == whole_result.circuits == (0 if backend == "exact" else 6 * 5)
    assert len({record["loss"] for record in result.history}) == 6  # it did train


def test_a_finished_run_can_be_resumed_and_does_nothing(tmp_path):
    config = TrainingConfig(steps=2, batch_size=4)
    first = train(small_model(), TASK, config, tmp_path)
    model = small_model(seed=5)
    again = train(model, TASK, config, tmp_path, resume=True)
    assert again == first
    assert model.token.weight.equal(load_checkpoint(tmp_path)["model"]["token.weight"])


def test_metrics_written_after_the_checkpoint_are_cut_off(tmp_path):
    config = TrainingConfig(steps=3, batch_size=4)
    train(small_model(), TASK, config, tmp_path, stop=StopAfter(2))
    lines = (tmp_path / METRICS).read_text().splitlines()
    (tmp_path / METRICS).write_text("\n".join([*lines, lines[-1], '{"step": 3, "lo']))  # a crash in mid line
    train(small_model(), TASK, config, tmp_path, resume=True)
    assert [record["step"] for record in read_metrics(tmp_path)] == [1, 2, 3]
    (tmp_path / METRICS).write_text(lines[0] + "\n")
    with pytest.raises(ValueError, match="must hold the 3 steps of its checkpoint, got 1"):
        train(small_model(), TASK, config, tmp_path, resume=True)


def test_other_settings_on_resume_are_named(tmp_path):
    train(small_model(), TASK, TrainingConfig(steps=2, batch_size=4), tmp_path, settings={"shots": 8})
    with pytest.raises(ValueError, match=r"other settings: shots was 8, is 9; steps was 2, is 3\. Resume"):
        train(
            small_model(),
            TASK,
            TrainingConfig(steps=3, batch_size=4),
            tmp_path,
            settings={"shots": 9},
            resume=True,
        )
    other, config = RecallTask(7, 4, 4), TrainingConfig(steps=2, batch_size=4)
    with pytest.raises(ValueError, match=r"sequences was 'RecallTask\(length=5.*is 'RecallTask\(length=7"):
        train(small_model(other), other, config, tmp_path, settings={"shots": 8}, resume=True)


def test_a_run_is_not_overwritten_unasked(tmp_path):
    config = TrainingConfig(steps=1, batch_size=4)
    train(small_model(), TASK, config, tmp_path)
    with pytest.raises(FileExistsError, match="already holds a run"):
        train(small_model(), TASK, config, tmp_path)


def test_a_diverged_run_says_so(tmp_path):
    model = small_model(variant="softmax")
    with torch.no_grad():
        model.head.bias[0] = math.inf
    with pytest.raises(FloatingPointError, match=r"at step 1\. Try a smaller lr"):
        train(model, TASK, TrainingConfig(steps=1, batch_size=4), tmp_path)
    assert load_checkpoint(tmp_path)["step"] == 0


def test_the_mean_over_unequal_parts_is_the_mean_over_the_batch():
    """What two processes do, one after the other: 3 and 4 sequences, gradients averaged."""
    batch = CAUSAL.batch(data_generator(0, "train"), 7)
    parts = [Processes(index, 2).part(batch) for index in (0, 1)]
    assert [part.size for part in parts] == [3, 4]
    model = small_model(CAUSAL)
    whole = summed_loss(model(batch.tokens, batch.rows), batch.targets)[0] / batch.num_targets
    expected = torch.autograd.grad(whole, list(model.parameters()))
    pieces = []
    for part in parts:
        loss = summed_loss(model(part.tokens, part.rows), part.targets)[0] * (2 / batch.num_targets)
        pieces.append(torch.autograd.grad(loss, list(model.parameters())))
    for one, other, wanted in zip(*pieces, expected, strict=True):
        torch.testing.assert_close((one + other) / 2, wanted)


# --- evaluation ---


def test_evaluation_is_the_same_in_any_chunks_and_leaves_the_model_as_it_was():
    model = small_model(CAUSAL, dropout=0.5)
    batch = CAUSAL.batch(data_generator(0, "test"), 7, "test")
    whole, parts = evaluate(model, batch), evaluate(model, batch, chunk=3)
    assert whole.loss == pytest.approx(parts.loss, rel=1e-5)
    assert whole.accuracy == parts.accuracy
    assert whole.num_targets == batch.num_targets == 21
    assert whole.perplexity == pytest.approx(math.exp(whole.loss))
    assert model.training
    with pytest.raises(ValueError, match="must have a target to evaluate on, got none in 0 sequences"):
        evaluate(model, batch.part(0, 0))


def test_magnetization_rmse_is_the_distance_from_enumeration():
    class Shifted:
        def solve(self, model):
            ensemble = ExactSolver().solve(model)
            exact = ensemble.magnetization()
            ensemble.magnetization = lambda: exact + 0.25
            return ensemble

    model = small_model(CAUSAL)
    own = model.attention.solver
    batch = CAUSAL.batch(data_generator(0, "test"), 5, "test")
    assert magnetization_rmse(model, batch, ExactSolver()) == pytest.approx(0, abs=1e-6)
    assert magnetization_rmse(model, batch, Shifted()) == pytest.approx(0.25, abs=1e-5)
    assert model.attention.solver is own
    softmax = small_model(CAUSAL, variant="softmax")
    assert magnetization_rmse(softmax, batch, own) is None
    with pytest.raises(TooManySpinsError):
        magnetization_rmse(model, batch, ExactSolver(), ExactSolver(max_spins=3))


def test_using_solver_puts_the_old_one_back_after_an_error():
    model = small_model()
    own, other = model.attention.solver, ExactSolver()

    def fail():
        with using_solver(model, other):
            assert model.attention.solver is other
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert model.attention.solver is own


# --- files ---


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    save_checkpoint(tmp_path, {"step": 1})

    def fail(handle):
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        save_checkpoint(tmp_path, {"step": 2})
    assert load_checkpoint(tmp_path) == {"step": 1}
    assert [path.name for path in tmp_path.iterdir()] == [CHECKPOINT]


def test_a_checkpoint_cannot_run_code(tmp_path):
    class Evil:
        def __reduce__(self):
            return (print, ("gotcha",))

    torch.save({"step": Evil()}, tmp_path / CHECKPOINT)
    with pytest.raises(ValueError, match="damaged or no checkpoint"):
        load_checkpoint(tmp_path)


def test_metrics_are_on_disk_line_by_line(tmp_path):
    record = {"step": 1, "loss": 0.5, "accuracy": 0.25, "lr": 0.1}
    with MetricsLog(tmp_path) as log:
        log.write(record)
        assert [json.loads(line) for line in (tmp_path / METRICS).read_text().splitlines()] == [record]
    with MetricsLog(None) as log:
        log.write(record)
        assert log.history == [record]


def test_tensorboard_events_hold_the_metrics(tmp_path):
    from tensorboard.backend.event_processing import event_accumulator as accumulator  # a development dependency

    history = train(small_model(), TASK, TrainingConfig(steps=2, batch_size=4), tmp_path).history
    events = accumulator.EventAccumulator(str(tmp_path))
    events.Reload()
    values = [event.value for event in events.Scalars("loss")]
    assert values == pytest.approx([record["loss"] for record in history], rel=1e-6)


def test_folders_are_numbered_claimed_and_cleared(tmp_path):
    assert next_folder(tmp_path, "run") == tmp_path / "run-1"
    folder = tmp_path / "run-1"
    (folder / "twin").mkdir(parents=True)
    assert next_folder(tmp_path, "run") == tmp_path / "run-2"
    claim(folder, resume=False, overwrite=False)
    with pytest.raises(FileNotFoundError, match="no run to resume"):
        claim(folder, resume=True, overwrite=False)
    for place in (folder, folder / "twin"):
        save_checkpoint(place, {"step": 1})
    claim(folder, resume=True, overwrite=False)
    with pytest.raises(FileExistsError, match=r"a run that was stopped. Continue it with --resume"):
        claim(folder, resume=False, overwrite=False)
    write_summary(folder, {"loss": 1.0})
    with pytest.raises(FileExistsError, match="a finished run"):
        claim(folder, resume=False, overwrite=False)
    (folder / "notes.txt").write_text("mine")
    claim(folder, resume=False, overwrite=True)
    assert sorted(path.name for path in folder.rglob("*")) == ["notes.txt", "twin"]
    clear(folder)
    write_atomically(folder / "x", b"1")
    assert (folder / "x").stat().st_mode & 0o777 == 0o644


def test_figures_are_drawn(tmp_path):
    history = [{"step": k, "loss": 1 / k, "accuracy": 0.5} for k in range(1, 30)]
    save_learning_curves(tmp_path / "curves.png", {"a": history, "b": history[:3]}, chance=0.25)
    save_couplings(tmp_path / "couplings.png", torch.randn(2, 5, 5))
    save_couplings(tmp_path / "single.png", torch.zeros(1, 1, 1))
    for name in ("curves", "couplings", "single"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    J = torch.arange(9.0).reshape(3, 3).double().numpy()
    distance, value = pairs_by_distance(J)
    assert (distance.tolist(), value.tolist()) == ([1, 2, 1], [1, 2, 5])
    assert running_mean(J.ravel(), 3).tolist() == [0, 0.5, 1, 2, 3, 4, 5, 6, 7]


# --- signals and display ---


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_asks_for_a_stop_and_handlers_are_put_back(number):
    before = signal.getsignal(number)
    with StopSignal() as stop:
        assert not stop.requested
        signal.raise_signal(number)
        assert stop.requested
        signal.raise_signal(signal.SIGTERM)  # torchrun sends it after Ctrl-C: no reason to hurry
        if number == signal.SIGINT:
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(number)
    assert signal.getsignal(number) is before


def test_outside_the_main_thread_a_stop_signal_changes_nothing():
    seen = []

    def enter():
        with StopSignal():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT)]


def record(step, circuits):
    return {"step": step, "loss": 0.5, "accuracy": 0.25, "circuits": circuits}


def test_plain_lines_tell_step_loss_rate_and_time():
    out = io.StringIO()
    display = make_display("h+J", Console(file=out, width=200))
    assert isinstance(display, LineDisplay)
    display.start(60, 3)
    for step in range(4, 61):
        display.step(record(step, 100 * step))
    display.stop()
    lines = out.getvalue().splitlines()
    assert lines[0] == "h+J: resumed after step 3"
    assert 15 <= len(lines) <= 25
    assert lines[1].startswith("h+J: step 6/60  loss 0.500  accuracy 0.250  ")
    assert "circuits/s" in lines[1]
    assert lines[1].endswith("s left")
    assert lines[-1].startswith("h+J: step 60/60")


def test_a_terminal_gets_a_live_bar():
    out = io.StringIO()
    display = make_display("h+J", Console(file=out, force_terminal=True, width=150))
    assert isinstance(display, LiveDisplay)
    display.start(2, 0)
    display.step(record(1, 0))
    display.step(record(2, 0))
    display.stop()
    assert "2/2" in out.getvalue()
    assert "accuracy 0.250" in out.getvalue()


def test_a_table_is_never_cut_short():
    out = io.StringIO()
    rows = [["h+J, exact twin", "aer_simulator", "0.5"], ["softmax twin", "softmax", "0.25"]]
    print_table(["model", "trained with", "accuracy"], rows, Console(file=out, width=20))
    lines = out.getvalue().splitlines()
    assert "│ h+J, exact twin │ aer_simulator │      0.5 │" in lines
    assert "│ softmax twin    │ softmax       │     0.25 │" in lines


# --- the claim ---


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_one_layer_recalls_four_pairs_with_couplings_and_not_without(seed):
    """Fields stay in range since q and k have unit length and the temperature is learned (``qk_norm``)."""
    task = RecallTask(9, num_keys=16, num_values=16)
    config = TrainingConfig(steps=800, batch_size=128, coupling_lr_factor=3, seed=seed)
    test_batch = task.batch(data_generator(seed, "test"), 2048, "test")
    accuracy = {}
    for variant in ("h+J", "softmax"):
        model = OneLayerTransformer.for_task(task, seed=seed, variant=variant, solver="exact", coupling_init="neighbor")
        train(model, task, config)
        accuracy[variant] = evaluate(model, test_batch).accuracy
        assert model.attention.logit_scale.exp().item() < 6  # so |h| < 6, no spin saturates
    assert accuracy["h+J"] >= 0.99
    assert accuracy["softmax"] < 0.4
