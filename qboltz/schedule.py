"""The schedule of a diabatic quantum anneal: three angles a layer, and the temperatures they imply."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from qboltz.errors import unknown_name

if TYPE_CHECKING:
    from qboltz.modelset import ModelSet

#: What the default fitted schedules were fitted on; see ``docs/dqa.md`` for the choice.
DEFAULT_ENSEMBLE = "broad"


class Layer(NamedTuple):
    """One Trotter layer, applied in this order: field phases, coupling phases, mixer."""

    field_angle: float
    coupling_angle: float
    mixer_angle: float


@dataclass(frozen=True)
class AnnealingSchedule:
    r"""Angles of a Trotterized anneal from ``|+>^n``. Layer ``k`` of ``p`` applies, in this order,

    .. math::
        e^{i \gamma^h_k \sum_j h_j Z_j}, \qquad e^{i \gamma^J_k \sum_{j<l} J_{jl} Z_j Z_l}, \qquad
        e^{i b_k \sum_j X_j}

    that is ``RZ(-2 gh_k h_j)``, ``RZZ(-2 gJ_k J_jl)`` and ``RX(-2 b_k)``. With ``theta_k = sum_{l>=k} b_l`` the
    measured spins follow, to leading order in ``h`` and ``J``, a Boltzmann distribution whose fields and couplings
    carry the inverse temperatures ``beta_fields`` and ``beta_couplings``.

    Args:
        field_angles: ``gh``, one per layer, radians per unit of ``h``.
        coupling_angles: ``gJ``, one per layer, radians per unit of ``J``.
        mixer_angles: ``b``, one per layer, radians.

    Raises:
        ValueError: no layer, different lengths, or an angle that is not finite.

    Source: arXiv:2409.18126 and arXiv:2509.09374; ``docs/dqa.md`` derives the sums over layers.
    """

    field_angles: tuple[float, ...]
    coupling_angles: tuple[float, ...]
    mixer_angles: tuple[float, ...]

    def __post_init__(self) -> None:
        for name in ("field_angles", "coupling_angles", "mixer_angles"):
            try:
                angles = tuple(float(angle) for angle in getattr(self, name))
            except (TypeError, ValueError) as error:
                raise ValueError(f"{name} must be a sequence of numbers, got {getattr(self, name)!r}.") from error
            if not np.all(np.isfinite(angles)):
                raise ValueError(f"{name} must be finite, got {angles}.")
            object.__setattr__(self, name, angles)
        lengths = len(self.field_angles), len(self.coupling_angles), len(self.mixer_angles)
        if lengths[0] == 0 or len(set(lengths)) != 1:
            raise ValueError(
                "field_angles, coupling_angles and mixer_angles must have one angle per layer, at least one layer; "
                f"got {lengths[0]}, {lengths[1]} and {lengths[2]}."
            )

    @property
    def num_layers(self) -> int:
        """``p``."""
        return len(self.mixer_angles)

    def layers(self) -> Iterator[Layer]:
        """The walk: the one place that says in which order the angles are applied."""
        yield from map(Layer, self.field_angles, self.coupling_angles, self.mixer_angles)

    @property
    def remaining_angles(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """``theta_k = sum_{l >= k} b_l``: what is left of the mixer when phase ``k`` has been applied."""
        return np.cumsum(np.asarray(self.mixer_angles)[::-1])[::-1]

    @property
    def beta_fields(self) -> float:
        r"""``beta_h = 2 sum_k gh_k sin(2 theta_k)``: inverse temperature of the fields at leading order."""
        return float(2 * np.dot(self.field_angles, np.sin(2 * self.remaining_angles)))

    @property
    def beta_couplings(self) -> float:
        r"""``beta_J = 2 sum_k gJ_k sin(4 theta_k)``: inverse temperature of the couplings at leading order."""
        return float(2 * np.dot(self.coupling_angles, np.sin(4 * self.remaining_angles)))

    @property
    def k_hj(self) -> float:
        r"""Coefficient of ``J_ij h_j`` in ``<s_i>``, the leading effect of couplings on magnetizations.

        ``4 sum_{k later than l} gJ_k gh_l sin(2 theta_k) sin(2 theta_l - 2 theta_k)``; phases of one layer commute
        and contribute nothing. It is 1 for the Boltzmann distribution and 0 for every single-layer schedule.
        """
        theta = self.remaining_angles
        later, earlier = np.tril_indices(self.num_layers, -1)
        gap = np.sin(2 * theta[earlier] - 2 * theta[later])
        terms = np.asarray(self.coupling_angles)[later] * np.asarray(self.field_angles)[earlier]
        return float(4 * np.sum(terms * np.sin(2 * theta[later]) * gap))

    @classmethod
    def linear(cls, num_layers: int, anneal_time: float | None = None) -> AnnealingSchedule:
        """A linear ramp (mixer down, phases up), calibrated so that both inverse temperatures are exactly 1.

        Args:
            num_layers: ``p``, at least 1.
            anneal_time: ``A0 tau``, the area of the mixer, twice the sum of its angles (radians). ``None`` takes
                ``1.35 p``, which is close to the best for random models; one layer takes ``pi / 4``.

        Raises:
            ValueError: ``num_layers < 1``, or an ``anneal_time`` at which a temperature cannot be set to 1.
        """
        _check_layers(num_layers)
        if anneal_time is None:
            anneal_time = np.pi / 4 if num_layers == 1 else 1.35 * num_layers
        if not np.isfinite(anneal_time) or anneal_time <= 0:
            raise ValueError(f"anneal_time must be a positive number, got {anneal_time!r}.")
        fraction = (np.arange(num_layers) + 0.5) / num_layers
        mixers = anneal_time / num_layers * (1 - fraction)
        unit = cls(tuple(fraction), tuple(fraction), tuple(mixers))
        betas = unit.beta_fields, unit.beta_couplings
        if min(betas) <= 0:
            raise ValueError(
                f"anneal_time {anneal_time} cannot be calibrated with {num_layers} layers: a ramp of unit phases has "
                f"beta_fields {betas[0]:.3g} and beta_couplings {betas[1]:.3g}, and both must be positive. "
                f"Try {1.35 * num_layers:.3g}."
            )
        return cls(tuple(fraction / betas[0]), tuple(fraction / betas[1]), tuple(mixers))

    @classmethod
    def fitted(cls, num_layers: int, ensemble: str = DEFAULT_ENSEMBLE) -> AnnealingSchedule:
        """Angles fitted to random Boltzmann distributions, from the table shipped in ``data/schedules.json``.

        Args:
            num_layers: ``p``.
            ensemble: the random models it was fitted on, see :data:`qboltz.modelset.NAMED`.

        Raises:
            ValueError: the table has no such ensemble or depth; the message lists what it has.
        """
        _check_layers(num_layers)
        table = fitted_table()
        if ensemble not in table:
            raise ValueError(unknown_name("ensemble", ensemble, table))
        entries = table[ensemble]
        if str(num_layers) not in entries:
            known = ", ".join(sorted(entries, key=int))
            raise ValueError(
                f"num_layers must be one of {known} for a fitted schedule, got {num_layers}. "
                "Use AnnealingSchedule.linear, or AnnealingSchedule.fit, for other depths."
            )
        row = entries[str(num_layers)]
        return cls(tuple(row["field_angles"]), tuple(row["coupling_angles"]), tuple(row["mixer_angles"]))

    @classmethod
    def fit(cls, num_layers: int, ensemble: str | ModelSet = DEFAULT_ENSEMBLE, **options: Any) -> AnnealingSchedule:
        """Fit angles to Boltzmann distributions now; see :func:`qboltz.fitting.fit_schedule`.

        Args:
            num_layers: ``p``.
            ensemble: a name in :data:`qboltz.modelset.NAMED`, or a ``ModelSet`` of one's own (at most 14 spins).
            options: ``objective``, ``restarts``, ``seed``, ``start``, ``max_iterations``, ``progress``.
        """
        # Upward on purpose, and only when called: users look for schedules here.
        from qboltz.fitting import fit_schedule
        from qboltz.modelset import ModelSet

        _check_layers(num_layers)
        models = ModelSet.named(ensemble) if isinstance(ensemble, str) else ensemble
        return fit_schedule(num_layers, models, **options).schedule

    def as_dict(self) -> dict[str, list[float]]:
        """Plain numbers, for JSON records and checkpoints; ``AnnealingSchedule(**d)`` reads them."""
        return {
            "field_angles": list(self.field_angles),
            "coupling_angles": list(self.coupling_angles),
            "mixer_angles": list(self.mixer_angles),
        }


def _check_layers(num_layers: int) -> None:
    if isinstance(num_layers, bool) or not isinstance(num_layers, (int, np.integer)) or num_layers < 1:
        raise ValueError(f"num_layers must be a positive integer, got {num_layers!r}.")


@cache
def fitted_table() -> dict[str, dict[str, dict[str, Any]]]:
    """``{ensemble: {depth: entry}}``: angles, provenance and held-out errors, as ``qboltz schedule fit`` wrote them."""
    text = resources.files("qboltz").joinpath("data/schedules.json").read_text(encoding="utf-8")
    table: dict[str, dict[str, dict[str, Any]]] = json.loads(text)["schedules"]
    return table
