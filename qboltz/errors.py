"""Errors that a caller may want to catch by class; everything else is a ValueError or TypeError."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

import numpy as np


class TooManySpinsError(ValueError):
    """A model has more spins than a solver can treat; the message says the cost and what to use instead."""


class BackendNotFoundError(ValueError):
    """A backend name could not be resolved; the message says where it was looked for and names close matches."""


class AccountError(BackendNotFoundError):
    """There is no account for a machine, or it is refused, or it has no such instance; the message says what to do."""


class ServiceUnreachableError(BackendNotFoundError):
    """The service of a machine does not answer; it may do so later."""


class ConvergenceError(RuntimeError):
    """An iteration found no solution; the message says for how many rows, how far off, and what to use instead."""


class SelfTestError(RuntimeError):
    """A sampler returned wrong physics for a circuit with a known answer: its results must not be used."""


class StoreError(OSError):
    """The store of jobs cannot be read or written; the message says what that means for jobs that may be under way."""


class BudgetError(RuntimeError):
    """The next jobs would go past the limit of QPU seconds; none of them was submitted."""


class DryRunError(RuntimeError):
    """A dry run got to the point where it would have submitted; the message says what."""


class JobError(RuntimeError):
    """Something went wrong with jobs of a machine; the message says what, what is safe, and what to do.

    Attributes:
        job_ids: the jobs that are affected, empty if none was submitted.
    """

    def __init__(self, message: str, job_ids: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.job_ids = tuple(job_ids)


class SubmissionError(JobError):
    """The service did not accept a job."""


class JobFailedError(JobError):
    """The service ran a job and reports that it failed."""


class JobCancelledError(JobError):
    """Somebody cancelled a job, or it ran longer than it was allowed to."""


class JobPendingError(JobError):
    """Waiting has ended, the jobs have not: they can be collected later."""


class JobResultError(JobError):
    """A job is done, but what the service returns is not its result."""


def unknown_name(kind: str, name: object, known: Iterable[str]) -> str:
    """Message for a name outside a closed list: rule, value and the closest known names."""
    names = sorted(known)
    message = f"{kind} must be one of {', '.join(map(repr, names))}, got {name!r}."
    close = difflib.get_close_matches(str(name), names, n=3)
    return message + (f" Did you mean {' or '.join(map(repr, close))}?" if close else "")


def check_positive(name: str, value: object) -> float:
    """``value`` as a float above 0.

    Raises:
        TypeError: it is no number.
        ValueError: it is zero, negative, infinite or NaN.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"{name} must be a positive number, got {value!r}.")
    if not 0 < value < float("inf"):
        raise ValueError(f"{name} must be positive and finite, got {value!r}.")
    return float(value)


def check_integer(name: str, value: object, at_least: int = 1, alternative: str = "") -> int:
    """``value`` as an int; numpy integers count, booleans do not.

    Raises:
        TypeError: it is no integer.
        ValueError: it is smaller than ``at_least``.
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be an integer of at least {at_least}{alternative}, got {value!r}.")
    if value < at_least:
        raise ValueError(f"{name} must be at least {at_least}{alternative}, got {value}.")
    return int(value)
