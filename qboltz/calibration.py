"""Temperature calibrations: measured on a backend, kept as a file, refused when they are not of this run."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, TypeVar

from qboltz.errors import check_integer
from qboltz.files import write_atomically
from qboltz.schedule import AnnealingSchedule

Array = TypeVar("Array", bound=Any)

MAX_AGE_HOURS = 24.0
#: A clock may be ahead of another by this much.
CLOCK_SKEW = timedelta(minutes=10)


@dataclass(frozen=True)
class TemperatureCalibration:
    r"""Inverse temperatures of one schedule on one backend. Applied before the circuit,

    .. math:: h \to h / \beta_h, \qquad J \to J / \beta_J,

    it makes the measured spins those of ``h`` and ``J`` at inverse temperature 1. Everything that is done with them
    (estimator, gradients, polish) goes on with the original ``h`` and ``J``.

    It holds for spins as they are measured: noise and readout errors are part of the temperature.

    Attributes:
        backend: label of the backend it was measured on.
        time: when, UTC, ISO 8601.
        schedule: the anneal.
        num_spins: of the models it was measured with.
        beta_fields: what fields are divided by.
        beta_couplings: what couplings are divided by.
        fields_interval: of ``beta_fields``.
        couplings_interval: of ``beta_couplings``.
        confidence: level of these intervals (models as the draws).
        uncalibrated: both inverse temperatures without it.
        calibrated: both as measured with it.
        models: where the models came from.
        rows: how many.
        shots: samples of each and of each round; ``None`` for infinitely many, simulated.
        rounds: measurements that went into it.
        qubits: physical qubits that were measured; ``None`` on a simulator.
        max_age_hours: it is refused when older.
        version: of qboltz.
    """

    backend: str
    time: str
    schedule: AnnealingSchedule
    num_spins: int
    beta_fields: float
    beta_couplings: float
    fields_interval: tuple[float, float]
    couplings_interval: tuple[float, float]
    confidence: float
    uncalibrated: tuple[float, float]
    calibrated: tuple[float, float]
    models: dict[str, Any]
    rows: int
    shots: int | None
    rounds: int
    qubits: tuple[int, ...] | None = None
    max_age_hours: float = MAX_AGE_HOURS
    version: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.backend, str) or not self.backend:
            raise ValueError(f"backend must be the label of a backend, got {self.backend!r}.")
        if not isinstance(self.schedule, AnnealingSchedule):
            raise TypeError(f"schedule must be an AnnealingSchedule, got {self.schedule!r}.")
        for name in ("num_spins", "rows", "rounds"):
            check_integer(name, getattr(self, name))
        if self.shots is not None:
            check_integer("shots", self.shots, 1, " or null")
        for name in ("beta_fields", "beta_couplings", "max_age_hours", "confidence"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
                raise ValueError(f"{name} must be a positive number, got {value!r}.")
        for name in ("fields_interval", "couplings_interval", "uncalibrated", "calibrated"):
            value = getattr(self, name)
            if (
                not isinstance(value, Sequence)
                or len(value) != 2
                or not all(isinstance(v, (int, float)) for v in value)
            ):
                raise ValueError(f"{name} must be two numbers, got {value!r}.")
            object.__setattr__(self, name, (float(value[0]), float(value[1])))
        object.__setattr__(self, "models", json.loads(json.dumps(self.models)))  # as a file would give it back
        if self.qubits is not None:
            object.__setattr__(self, "qubits", tuple(check_integer("qubits", qubit, 0) for qubit in self.qubits))
        self.measured_at  # noqa: B018  (a time that cannot be read is an error now)

    @property
    def measured_at(self) -> datetime:
        """``time`` as a moment."""
        try:
            moment = datetime.fromisoformat(self.time)
        except (TypeError, ValueError) as error:
            raise ValueError(f"time must be ISO 8601 with its zone, got {self.time!r}.") from error
        if moment.tzinfo is None:
            raise ValueError(f"time must have its zone, as in 2026-01-31T12:00:00+00:00, got {self.time!r}.")
        return moment

    def check(
        self,
        backend: str,
        schedule: AnnealingSchedule,
        num_spins: int | None = None,
        now: datetime | None = None,
    ) -> None:
        """Refuse to serve another backend, another schedule, another number of spins, or after ``max_age_hours``.

        Args:
            backend: label of the backend that is used.
            schedule: the anneal that is used.
            num_spins: of the models; ``None`` does not ask (on an ideal simulator it matters little).
            now: the time; ``None`` looks at the clock.

        Raises:
            ValueError: one of these differs, or the calibration is too old; says which, and how to renew it.
        """
        renew = (
            f"Measure again with `qboltz schedule calibrate --backend {backend} --layers {schedule.num_layers} "
            f"--num-spins {num_spins or self.num_spins}`."
        )
        if backend != self.backend:
            raise ValueError(f"calibration must be of backend {backend!r}, got one of {self.backend!r}. {renew}")
        if schedule.num_layers != self.schedule.num_layers:
            raise ValueError(
                f"calibration must be of {schedule.num_layers} layers, got one of {self.schedule.num_layers}. {renew}"
            )
        if schedule != self.schedule:
            raise ValueError(
                f"calibration must be of the schedule in use, {schedule}, got one of {self.schedule}. {renew}"
            )
        if num_spins is not None and num_spins != self.num_spins:
            raise ValueError(f"calibration must be of {num_spins} spins, got one of {self.num_spins}. {renew}")
        age = (now or datetime.now(timezone.utc)) - self.measured_at
        if age > timedelta(hours=self.max_age_hours):
            raise ValueError(
                f"calibration must be at most {self.max_age_hours:g} hours old, got one of {self.time} "
                f"({age / timedelta(hours=1):.1f} hours). {renew} Or allow it with max_age_hours."
            )
        if age < -CLOCK_SKEW:
            raise ValueError(f"calibration must not be of the future, got {self.time}. Check the clocks. {renew}")

    def rescaled(self, h: Array, J: Array) -> tuple[Array, Array]:
        """``h / beta_h`` and ``J / beta_J``, tensors or arrays."""
        return h / self.beta_fields, J / self.beta_couplings

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def save(self, path: str | Path) -> None:
        """Write JSON, atomically."""
        write_atomically(Path(path), (json.dumps(self.as_dict(), indent=1) + "\n").encode())

    @classmethod
    def load(cls, path: str | Path, max_age_hours: float | None = None) -> TemperatureCalibration:
        """Read what ``save`` wrote. Its age is judged when it is used.

        Args:
            path: the file.
            max_age_hours: another limit than the one it was saved with.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: the file is no calibration; says what is wrong with it.
        """
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
            if not isinstance(content, dict):
                raise TypeError(f"the file must hold an object, got {type(content).__name__}.")
            unknown = content.keys() - {item.name for item in fields(cls)}
            if unknown:
                raise ValueError(f"unknown entries {sorted(unknown)}.")
            calibration = cls(**{**content, "schedule": AnnealingSchedule(**content["schedule"])})
        except (KeyError, TypeError, ValueError) as error:  # a JSONDecodeError is a ValueError
            raise ValueError(
                f"{path} must be a calibration as `qboltz schedule calibrate` writes it: {error}"
            ) from error
        return calibration if max_age_hours is None else replace(calibration, max_age_hours=max_age_hours)
