"""Locks that end with their process, however it ends: bytes of one file, one per thing that is locked."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from qboltz.errors import JobError, StoreError

_here: set[tuple[Path, int]] = set()
_guard = threading.Lock()
#: One handle per file and process: closing any handle of a file gives up all locks that the process has on it.
_handles: dict[tuple[Path, int], int] = {}


@contextmanager
def held(path: Path, run: str, draw: str) -> Iterator[None]:
    """Hold the lock of one draw of one run.

    Raises:
        JobError: it is held already, by another process or elsewhere in this one.
        StoreError: the file of locks cannot be written.
    """
    # Bytes that need not exist can be locked: the place of a draw in the file is a number of 62 bits.
    place = int.from_bytes(hashlib.sha256(f"{run}\n{draw}".encode()).digest()[:8], "little") >> 2
    with _guard:
        free = (path, place) not in _here and _locked(path, place)
        if free:
            _here.add((path, place))
    if not free:
        raise JobError(
            f"draw {draw} of run {run} is being submitted or collected by another process. Nothing was submitted "
            "twice; wait until that process ends, or stop it, then resume."
        )
    try:
        yield
    finally:
        with _guard:
            _unlock(path, place)
            _here.discard((path, place))


def _handle(path: Path) -> int:
    key = path, os.getpid()
    if key not in _handles:
        try:
            _handles[key] = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
        except OSError as error:
            raise StoreError(f"the locks of the store of jobs, {path}, cannot be written: {error}.") from error
    return _handles[key]


if sys.platform == "win32":  # two processes on one run are not told apart there

    def _locked(path: Path, place: int) -> bool:
        return True

    def _unlock(path: Path, place: int) -> None:
        return

else:
    import fcntl

    def _locked(path: Path, place: int) -> bool:
        try:
            fcntl.lockf(_handle(path), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
        except OSError as error:
            if isinstance(error, StoreError):
                raise
            return False
        return True

    def _unlock(path: Path, place: int) -> None:
        fcntl.lockf(_handle(path), fcntl.LOCK_UN, 1, place)
