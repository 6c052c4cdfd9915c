"""Calibrating: measure the temperatures of a solver, divide them out, check what is left."""

from __future__ import annotations

import math
from datetime import datetime, timezone
from importlib.metadata import version
from typing import Protocol

from qboltz.calibration import MAX_AGE_HOURS, TemperatureCalibration
from qboltz.ensemble import SampledEnsemble, SpinEnsemble
from qboltz.errors import ConvergenceError, check_integer
from qboltz.ising import IsingModel
from qboltz.modelset import ModelSet
from qboltz.schedule import AnnealingSchedule
from qboltz.temperature import Temperatures, effective_temperatures

#: Logarithmic distance of both temperatures from 1 that counts as calibrated whatever it was before.
CLOSE = 0.05


class CalibratedSolver(Protocol):
    """What can be calibrated: a solver that anneals, and that can take a calibration."""

    @property
    def calibration(self) -> TemperatureCalibration | None:
        """What rescales its models."""
        ...

    @property
    def polish(self) -> int:
        """Sweeps over the measured spins."""
        ...

    @property
    def shots(self) -> int | None:
        """Samples per model."""
        ...

    @property
    def label(self) -> str:
        """Of the backend."""
        ...

    @property
    def schedule(self) -> AnnealingSchedule:
        """The anneal."""
        ...

    def qubits(self, model: IsingModel) -> tuple[int, ...] | None:
        """Physical qubits that models are measured on."""
        ...

    def solve(self, model: IsingModel) -> SpinEnsemble:
        """Measured spins."""
        ...


def calibrate(
    solver: CalibratedSolver,
    models: ModelSet,
    *,
    rounds: int = 2,
    confidence: float = 0.95,
    max_age_hours: float = MAX_AGE_HOURS,
) -> TemperatureCalibration:
    """Measure the inverse temperatures of a solver, divide them out, measure again, and check the result.

    The result passes if both are within 5 per cent of 1, or half as far off as without, or if their intervals hold 1.

    Fields and couplings in units of an effective temperature are not quite linear in their angles: a schedule that is
    1.3 times too strong measures as 1.27. Each round divides by what the one before has left.

    Args:
        solver: an ``AnnealingSolver`` or ``StatevectorSolver`` with a fixed schedule, no polish and no calibration.
        models: one batch of random models with as many spins as those to be solved later. Weak ones
            (``ModelSet.named("weak", ...)``) have one temperature; strong ones for which the schedule is too short
            have none, and a few of them can spoil the estimate of all.
        rounds: measurements that are divided out; one more checks the result.
        confidence: level of the intervals.
        max_age_hours: validity.

    Raises:
        ValueError: the solver polishes, has a calibration already, or a temperature is not positive beyond doubt
            (noise, or an anneal that cannot couple, as one of one layer).
        ConvergenceError: the result does not pass: the schedule is too short for such models. (With two layers and
            strong couplings stronger angles make the couplings look weaker.)
    """
    check_integer("rounds", rounds)
    if solver.polish or solver.calibration is not None:
        raise ValueError(
            f"solver must have polish 0 and no calibration when it is calibrated, got polish {solver.polish} and "
            f"{'no' if solver.calibration is None else 'a'} calibration."
        )
    if len(models.batches) != 1:
        raise ValueError(f"models must have one number of spins, got {len(models.batches)} batches.")
    (model,) = models.batches
    divisors = [(1.0, 1.0)]
    found: list[Temperatures] = []
    for _ in range(rounds + 1):
        found.append(_measure(solver, model, divisors[-1], confidence))
        divisors.append((divisors[-1][0] * found[-1].beta_fields, divisors[-1][1] * found[-1].beta_couplings))
    first, last, left = found[0], found[-2], found[-1]
    before, applied = divisors[-3], divisors[-2]
    if _distance(left) > max(CLOSE, 0.5 * _distance(first)) and not _consistent_with_one(left):
        raise ConvergenceError(
            f"The inverse temperatures on {solver.label} were {first.beta_fields:.3f} (fields) and "
            f"{first.beta_couplings:.3f} (couplings), and with the calibration they are {left.beta_fields:.3f} and "
            f"{left.beta_couplings:.3f}: rescaling does not help. {solver.schedule.num_layers} layers are too few for "
            "models of this strength, or there are too few shots. Take more layers, or fit the schedule to such models."
        )
    return TemperatureCalibration(
        backend=solver.label,
        time=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        schedule=solver.schedule,
        num_spins=model.num_spins,
        beta_fields=applied[0],
        beta_couplings=applied[1],
        fields_interval=(before[0] * last.fields_interval[0], before[0] * last.fields_interval[1]),
        couplings_interval=(before[1] * last.couplings_interval[0], before[1] * last.couplings_interval[1]),
        confidence=confidence,
        uncalibrated=(first.beta_fields, first.beta_couplings),
        calibrated=(left.beta_fields, left.beta_couplings),
        models=models.origin,
        rows=models.num_models,
        shots=solver.shots,
        rounds=rounds,
        qubits=solver.qubits(model),
        max_age_hours=max_age_hours,
        version=version("qboltz"),
    )


def _measure(
    solver: CalibratedSolver, model: IsingModel, divisors: tuple[float, float], confidence: float
) -> Temperatures:
    """Temperatures with respect to ``model`` of spins drawn for fields and couplings divided by ``divisors``."""
    drawn = solver.solve(IsingModel(model.fields / divisors[0], model.couplings / divisors[1]))
    if not isinstance(drawn, SampledEnsemble):
        raise ValueError(f"solver must return the spins it measured (gradient='covariance'), got {solver!r}.")
    found = effective_temperatures(SampledEnsemble(model, drawn.spins, drawn.weights), confidence, cluster="model")
    for name, low in (("fields", found.fields_interval[0]), ("couplings", found.couplings_interval[0])):
        if not low > 0:
            raise ValueError(
                f"The inverse temperature of the {name} on {solver.label} must be positive beyond doubt, got "
                f"{getattr(found, f'beta_{name}'):.3g} and an interval from {low:.3g} on. Too few shots, too much "
                "noise, or a schedule whose samples do not follow such models."
            )
    return found


def _distance(temperatures: Temperatures) -> float:
    return math.hypot(math.log(temperatures.beta_fields), math.log(temperatures.beta_couplings))


def _consistent_with_one(temperatures: Temperatures) -> bool:
    """What is left is no more than the chance of the shots and models."""
    intervals = temperatures.fields_interval, temperatures.couplings_interval
    return all(low <= 1 <= high for low, high in intervals)
