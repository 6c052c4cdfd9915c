"""`qboltz report`: the page of a run and of a grid, read back; in a browser with `make test-browser`."""

import base64
import dataclasses
import importlib.util
import io
import json
import math
import os
import re
import shutil
import statistics
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
import torch

from qboltz import IsingModel
from qboltz.cli import main
from qboltz.experiments.checkpoint import load_checkpoint, save_checkpoint
from qboltz.experiments.evaluation import magnetization_rmse
from qboltz.experiments.optimization import data_generator
from qboltz.report import circuit, pictures
from qboltz.report.attention import Attended
from qboltz.report.examples import choose
from qboltz.report.page import element, html
from qboltz.report.results import results
from qboltz.report.run_folder import RunFolder
from qboltz.report.words import answer, goal, token
from qboltz.report.write import write_report
from qboltz.schedule import AnnealingSchedule
from qboltz.solvers.statevector import StatevectorSolver
from qboltz.spins import spin_table
from qboltz.tasks import BracketTask, RecallTask, ShakespeareTask
from qboltz.tasks.base import Batch

SCRIPT = Path(__file__).parents[1] / "examples" / "train_dqa.py"
NAME = "run <script>alert('&')"
OPTIONS = "--backend statevector --length 5 --shots 16 --layers 1 --steps 3 --batch-size 4 --eval-size 12 --width 8"
RUN_SECTIONS = [
    "What was run",
    "Results",
    "Learning curves",
    "Couplings",
    "Attention examples",
    "Solver fidelity",
    "Circuit",
    "Costs",
    "Environment",
]
VOID = {"meta", "img"}


