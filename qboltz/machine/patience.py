"""Requests to a service over a network: none waits for ever, and only what may pass by itself is tried again."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

Answer = TypeVar("Answer")


class NoAnswerError(TimeoutError):
    """A request was not answered in time; it may or may not have been carried out."""


@dataclass(frozen=True)
class Patience:
    """How long requests may take and how often they are repeated. All times in seconds.

    Attributes:
        request: a request other than a submission.
        submission: a submission, with the upload.
        attempts: of a request that fails for a reason that passes.
        pause: after the first failure; it doubles each time, up to ``longest_pause``.
        rate_pause: after too many requests (429) where the service does not say how long. IBM takes five jobs a minute
            from one user (reference of the REST API, "Run a job").
        outage: while jobs run, the service may be out of reach for so long.
        poll, longest_poll: between questions for the state of jobs, growing from one to the other.
        lookup: how long a job that may or may not have been submitted is looked for before it is submitted again. The
            service may list a new job with some delay.
    """

    request: float = 60.0
    submission: float = 900.0
    attempts: int = 6
    pause: float = 2.0
    longest_pause: float = 60.0
    rate_pause: float = 12.0
    outage: float = 1800.0
    poll: float = 1.0
    longest_poll: float = 15.0
    lookup: float = 20.0


@dataclass(frozen=True)
class Fault:
    """What is wrong with a request.

    Attributes:
        status: HTTP status of the answer; ``None`` if there was none.
        transient: it may pass by itself.
        carried_out: whether the request may have been carried out nevertheless.
        retry_after: seconds that the service asks to wait.
        text: what the client says, without secrets.
    """

    status: int | None
    transient: bool
    carried_out: bool
    retry_after: float | None
    text: str


def within(seconds: float, call: Callable[[], Answer]) -> Answer:
    """The answer of ``call``, which runs in another thread, if it comes in time.

    The client sets no limit of its own on how long an answer may take.

    Raises:
        NoAnswerError: it does not. The thread goes on with it by itself.
    """
    process = os.getpid()  # threads do not survive a fork
    idle = _idle.setdefault(process, [])
    caller = idle.pop() if idle else _Caller(idle)
    box = caller.ask(call)
    try:
        good, value = box.get(timeout=seconds)
    except queue.Empty:
        raise NoAnswerError(f"no answer within {seconds:g} s") from None
    if good:
        answer: Answer = value
        return answer
    raise value


class _Caller:
    """A thread that makes one call after the other.

    One for all requests rather than one for each: the allocator inside Qiskit was seen to crash in a thread that had
    just been started (once in some thousand), and encoding a job is Qiskit's work.
    """

    def __init__(self, idle: list[_Caller]) -> None:
        self._idle = idle
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], queue.SimpleQueue[tuple[bool, Any]]]]
        self._calls = queue.SimpleQueue()
        threading.Thread(target=self._work, daemon=True, name="qboltz-requests").start()

    def ask(self, call: Callable[[], Any]) -> queue.SimpleQueue[tuple[bool, Any]]:
        box: queue.SimpleQueue[tuple[bool, Any]] = queue.SimpleQueue()
        self._calls.put((call, box))
        return box

    def _work(self) -> None:
        while True:
            call, box = self._calls.get()
            try:
                answer = True, call()
            except BaseException as error:
                answer = False, error
            self._idle.append(self)
            box.put(answer)
            del call, box, answer  # nothing of a job is kept until the next one


#: Callers without work, by process.
_idle: dict[int, list[_Caller]] = {}


def fault_of(error: BaseException, secrets: tuple[str, ...] = ()) -> Fault | None:
    """What an error of the client says about the request; ``None`` if it is no matter of the network."""
    import requests
    from qiskit_ibm_runtime.api.exceptions import RequestsApiError
    from qiskit_ibm_runtime.exceptions import IBMError

    text = redacted(str(getattr(error, "message", error)) or type(error).__name__, secrets)
    if isinstance(error, NoAnswerError):
        return Fault(None, transient=True, carried_out=True, retry_after=None, text=text)
    chain = list(_causes(error))
    for cause in chain:
        response = getattr(cause, "response", None)
        if isinstance(cause, requests.RequestException) and response is not None:
            status = int(response.status_code)
            wait = _seconds(response.headers.get("Retry-After"))
            return Fault(status, status == 429 or status >= 500, False, wait, text)
    for cause in chain:
        # RetryError: the client has repeated a request that was answered by 5xx until it gave up.
        if isinstance(cause, requests.exceptions.RetryError):
            return Fault(503, transient=True, carried_out=False, retry_after=None, text=text)
        if isinstance(cause, (requests.ConnectionError, requests.Timeout)):
            carried_out = not isinstance(cause, requests.exceptions.ConnectTimeout) and not _refused(cause)
            return Fault(None, transient=True, carried_out=carried_out, retry_after=None, text=text)
    if isinstance(error, (RequestsApiError, IBMError, requests.RequestException)):
        return Fault(None, transient=False, carried_out=False, retry_after=None, text=text)
    return None


def redacted(text: str, secrets: tuple[str, ...]) -> str:
    """``text`` without any of the secrets."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, "***")
    return text


def pauses(patience: Patience) -> Iterator[float]:
    """The waits between attempts; there are ``attempts - 1`` of them."""
    for number in range(patience.attempts - 1):
        yield min(patience.pause * 2**number, patience.longest_pause)


def wait_for(fault: Fault, pause: float, patience: Patience) -> None:
    """Sleep before the next attempt: as long as the service asks for, within reason."""
    if fault.retry_after is not None:
        pause = min(fault.retry_after, 10 * patience.longest_pause)
    elif fault.status == 429:
        pause = max(pause, patience.rate_pause)
    time.sleep(pause)


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__  # "from None" hides the context, it does not remove it


def _refused(error: BaseException) -> bool:
    """Nobody listened: the request was not even sent."""
    return "NewConnectionError" in repr(error) or "NameResolutionError" in repr(error)


def _seconds(header: str | None) -> float | None:
    try:
        return None if header is None else max(0.0, float(header))
    except ValueError:  # a date; the service uses seconds
        return None
