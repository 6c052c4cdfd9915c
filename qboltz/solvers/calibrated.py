"""Whether a calibration is one of the solver that is to use it."""

from __future__ import annotations

from qboltz.adaptive import AdaptiveSchedule, FixedSchedule
from qboltz.calibration import TemperatureCalibration


def check_calibration(
    calibration: TemperatureCalibration | None,
    backend: str,
    schedule: FixedSchedule | AdaptiveSchedule,
    num_spins: int | None = None,
) -> None:
    """Nothing if there is none; else see :meth:`TemperatureCalibration.check`.

    Raises:
        ValueError: the schedule is adaptive, or the calibration is of something else or too old.
    """
    if calibration is None:
        return
    if isinstance(schedule, AdaptiveSchedule):
        raise ValueError(
            "calibration must be left out with an adaptive schedule: it is of fixed angles, and these change. "
            "Give the solver a fixed schedule."
        )
    calibration.check(backend, schedule.schedule, num_spins)
