"""``qboltz jobs``: what was submitted to machines, by whichever process, and what became of it."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from qboltz.machine.records import JobRecord
    from qboltz.machine.store import JobStore

STATES = ("intended", "submitted", "done", "failed", "cancelled")
OPEN = ("intended", "submitted")
#: What cancelling meant, by what the service said.
CANCELLED = {
    "cancelled": "",
    "ended": ": it had ended at the service, its result is given up",
    "unknown": ": the service does not know it",
    "intended": ": it was never submitted",
}


def add_jobs_parser(subparsers: Any) -> None:
    """Add the command ``jobs`` with its verbs to the parsers of ``qboltz``."""
    parser = subparsers.add_parser("jobs", help="jobs that were submitted to machines")
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    add = _adder(verbs)
    add("list", "the jobs, oldest first", _list)
    add("show", "all that is known of jobs", _show)
    wait = add("wait", "wait for jobs that were submitted, and store their results", _wait)
    resume = add("resume", "like wait, and submit what was intended but never arrived", _resume)
    for verb in (wait, resume):
        verb.add_argument("--timeout", type=float, default=86_400.0, metavar="SECONDS", help="(a day)")
    add("cancel", "cancel jobs, or give up those whose result cannot be read", _cancel)
    export = add("export", "write spins, models and records of finished jobs to an .npz file", _export)
    export.add_argument("--output", type=Path, required=True, metavar="FILE.npz")
    prune = add("prune", "forget jobs that have ended", _prune)
    prune.add_argument("--older-than", type=float, default=0.0, metavar="DAYS", help="only those that ended before (0)")
    replay = add("replay", "recompute moments and gradients from stored spins, without the service", _replay)
    replay.add_argument("--estimator", default="conditional", help="conditional or plain (conditional)")
    replay.add_argument(
        "--upstream", type=Path, metavar="FILE.npy", help="gradient with respect to m, (rows, n) (ones)"
    )
    replay.add_argument("--output", type=Path, metavar="FILE.npz", help="write the arrays")


def _adder(verbs: Any) -> Callable[..., argparse.ArgumentParser]:
    def add(name: str, text: str, run: Callable[[argparse.Namespace], None]) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=text)
        parser.add_argument("names", nargs="*", metavar="JOB", help="ids or keys, or the beginning of one (all)")
        parser.add_argument("--run", dest="run_name", metavar="RUN", help="only those of this run")
        parser.add_argument("--state", choices=STATES, help="only those in this state")
        parser.add_argument("--store", type=Path, metavar="FILE", help="the store (QBOLTZ_JOBS, else the user's)")
        parser.add_argument("--json", action="store_true", help="print JSON")
        parser.set_defaults(run=run)
        return parser

    return add


def _selected(arguments: argparse.Namespace, *, explicit: bool = False) -> tuple[JobStore, list[JobRecord]]:
    from qboltz.machine.store import JobStore

    store = JobStore(arguments.store)
    wanted = {"run": arguments.run_name, "state": arguments.state}
    if explicit and not arguments.names and not any(wanted.values()):
        raise ValueError("say which jobs: their ids, --run, or --state.")
    if arguments.names:
        jobs = [store.find(name) for name in arguments.names]
    else:
        jobs = store.jobs()
    chosen = {key: value for key, value in wanted.items() if value is not None}
    return store, [job for job in jobs if all(getattr(job, key) == value for key, value in chosen.items())]


def describe(job: JobRecord) -> dict[str, Any]:
    """A job as plain values."""
    return {**vars(job), "tag": job.tag, "seconds": job.seconds}


def _print(arguments: argparse.Namespace, value: Any, lines: Sequence[str]) -> None:
    if arguments.json:
        print(json.dumps(value))
    else:
        print("\n".join(lines))


def _list(arguments: argparse.Namespace) -> None:
    store, jobs = _selected(arguments)
    lines = [f"{'job':32s} {'run':14s} {'backend':14s} {'state':10s} {'rows':>6s} {'shots':>6s} {'QPU s':>7s}  created"]
    for job in jobs:
        created = time.strftime("%Y-%m-%d %H:%M", time.localtime(job.created))
        size = f"{job.rows:6d} {job.shots:6d} {job.seconds:7.1f}" + (" " if job.usage is not None else "~")
        lines.append(f"{job.name:32s} {job.run:14s} {job.backend:14s} {job.state:10s} {size} {created}")
    known, expected = (sum(job.seconds for job in jobs if (job.usage is None) == guess) for guess in (False, True))
    lines.append(f"{len(jobs)} jobs in {store.path}; {known:.1f} s charged, {expected:.1f} s expected (~)")
    _print(arguments, [describe(job) for job in jobs], lines)


def _show(arguments: argparse.Namespace) -> None:
    _, jobs = _selected(arguments, explicit=True)
    lines = [f"{name:10s} {value}" for job in jobs for name, value in [*describe(job).items(), ("", "")]]
    _print(arguments, [describe(job) for job in jobs], lines)


def _wait(arguments: argparse.Namespace) -> None:
    store, jobs = _selected(arguments)
    _finish(arguments, store, [job for job in jobs if job.state == "submitted"])


def _resume(arguments: argparse.Namespace) -> None:
    store, jobs = _selected(arguments)
    _finish(arguments, store, [job for job in jobs if job.state in OPEN])


def _finish(arguments: argparse.Namespace, store: JobStore, jobs: list[JobRecord]) -> None:
    from qboltz.machine.execute import Execution
    from qboltz.machine.rebuild import rebuild

    done = []
    groups: dict[tuple[str, str], list[JobRecord]] = defaultdict(list)
    for job in jobs:
        groups[job.backend, job.run].append(job)
    for (backend, run), group in groups.items():
        execution = Execution(store, _runtime(backend), run, rebuild, timeout=arguments.timeout)
        for draw in dict.fromkeys(job.draw for job in group):
            with store.lock(run, draw):
                fresh = [store.find(job.key) for job in group if job.draw == draw]
                for job, _ in execution.finish([job for job in fresh if job.state in OPEN]):
                    done.append(store.find(job.key))
                    if not arguments.json:
                        print(f"job {job.name} of run {run}: {job.rows} rows, {job.shots} shots", flush=True)
    _print(arguments, [describe(job) for job in done], [f"{len(done)} jobs collected into {store.path}"])


def _cancel(arguments: argparse.Namespace) -> None:
    store, jobs = _selected(arguments, explicit=True)
    lines, ended = [], []
    for job in jobs:
        if job.state not in OPEN:
            lines.append(f"job {job.name} is {job.state} already")
            continue
        usage, outcome = None, "intended"
        runtime = _runtime(job.backend) if job.job_id or job.tried is not None else None
        job_id = job.job_id or (runtime.find(job.tag) if runtime is not None else None)
        if runtime is not None and job_id is not None:
            outcome = runtime.cancel(job_id)
            usage = None if outcome == "unknown" else runtime.usage(job_id)
            job = store.submitted(job, job_id)
        store.ended(job, "cancelled", "cancelled by `qboltz jobs cancel`", usage)
        ended.append(store.find(job.key))
        lines.append(f"job {job.name} is cancelled{CANCELLED[outcome]}")
    _print(arguments, [describe(job) for job in ended], lines)


def _export(arguments: argparse.Namespace) -> None:
    store, jobs = _selected(arguments, explicit=True)
    jobs = [job for job in jobs if job.state == "done"]
    arrays: dict[str, Any] = {"records": np.array(json.dumps([describe(job) for job in jobs]))}
    for job in jobs:
        fields, couplings = store.models(job)
        named = {"spins": store.spins(job), "fields": fields, "couplings": couplings}
        arrays |= {f"{job.name}/{name}": value for name, value in named.items()}
    np.savez_compressed(arguments.output, **arrays)
    _print(arguments, [job.name for job in jobs], [f"{len(jobs)} jobs are in {arguments.output}"])


def _prune(arguments: argparse.Namespace) -> None:
    store, jobs = _selected(arguments, explicit=not arguments.older_than)
    before = time.time() - 86_400 * arguments.older_than
    old = [job for job in jobs if job.state not in OPEN and job.finished is not None and job.finished <= before]
    store.delete(old)
    lines = [f"{len(old)} jobs are deleted from {store.path}; {len(jobs) - len(old)} stay"]
    _print(arguments, [job.key for job in old], lines)


def _replay(arguments: argparse.Namespace) -> None:
    from qboltz.machine.replay import replay

    store, jobs = _selected(arguments, explicit=True)
    upstream = None if arguments.upstream is None else np.load(arguments.upstream)
    results = [(job, replay(store, job, arguments.estimator, upstream)) for job in jobs if job.state == "done"]
    if arguments.output is not None:
        arrays: dict[str, Any] = {
            f"{job.name}/{name}": array for job, result in results for name, array in vars(result).items()
        }
        np.savez_compressed(arguments.output, **arrays)
    lines = []
    for job, result in results:
        norms = [float(np.linalg.norm(array)) for array in (result.grad_fields, result.grad_couplings)]
        lines.append(f"job {job.name}: {job.rows} rows, |dL/dh| {norms[0]:.5f}, |dL/dJ| {norms[1]:.5f}")
        for row, values in enumerate(result.magnetization, job.first_row):
            lines.append(f"  row {row}  m " + " ".join(f"{value:8.4f}" for value in values))
    plain = [{"job": job.name, **{name: array.tolist() for name, array in vars(r).items()}} for job, r in results]
    _print(arguments, plain, lines)


def _runtime(backend: str) -> Any:
    from qboltz.machine.backend import Machine

    print(f"asking {backend} ...", file=sys.stderr)
    return Machine(backend).runtime()