class Reader(HTMLParser):
    """A page, checked to be well nested: its tags with attributes, its tables, the text of every element."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.tables, self.texts = [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag not in VOID:
            self.open.append((tag, []))

    def handle_data(self, data):
        for _, words in self.open:
            words.append(data)

    def handle_endtag(self, tag):
        last, words = self.open.pop()
        assert last == tag, f"</{tag}> closes <{last}>"
        text = "".join(words)
        self.texts.append((tag, text))
        if tag in ("td", "th"):
            self.tables[-1][-1].append(text)

    def all(self, tag):
        return [text for name, text in self.texts if name == tag]

    def attributes(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]

    def images(self):
        for attributes in self.attributes("img"):
            kind, _, data = attributes["src"].partition(",")
            assert kind == "data:image/png;base64"
            yield attributes, matplotlib.image.imread(io.BytesIO(base64.b64decode(data, validate=True)), format="png")

    def table(self, *head):
        (found,) = [rows for rows in self.tables if rows and rows[0][: len(head)] == list(head)]
        return [dict(zip(found[0], row, strict=True)) for row in found[1:]]


@pytest.fixture(scope="module", autouse=True)
def small_pictures():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pictures, "DPI", 48)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A real run of three steps, with its twins."""
    spec = importlib.util.spec_from_file_location("train_dqa", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    threads = torch.get_num_threads()
    place = tmp_path_factory.mktemp("runs") / NAME
    assert module.main([*OPTIONS.split(), "--out", str(place)]) == 0
    torch.set_num_threads(threads)
    return place


@pytest.fixture(scope="module")
def run_text(folder):
    assert main(["report", str(folder)]) == 0
    return (folder / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def run_page(run_text):
    return Reader(run_text)


def test_a_run_has_its_sections_and_the_contents_lead_to_them(run_page):
    assert run_page.all("h2") == RUN_SECTIONS
    links = [attributes["href"] for attributes in run_page.attributes("a")]
    assert links == [f"#{attributes['id']}" for attributes in run_page.attributes("section")]


def check_self_contained(text, page):
    assert text.startswith("<!DOCTYPE html>")
    assert len(text) < 3e6
    assert "script" not in {tag for tag, _ in page.tags}
    assert not {tag for tag, _ in page.tags} & {"link", "iframe", "object", "embed", "base"}
    for tag, attributes in page.tags:
        assert not any(name.startswith("on") for name in attributes), tag
        for name in ("src", "href", "srcset", "action"):
            assert attributes.get(name, "#").startswith(("#", "data:image/png;base64,")), (tag, name)
    (style,) = page.all("style")
    assert "url(" not in style
    assert "@import" not in style
    assert "default-src 'none'" in page.attributes("meta")[1]["content"]


def test_a_page_needs_nothing_from_elsewhere_and_runs_nothing(run_text, run_page):
    check_self_contained(run_text, run_page)


def check_pictures(page, count):
    pixels = list(page.images())
    assert len(pixels) == count
    for attributes, image in pixels:
        assert len(attributes["alt"]) > 20
        assert image.shape[1] / image.shape[0] == pytest.approx(
            int(attributes["width"]) / int(attributes["height"]), rel=0.05
        )
        assert image[..., :3].std() > 0.03, attributes["alt"]


def test_the_pictures_of_a_run_decode_and_show_something(run_page):
    check_pictures(run_page, 4)  # curves, couplings, fidelity, circuit


def test_what_a_user_named_is_escaped(run_text, run_page):
    assert run_page.all("h1") == [f"Run {NAME}"]
    assert run_page.all("title") == [f"Run {NAME}"]
    assert "<script" not in run_text
    assert html("<&\"'>") == "&lt;&amp;&quot;&#x27;&gt;"
    assert element("p", "<b>", element("b", 1), title='"') == '<p title="&quot;">&lt;b&gt;<b>1</b></p>'


def test_results_are_those_of_the_summary(folder, run_page):
    summary = json.loads((folder / "summary.json").read_text())
    rows = run_page.table("model", "trained with")
    found = [row["accuracy (12 test sequences)"] for row in rows]
    p = [summary[f"{name}accuracy"] for name in ("", "exact_eval_", "exact_twin_", "softmax_twin_")]
    assert found == [*(f"{a:.4f} ± {math.sqrt(a * (1 - a) / 12):.4f}" for a in p), f"{summary['chance']:.4f}"]
    assert [row["model"] for row in rows] == ["h+J", "h+J", "h+J, exact twin", "softmax twin", "chance"]
    names = [f"{name}accuracy" for name in ("", "exact_eval_", "exact_twin_", "softmax_twin_")]
    others = summary | dict(zip(names, (0.5, 0.25, 0.125, 0), strict=True))  # those of so short a run may coincide
    page = Reader("".join(results(dataclasses.replace(RunFolder.read(folder), summary=others))))
    found = [row["accuracy (12 test sequences)"][:6] for row in page.table("model", "trained with")]
    assert found == ["0.5000", "0.2500", "0.1250", "0.0000", f"{summary['chance']:.4f}"]
    options = {row[0]: row[1] for table in run_page.tables for row in table if len(row) == 2}
    assert options["seed"] == "0"
    assert options["circuits in training"] == "12, 4 a step"
    assert options["shots in training"] == "192 (16 a circuit)"


def brute_force_weights(model, batch):
    """Attention weights by summing over all configurations, one after another."""
    layer = model.attention
    x = model.token(batch.tokens) + model.position
    rows = x[torch.arange(batch.size), batch.rows[:, 0]]
    (wq, wk, _), (bq, bk, _) = layer.in_proj_weight.chunk(3), layer.in_proj_bias.chunk(3)
    q, k = torch.nn.functional.normalize(rows @ wq.T + bq, dim=-1), torch.nn.functional.normalize(x @ wk.T + bk, dim=-1)
    h = (k @ q.unsqueeze(-1)).squeeze(-1) * layer.logit_scale.exp()
    s, J = spin_table(5), layer.couplings[0]
    energy = -(h @ s.T) - 0.5 * torch.einsum("ck,kl,cl->c", s, J, s)
    m = torch.softmax(-energy, -1) @ s
    return (m + 1) / (m + 1).sum(-1, keepdim=True)


def test_attention_examples_show_tokens_answers_and_exact_weights(folder, run_page):
    run = RunFolder.read(folder)
    batch = run.task.batch(data_generator(0, "test"), 12, "test")
    with torch.no_grad():
        weights = brute_force_weights(run.model, batch)
        said = run.model(batch.tokens, batch.rows).argmax(-1)[:, 0]
    numbers = [int(title.split()[-1]) for title in run_page.all("h4")]
    assert numbers == sorted(numbers)
    assert 1 <= len(numbers) <= 6
    tables = [rows for rows in run_page.tables if rows and rows[-1] and rows[-1][0] == "exact" and len(rows) == 2]
    cells = [a for a in run_page.attributes("td") if a.get("class", "").startswith("token")]
    assert len(tables) == len(numbers)
    for place, (number, rows) in enumerate(zip(numbers, tables, strict=True)):
        assert rows[0][0] == "ideal circuits, 16 shots"
        _, *tokens, answered = rows[1]
        assert [re.match(r"[kv]\d", word)[0] for word in tokens] == [
            f"k{t}" if t < 8 else f"v{t - 8}" for t in batch.tokens[number].tolist()
        ]
        own = cells[10 * place + 5 : 10 * place + 10]
        shown = [float(cell["title"].split()[-1]) for cell in own]
        assert shown == pytest.approx(weights[number].tolist(), abs=6e-4)
        assert [int(word[2:]) for word in tokens] == [round(100 * w) for w in weights[number].tolist()]
        assert ["asks" in cell["class"] for cell in own] == [False] * 4 + [True]
        key = batch.tokens[number, -1]
        assert "goal" in own[batch.tokens[number].tolist().index(key) + 1]["class"]
        target = int(batch.targets[number, 0])
        ending = "right" if said[number] == target else f"wrong, it is v{target}"
        assert answered == f"v{said[number]}: {ending}"
        darkness = [int(re.search(r"rgb\((\d+)", cell["style"])[1]) for cell in own]
        assert np.argsort(darkness).tolist() == np.argsort([-w for w in shown], kind="stable").tolist()


def test_fidelity_is_that_of_the_circuits_on_the_test_sequences(folder, run_page):
    run = RunFolder.read(folder)
    batch = run.task.batch(data_generator(0, "test"), 12, "test")
    ideal = StatevectorSolver(AnnealingSchedule.fitted(1), estimator="plain")
    sampled, limit, perfect, exact = run_page.table("", "rms error of m")
    assert limit["rms error of m"] == f"{magnetization_rmse(run.model, batch, ideal):.4f}"
    assert float(sampled["rms error of m"]) > 0
    w = brute_force_weights(run.model, batch).detach()
    run.model.attention.solver = ideal
    with torch.no_grad():
        x = run.model.token(batch.tokens) + run.model.position
        other = run.model.attention(x[:, -1:], x, x)[1][:, 0]
    assert limit["total variation"] == f"{float((w - other).abs().sum(-1).mean() / 2):.4f}"
    assert exact["rms error of m"] == "0"
    assert perfect[""] == "perfect samples, 16 shots (expected)"
    assert 0 < float(perfect["rms error of m"]) <= 0.25  # sqrt(1 / 16)


# -- runs that are not as they should be ------------------------------------------------------------------------------


def test_a_stopped_run_on_a_machine_says_so_and_names_no_account(folder, tmp_path, monkeypatch):
    """Half a line of metrics, no summary, a machine in place of the simulator: nothing is asked of it."""
    from qboltz.machine.records import JobRecord, pack_models
    from qboltz.machine.store import Intent, JobStore

    monkeypatch.setattr(circuit, "_drawing", lambda row, schedule: [])  # takes seconds, and is seen elsewhere
    copy = tmp_path / "stopped"
    shutil.copytree(folder, copy)
    (copy / "summary.json").unlink()
    (copy / "report.html").unlink(missing_ok=True)
    lines = (copy / "metrics.jsonl").read_text()
    (copy / "metrics.jsonl").write_text(lines + lines.splitlines()[-1][:30])
    state = load_checkpoint(copy)
    state["settings"] |= {"backend": "ibm_fez", "steps": 9, "estimator": "conditional"}
    state["processes"][0]["stateful"]["solver"]["backend"] = {"run": "r1"}
    save_checkpoint(copy, state)
    store = tmp_path / "jobs.sqlite"
    session = {"instance": "crn-of-mine", "account": "my-name", "jobs_store": str(store), "url": "https://my.url"}
    (copy / "session.json").write_text(json.dumps(session))
    job = JobRecord("k1", "r1", "0/0", 0, 0, 3, 16, 5, "ibm_fez", "c", "d", {}, 2.5)
    other = JobRecord("k2", "r2", "0/0", 0, 0, 3, 16, 5, "ibm_fez", "c", "e", {}, 7.0)
    models = pack_models(np.zeros((3, 5)), np.zeros((3, 5, 5)))
    JobStore(store).reserve([Intent(record, b"", models) for record in (job, other)])

    text = write_report(copy).read_text()
    page = Reader(text)
    notes = " ".join(page.all("p"))
    assert "This run is not finished: 3 of 9 steps are done; exact twin: 3; softmax twin: 3." in notes
    assert "last line of the metrics (its own) is half written" in notes
    assert "A report submits nothing: in place of ibm_fez" in notes
    assert page.table("model", "steps")[0]["steps"] == "3"
    rows = {row[0]: row[1] for table in page.tables for row in table if len(row) == 2}
    assert (rows["jobs"], rows["rows submitted"], rows["shots submitted"]) == ("1 intended", "3", "48")
    assert (rows["QPU seconds charged"], rows["QPU seconds expected of the others"]) == ("0.0", "2.5")
    assert not [word for word in ("crn-of-mine", "my-name", "my.url", str(tmp_path)) if word in text]
    assert page.all("h2") == RUN_SECTIONS


def test_without_a_checkpoint_the_curves_are_shown_and_the_rest_said_to_be_missing(folder, tmp_path):
    copy = tmp_path / "metrics only"
    copy.mkdir()
    shutil.copy(folder / "metrics.jsonl", copy)
    page = Reader(write_report(copy, tmp_path / "page.html").read_text())
    assert len(list(page.images())) == 1
    assert page.all("p").count("Not shown: checkpoint.pt is missing.") == 4


def test_a_text_that_is_elsewhere_is_named_without_its_path(folder, tmp_path):
    copy = tmp_path / "text"
    shutil.copytree(folder, copy)
    state = load_checkpoint(copy)
    state["settings"] |= {"task": "shakespeare", "data": str(tmp_path / "gone.txt")}
    save_checkpoint(copy, state)
    text = write_report(copy).read_text()
    assert "Not shown: No such file or directory: gone.txt. Give the text with --data FILE." in text
    assert str(tmp_path) not in text


# -- grids ------------------------------------------------------------------------------------------------------------


def records():
    rng = np.random.default_rng(0)
    for length in (4, 6, 8):
        for kind, mean in (("softmax", 0.5), ("h+J", 0.8)):
            accuracy = (mean - 0.02 * length + 0.02 * rng.normal(size=5)).tolist()
            yield {
                "benchmark": "brackets & more",
                "cell": {"length": length, "kind": kind, "steps": 20},
                "accuracy": accuracy,
                "loss": [1 - a for a in accuracy],
                "chance": 0.25,
                "seconds": 1.5,
                "commit": "abc1234",
                "versions": {"torch": "2.0"},
                **(more_of(accuracy, kind) if length == 4 else {}),
            }


def more_of(accuracy, kind):
    """Curves, and for h+J numbers over the six pairs of four positions."""
    curves = {
        "curve_accuracy": [[a / 2 for a in accuracy], accuracy],
        "curve_loss": [[1.0] * 5, [1 - a for a in accuracy]],
    }
    pairs = [[0.1 * seed + 0.2 * pair for pair in range(6)] for seed in range(5)]
    return {"curve_steps": [10, 20], **curves, **({"pairs": pairs} if kind == "h+J" else {})}


def write_lines(path, lines, end=""):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + end)
    return path


@pytest.fixture(scope="module")
def grid_text(tmp_path_factory):
    place = tmp_path_factory.mktemp("grid")
    write_lines(place / "one.jsonl", [*records(), {"run": "older", "accuracy": 1}], end='{"benchmark": "brac')
    assert main(["report", str(place)]) == 0
    return (place / "report.html").read_text()


def bootstrap(values):
    """An independent one, of other resamples."""
    sample = np.random.default_rng(7).choice(values, size=(20_000, len(values))).mean(1)
    return np.percentile(sample, [2.5, 97.5])


def test_the_tables_of_a_grid_hold_means_and_paired_differences(grid_text):
    page = Reader(grid_text)
    check_self_contained(grid_text, page)
    check_pictures(page, 3)  # against length; curves and couplings of length 4
    assert page.all("h2") == ["Results", "Against length", "Learning curves", "Couplings", "Costs and environment"]
    known = {(r["cell"]["length"], r["cell"]["kind"]): r for r in records()}
    for quantity, digits in (("accuracy", 3), ("loss", 4)):
        rows = page.table("length", "kind", quantity)
        assert [(int(row["length"]), row["kind"]) for row in rows] == list(known)
        for row in rows:
            assert row.get("chance") == ("0.250" if quantity == "accuracy" else None)
            values = known[int(row["length"]), row["kind"]][quantity]
            checked = [(row[quantity], values)]
            if row["kind"] == "h+J":
                others = known[int(row["length"]), "softmax"][quantity]
                checked.append((row["minus softmax"], [a - b for a, b in zip(values, others, strict=True)]))
            else:
                assert row["minus softmax"] == ""
            for text, sample in checked:
                mean, low, high = map(float, re.findall(r"[+-]?\d\.\d+", text))
                assert mean == pytest.approx(statistics.mean(sample), abs=0.51 * 10**-digits)
                assert [low, high] == pytest.approx(bootstrap(sample), abs=0.002)
    assert len(page.all("strong")) == 6  # of both quantities and three lengths
    assert "brackets &amp; more: 6 cells." in grid_text
    notes = " ".join(page.all("p"))
    assert "1 records of one.jsonl name no cell" in notes
    assert "The last line of one.jsonl is half written" in notes
    assert ["seconds in all", "9"] in [row for table in page.tables for row in table]
    assert ["commit", "abc1234"] in [row for table in page.tables for row in table]


def test_seeds_in_records_of_their_own_are_joined_and_repetitions_replaced(tmp_path):
    cells = [
        {"benchmark": "b", "cell": {"kind": kind, "seed": seed}, "accuracy": value}
        for kind, seed, value in (("h+J", 0, 0.1), ("softmax", 1, 0.5), ("h+J", 1, 0.75), ("h+J", 0, 0.5))
    ]
    page = Reader(write_report(write_lines(tmp_path / "b.jsonl", cells)).read_text())
    rows = {row["kind"]: row for row in page.table("kind", "seeds", "accuracy")}
    assert rows["h+J"]["accuracy"].startswith("0.625 (")
    assert (rows["h+J"]["seeds"], rows["softmax"]["seeds"]) == ("2", "1")
    assert rows["h+J"]["minus softmax"] == ""  # not the same seeds
    assert (tmp_path / "b.html").exists()
    assert "1 records were replaced by later ones" in " ".join(page.all("p"))


# -- words, choices, the circuit --------------------------------------------------------------------------------------


def test_tokens_as_people_read_them(tmp_path):
    recall, brackets = RecallTask(5), BracketTask(6, kinds=5)
    assert [token(recall, t) for t in (0, 7, 8, 15)] == ["k0", "k7", "v0", "v7"]
    assert "".join(token(brackets, t) for t in range(15)) == "([{<(4)]}>)4)]}>)4"
    assert (answer(recall, 3), answer(brackets, 3)) == ("v3", "position 3")
    assert goal(recall, [2, 9, 5, 8, 5], 4, 0) == 3
    assert goal(brackets, [0, 1], 1, 0) == 0
    path = tmp_path / "text"
    path.write_text("a b\n" * 40)
    text = ShakespeareTask(3, path)
    assert [token(text, t) for t in range(4)] == ["↵", "␣", "a", "b"]
    assert goal(text, [0, 1, 2], 1, 2) is None


def attended(right):
    targets = torch.zeros(len(right), 1, dtype=torch.int64)
    batch = Batch(torch.zeros(len(right), 3, dtype=torch.int64), targets, targets)
    answers = torch.tensor([[0 if yes else 1] for yes in right])
    return Attended(batch, answers, torch.ones(len(right), 1, 1, 3) / 3, None, None, 0.0, 0.0)


def test_examples_are_the_first_right_and_the_first_wrong_ones():
    assert choose(attended([1, 0, 1, 0, 1, 0, 1, 1, 1]), 6).numbers == [0, 1, 2, 3, 4, 6]
    assert choose(attended([1] * 9), 6).numbers == [0, 1, 2, 3, 4, 5]
    assert choose(attended([0] * 9), 6).numbers == [0, 1]
    assert "first 2 that are answered wrongly" in choose(attended([0] * 9), 6).rule


def test_the_circuit_is_of_the_row_that_sees_most_and_small_enough_to_be_read(monkeypatch):
    visible = torch.ones(3, 3, dtype=torch.bool).tril()
    J = 0.1 * (torch.ones(3, 3) - torch.eye(3))
    model = IsingModel(torch.arange(9.0).view(3, 3), J, visible)
    assert circuit.one_row(model).fields.tolist() == [6, 7, 8]
    wide = IsingModel(torch.zeros(1, 11), torch.zeros(11, 11))
    assert "are not drawn" in "".join(circuit.circuit_section(wide, AnnealingSchedule.linear(2), 5, "run there"))
    monkeypatch.setattr(circuit.importlib.util, "find_spec", lambda name: None)
    said = "".join(circuit.circuit_section(model, AnnealingSchedule.linear(9), None, "simulated exactly"))
    assert "3 qubits and 9 layers" in said
    assert "Layers 1 to 8 of 9" in said  # three couplings each, 25 at most
    assert "<pre>" in said
    assert "pylatexenc" in said


# -- errors -----------------------------------------------------------------------------------------------------------


def test_a_page_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    write_lines(tmp_path / "a.jsonl", [{"cell": {"x": 1}, "accuracy": 0.5}])
    page = tmp_path / "report.html"
    page.write_text("old")

    def fail(*args):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_report(tmp_path)
    assert page.read_text() == "old"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a.jsonl", "report.html"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["gone"], "No such file or directory: gone"),
        (["empty"], "empty holds neither a run (checkpoint.pt, metrics.jsonl or summary.json) nor records"),
        (["runs"], "runs holds runs, first: give one of them"),
        (["older.jsonl"], "holds no record of a grid (an object with a 'cell'). 1 records of older.jsonl name no cell"),
        (["damaged.jsonl"], "damaged.jsonl must hold one JSON object a line, but line 1 is none"),
        (["list.jsonl"], "got list in line 1"),
        (["grid.jsonl", "--out", "nowhere/page.html"], "No such file or directory: nowhere, where page.html"),
        (["grid.jsonl", "--examples", "0"], "--examples must be at least 1, got 0"),
        (["broken"], "summary.json is no JSON"),
        (["torn"], "torn/checkpoint.pt is damaged"),
    ],
)
def test_what_cannot_be_reported_is_said_in_one_line(arguments, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("empty", "runs/first", "broken", "torn"):
        Path(name).mkdir(parents=True)
    Path("runs/first/metrics.jsonl").write_text("")
    Path("broken/summary.json").write_text("{")
    Path("torn/checkpoint.pt").write_bytes(b"PK")
    write_lines(Path("older.jsonl"), [{"run": 1}])
    write_lines(Path("grid.jsonl"), [{"cell": {}, "accuracy": 1}])
    Path("damaged.jsonl").write_text('{"cell\n{"cell": {}}\n')
    Path("list.jsonl").write_text("[1]\n{}\n")
    with pytest.raises(SystemExit) as stop:
        main(["report", *arguments])
    assert stop.value.code == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


# -- in a browser -----------------------------------------------------------------------------------------------------

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --hide-scrollbars --force-device-scale-factor=1 --enable-logging=stderr"
)
#: What the page has to say about itself, once it is loaded.
LOOK = """<script>
addEventListener('load', () => {
  const box = image => { const b = image.getBoundingClientRect(); return [b.left, b.top, b.right, b.bottom]; };
  const root = document.documentElement;
  root.dataset.seen = JSON.stringify({
    images: [...document.images].map(i => ({loaded: i.complete && i.naturalWidth > 0, box: box(i)})),
    width: root.scrollWidth, room: root.clientWidth, height: root.scrollHeight,
    fetched: performance.getEntriesByType('resource').map(r => r.name).filter(n => !n.startsWith('data:')),
  });
});
</script>"""


