"""Tasks: right answers by independent means, disjoint splits, uniformity, chance levels, the text loader."""

import functools
import hashlib
import http.server
import itertools
import threading
from collections import Counter

import pytest
import torch

from qboltz.tasks import IGNORED, TASKS, BracketTask, RecallTask, ShakespeareTask, make_task
from qboltz.tasks.base import stable_hash
from qboltz.tasks.shakespeare import fetch

TEXT = "the quick brown fox jumps over the lazy dog; " * 40


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def text_file(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.fixture(params=["recall", "brackets", "brackets-causal", "shakespeare"])
def task(request, text_file):
    name, _, form = request.param.partition("-")
    options = {"form": form or None} if name == "brackets" else {}
    if name == "shakespeare":
        options["data"] = text_file
    return make_task(name, **options)


@pytest.mark.parametrize("size", [0, 1, 7])
@pytest.mark.parametrize("split", ["train", "test"])
def test_batches_have_the_promised_shapes_and_ranges(task, size, split):
    batch = task.batch(generator(), size, split)
    assert batch.tokens.shape == (size, task.length)
    assert batch.rows.shape == batch.targets.shape == (size, batch.rows.shape[1])
    assert batch.tokens.dtype == batch.rows.dtype == batch.targets.dtype == torch.int64
    assert batch.size == size
    assert batch.num_targets == int((batch.targets != IGNORED).sum()) == batch.targets.numel()
    assert set(batch.tokens.flatten().tolist()) <= set(range(task.vocab_size))
    assert set(batch.rows.flatten().tolist()) <= set(range(task.length))
    assert set(batch.targets.flatten().tolist()) <= set(range(task.num_classes))
    assert task.name in TASKS
    assert 0 < task.chance < 1
    assert task.chance_note


def test_a_batch_depends_on_its_generator_alone(task):
    first, again, other = (task.batch(generator(seed), 16) for seed in (3, 3, 4))
    for name in ("tokens", "rows", "targets"):
        assert torch.equal(getattr(first, name), getattr(again, name))
    assert not torch.equal(first.tokens, other.tokens)


def test_parts_of_a_batch_join_to_the_batch(task):
    batch = task.batch(generator(), 7)
    parts = [batch.part(start, start + 3) for start in (0, 3, 6)]
    assert [part.size for part in parts] == [3, 3, 1]
    assert torch.equal(torch.cat([part.targets for part in parts]), batch.targets)
    assert torch.equal(batch.to("cpu").rows, batch.rows)


@pytest.mark.parametrize(
    ("task", "total"),
    [
        (RecallTask(5, 4, 4), 4 * 3 * 4 * 4),
        (RecallTask(3, 1, 2), 2),
        (BracketTask(8, 1, form="causal"), 14),
        (BracketTask(6, 2), 5 * 2**3),
        (BracketTask(2, 2), 2),
    ],
)
def test_train_and_test_are_disjoint_and_together_complete(task, total):
    def identity(row):  # without the query, without the mark
        if task.name == "recall":
            return row[:-1]
        return tuple(token - task.kinds if token >= 2 * task.kinds else token for token in row)

    seen = {}
    for split in ("train", "test"):
        rows = task.batch(generator(), 20_000, split).tokens.tolist()
        seen[split] = {identity(tuple(row)) for row in rows}
    assert seen["train"]
    assert seen["test"]
    assert not seen["train"] & seen["test"]
    assert len(seen["train"]) + len(seen["test"]) == total
    assert len(seen["test"]) == max(1, round(0.1 * total))


@pytest.mark.parametrize(("length", "words"), [(4, 2), (8, 14), (12, 132), (14, 429)])
def test_folds_test_every_word_once(length, words):
    """The ten test parts are disjoint and together complete (with fewer than ten words: complete)."""
    seen = []
    for fold in range(10):
        task = BracketTask(length, kinds=1, form="causal", fold=fold)
        generator = torch.Generator().manual_seed(1)
        test = {tuple(row) for row in task.batch(generator, 4000, "test").tokens.tolist()}
        train = {tuple(row) for row in task.batch(generator, 8000, "train").tokens.tolist()}
        assert test
        assert not test & train
        seen += test
    assert len(set(seen)) == words
    if words >= 10:
        assert len(seen) == words


def test_the_hash_is_stable_and_uniform():
    rows = torch.tensor(list(itertools.product(range(4), repeat=6)))
    values = stable_hash(rows)
    number = 0  # the formula, in whole numbers: the same on every machine and in every run
    for token in rows[1234].tolist():
        number = number * 1_103_515_245 + token + 1
    assert values[1234].item() == pow(number, 2, 2**31 - 1) / (2**31 - 1) == pytest.approx(0.6869141411440979)
    assert len(set(values.tolist())) == len(rows)
    tenths = torch.histc(values, bins=10, min=0, max=1)
    expected = len(rows) / 10  # z-bound 4.5 of a binomial
    assert (tenths - expected).abs().max() < 4.5 * (expected * 0.9) ** 0.5


# --- recall ---


def test_recall_answers_the_value_that_follows_the_key():
    task = RecallTask(9, num_keys=5, num_values=3)
    batch = task.batch(generator(), 200)
    assert task.num_pairs == 4
    for row, position, target in zip(batch.tokens.tolist(), batch.rows.tolist(), batch.targets.tolist(), strict=True):
        keys, values = row[0:8:2], row[1:8:2]
        assert len(set(keys)) == 4
        assert max(keys) < 5
        assert min(values) >= 5
        assert position == [8]
        assert target == [dict(zip(keys, values, strict=True))[row[8]] - 5]


@pytest.mark.parametrize(("length", "values"), [(3, 2), (5, 2), (7, 3), (9, 4)])
def test_recall_chance_equals_enumeration(length, values):
    pairs = (length - 1) // 2
    every = list(itertools.product(range(values), repeat=pairs))
    expected = sum(max(Counter(shown).values()) for shown in every) / len(every) / pairs
    assert RecallTask(length, num_keys=8, num_values=values).chance == pytest.approx(expected, rel=1e-12)


# --- brackets ---


def partners_by_stack(closing):
    """Position of the opening bracket of each closing one, the textbook way."""
    stack, partners = [], {}
    for position, closes in enumerate(closing):
        if closes:
            partners[position] = stack.pop()
        else:
            stack.append(position)
    assert not stack
    return partners


def depth_of(closing):
    return max(itertools.accumulate(-1 if closes else 1 for closes in closing))


@pytest.mark.parametrize("form", ["marked", "causal"])
@pytest.mark.parametrize(("length", "kinds", "max_depth"), [(4, 2, None), (12, 3, 2), (16, 1, None), (30, 2, 5)])
def test_brackets_name_the_opening_bracket(form, length, kinds, max_depth):
    task = BracketTask(length, kinds, max_depth, form)
    batch = task.batch(generator(), 50, "train")
    for tokens, rows, targets in zip(batch.tokens.tolist(), batch.rows.tolist(), batch.targets.tolist(), strict=True):
        marked = [position for position, token in enumerate(tokens) if token >= 2 * kinds]
        closing = [token >= kinds for token in tokens]
        partners = partners_by_stack(closing)
        if form == "marked":
            assert marked == rows
        else:
            assert not marked
            assert rows == sorted(partners)
        assert targets == [partners[row] for row in rows]
        assert depth_of(closing) <= (max_depth or length)
        for close, opening in partners.items():
            assert tokens[close] % kinds == tokens[opening]
    assert task.causal == (form == "causal")


def test_bracket_words_are_uniform():
    """Chi-square over the 14 words of length 8 and depth <= 4, per split, within 4.5 standard deviations."""
    task = BracketTask(8, 1, form="causal")
    for split in ("train", "test"):
        counts = Counter(map(tuple, task.batch(generator(1), 5000, split).tokens.tolist()))
        expected = 5000 / len(counts)
        chi_square = sum((count - expected) ** 2 / expected for count in counts.values())
        freedom = len(counts) - 1
        assert chi_square < freedom + 4.5 * (2 * freedom) ** 0.5 + 1


@pytest.mark.parametrize(("length", "max_depth"), [(2, None), (6, None), (8, 2), (10, None)])
def test_bracket_chance_equals_enumeration(length, max_depth):
    guesses = []
    for bits in itertools.product((False, True), repeat=length):
        heights = list(itertools.accumulate(-1 if closes else 1 for closes in bits))
        if min(heights) < 0 or heights[-1] or max(heights) > (max_depth or length):
            continue
        guesses += [1 / bits[:t].count(False) for t in range(length) if bits[t]]
    task = BracketTask(length, 16, max_depth)
    assert task.chance == pytest.approx(sum(guesses) / len(guesses), rel=1e-12)


# --- text ---


def test_text_windows_ask_for_the_next_character(text_file):
    task = ShakespeareTask(5, text_file)
    assert task.vocab_size == task.num_classes == len(set(TEXT))
    border = len(TEXT) - len(TEXT) // 10
    for split, part in (("train", TEXT[:border]), ("test", TEXT[border:])):
        batch = task.batch(generator(), 100, split)
        assert batch.rows.tolist() == [[0, 1, 2, 3, 4]] * 100
        for tokens, targets in zip(batch.tokens.tolist(), batch.targets.tolist(), strict=True):
            window = "".join(task.alphabet[token] for token in [*tokens, targets[-1]])
            assert window in part
            assert targets[:-1] == tokens[1:]
    assert task.chance == pytest.approx(TEXT[border:].count(" ") / (len(TEXT) - border))


def test_one_character_is_enough_and_a_short_text_is_refused(text_file):
    assert ShakespeareTask(1, text_file).batch(generator(), 3).tokens.shape == (3, 1)
    text_file.write_text("to be or not to be", encoding="utf-8")
    with pytest.raises(ValueError, match=r"test part of the text must have at least 13 characters .* got 1 of 18"):
        ShakespeareTask(12, text_file)


@pytest.fixture
def server(tmp_path):
    """A loopback server for one text; what it was asked for is in ``.requests``."""
    folder = tmp_path / "served"
    folder.mkdir()
    (folder / "input.txt").write_text(TEXT, encoding="utf-8")
    requests = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            requests.append(self.path)

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=folder)) as running:
        running.requests = requests
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield running
        running.shutdown()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def test_a_file_is_fetched_once_checked_and_cached(server, tmp_path):
    url = f"http://127.0.0.1:{server.server_port}/input.txt"
    digest = hashlib.sha256(TEXT.encode()).hexdigest()
    path = fetch(url, digest, tmp_path / "cache")
    assert path.read_text(encoding="utf-8") == TEXT
    assert fetch(url, digest, tmp_path / "cache") == path
    assert server.requests == ["/input.txt"]


