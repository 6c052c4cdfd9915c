"""Means and paired differences with 95 % intervals: the statistics of ``docs/protocol.md``."""

from __future__ import annotations

from qboltz.experiments.paired import RESAMPLES, Interval, difference, interval

__all__ = ["RESAMPLES", "Interval", "difference", "interval"]