def browse(page, tmp_path, *options, width=900, height=1000):
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.fail("needs Chromium: `apt-get install chromium` on Debian, or any Chrome on the PATH.")
    profile = tmp_path / f"profile-{len(list(tmp_path.glob('profile-*')))}"
    ran = subprocess.run(
        [
            found,
            *FLAGS.split(),
            f"--user-data-dir={profile}",
            f"--window-size={width},{height}",
            *options,
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout, [line for line in ran.stderr.splitlines() if "CONSOLE" in line or "net_error" in line]


def look(text, tmp_path, width=900):
    """What a copy of the page says about itself; the copy may run one script, and still fetch nothing."""
    copy = tmp_path / "copy.html"
    allowed = text.replace("default-src 'none'", "default-src 'none'; script-src 'unsafe-inline'", 1)
    copy.write_text(allowed.replace("</body>", LOOK + "</body>"), encoding="utf-8")
    dumped, complaints = browse(copy, tmp_path, "--dump-dom", width=width)
    (root,) = [attributes for tag, attributes in Reader(dumped).tags if tag == "html"]
    return json.loads(root["data-seen"]), complaints


@pytest.mark.browser
@pytest.mark.parametrize("name", ["run_text", "grid_text"])
def test_a_browser_shows_the_whole_page(name, request, tmp_path):
    text = request.getfixturevalue(name)
    seen, complaints = look(text, tmp_path)
    assert complaints == []
    assert seen["fetched"] == []
    assert seen["width"] <= seen["room"] == 900
    assert len(seen["images"]) == text.count("<img ") > 0
    page, shot = tmp_path / "page.html", tmp_path / "shot.png"
    page.write_text(text, encoding="utf-8")
    _, complaints = browse(page, tmp_path, f"--screenshot={shot}", height=seen["height"])
    assert complaints == []
    pixels = matplotlib.image.imread(shot)
    assert pixels.shape[:2] == (seen["height"], 900)
    for image in seen["images"]:
        assert image["loaded"]
        left, top, right, bottom = (round(edge) for edge in image["box"])
        assert 0 <= left < right <= 900
        assert pixels[top:bottom, left:right, :3].std() > 0.03


@pytest.mark.browser
def test_the_browser_would_have_noticed(run_text, tmp_path):
    """A picture that is fetched, one that is broken, and a table that is too wide."""
    wrong = '<img src="https://example.invalid/a.png" alt=""><img src="data:image/png;base64,AAAA" alt="">'
    wide = '<div style="width: 2000px">x</div>'
    seen, complaints = look(run_text.replace("</main>", wrong + wide + "</main>"), tmp_path)
    assert any("example.invalid" in line for line in complaints)
    assert [image["loaded"] for image in seen["images"]][-2:] == [False, False]
    assert seen["width"] > seen["room"]
