"""The jobs of all runs in one sqlite file: written before money is spent, so that nothing paid for is ever lost."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs
from numpy.typing import NDArray

from qboltz.errors import BudgetError, StoreError
from qboltz.machine.database import STORE_VARIABLE, Database
from qboltz.machine.locks import held
from qboltz.machine.records import JobRecord, State, pack_spins, unpack_models, unpack_spins

#: Free space without which nothing is submitted, besides twice what the results will take.
SPARE_BYTES = 16 * 2**20

_COLUMNS = {
    "key": "TEXT PRIMARY KEY",
    "run": "TEXT NOT NULL",
    "draw": "TEXT NOT NULL",
    "attempt": "INTEGER NOT NULL",
    "first_row": "INTEGER NOT NULL",
    "rows": "INTEGER NOT NULL",
    "shots": "INTEGER NOT NULL",
    "num_spins": "INTEGER NOT NULL",
    "backend": "TEXT NOT NULL",
    "circuit": "TEXT NOT NULL",
    "digest": "TEXT NOT NULL",
    "options": "TEXT NOT NULL",
    "estimate": "REAL NOT NULL",
    "state": "TEXT NOT NULL",
    "job_id": "TEXT UNIQUE",
    "created": "REAL NOT NULL",
    "tried": "REAL",
    "submitted": "REAL",
    "finished": "REAL",
    "usage": "REAL",
    "message": "TEXT",
}
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS circuits (digest TEXT PRIMARY KEY, qpy BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS jobs ({", ".join(f"{name} {kind}" for name, kind in _COLUMNS.items())},
    models BLOB NOT NULL, spins BLOB, UNIQUE (run, draw, first_row, attempt, digest));
CREATE INDEX IF NOT EXISTS by_draw ON jobs (run, draw);
"""


@dataclass(frozen=True)
class Intent:
    """A job that is about to be submitted, with what it consists of.

    Attributes:
        record: the row.
        circuit: compressed QPY.
        models: compressed fields and couplings.
    """

    record: JobRecord
    circuit: bytes
    models: bytes