def test_a_file_with_another_hash_is_refused(server, tmp_path):
    url = f"http://127.0.0.1:{server.server_port}/input.txt"
    with pytest.raises(ValueError, match="hash"):
        fetch(url, "0" * 64, tmp_path / "cache")
    assert not (tmp_path / "cache" / "input.txt").exists()


def test_without_a_network_the_error_says_what_to_do(server, tmp_path):
    url = f"http://127.0.0.1:{server.server_port}/missing.txt"
    with pytest.raises(OSError, match=r"could not be fetched .*404.* is not in .*cache yet.*--data PATH"):
        fetch(url, "0" * 64, tmp_path / "cache")


# --- bad options ---


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("recal", {}, r"task must be one of .* got 'recal'. Did you mean 'recall'"),
        ("recall", {"form": "causal"}, "option of task recall must be one of 'length', .* got 'form'"),
        ("recall", {"length": 6}, "length of recall must be odd .* got 6. Use 5 for 2 pairs, 7 for one more"),
        ("recall", {"length": 1}, "length must be an integer of at least 3, got 1"),
        ("recall", {"length": 9, "num_keys": 3}, "num_keys must be at least the number of pairs, 4, got 3"),
        ("brackets", {"length": 7}, "length of brackets must be even, got 7. Use 8"),
        ("brackets", {"length": 2, "kinds": 1}, "train and test cannot be disjoint: there is only one sequence"),
        ("brackets", {"kinds": 0}, "kinds must be an integer of at least 1, got 0"),
        ("brackets", {"max_depth": 0}, "max_depth must be an integer of at least 1, got 0"),
        ("brackets", {"form": "open"}, "form must be 'marked' or 'causal', got 'open'"),
        ("shakespeare", {"length": 0}, "length must be an integer of at least 1, got 0"),
    ],
)
def test_bad_options_are_named(name, options, message):
    with pytest.raises(ValueError, match=message):
        make_task(name, **options)


def test_bad_batches_are_named(task):
    with pytest.raises(ValueError, match="split must be 'train' or 'test', got 'valid'"):
        task.batch(generator(), 3, "valid")


def test_a_missing_text_is_an_oserror(tmp_path):
    with pytest.raises(FileNotFoundError):
        make_task("shakespeare", data=tmp_path / "none.txt")
