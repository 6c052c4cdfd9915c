"""Means and paired differences with 95 % intervals: the statistics of ``docs/protocol.md``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
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
    sample = np.asarray(values, dtype=float)
    mean = float(sample.mean())
    if len(sample) < 2 or np.ptp(sample) == 0:
        return Interval(mean, mean, mean)
    found = stats.bootstrap(
        (sample,), np.mean, n_resamples=RESAMPLES, method="percentile", rng=np.random.default_rng(0)
    )
    return Interval(mean, float(found.confidence_interval.low), float(found.confidence_interval.high))


def difference(values: Sequence[float], others: Sequence[float]) -> Interval:
    """Of ``values - others``, seed by seed.

    Raises:
        ValueError: the two are not over the same number of seeds.
    """
    if len(values) != len(others):
        raise ValueError(f"paired values must be over the same seeds, got {len(values)} and {len(others)}.")
    return interval([one - other for one, other in zip(values, others, strict=True)])
