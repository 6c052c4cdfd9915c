"""Tokens and answers of the tasks as people read them."""

from __future__ import annotations

from collections.abc import Sequence

from qboltz.tasks.base import Task
from qboltz.tasks.brackets import BracketTask
from qboltz.tasks.recall import RecallTask
from qboltz.tasks.shakespeare import ShakespeareTask

PAIRS = ("()", "[]", "{}", "<>")
#: Characters that would not be seen.
UNSEEN = {" ": "␣", "\n": "↵", "\t": "⇥"}


def token(task: Task, number: int) -> str:
    """A token: a key ``k3`` or a value ``v5``, a bracket, a character."""
    if isinstance(task, RecallTask):
        return f"k{number}" if number < task.num_keys else f"v{number - task.num_keys}"
    if isinstance(task, BracketTask):
        side, kind = divmod(number, task.kinds)
        closing = int(side > 0)  # a marked bracket is a closing one
        return PAIRS[kind][closing] if kind < len(PAIRS) else f"{'()'[closing]}{kind}"
    if isinstance(task, ShakespeareTask):
        return UNSEEN.get(task.alphabet[number], task.alphabet[number])
    return str(number)


def answer(task: Task, number: int) -> str:
    """A class that a row may answer with."""
    if isinstance(task, RecallTask):
        return f"v{number}"
    if isinstance(task, BracketTask):
        return f"position {number}"
    return token(task, number)


def goal(task: Task, tokens: Sequence[int], row: int, target: int) -> int | None:
    """The position where the right answer stands, if it stands in the sequence."""
    if isinstance(task, RecallTask):
        return tokens.index(tokens[row]) + 1
    return target if isinstance(task, BracketTask) else None


def question(task: Task) -> str:
    """What a row asks for."""
    if isinstance(task, RecallTask):
        return "The last token is a key again; the answer is the value that followed it."
    if isinstance(task, BracketTask):
        which = "Each closing bracket" if task.causal else "The framed closing bracket"
        return f"{which} asks for the position (from 0) of the opening bracket that belongs to it."
    if isinstance(task, ShakespeareTask):
        return "Every character asks for the next one, and sees itself and what stands before it."
    return "The framed rows ask."
