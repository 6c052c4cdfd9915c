"""From a request to spins through jobs that are written down first, so that a run may die at any moment."""

from __future__ import annotations

import hashlib
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qboltz.backends.program import SampleRequest
from qboltz.errors import JobError, JobResultError
from qboltz.machine.limits import Chunker, ServiceLimits
from qboltz.machine.packing import PackedAnneal
from qboltz.machine.patience import fault_of
from qboltz.machine.price import Tariff
from qboltz.machine.rebuild import packing_options
from qboltz.machine.records import JobRecord, digest_of, draw_name, job_key, pack_circuit, pack_models
from qboltz.machine.results import same_question, spins_of
from qboltz.machine.runtime import Runtime
from qboltz.machine.store import Intent, JobStore
from qboltz.machine.waiting import Waiting

log = logging.getLogger(__name__)

#: Fetches of a result that cannot be read before it is given up: the transfer may have been cut short.
RESULT_ATTEMPTS = 3


@dataclass(frozen=True, eq=False)
class Compiled:
    """A circuit as jobs are made of it.

    Attributes:
        packed: the circuit, and how rows go in and come out.
        tariff: what its executions cost.
        qpy: the circuit, compressed; ``digest`` names it.
    """

    packed: PackedAnneal
    tariff: Tariff
    qpy: bytes = field(repr=False)
    digest: str

    @classmethod
    def of(cls, packed: PackedAnneal, tariff: Tariff) -> Compiled:
        """With the packed form of its circuit."""
        qpy = pack_circuit(packed.circuit)
        return cls(packed, tariff, qpy, hashlib.sha256(qpy).hexdigest()[:32])


