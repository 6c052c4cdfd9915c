"""One sqlite file that several processes write: its connection, its transactions, its permissions."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from qboltz.errors import StoreError

#: Names a file other than the usual one.
STORE_VARIABLE = "QBOLTZ_JOBS"


class Database:
    """An sqlite file in WAL mode, readable by its owner alone, opened on first use and anew after a fork.

    Args:
        path: the file.
        schema: statements that make its tables where they are missing.
    """

    def __init__(self, path: Path, schema: str) -> None:
        self.path, self.schema = path, schema
        self._connection: sqlite3.Connection | None = None
        self._process = 0
        self._mutex = threading.RLock()

    def open(self) -> sqlite3.Connection:
        """The connection.

        Raises:
            StoreError: the file cannot be written.
        """
        if self._connection is not None and self._process == os.getpid():
            return self._connection
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            _create(self.path)
            connection = sqlite3.connect(self.path, timeout=60, isolation_level=None, check_same_thread=False)
            connection.row_factory = sqlite3.Row
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")  # on disk when a transaction ends, not some time later
            connection.executescript(self.schema)
        except (sqlite3.Error, OSError) as error:
            raise StoreError(
                f"the store of jobs {self.path} cannot be opened for writing: {error}. Nothing is submitted without "
                f"it; mend its permissions, or set {STORE_VARIABLE} to a file that can be written."
            ) from error
        self._connection, self._process = connection, os.getpid()
        return connection

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The connection, for one question."""
        with self._mutex:
            connection = self.open()
            try:
                yield connection
            except sqlite3.Error as error:
                raise StoreError(f"the store of jobs {self.path} cannot be read: {error}.") from error

    @contextmanager
    def writing(self, what: str) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it is on disk afterwards, or nothing."""
        with self._mutex:
            connection = self.open()
            try:
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield connection
                    connection.execute("COMMIT")
                except BaseException:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                    raise
            except sqlite3.Error as error:
                raise StoreError(
                    f"the store of jobs {self.path} could not {what}: {error}. Make room or mend its permissions, or "
                    f"set {STORE_VARIABLE} to another file."
                ) from error

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "schema": self.schema}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]


def _create(path: Path) -> None:
    """Make the file readable by its owner alone; sqlite would make it readable by everybody."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:  # not opened again: closing a second handle would give up the locks of the first
        if path.stat().st_mode & 0o077 and path.stat().st_uid == os.getuid():
            path.chmod(0o600)
