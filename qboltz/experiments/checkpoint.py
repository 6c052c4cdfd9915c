"""Files of a training run: a checkpoint that is never half written, and metrics that agree with it."""

from __future__ import annotations

import io
import json
import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from qboltz.files import write_atomically

CHECKPOINT = "checkpoint.pt"
METRICS = "metrics.jsonl"
SUMMARY = "summary.json"


def save_checkpoint(folder: Path, state: Mapping[str, Any]) -> None:
    """Write ``state`` (tensors and plain Python values) to ``folder/checkpoint.pt``."""
    buffer = io.BytesIO()
    torch.save(dict(state), buffer)
    write_atomically(folder / CHECKPOINT, buffer.getvalue())


def load_checkpoint(folder: Path, device: torch.device | str = "cpu") -> dict[str, Any]:
    """What ``save_checkpoint`` wrote, read without running any code that the file could hold.

    Raises:
        FileNotFoundError: there is no checkpoint in ``folder``.
        ValueError: the file there is damaged, or something else.
    """
    path = folder / CHECKPOINT
    if not path.exists():
        raise FileNotFoundError(f"there is no run to resume in {folder}: {CHECKPOINT} is missing.")
    try:
        state: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
    except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise ValueError(f"{path} is damaged or no checkpoint of a run; train anew with --overwrite.") from error
    return state


def check_same_config(saved: Mapping[str, Any], asked: Mapping[str, Any], folder: Path) -> None:
    """Raise ``ValueError`` naming every setting in which a resumed run differs from what was saved."""
    keys = sorted(saved.keys() | asked.keys())
    different = [
        f"{key} was {saved.get(key)!r}, is {asked.get(key)!r}" for key in keys if saved.get(key) != asked.get(key)
    ]
    if different:
        raise ValueError(
            f"the run in {folder} cannot be resumed with other settings: {'; '.join(different)}. "
            "Resume without them, or start a new run elsewhere."
        )


class MetricsLog:
    """One JSON object per step in ``folder/metrics.jsonl``, and TensorBoard events if that is installed.

    Args:
        folder: where to write; ``None`` keeps the records in memory only.
        done: steps that the checkpoint holds. Later lines, written before a crash, are cut off.

    Attributes:
        history: the records, those of an earlier session included.

    Raises:
        ValueError: the file holds fewer steps than the checkpoint.
    """

    def __init__(self, folder: Path | None, done: int = 0) -> None:
        self.history: list[dict[str, Any]] = []
        self._file = None
        self._events = None
        if folder is None:
            return
        path = folder / METRICS
        if done:
            self.history = read_metrics(folder, done)
        text = "".join(json.dumps(record) + "\n" for record in self.history)
        write_atomically(path, text.encode())
        self._file = path.open("a", buffering=1, encoding="utf-8")
        self._events = _event_writer(folder, done)

    def write(self, record: dict[str, Any]) -> None:
        """Append one step."""
        self.history.append(record)
        if self._file is not None:
            self._file.write(json.dumps(record) + "\n")
        if self._events is not None:
            for name in ("loss", "accuracy", "lr"):
                self._events.add_scalar(name, record[name], record["step"])

    def sync(self) -> None:
        """Make sure that what was written is on disk; a checkpoint must not be ahead of its metrics."""
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
        if self._events is not None:
            self._events.close()


def read_metrics(folder: Path, steps: int | None = None) -> list[dict[str, Any]]:
    """The records of a run, of its first ``steps`` steps only if given."""
    lines = (folder / METRICS).read_text(encoding="utf-8").splitlines()
    kept = lines if steps is None else lines[:steps]
    records: list[dict[str, Any]] = [json.loads(line) for line in kept]
    if steps is not None and [record["step"] for record in records] != list(range(1, steps + 1)):
        raise ValueError(
            f"{folder / METRICS} must hold the {steps} steps of its checkpoint, got {len(records)}. "
            "Put the file back, or start a new run."
        )
    return records


def _event_writer(folder: Path, done: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:  # TensorBoard is optional; the JSON lines hold the same numbers
        return None
    return SummaryWriter(str(folder), purge_step=done + 1)
