"""Tasks by name. A new task is one module and one line in ``TASKS``."""

from __future__ import annotations

import dataclasses
from typing import Any

from qboltz.errors import unknown_name
from qboltz.tasks.base import IGNORED, Batch, Split, Task
from qboltz.tasks.brackets import BracketTask
from qboltz.tasks.recall import RecallTask
from qboltz.tasks.shakespeare import ShakespeareTask

TASKS: dict[str, type[BracketTask] | type[RecallTask] | type[ShakespeareTask]] = {
    "brackets": BracketTask,
    "recall": RecallTask,
    "shakespeare": ShakespeareTask,
}


def make_task(name: str, **options: Any) -> Task:
    """The task called ``name``; options that are ``None`` take the task's own default.

    Raises:
        ValueError: the name is unknown, the task has no such option, or an option has a value it cannot have.
    """
    if name not in TASKS:
        raise ValueError(unknown_name("task", name, TASKS))
    kind = TASKS[name]
    known = [field.name for field in dataclasses.fields(kind)]
    given = {option: value for option, value in options.items() if value is not None}
    for option in given:
        if option not in known:
            raise ValueError(unknown_name(f"option of task {name}", option, known))
    return kind(**given)


__all__ = [
    "IGNORED",
    "TASKS",
    "Batch",
    "BracketTask",
    "RecallTask",
    "ShakespeareTask",
    "Split",
    "Task",
    "make_task",
]
