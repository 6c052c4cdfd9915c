"""The table of fitted schedules that ships with the package: how each entry is made, and where it is kept."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from qboltz.fidelity import schedule_fidelity
from qboltz.files import write_atomically
from qboltz.fitting import Objective, Progress, fit_schedule
from qboltz.modelset import ModelSet
from qboltz.schedule import AnnealingSchedule

#: Sizes and number of the models an entry is fitted on and, with another seed, measured on.
FIT_SIZES, FIT_COUNT = (6, 8), 48
HELD_OUT_SIZE, HELD_OUT_COUNT, HELD_OUT_SEED = 8, 200, 1_000_003


def fit_entry(
    num_layers: int,
    ensemble: str,
    *,
    objective: Objective = "moments",
    restarts: int = 4,
    seed: int = 0,
    max_iterations: int = 400,
    shorter: AnnealingSchedule | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Fit one schedule to a named ensemble and measure it on held-out models of it.

    ``shorter``, a schedule of fewer layers, gives one more start: its angles, interpolated.

    Returns:
        Plain data: the angles, ``provenance`` (models, objective, seed, losses, versions) and ``held_out`` errors.
    """
    models = ModelSet.named(ensemble, sizes=FIT_SIZES, count=FIT_COUNT, seed=seed)
    fit = partial(
        fit_schedule, num_layers, models, objective=objective, max_iterations=max_iterations, progress=progress
    )
    result = fit(restarts=restarts, seed=seed)
    losses = list(result.losses)
    if shorter is not None:
        other = fit(restarts=1, start=stretched(shorter, num_layers))
        losses += other.losses
        result = min(result, other, key=lambda found: found.loss)
    held_out = ModelSet.named(ensemble, sizes=(HELD_OUT_SIZE,), count=HELD_OUT_COUNT, seed=HELD_OUT_SEED + seed)
    return {
        **result.schedule.as_dict(),
        "provenance": {
            "ensemble": ensemble,
            "models": models.origin,
            "objective": objective,
            "restarts": restarts,
            "seed": seed,
            "losses": losses,
            "versions": {name: version(name) for name in ("qboltz", "torch", "scipy", "numpy")},
            "python": platform.python_version(),
        },
        "held_out": {"models": held_out.origin, **schedule_fidelity(result.schedule, held_out).as_dict()},
    }


def stretched(schedule: AnnealingSchedule, num_layers: int) -> AnnealingSchedule:
    """The same curves of angles at another depth, by linear interpolation at the midpoints of the layers."""
    old = (np.arange(schedule.num_layers) + 0.5) / schedule.num_layers
    new = (np.arange(num_layers) + 0.5) / num_layers
    angles = (np.interp(new, old, row).tolist() for row in schedule.as_dict().values())
    return AnnealingSchedule(*map(tuple, angles))


def read_table(path: str | Path) -> dict[str, dict[str, Any]]:
    """``{ensemble: {depth: entry}}``; empty if there is no such file."""
    try:
        table: dict[str, dict[str, Any]] = json.loads(Path(path).read_text(encoding="utf-8"))["schedules"]
    except FileNotFoundError:
        return {}
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{path} must be a table of schedules as `qboltz schedule fit` writes it.") from error
    return table


def write_table(path: str | Path, table: dict[str, dict[str, Any]]) -> None:
    """Replace the file in one step, so that an interruption leaves the old or the new one."""
    text = json.dumps({"schedules": table}, indent=1, sort_keys=True) + "\n"
    write_atomically(Path(path), text.encode())


def extend_table(
    path: str | Path,
    depths: Sequence[int],
    ensembles: Sequence[str],
    *,
    objective: Objective = "moments",
    restarts: int = 4,
    seed: int = 0,
    max_iterations: int = 400,
    progress: Progress | None = None,
    report: Callable[[str, int, dict[str, Any]], None] | None = None,
) -> None:
    """Fit what the table at ``path`` lacks, entry by entry, writing after each: an interrupted run goes on."""
    if not Path(path).parent.is_dir():
        raise FileNotFoundError(f"No such file or directory: {Path(path).parent}, where the table should go.")
    for ensemble in ensembles:
        for depth in sorted(depths):
            table = read_table(path)
            entries = table.setdefault(ensemble, {})
            if str(depth) in entries:
                continue
            previous = entries.get(str(depth - 1))
            shorter = None if previous is None else schedule_of(previous)
            entries[str(depth)] = fit_entry(
                depth,
                ensemble,
                objective=objective,
                restarts=restarts,
                seed=seed,
                max_iterations=max_iterations,
                shorter=shorter,
                progress=progress,
            )
            write_table(path, table)
            if report is not None:
                report(ensemble, depth, entries[str(depth)])


def schedule_of(entry: dict[str, Any]) -> AnnealingSchedule:
    """The schedule of a table entry."""
    return AnnealingSchedule(*(tuple(entry[name]) for name in ("field_angles", "coupling_angles", "mixer_angles")))
