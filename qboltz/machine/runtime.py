"""IBM's runtime client behind one small face: submit, find, look, fetch, cancel; both samplers, all modes."""

from __future__ import annotations

import atexit
import logging
import time
import warnings
import weakref
from collections.abc import Callable
from typing import Any, Literal, TypeVar

from qiskit.circuit import QuantumCircuit
from qiskit.primitives import BasePrimitiveJob, BaseSamplerV2, BindingsArray, PrimitiveResult
from qiskit.providers import BackendV2

from qboltz.errors import JobPendingError, SubmissionError
from qboltz.machine.patience import Fault, NoAnswerError, Patience, fault_of, pauses, wait_for, within
from qboltz.machine.settings import SamplerSettings

__all__ = ["Runtime", "SamplerSettings"]

log = logging.getLogger(__name__)

Phase = Literal["waiting", "done", "failed", "cancelled"]
Answer = TypeVar("Answer")


class Runtime:
    """One machine of the service.

    Args:
        device: the machine, from ``QiskitRuntimeService.backend``.
        settings: what is submitted besides circuits.
        patience: limits of time and repetition.
        secrets: texts that must not appear in messages.
    """

    def __init__(
        self,
        device: BackendV2,
        settings: SamplerSettings | None = None,
        patience: Patience | None = None,
        secrets: tuple[str, ...] = (),
    ) -> None:
        self.device, self.service = device, device.service
        self.settings, self.patience, self.secrets = settings or SamplerSettings(), patience or Patience(), secrets
        self._jobs: dict[str, Any] = {}
        self._session: Any = None
        _open_runtimes.add(self)

    @property
    def name(self) -> str:
        """The machine's."""
        return str(self.device.name)

    def check_open(self) -> None:
        """Refuse before anything is written or paid if the machine or the account cannot take jobs now.

        Raises:
            SubmissionError: the machine is paused or under maintenance, or the account has no time left.
        """
        status = self.ask("ask for the state of the machine", self.device.status)
        if not status.operational or status.status_msg not in ("active", ""):
            raise SubmissionError(
                f"{self.name} takes no jobs now: its state is {status.status_msg!r}. Nothing was submitted; "
                "try again later, or take another machine."
            )
        usage = self.ask("ask for the usage of the account", self.service.usage)
        if usage.get("usage_limit_reached"):
            raise SubmissionError(
                f"the account has no QPU time left for {self.name}: {usage.get('usage_consumed_seconds', '?')} of "
                f"{usage.get('usage_limit_seconds', '?')} s are used. Nothing was submitted; wait for the next period, "
                "or take another instance."
            )

    def submit(
        self,
        circuit: QuantumCircuit,
        bindings: BindingsArray,
        shots: int,
        tag: str,
        max_seconds: int | None = None,
        before: Callable[[], None] = lambda: None,
    ) -> str:
        """Submit one pub; the id of the job. ``before`` is called right before every attempt.

        A submission that may have arrived although no answer came is looked for under its tag and not repeated before
        ``patience.lookup`` is over.

        Raises:
            SubmissionError: the service refuses it, or stayed out of reach.
        """
        waits = pauses(self.patience)
        while True:
            before()
            try:
                job = within(self.patience.submission, lambda: self._run(circuit, bindings, shots, tag, max_seconds))
            except Exception as error:
                fault = fault_of(error, self.secrets)
                if fault is None:
                    raise
                if fault.carried_out and (known := self.find(tag, self.patience.lookup)):
                    return known
                pause = next(waits, None)
                # A thread that got no answer in time may still be at it: repeating could submit twice.
                if not fault.transient or pause is None or isinstance(error, NoAnswerError):
                    raise self._refusal(fault, tag) from error
                log.warning("%s did not take the job (%s); trying again", self.name, fault.text)
                wait_for(fault, pause, self.patience)
                if fault.carried_out and (known := self.find(tag)):
                    return known
                continue
            self._jobs[job.job_id()] = job
            return str(job.job_id())

    def find(self, tag: str, seconds: float = 0.0) -> str | None:
        """The id of the job with a tag, looked for during so many seconds; ``None`` if there is none.

        Of several the first one: the others would be results of the same circuits.
        """
        end, pause = time.monotonic() + seconds, 0.25
        while True:
            jobs = self.ask(f"look for tag {tag}", lambda: self.service.jobs(limit=5, job_tags=[tag], descending=False))
            if jobs:
                if len(jobs) > 1:
                    log.warning("tag %s has several jobs: %s", tag, ", ".join(job.job_id() for job in jobs))
                self._jobs[jobs[0].job_id()] = jobs[0]
                return str(jobs[0].job_id())
            if time.monotonic() + pause > end:
                return None
            time.sleep(pause)
            pause = min(2 * pause, 5.0)

    def phase(self, job_id: str) -> tuple[Phase, str]:
        """Where a job stands, and what the service says about it if it failed. One question, not repeated."""
        job = self._job(job_id)
        status = within(self.patience.request, job.status)
        if status == "DONE":
            return "done", ""
        if status == "CANCELLED":
            return "cancelled", str(job._reason or "")
        if status == "ERROR":
            text = within(self.patience.request, job.error_message) or ""
            too_long = "ran longer than maximum" in text
            return ("cancelled" if too_long else "failed"), str(text).strip()
        return "waiting", ""

    def result(self, job_id: str) -> PrimitiveResult[Any]:
        """The result of a job that is done, decoded by the client, which may raise anything on a damaged one."""
        job = self._job(job_id)
        return within(self.patience.submission, lambda: job.result(timeout=self.patience.request))

    def usage(self, job_id: str) -> float | None:
        """QPU seconds that were charged for a job that has ended; ``None`` while the service does not say."""
        metrics = self.ask(f"ask for the usage of job {job_id}", lambda: self._job(job_id).metrics())
        usage = metrics.get("usage") or {}
        seconds = usage.get("qpu_charge_time_seconds", usage.get("quantum_seconds"))
        return None if usage.get("status", "pending") == "pending" or seconds is None else float(seconds)

    def cancel(self, job_id: str) -> Literal["cancelled", "ended", "unknown"]:
        """Cancel a job, unless it has ended before or the service does not know it (any more)."""
        from qiskit_ibm_runtime.exceptions import RuntimeInvalidStateError, RuntimeJobNotFound

        def cancel() -> Literal["cancelled", "ended", "unknown"]:
            try:
                self.service.job(job_id).cancel()
            except RuntimeInvalidStateError:
                return "ended"
            except RuntimeJobNotFound:
                return "unknown"
            return "cancelled"

        return self.ask(f"cancel job {job_id}", cancel)

    def forget(self, job_id: str) -> None:
        """Let go of what the client holds of a job."""
        self._jobs.pop(job_id, None)

    def ask(self, what: str, call: Callable[[], Answer]) -> Answer:
        """The answer to a request that may be repeated freely.

        Raises:
            SubmissionError: the account is refused. JobPendingError: the service stayed out of reach.
        """
        waits = pauses(self.patience)
        while True:
            try:
                return within(self.patience.request, call)
            except Exception as error:
                fault = fault_of(error, self.secrets)
                pause = next(waits, None)
                if fault is None or (not fault.transient and fault.status is None):
                    raise
                if not fault.transient or pause is None:
                    raise self._unanswered(what, fault) from error
                log.info("could not %s (%s); trying again", what, fault.text)
                wait_for(fault, pause, self.patience)

    def close(self) -> None:
        """Close the batch or session, if one is open: a session is billed while it is open."""
        session, self._session = self._session, None
        if session is not None:
            self.ask("close the session", session.close)

    def _job(self, job_id: str) -> Any:
        if job_id not in self._jobs:
            self._jobs[job_id] = within(self.patience.request, lambda: self.service.job(job_id))
        return self._jobs[job_id]

    def _run(
        self, circuit: QuantumCircuit, bindings: BindingsArray, shots: int, tag: str, max_seconds: int | None
    ) -> BasePrimitiveJob[Any, Any]:
        return self.sampler(self.settings.options(shots, tag, max_seconds)).run([(circuit, bindings)], shots=shots)

    def sampler(self, options: dict[str, Any]) -> BaseSamplerV2:
        """The client's sampler in the mode of the settings."""
        mode = self.device if self.settings.mode == "job" else self._opened()
        if self.settings.sampler == "executor":
            from qiskit_ibm_runtime.executor_sampler import Sampler

            return Sampler(mode=mode, options=options)
        from qiskit_ibm_runtime import SamplerV2

        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The SamplerV2 class is deprecated", DeprecationWarning)
            return SamplerV2(mode=mode, options=options)

    def _opened(self) -> Any:
        if self._session is not None and (self._session.details() or {}).get("state") == "closed":
            self._session = None  # it had stayed open for as long as the service allows
        if self._session is None:
            from qiskit_ibm_runtime import Batch, Session

            kind = Batch if self.settings.mode == "batch" else Session
            self._session = kind(self.device, max_time=self.settings.session_seconds)
        return self._session

    def _refusal(self, fault: Fault, tag: str) -> SubmissionError:
        advice = {
            401: "The account is refused: check the token, it may have been revoked.",
            403: "The account may not use this machine or instance.",
            409: "The instance has no QPU time left.",
            429: "Too many submissions; wait a few minutes.",
        }.get(fault.status or 0, "If the service is down, wait; else mend what it complains about.")
        unsure = (
            f" It may have arrived: it is looked for under tag {tag} before it is submitted again." * fault.carried_out
        )
        return SubmissionError(
            f"{self.name} did not take a job: {fault.text} {advice} What was submitted before is in the store, nothing "
            f"is lost; resume.{unsure}"
        )

    def _unanswered(self, what: str, fault: Fault) -> SubmissionError | JobPendingError:
        if fault.status in (401, 403):
            return SubmissionError(
                f"could not {what}: the service refuses the account ({fault.text}) Check the token and the instance. "
                "Jobs that were submitted are in the store, nothing is lost; resume.",
            )
        return JobPendingError(
            f"could not {what}: {fault.text} Jobs that were submitted are in the store and go on at the service, "
            "nothing is lost; resume when it can be reached."
        )


_open_runtimes: weakref.WeakSet[Runtime] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Sessions that the process leaves behind would be billed until they time out."""
    for runtime in list(_open_runtimes):
        session, runtime._session = runtime._session, None
        if session is not None:
            try:
                session.close()  # no thread of its own: none can be started any more
            except Exception as error:
                log.warning("session %s on %s could not be closed: %s", session.session_id, runtime.name, error)
