"""What a person sees while a model trains: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table


class Display(Protocol):
    """Told about every step; ``circuits`` and ``seconds`` in a record count from the start of the run."""

    def start(self, steps: int, done: int) -> None:
        """Training begins (or goes on after ``done`` steps)."""
        ...

    def step(self, record: dict[str, Any]) -> None:
        """One more step is done."""
        ...

    def stop(self) -> None:
        """Training has ended, for whatever reason."""
        ...


def make_display(label: str, console: Console | None = None) -> Display:
    """A live bar if the console is a terminal, else lines."""
    console = console or Console()
    return LiveDisplay(label, console) if console.is_terminal else LineDisplay(label, console)


class _Recent:
    """Means of the last steps, and rates over the time since ``start``."""

    def __init__(self) -> None:
        self.losses: deque[float] = deque(maxlen=20)
        self.accuracies: deque[float] = deque(maxlen=20)
        self.began = time.perf_counter()
        self.steps = 0
        self.circuits = 0.0
        self.first_circuits: float | None = None

    def add(self, record: dict[str, Any]) -> None:
        self.losses.append(record["loss"])
        self.accuracies.append(record["accuracy"])
        self.steps += 1
        if self.first_circuits is None:  # those of the first step are not known to be from this session
            self.first_circuits = record["circuits"]
            self.began = time.perf_counter()
        self.circuits = record["circuits"] - self.first_circuits

    @property
    def elapsed(self) -> float:
        return time.perf_counter() - self.began

    def text(self) -> str:
        loss = sum(self.losses) / len(self.losses)
        accuracy = sum(self.accuracies) / len(self.accuracies)
        text = f"loss {loss:.3f}  accuracy {accuracy:.3f}"
        if self.circuits and self.elapsed > 0:
            text += f"  {self.circuits / self.elapsed:,.0f} circuits/s"
        return text


class LiveDisplay:
    """A ``rich`` progress bar."""

    def __init__(self, label: str, console: Console) -> None:
        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[text]}"),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=console,
        )
        self._label = label
        self._task: TaskID | None = None
        self._recent = _Recent()

    def start(self, steps: int, done: int) -> None:
        self._recent = _Recent()
        self._progress.start()
        self._task = self._progress.add_task(self._label, total=steps, completed=done, text="")

    def step(self, record: dict[str, Any]) -> None:
        assert self._task is not None, "start() comes first"
        self._recent.add(record)
        self._progress.update(self._task, completed=record["step"], text=self._recent.text())

    def stop(self) -> None:
        self._progress.stop()


class LineDisplay:
    """At most about twenty lines a run, and one at least every ten seconds."""

    def __init__(self, label: str, console: Console) -> None:
        self._label, self._console = label, console
        self._steps = 0
        self._printed = 0.0
        self._recent = _Recent()

    def start(self, steps: int, done: int) -> None:
        self._steps = steps
        self._printed = time.perf_counter()
        self._recent = _Recent()
        if done:
            self._print(f"{self._label}: resumed after step {done}")

    def step(self, record: dict[str, Any]) -> None:
        self._recent.add(record)
        step, now = record["step"], time.perf_counter()
        every = max(1, self._steps // 20)
        if step % every and step != self._steps and now - self._printed < 10:
            return
        self._printed = now
        text = f"{self._label}: step {step}/{self._steps}  {self._recent.text()}"
        if self._recent.steps > 1 and step < self._steps:
            left = self._recent.elapsed / (self._recent.steps - 1) * (self._steps - step)
            text += f"  {left:.0f} s left"
        self._print(text)

    def stop(self) -> None:
        """Nothing is held open."""

    def _print(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)


def say(text: str, console: Console | None = None) -> None:
    """Print a line as it is."""
    (console or Console()).print(text, highlight=False, markup=False, soft_wrap=True)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], console: Console | None = None) -> None:
    """Print a table, never cut short: where the console is narrower than 100 characters, its lines run over."""
    table = Table()
    for number, name in enumerate(columns):
        numeric = all(row[number].replace(".", "").isdigit() for row in rows)
        table.add_column(name, justify="right" if numeric else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console = console or Console()
    wide = Console(file=console.file, force_terminal=console.is_terminal, width=max(console.width, 100))
    wide.print(table)
