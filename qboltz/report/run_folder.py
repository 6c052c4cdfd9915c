"""The directory of a run, read: what is there, finished or not, and the model, task and sampler it stands for."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from qboltz.ensemble import Solver
from qboltz.experiments.applicability import defaults_for, is_machine
from qboltz.experiments.checkpoint import CHECKPOINT, METRICS, SUMMARY, load_checkpoint
from qboltz.experiments.model import OneLayerTransformer
from qboltz.experiments.options import make_parser, model_from, solver_from, task_from
from qboltz.report.lines import Lines, read_lines
from qboltz.tasks.base import Task

#: Folders of the twins and what they are called.
TWINS = {"exact-twin": "exact twin", "softmax-twin": "softmax twin"}


def is_run(folder: Path) -> bool:
    """Whether a run has written to it."""
    return any((folder / name).exists() for name in (CHECKPOINT, SUMMARY, METRICS))


@dataclass(frozen=True)
class RunFolder:
    """A run as it is found.

    Attributes:
        folder: its directory.
        summary: final figures; ``None`` while it is not finished.
        metrics: of its own training.
        twins: metrics of those twins that have begun, by name.
        checkpoint: ``None`` if there is none.
        data: where the text is, if not where the run found it.
    """

    folder: Path
    summary: Mapping[str, Any] | None
    metrics: Lines
    twins: Mapping[str, Lines] = field(default_factory=dict)
    checkpoint: Mapping[str, Any] | None = None
    data: Path | None = None

    @classmethod
    def read(cls, folder: Path, data: Path | None = None) -> RunFolder:
        """Read it.

        Raises:
            OSError, ValueError: a file cannot be read, or is damaged.
        """
        twins = {name: folder / place / METRICS for place, name in TWINS.items()}
        return cls(
            folder,
            _summary(folder / SUMMARY) if (folder / SUMMARY).exists() else None,
            read_lines(folder / METRICS) if (folder / METRICS).exists() else Lines([]),
            {name: read_lines(path) for name, path in twins.items() if path.exists()},
            load_checkpoint(folder) if (folder / CHECKPOINT).exists() else None,
            data,
        )

    @cached_property
    def args(self) -> argparse.Namespace:
        """The options of the run, where it has noted them, else what they are by default."""
        saved = dict(self.summary or {}) if self.checkpoint is None else dict(self.checkpoint["settings"])
        options = vars(make_parser().parse_args([]))
        options |= {name: value for name, value in saved.items() if name in options}
        options["backend"] = options["backend"] or "aer_simulator"
        for name, value in defaults_for(options["backend"]).items():
            if options[name] is None:
                options[name] = value
        if self.data is not None:
            options["data"] = str(self.data)
        return argparse.Namespace(**options)

    @property
    def has_spins(self) -> bool:
        """Whether attention is a model of spins."""
        return bool(self.args.variant != "softmax")

    @property
    def samples(self) -> bool:
        """Whether magnetizations came from samples or an approximation, rather than from exact enumeration."""
        return self.has_spins and self.args.backend != "exact"

    @property
    def runs_circuits(self) -> bool:
        """Whether they came from annealing circuits."""
        return self.samples and self.args.backend not in ("gibbs", "mean_field")

    @property
    def paid(self) -> bool:
        """Whether its circuits ran on a machine that is paid for."""
        return self.runs_circuits and is_machine(self.args.backend)

    @property
    def steps_done(self) -> int:
        """Of its own training."""
        done = self.metrics.records[-1]["step"] if self.metrics.records else (self.summary or {}).get("steps", 0)
        return int(done)

    @cached_property
    def task(self) -> Task:
        """Where its sequences came from.

        Raises:
            OSError, ValueError: the text is not there any more.
        """
        return task_from(self.args)

    @cached_property
    def model(self) -> OneLayerTransformer:
        """The model of the checkpoint, with exact enumeration.

        Raises:
            ValueError: there is no checkpoint, or it does not fit the options of the run.
        """
        if self.checkpoint is None:
            raise ValueError(f"{CHECKPOINT} is missing.")
        model = model_from(self.args, self.task, self.args.variant, "exact")
        try:
            model.load_state_dict(self.checkpoint["model"])
        except RuntimeError as error:
            raise ValueError(f"{self.folder / CHECKPOINT} does not fit the options noted in it: {error}") from error
        return model.eval()

    def sampler(self) -> Solver:
        """The sampler of the run, its seeds where the checkpoint left them; ideal circuits in place of a machine.

        A report submits nothing and costs nothing.
        """
        args = argparse.Namespace(**vars(self.args))
        if self.paid:
            args.backend, args.readout = "statevector", "raw"
        solver: Any = solver_from(args)
        everyone = self.checkpoint["processes"] if self.checkpoint is not None else [{}]
        state = everyone[0].get("stateful", {}).get("solver")
        if state is not None:
            solver.load_state_dict(state)
        chosen: Solver = solver
        return chosen


def _summary(path: Path) -> Mapping[str, Any]:
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is no JSON: {error}. Remove it to report the run as unfinished.") from error
    if not isinstance(summary, dict):
        raise ValueError(f"{path} must hold a JSON object, got {type(summary).__name__}.")
    return summary
