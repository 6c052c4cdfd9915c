"""Attention drawn behind the tokens of test sequences: the darker a token, the more of it the asking row takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from torch import Tensor

from qboltz.report.attention import Attended
from qboltz.report.page import Html, element, paragraph
from qboltz.report.words import answer, goal, question, token
from qboltz.tasks.base import IGNORED, Task

#: Heads that are shown one by one; their mean where rows are many.
MOST_HEADS = 4


class Chosen(NamedTuple):
    """Numbers of the sequences that are shown, and how they were chosen."""

    numbers: list[int]
    rule: str


def choose(passes: Attended, most: int) -> Chosen:
    """The first sequences of the batch; where each asks once, up to a third of them wrong answers if there are any."""
    count = passes.batch.size
    if passes.batch.rows.shape[1] > 1:
        numbers = list(range(min(count, max(1, most // 3))))
        return Chosen(numbers, f"The first {len(numbers)} test sequences")
    right = passes.right[:, 0].tolist()
    wrong = [number for number in range(count) if not right[number]][: max(1, most // 3)]
    others = [number for number in range(count) if right[number]][: most - len(wrong)]
    said = [
        f"the first {len(found)} that are answered {how}"
        for found, how in ((others, "rightly"), (wrong, "wrongly"))
        if found
    ]
    return Chosen(sorted(others + wrong), f"Of {count} test sequences {' and '.join(said)}")


def examples(task: Task, passes: Mapping[str, Attended], most: int) -> list[Html]:
    """Test sequences with the weights of each pass (by the name of its solver); the first one's answers choose them."""
    first = next(iter(passes.values()))
    chosen = choose(first, most)
    many = first.batch.rows.shape[1] > 1
    heads = first.weights.shape[1]
    which = "the mean of the heads" if many and heads > 1 else "one line a head" if heads > 1 else ""
    legend = (
        "A token is the darker the more of the asking row's attention it gets"
        + ("" if many else ", in percent below it")
        + "; the asking token is framed"
        + ("" if goal(task, *_first_question(first)) is None else ", the right answer in a broken frame")
        + (f"; {which}" if which else "")
        + "."
    )
    draw = _by_row if many else _by_solver
    blocks = [element("div", *draw(task, passes, number), class_="examples") for number in chosen.numbers]
    if not many:
        blocks = [
            element(
                "div", *(part for number in chosen.numbers for part in draw(task, passes, number)), class_="examples"
            )
        ]
    return [paragraph(f"{chosen.rule}. {question(task)} {legend}"), *blocks]


def _by_solver(task: Task, passes: Mapping[str, Attended], number: int) -> Iterator[Html]:
    """A sequence that asks once: a line for each solver and head."""
    lines = []
    for name, one in passes.items():
        heads = one.weights[number, :MOST_HEADS, 0]  # (H, T)
        for head, weights in enumerate(heads):
            label = name if len(heads) == 1 else f"{name}, head {head}"
            said = _answer(task, one, number, 0) if head == 0 else ""
            lines.append(_line(task, one, number, 0, weights, label, said, numbers=True))
    yield element("div", element("h4", f"test sequence {number}"), _table(lines), class_="example")


def _by_row(task: Task, passes: Mapping[str, Attended], number: int) -> Iterator[Html]:
    """A sequence that asks often: a line for each asking row, a block for each solver."""
    for name, one in passes.items():
        asking = [row for row, target in enumerate(one.batch.targets[number].tolist()) if target != IGNORED]
        lines = [
            _line(task, one, number, row, one.weights[number, :, row].mean(0), "", _answer(task, one, number, row))
            for row in asking
        ]
        title = element("h4", f"test sequence {number}, {name}")
        yield element("div", title, _table(lines), class_="example")


def _table(lines: Sequence[Html]) -> Html:
    return element("table", element("tbody", *lines), class_="weights")


def _line(
    task: Task,
    one: Attended,
    number: int,
    row: int,
    weights: Tensor,
    label: str,
    said: object,
    *,
    numbers: bool = False,
) -> Html:
    tokens, asking, target = _question(one, number, row)
    right = goal(task, tokens, asking, target)
    cells = []
    for position, (word, weight) in enumerate(zip(tokens, weights.tolist(), strict=True)):
        hidden = task.causal and position > asking
        marks = {"asks": position == asking, "goal": position == right, "hidden": hidden}
        names = " ".join(["token", *(mark for mark, on in marks.items() if on)])
        look = {"class_": names, "title": f"position {position}, weight {weight:.3f}"}
        if not hidden:
            look["style"] = shade(weight)
        below = [element("small", f"{100 * weight:.0f}")] if numbers and not hidden else []
        cells.append(element("td", token(task, word), *below, **look))
    head = [element("th", label, scope="row")] if label else []
    return element("tr", *head, *cells, element("td", said))


def shade(weight: float) -> str:
    """Colors of a cell: white to dark blue, and letters that stay readable on it."""
    share = min(1.0, max(0.0, weight)) ** 0.65
    red, green, blue = (round(255 + share * (dark - 255)) for dark in (8, 48, 107))
    return f"background:rgb({red},{green},{blue});color:{'#fff' if share > 0.5 else '#1a1a1a'}"


def _question(one: Attended, number: int, row: int) -> tuple[list[int], int, int]:
    batch = one.batch
    return batch.tokens[number].tolist(), int(batch.rows[number, row]), int(batch.targets[number, row])


def _first_question(one: Attended) -> tuple[list[int], int, int]:
    return _question(one, 0, 0)


def _answer(task: Task, one: Attended, number: int, row: int) -> Html:
    said, target = int(one.answers[number, row]), int(one.batch.targets[number, row])
    if said == target:
        return element("span", f"{answer(task, said)}: right", class_="right")
    return element("span", f"{answer(task, said)}: wrong, it is {answer(task, target)}", class_="wrong")