class JobStore:
    """All jobs, by key. Several processes may use one file; it is only readable by its owner.

    Args:
        path: the file; ``None`` takes the variable ``QBOLTZ_JOBS``, else ``jobs.sqlite`` in the user's data directory.

    Raises:
        StoreError: by every method, if the file cannot be read or written.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        chosen = path or os.environ.get(STORE_VARIABLE)
        self.path = Path(chosen) if chosen else Path(platformdirs.user_data_dir("qboltz")) / "jobs.sqlite"
        self._database = Database(self.path, _SCHEMA)

    def reserve(self, intents: Sequence[Intent], max_seconds: float | None = None) -> None:
        """Write down jobs that are about to be submitted: all of them or, if the budget does not allow it, none.

        The check and the rows are one transaction, so that two processes cannot spend the same seconds.

        Raises:
            BudgetError: what the run has spent and what these jobs are expected to take exceeds ``max_seconds``.
        """
        self._check_space(sum(intent.record.rows * intent.record.shots * intent.record.num_spins for intent in intents))
        with self._database.writing("write down jobs before they are submitted (none was submitted)") as connection:
            if max_seconds is not None:
                self._check_budget(connection, [intent.record for intent in intents], max_seconds)
            for intent in intents:
                record = intent.record
                connection.execute("INSERT OR IGNORE INTO circuits VALUES (?, ?)", (record.circuit, intent.circuit))
                values = {**vars(record), "options": json.dumps(record.options), "created": time.time()}
                names = ", ".join(_COLUMNS)
                marks = ", ".join(f":{name}" for name in _COLUMNS)
                connection.execute(
                    f"INSERT INTO jobs ({names}, models) VALUES ({marks}, :models)", {**values, "models": intent.models}
                )

    def trying(self, record: JobRecord) -> None:
        """The job is submitted at this moment: from now on it may be at the service."""
        self._update(record, "the attempt to submit", tried=time.time())

    def submitted(self, record: JobRecord, job_id: str) -> JobRecord:
        """The service has accepted the job."""
        now = time.time()
        self._update(record, f"the id {job_id}", state="submitted", job_id=job_id, submitted=now)
        return replace(record, state="submitted", job_id=job_id, submitted=now)

    def done(self, record: JobRecord, spins: NDArray[np.int8]) -> None:
        """The job is done: its spins ``(rows, shots, n)``."""
        self._update(record, "the result", state="done", spins=pack_spins(spins), finished=time.time())

    def ended(self, record: JobRecord, state: State, message: str, usage: float | None = None) -> None:
        """The job has failed or was cancelled."""
        self._update(record, f"the end ({state})", state=state, message=message, usage=usage, finished=time.time())

    def charged(self, record: JobRecord, usage: float) -> None:
        """What the service has charged for a job, learned after it was done."""
        self._update(record, "the usage", usage=usage)

    def spent(self, run: str) -> tuple[float, float]:
        """QPU seconds of a run: those that were charged, and those expected for jobs whose charge is not known."""
        with self._database.reading() as connection:
            return _spent(connection, run)

    def jobs(self, **equal: str) -> list[JobRecord]:
        """The jobs whose columns have the given values, oldest first."""
        where = " AND ".join(f"{name} = :{name}" for name in equal) or "1"
        with self._database.reading() as connection:
            rows = connection.execute(
                f"SELECT {', '.join(_COLUMNS)} FROM jobs WHERE {where} ORDER BY created, first_row", equal
            ).fetchall()
        return [_record(row) for row in rows]

    def find(self, name: str) -> JobRecord:
        """The job with an id, a key, or the beginning of one.

        Raises:
            ValueError: there is none, or more than one.
        """
        found = [
            job for job in self.jobs() if name and (job.key.startswith(name) or (job.job_id or "").startswith(name))
        ]
        exact = [job for job in found if name in (job.key, job.job_id)] or found
        if len(exact) != 1:
            raise ValueError(f"job must be an id or a key in {self.path}, got {name!r}, which fits {len(exact)} jobs.")
        return exact[0]

    def spins(self, record: JobRecord) -> NDArray[np.int8]:
        """Measured spins ``(rows, shots, n)`` of a job that is done."""
        return unpack_spins(self._blob(record, "spins"), (record.rows, record.shots, record.num_spins))

    def models(self, record: JobRecord) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Fields ``(rows, n)`` and couplings ``(rows, n, n)`` of a job."""
        return unpack_models(self._blob(record, "models"), record.rows, record.num_spins)

    def circuit(self, record: JobRecord) -> bytes:
        """The compiled circuit of a job, compressed QPY."""
        with self._database.reading() as connection:
            (data,) = connection.execute("SELECT qpy FROM circuits WHERE digest = ?", (record.circuit,)).fetchone()
        return bytes(data)

    def delete(self, records: Sequence[JobRecord]) -> None:
        """Forget jobs, and circuits that no job has any more."""
        with self._database.writing("delete jobs") as connection:
            connection.executemany("DELETE FROM jobs WHERE key = ?", [(record.key,) for record in records])
            connection.execute("DELETE FROM circuits WHERE digest NOT IN (SELECT circuit FROM jobs)")
        with self._database.reading() as connection:
            connection.execute("VACUUM")  # gives the space back; not allowed inside a transaction

    @contextmanager
    def lock(self, run: str, draw: str) -> Iterator[None]:
        """Nobody else collects this draw meanwhile.

        Raises:
            JobError: another process does.
        """
        self._database.open()
        with held(self.path.with_name(self.path.name + ".lock"), run, draw):
            yield

    def _blob(self, record: JobRecord, column: str) -> bytes:
        with self._database.reading() as connection:
            (data,) = connection.execute(f"SELECT {column} FROM jobs WHERE key = ?", (record.key,)).fetchone()
        if data is None:
            raise ValueError(f"job {record.name} has no {column}: it is {record.state}.")
        return bytes(data)

    def _update(self, record: JobRecord, what: str, **values: Any) -> None:
        sets = ", ".join(f"{column} = :{column}" for column in values)
        whole = f"note {what} of job {record.name} (the service knows it by the tag {record.tag}, nothing is lost)"
        with self._database.writing(whole) as connection:
            connection.execute(f"UPDATE jobs SET {sets} WHERE key = :key_", {**values, "key_": record.key})

    def _check_budget(self, connection: sqlite3.Connection, records: Sequence[JobRecord], limit: float) -> None:
        run = records[0].run
        known, expected = _spent(connection, run)
        asked = sum(record.estimate for record in records)
        if known + expected + asked <= limit:
            return
        raise BudgetError(
            f"run {run} may use {limit:g} QPU seconds (max_qpu_seconds), and the next {len(records)} jobs are expected "
            f"to take {asked:.1f} s. Charged so far are {known:.1f} s, another {expected:.1f} s are expected for jobs "
            f"whose usage is not known yet: {max(0.0, limit - known - expected):.1f} s are left. Nothing was submitted "
            "and nothing is lost; resume with a higher limit."
        )

    def _check_space(self, num_bits: int) -> None:
        self._database.open()
        free, needed = shutil.disk_usage(self.path.parent).free, num_bits // 4 + SPARE_BYTES
        if free < needed:
            raise StoreError(
                f"the store of jobs {self.path} needs {needed / 2**20:.0f} MiB of free disk for the results, "
                f"{free / 2**20:.0f} MiB are left. Nothing was submitted; make room, or set {STORE_VARIABLE} to "
                "another place."
            )


def _spent(connection: sqlite3.Connection, run: str) -> tuple[float, float]:
    rows = connection.execute(f"SELECT {', '.join(_COLUMNS)} FROM jobs WHERE run = ?", (run,)).fetchall()
    jobs = [_record(row) for row in rows]
    known = sum(job.usage for job in jobs if job.usage is not None)
    return known, sum(job.seconds for job in jobs if job.usage is None)


def _record(row: sqlite3.Row) -> JobRecord:
    values = {name: row[name] for name in _COLUMNS}
    return JobRecord(**{**values, "options": json.loads(values["options"])})
