"""Means and paired differences over seeds with 95 % bootstrap intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

RESAMPLES = 10_000


class Interval(NamedTuple):
    """A mean over seeds and the percentile bootstrap interval of that mean."""

    mean: float
    low: float
    high: float

    def text(self, digits: int = 3, sign: bool = False) -> str:
        """``mean (low to high)``."""
        plus = "+" if sign else ""
        return f"{self.mean:{plus}.{digits}f} ({self.low:{plus}.{digits}f} to {self.high:{plus}.{digits}f})"

    @property
    def side(self) -> int:
        """1 or -1 if the interval lies on one side of zero, else 0."""
        return int(self.low > 0) - int(self.high < 0)


def interval(values: Sequence[float]) -> Interval:
    """Of the mean of ``values``; no width for one value or for equal ones."""
    return Interval(*(float(found[0]) for found in intervals(np.asarray(values, dtype=float)[:, None])))


def intervals(sample: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Mean, low and high of every column of a sample ``(seeds, ...)``: ``interval`` of many things at once."""
    mean: NDArray[np.float64] = sample.mean(axis=0, dtype=float)
    if len(sample) < 2 or not np.ptp(sample, axis=0).any():
        return mean, mean, mean
    found = stats.bootstrap(
        (sample,), np.mean, axis=0, n_resamples=RESAMPLES, method="percentile", rng=np.random.default_rng(0)
    ).confidence_interval
    equal = np.ptp(sample, axis=0) == 0
    return mean, np.where(equal, mean, found.low), np.where(equal, mean, found.high)


def difference(values: Sequence[float], others: Sequence[float]) -> Interval:
    """Of ``values - others``, seed by seed.

    Raises:
        ValueError: the two are not over the same number of seeds.
    """
    if len(values) != len(others):
        raise ValueError(f"paired values must be over the same seeds, got {len(values)} and {len(others)}.")
    return interval([one - other for one, other in zip(values, others, strict=True)])
