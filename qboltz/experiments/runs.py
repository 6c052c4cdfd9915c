"""Directories of runs: which one to use, and never to overwrite a result unasked."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from qboltz.experiments.checkpoint import CHECKPOINT, METRICS, SUMMARY, load_checkpoint
from qboltz.files import write_atomically

#: What a run writes; ``clear`` removes this and nothing else.
_WRITTEN = (CHECKPOINT, f".{CHECKPOINT}.*", METRICS, SUMMARY, "report.html", "*.png", "events.out.tfevents.*")


def next_folder(parent: Path, name: str) -> Path:
    """``parent/name-1``, or the first number after it that is free."""
    number = 1
    while (parent / f"{name}-{number}").exists():
        number += 1
    return parent / f"{name}-{number}"


def claim(folder: Path, *, resume: bool, overwrite: bool) -> None:
    """Make sure that a run may be written to ``folder``; ``overwrite`` removes the one that is there.

    Raises:
        FileExistsError: it holds a run, and neither ``resume`` nor ``overwrite`` is set.
        FileNotFoundError: there is nothing to resume.
    """
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"--out must be a directory, got {folder}, which is none.")
    if resume:
        load_checkpoint(folder)
        return
    if not (folder / CHECKPOINT).exists() and not (folder / SUMMARY).exists():
        return
    if not overwrite:
        state = "a finished run" if (folder / SUMMARY).exists() else "a run that was stopped"
        raise FileExistsError(
            f"{folder} holds {state}. Continue it with --resume, replace it with --overwrite, or choose another --out."
        )
    clear(folder)


def clear(folder: Path) -> None:
    """Remove the files of a run and of the twins below it; other files stay."""
    for place in (folder, *(entry for entry in folder.iterdir() if entry.is_dir())):
        for pattern in _WRITTEN:
            for path in place.glob(pattern):
                path.unlink()


def environment() -> dict[str, Any]:
    """Versions of Python and of the packages that numbers depend on, and the threads of torch."""
    import torch

    versions = {name: version(name) for name in ("qboltz", "torch", "numpy", "qiskit", "qiskit-aer")}
    return {"python": platform.python_version(), "versions": versions, "threads": torch.get_num_threads()}


def write_summary(folder: Path, summary: Mapping[str, Any]) -> None:
    """Write ``summary.json`` with the environment; its presence says that the run is finished."""
    whole = {**summary, "environment": environment()}
    write_atomically(folder / SUMMARY, (json.dumps(whole, indent=2) + "\n").encode())
