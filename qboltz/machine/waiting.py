"""Waiting for jobs: asking ever less often, through outages of the service, but not for ever."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from qboltz.errors import JobCancelledError, JobError, JobFailedError, JobPendingError
from qboltz.machine.patience import fault_of
from qboltz.machine.records import JobRecord
from qboltz.machine.runtime import Runtime
from qboltz.machine.store import JobStore

log = logging.getLogger(__name__)


@dataclass
class Waiting:
    """Waits for jobs of one machine, ``timeout`` seconds in all."""

    runtime: Runtime
    store: JobStore
    timeout: float

    def __post_init__(self) -> None:
        self._began, self._pause = time.monotonic(), 0.0
        self._lost: float | None = None
        self._refusals = 0

    def ended(self, under_way: dict[str, JobRecord]) -> list[str]:
        """Ids of jobs that are done by now, perhaps none: then some time has passed.

        Raises:
            JobFailedError, JobCancelledError: one of them never will be. JobPendingError: it has taken too long.
        """
        done = []
        for job_id, job in under_way.items():
            try:
                phase, message = self.runtime.phase(job_id)
            except Exception as error:
                self._outage(error, tuple(under_way))
                continue
            self._lost, self._refusals = None, 0
            if phase == "done":
                done.append(job_id)
            elif phase != "waiting":
                self._end(job, phase == "failed", message)
        if not done:
            self._sleep(tuple(under_way))
        return done

    def _end(self, job: JobRecord, failed: bool, message: str) -> None:
        assert job.job_id is not None
        usage = self.runtime.usage(job.job_id)
        self.store.ended(job, "failed" if failed else "cancelled", message, usage)
        charged = "what it was charged is not known yet" if usage is None else f"{usage:.1f} s were charged"
        kind = JobFailedError if failed else JobCancelledError
        raise kind(
            f"job {job.job_id} on {job.backend} {'failed' if failed else 'was cancelled'}: "
            f"{message[-800:] or 'no reason is given.'} Its {job.rows} rows have no result ({charged}); all other "
            f"jobs of run {job.run} are in the store, nothing is lost. Resume to submit these rows once more.",
            (job.job_id,),
        )

    def _outage(self, error: Exception, ids: tuple[str, ...]) -> None:
        fault = fault_of(error, self.runtime.secrets)
        if fault is None:
            raise error
        # A sign-in service that is out of reach for a moment looks like a refused account.
        self._refusals += fault.status == 401
        passing = fault.transient or (fault.status == 401 and self._refusals < self.runtime.patience.attempts)
        if not passing:
            gone = f" A job that is gone for good is given up with `qboltz jobs cancel {ids[0]}`."
            raise JobError(
                f"the state of jobs {', '.join(ids)} cannot be asked for: {fault.text} They are in the store and go "
                "on, nothing is lost. Check the account and its instance, then resume."
                + (gone if fault.status == 404 else ""),
                ids,
            ) from error
        now = time.monotonic()
        self._lost = now if self._lost is None else self._lost
        if now - self._lost > self.runtime.patience.outage:
            raise JobPendingError(
                f"the service has not answered for {now - self._lost:.0f} s: {fault.text} Jobs {', '.join(ids)} are "
                "in the store and go on, nothing is lost. Resume when it can be reached.",
                ids,
            ) from error
        log.warning("no answer from the service (%s); jobs go on, asking again", fault.text)

    def _sleep(self, ids: tuple[str, ...]) -> None:
        waited, timeout = time.monotonic() - self._began, self.timeout
        if waited > timeout:
            raise JobPendingError(
                f"jobs {', '.join(ids)} have not ended within {timeout:g} s. They are in the store and go on, nothing "
                "is lost. Resume later to collect them, or `qboltz jobs cancel` them.",
                ids,
            )
        patience = self.runtime.patience
        self._pause = min(max(patience.poll, 1.3 * self._pause), patience.longest_poll)
        time.sleep(min(self._pause, max(0.0, timeout - waited) + 0.01))
