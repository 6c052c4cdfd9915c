"""What the benchmark scripts share: records as JSON lines, and timing of several calls in turn."""

from __future__ import annotations

import datetime
import json
import os
import platform
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("torch", "numpy", "scipy", "qiskit", "qiskit-aer")


def place(given: Path | None, name: str, quick: bool) -> Path:
    """Where records go: what was asked for, else ``results/NAME.jsonl``, or the temporary folder for a quick run."""
    return given or (Path(tempfile.gettempdir()) if quick else RESULTS) / f"{name}.jsonl"


def environment() -> dict[str, Any]:
    """Versions, commit, cores, load and time: what a record has to say about where it comes from."""
    return {
        "versions": {name: version(name) for name in PACKAGES},
        "python": platform.python_version(),
        "commit": commit(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    }


def commit() -> str | None:
    """The commit checked out, with ``-dirty`` if anything but the results differs from it; ``None`` outside of git."""

    def git(*arguments: str) -> str | None:
        ran = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False, cwd=RESULTS.parent)
        return ran.stdout.strip() if ran.returncode == 0 else None

    named = git("describe", "--always")
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ":/", ":(exclude)results")
    return f"{named}-dirty" if named and changed else named


def read(path: Path) -> list[dict[str, Any]]:
    """The records of a file; none if it does not exist."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write(path: Path, records: Iterable[dict[str, Any]]) -> None:
    """Replace the records of a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def append(path: Path, record: dict[str, Any]) -> None:
    """Add one record, at once, so that an interrupted grid keeps what it has."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")


def in_turn(calls: Sequence[Callable[[], object]], repeats: int) -> list[list[float]]:
    """Seconds of each call, measured one after the other so that a busy moment hits all of them; one warm-up round."""
    seconds: list[list[float]] = [[] for _ in calls]
    for repeat in range(repeats + 1):
        for call, spent in zip(calls, seconds, strict=True):
            start = time.perf_counter()
            call()
            if repeat:
                spent.append(time.perf_counter() - start)
    return seconds


def summary(seconds: Sequence[float]) -> dict[str, float]:
    """Median and quartiles, in milliseconds."""
    low, median, high = statistics.quantiles(seconds, n=4) if len(seconds) > 1 else [seconds[0]] * 3
    return {"median_ms": 1e3 * median, "low_quartile_ms": 1e3 * low, "high_quartile_ms": 1e3 * high}