@dataclass
class Execution:
    """Collects the spins of requests of one run.

    A draw that is asked for again, after the run has died and was resumed, is answered from the store where its jobs
    are done, from the service where they are under way, and only what is missing is submitted.

    Attributes:
        store: where jobs are written down.
        runtime: the machine.
        run: name of the run; two runs never share results.
        rebuild: makes the packing of a stored job from its record and its circuit (compressed QPY).
        options: what to note with each job besides.
        limits: of the service.
        max_seconds: QPU seconds that the run may use, over all its sessions; ``None`` for no limit.
        timeout: seconds to wait for the jobs of one request.
    """

    store: JobStore
    runtime: Runtime
    run: str
    rebuild: Callable[[JobRecord, bytes], PackedAnneal]
    options: dict[str, Any] = field(default_factory=dict)
    limits: ServiceLimits = field(default_factory=ServiceLimits)
    max_seconds: float | None = None
    timeout: float = 86_400.0

    def collect(self, request: SampleRequest, compiled: Compiled) -> NDArray[np.int8]:
        """Spins ``(rows, shots, n)`` of a request.

        Raises:
            BudgetError, StoreError, SubmissionError: nothing more was submitted.
            JobError: a job failed, was cancelled, returned nonsense or did not end in time.
        """
        draw = draw_name(request.seed)
        with self.store.lock(self.run, draw):
            jobs = self._written_down(request, compiled, draw)
            spins = np.empty((request.num_rows, request.shots, request.num_spins), dtype=np.int8)
            for job, drawn in self.finish(jobs, compiled):
                spins[job.first_row : job.first_row + job.rows] = drawn
        return spins

    def finish(self, jobs: Iterable[JobRecord], compiled: Compiled | None = None) -> Iterator[tuple[JobRecord, Any]]:
        """Jobs with their spins, in the order in which they are done; those not submitted yet are submitted."""
        queued: list[JobRecord] = []
        under_way: dict[str, JobRecord] = {}
        for job in jobs:
            if job.state == "done":
                yield job, self.store.spins(job)
            elif job.state == "submitted" and job.job_id is not None:
                under_way[job.job_id] = job
            else:
                queued.append(job)
        waiting = Waiting(self.runtime, self.store, self.timeout)
        try:
            while queued or under_way:
                while queued and len(under_way) < self.limits.in_flight:
                    job = self._submit(queued[0], compiled)
                    under_way[job.name] = job
                    del queued[0]
                if not queued and self.runtime.settings.mode == "batch":
                    self.runtime.close()
                for job_id in waiting.ended(under_way):
                    spins = self._fetch(under_way[job_id], compiled)
                    yield under_way.pop(job_id), spins
        except JobError as error:
            raise _with_ids(error, tuple(under_way)) from error

    def submit(self, request: SampleRequest, compiled: Compiled) -> list[JobRecord]:
        """The jobs of a request, submitted but not waited for.

        Those beyond ``limits.in_flight`` are only written down; whoever collects the request submits them.

        Raises:
            BudgetError, StoreError, SubmissionError: nothing more was submitted.
        """
        draw = draw_name(request.seed)
        with self.store.lock(self.run, draw):
            jobs = self._written_down(request, compiled, draw)
            room = self.limits.in_flight - sum(job.state == "submitted" for job in jobs)
            for index, job in enumerate(jobs):
                if job.state == "intended" and room > 0:
                    jobs[index] = self._submit(job, compiled)
                    room -= 1
        return jobs

    def _written_down(self, request: SampleRequest, compiled: Compiled, draw: str) -> list[JobRecord]:
        """The jobs that answer a request, those of an earlier session among them, all of them in the store."""
        earlier = self.store.jobs(run=self.run, draw=draw)
        jobs = self._answers(request, earlier)
        missing = list(self._intents(request, compiled, draw, earlier, jobs))
        if missing:
            self.runtime.check_open()
            self.settle()
            self.store.reserve(missing, self.max_seconds)
            jobs += [intent.record for intent in missing]
        return jobs

    def settle(self) -> None:
        """Learn what was charged for jobs whose usage was not known when they ended, if there is a budget."""
        if self.max_seconds is None:
            return
        for job in self.store.jobs(run=self.run, state="done"):
            if job.usage is None and job.job_id is not None:
                usage = self.runtime.usage(job.job_id)
                if usage is not None:
                    self.store.charged(job, usage)

    def _answers(self, request: SampleRequest, earlier: list[JobRecord]) -> list[JobRecord]:
        """Jobs of an earlier session that answer rows of this request; no row twice."""
        jobs: list[JobRecord] = []
        covered = np.zeros(request.num_rows, dtype=bool)
        for job in earlier:
            rows = slice(job.first_row, job.first_row + job.rows)
            if job.state in ("failed", "cancelled") or rows.stop > len(covered) or covered[rows].any():
                continue
            if same_question(job, self.store.models(job), request):
                covered[rows] = True
                jobs.append(job)
            else:
                log.warning("job %s has the place of this draw but asks something else: left aside", job.name)
        return jobs

    def _intents(
        self, request: SampleRequest, compiled: Compiled, draw: str, earlier: list[JobRecord], jobs: list[JobRecord]
    ) -> Iterator[Intent]:
        packed = compiled.packed
        chunker = Chunker(packed, compiled.tariff, self.limits)
        for start, stop in _gaps(jobs, request.num_rows):
            for first, rows in chunker.parts(start, stop, request):
                part = slice(first, first + rows)
                fields, couplings = request.fields[part], request.couplings[part]
                digest = digest_of(packed.bindings(fields, couplings).as_array(packed.circuit.parameters))
                before = [job for job in earlier if job.first_row < part.stop and first < job.first_row + job.rows]
                attempt = max((job.attempt for job in before), default=-1) + 1
                record = JobRecord(
                    key=job_key(self.run, draw, first, attempt, digest),
                    run=self.run,
                    draw=draw,
                    attempt=attempt,
                    first_row=first,
                    rows=rows,
                    shots=request.shots,
                    num_spins=request.num_spins,
                    backend=self.runtime.name,
                    circuit=compiled.digest,
                    digest=digest,
                    options={**self.options, **packing_options(packed), "schedule": request.schedule.as_dict()},
                    estimate=chunker.seconds(rows, request.shots),
                )
                yield Intent(record, compiled.qpy, pack_models(fields, couplings))

    def _submit(self, job: JobRecord, compiled: Compiled | None) -> JobRecord:
        """Submit a job that is written down, unless the service has it already."""
        if job.tried is not None:
            left = self.runtime.patience.lookup - (time.time() - job.tried)
            known = self.runtime.find(job.tag, max(0.0, left))
            if known is not None:
                log.info("job %s was submitted before its id could be noted", known)
                return self.store.submitted(job, known)
        packed = self._packed(job, compiled)
        bindings = packed.bindings(*self.store.models(job))
        job_id = self.runtime.submit(
            packed.circuit, bindings, job.shots, job.tag, self._cap(job), before=lambda: self.store.trying(job)
        )
        log.info("job %s submitted to %s: %d rows, %d shots", job_id, job.backend, job.rows, job.shots)
        return self.store.submitted(job, job_id)

    def _fetch(self, job: JobRecord, compiled: Compiled | None) -> NDArray[np.int8]:
        """The result of a job that is done, checked and stored."""
        job_id, patience = job.name, self.runtime.patience
        for attempt in range(1, RESULT_ATTEMPTS + 1):
            try:
                spins = spins_of(self.runtime.result(job_id), job, self._packed(job, compiled))
                break
            except Exception as error:  # a damaged result makes the client raise whatever it happens to raise
                fault = fault_of(error, self.runtime.secrets)
                complaint = f"{type(error).__name__}: {error}" if fault is None else fault.text
                self.runtime.forget(job_id)
                if attempt == RESULT_ATTEMPTS:
                    raise JobResultError(
                        f"job {job_id} on {job.backend} is done, but what the service returns is not its result: "
                        f"{complaint[:500]} Nothing else is affected, and resuming reads it again at no cost. If it "
                        f"stays like this, `qboltz jobs cancel {job_id}` gives it up, and resuming then pays for its "
                        "rows again.",
                        (job_id,),
                    ) from error
                log.warning("the result of job %s cannot be read (%s); reading it again", job_id, complaint)
                time.sleep(min(patience.pause * attempt, patience.longest_pause))
        self.store.done(job, spins)
        try:
            usage = self.runtime.usage(job_id)
        except JobError as error:  # the next settle() asks again
            log.warning("%s", error)
        else:
            if usage is not None:
                self.store.charged(job, usage)
        self.runtime.forget(job_id)
        return spins

    def _packed(self, job: JobRecord, compiled: Compiled | None) -> PackedAnneal:
        if compiled is not None and job.circuit == compiled.digest:
            return compiled.packed
        return self.rebuild(job, self.store.circuit(job))

    def _cap(self, job: JobRecord) -> int | None:
        """A limit for the service to enforce, so that a wrong estimate cannot exceed the budget by much either."""
        if self.max_seconds is None:
            return None
        left = self.max_seconds - sum(self.store.spent(self.run))
        return max(1, math.floor(min(job.estimate + left, self.limits.seconds)))


def _gaps(jobs: list[JobRecord], num_rows: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows that no job covers."""
    start = 0
    for job in sorted(jobs, key=lambda job: job.first_row):
        if job.first_row > start:
            yield start, job.first_row
        start = job.first_row + job.rows
    if start < num_rows:
        yield start, num_rows


def _with_ids(error: JobError, under_way: tuple[str, ...]) -> JobError:
    """The same error, which names all jobs that are under way."""
    unnamed = [job_id for job_id in under_way if job_id not in error.job_ids]
    text = f"{error} Other jobs under way: {', '.join(unnamed)}." if unnamed else str(error)
    return type(error)(text, (*error.job_ids, *unnamed))
