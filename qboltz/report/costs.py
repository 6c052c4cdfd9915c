"""What a run has taken: time, circuits and shots, and on a machine its jobs; and where it, or the report, was made."""

from __future__ import annotations

import json
import os
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qboltz.experiments.options import SESSION_FILE
from qboltz.report.page import Html, facts, note, paragraph
from qboltz.report.run_folder import RunFolder

if TYPE_CHECKING:
    from qboltz.machine.records import JobRecord

PACKAGES = ("qboltz", "torch", "numpy", "scipy", "qiskit", "qiskit-aer", "qiskit-ibm-runtime", "matplotlib")


def costs(run: RunFolder) -> list[Html]:
    """Of its own training; twins are for nothing but time."""
    last: Mapping[str, Any] = run.metrics.records[-1] if run.metrics.records else (run.summary or {})
    steps, seconds, circuits = run.steps_done, last.get("seconds"), last.get("circuits")
    pairs: list[tuple[str, str]] = [("steps", f"{steps:,}")]
    if seconds:
        pairs.append(("seconds of training", f"{seconds:,.1f}, {1e3 * seconds / max(1, steps):,.1f} ms a step"))
    if run.runs_circuits and circuits:
        pairs.append(("circuits in training", f"{circuits:,}, {circuits / max(1, steps):,.0f} a step"))
        if run.args.shots:
            pairs.append(("shots in training", f"{circuits * run.args.shots:,} ({run.args.shots} a circuit)"))
        if seconds:
            pairs.append(("circuits per second", f"{circuits / seconds:,.0f}, everything included"))
    for name, twin in run.twins.items():
        if twin.records:
            pairs.append((f"seconds of the {name}", f"{twin.records[-1].get('seconds', 0):,.1f}"))
    return [facts(pairs), *(_machine(run) if run.paid else [])]


def _machine(run: RunFolder) -> list[Html]:
    from qboltz.errors import StoreError
    from qboltz.machine.store import JobStore

    # Of how the machine was reached, only where its jobs are kept: the rest names accounts.
    session = run.folder / SESSION_FILE
    place = json.loads(session.read_text(encoding="utf-8")).get("jobs_store") if session.exists() else None
    name = _name_of_jobs(run)
    store = JobStore(place)
    if name is None or not store.path.exists():
        return [note("The store of the jobs of this run is not at hand: their costs are not shown.")]
    try:
        jobs = store.jobs(run=name)
    except StoreError as error:
        return [note(f"The jobs of this run cannot be shown: {error}")]
    return [facts(ledger(jobs)), paragraph("The QPU seconds of a job are those charged, else those expected.")]


def _name_of_jobs(run: RunFolder) -> str | None:
    if run.checkpoint is None:
        return None
    state = run.checkpoint["processes"][0].get("stateful", {}).get("solver", {})
    name = state.get("backend", {}).get("run")
    return None if name is None else str(name)


def ledger(jobs: Sequence[JobRecord]) -> list[tuple[str, str]]:
    """Jobs of one run by their state, rows, shots, and QPU seconds, charged and expected."""
    states = Counter(job.state for job in jobs)
    charged = sum(job.usage for job in jobs if job.usage is not None)
    expected = sum(job.seconds for job in jobs if job.usage is None)
    return [
        ("jobs", ", ".join(f"{count} {state}" for state, count in states.items()) or "none"),
        ("rows submitted", f"{sum(job.rows for job in jobs):,}"),
        ("shots submitted", f"{sum(job.rows * job.shots for job in jobs):,}"),
        ("QPU seconds charged", f"{charged:,.1f}"),
        ("QPU seconds expected of the others", f"{expected:,.1f}"),
        ("machines", ", ".join(sorted({job.backend for job in jobs})) or "none"),
    ]


def environment(recorded: Mapping[str, Any] | None) -> list[Html]:
    """Where a run was made, as far as it says so, and where the report was."""
    if recorded:
        return [paragraph("As the run recorded it:"), facts(_flat(recorded)), paragraph("This report:"), _here()]
    return [paragraph("The run has not recorded its environment; this report was made with:"), _here()]


def environment_of_records(records: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """What the records of a grid say about where they were made; several values where they differ."""
    pairs = []
    for name in ("commit", "python", "cores"):
        values = dict.fromkeys(str(record[name]) for record in records if record.get(name) is not None)
        if values:
            pairs.append((name, ", ".join(values)))
    versions = [record["versions"] for record in records if isinstance(record.get("versions"), dict)]
    for package in dict.fromkeys(package for known in versions for package in known):
        pairs.append((package, ", ".join(dict.fromkeys(str(known[package]) for known in versions if package in known))))
    times = sorted(str(record["time"]) for record in records if record.get("time"))
    if times:
        pairs.append(("recorded", times[0] if len(times) == 1 else f"{times[0]} to {times[-1]}"))
    return pairs


def _here() -> Html:
    import torch

    found = [(name, _version(name)) for name in PACKAGES]
    machine = f"{platform.system()} on {platform.machine()}, {os.cpu_count()} cores"
    threads = f"{torch.get_num_threads()} of torch"
    return facts([("python", platform.python_version()), *found, ("system", machine), ("threads", threads)])


def _flat(recorded: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        (name, ", ".join(f"{key} {value}" for key, value in entry.items()) if isinstance(entry, dict) else str(entry))
        for name, entry in recorded.items()
    ]


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def shown_path(value: object) -> str:
    """The last part of a path: the others tell about the user's computer."""
    return Path(str(value)).name
