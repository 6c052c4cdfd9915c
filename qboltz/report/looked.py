"""The trained model of a run, looked at: one pass over test sequences with its own sampler, one with enumeration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qboltz.errors import ConvergenceError, SelfTestError
from qboltz.experiments.optimization import data_generator
from qboltz.report.attention import Attended, attend
from qboltz.report.page import Html, note
from qboltz.report.run_folder import RunFolder
from qboltz.solvers.exact import ExactSolver

#: Test sequences that attention and fidelity are looked at on.
SEQUENCES = 64
#: What a damaged file, a text that is elsewhere or a sampler that fails may raise: said on the page, in its place.
PROBLEMS = (ValueError, OSError, ConvergenceError, SelfTestError)


@dataclass
class Looked:
    """Passes over test sequences, or why there are none.

    Attributes:
        passes: by the name of the solver; the run's own comes first.
        solver: the run's own, if it samples and could be asked.
        problem: why something is missing.
    """

    passes: dict[str, Attended] = field(default_factory=dict)
    solver: Any = None
    problem: str | None = None

    @classmethod
    def at(cls, run: RunFolder) -> Looked:
        """Ask the model of a run, as far as it can be asked."""
        looked = cls()
        try:
            looked._look(run)
        except PROBLEMS as error:
            looked.problem = said(run, error)
        return looked

    def _look(self, run: RunFolder) -> None:
        args, model, exact = run.args, run.model, ExactSolver()
        batch = run.task.batch(data_generator(args.seed, "test"), args.eval_size, "test").part(0, SEQUENCES)
        if not run.has_spins:
            self.passes = {"softmax": attend(model, batch, exact)}
            return
        if run.task.length <= exact.max_spins or args.variant == "h-only":
            self.passes = {"exact": attend(model, batch, exact)}
        if run.samples:
            solver = run.sampler()
            self.passes = {sampler_name(run): attend(model, batch, solver), **self.passes}
            self.solver = solver

    def part(self, make: Callable[[], list[Html]], *, needed: bool = True) -> list[Html]:
        """A section that needs the passes, of the run's own sampler too if ``needed``; else why it is missing."""
        if self.problem is None:
            return make()
        missing = [note(f"Not shown: {self.problem}")]
        return missing if needed or not self.passes else [*missing, *make()]

    @property
    def own(self) -> Attended:
        """The pass of the run's own solver."""
        return next(iter(self.passes.values()))


def shown(run: RunFolder, make: Callable[[], list[Html]]) -> list[Html]:
    """A section, or why it cannot be shown."""
    try:
        return make()
    except PROBLEMS as error:
        return [note(f"Not shown: {said(run, error)}")]


def said(run: RunFolder, error: Exception) -> str:
    """The message, with names of files in place of paths: these tell about the user's computer."""
    if isinstance(error, OSError) and error.filename is not None:
        name = Path(error.filename).name
        hint = " Give the text with --data FILE." if Path(run.args.data or "").name == name else ""
        return f"{error.strerror}: {name}.{hint}"
    return str(error).replace(f"{run.folder}/", "")


def sampler_name(run: RunFolder) -> str:
    """Of the sampler that a report asks, in a few words."""
    args = run.args
    if not run.runs_circuits:
        return str(args.backend).replace("_", " ")
    where = "ideal circuits" if run.paid or args.backend == "statevector" else f"{args.backend} circuits"
    return f"{where}, {args.shots} shots" if args.shots else where
