"""Annealing circuits simulated exactly, all queries at once: the ideal machine, without noise and without a queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from qboltz.adaptive import AdaptiveSchedule, make_schedule
from qboltz.calibration import TemperatureCalibration
from qboltz.ensemble import ESTIMATORS, Estimator, SampledEnsemble, SpinEnsemble
from qboltz.errors import TooManySpinsError, check_integer, unknown_name
from qboltz.gibbs import polish, polish_weights
from qboltz.ising import IsingModel
from qboltz.schedule import AnnealingSchedule
from qboltz.seeds import SeedStream, integer_seed
from qboltz.simulator import Anneals, draw, populations, probabilities
from qboltz.solvers.calibrated import check_calibration
from qboltz.solvers.visible import VisibleEnsemble, VisiblePart, visible_parts
from qboltz.spins import spin_table

Gradient = Literal["covariance", "circuit"]
GRADIENTS: tuple[Gradient, ...] = ("covariance", "circuit")

#: Numbers that autograd keeps at once for one piece of rows of a circuit gradient (256 MiB in float32).
GRADIENT_ELEMENTS = 2**26


class StatevectorSolver:
    r"""Anneal every model of a batch with the ideal circuit of ``schedule``,

    .. math:: p(s) = |\langle s | U_p \cdots U_1 |+\rangle^n|^2 \approx e^{-E(s)} / Z,

    by the batched simulator :mod:`qboltz.simulator`. Rows that see the same spins are simulated together as models of
    these spins alone, so masked keys cost nothing: under a causal mask query ``i`` is a circuit on ``i + 1`` qubits.

    Args:
        schedule: the anneal; ``None`` takes ``AnnealingSchedule.fitted(num_layers)``, ``"adaptive"`` refits that to the
            models of the moment, see :class:`qboltz.adaptive.AdaptiveSchedule`.
        shots: samples per model, drawn by inverse CDF; ``None`` is the limit of infinitely many (all ``2**n``
            configurations with their probabilities).
        gradient: ``"covariance"``: linear response of a Boltzmann distribution, from the same samples, as on a machine.
            ``"circuit"``: the circuit's own derivative, by autograd through the walk and the estimator, without
            shot noise whatever ``shots`` is: it is the gradient of the magnetization at infinitely many shots.
        estimator: ``"conditional"`` or ``"plain"``, see :class:`qboltz.ensemble.SampledEnsemble`.
        seed: of the samples; ``None`` draws one from the operating system. Call ``t`` of two solvers with equal seeds
            agree, consecutive calls differ.
        max_spins: the largest number of visible spins accepted.
        num_layers: depth where ``schedule`` does not say it (4).
        refit_every: solves between refits of an adaptive schedule.
        polish: Gibbs sweeps over the configurations before moments are taken, a classical help; not with
            ``gradient="circuit"``.
        calibration: inverse temperatures of the schedule, of a calibration of this solver; fields and couplings are
            divided by them before the circuits, and only there.

    Attributes:
        circuits_run: circuits simulated so far, one per model that sees a spin and call.

    Raises:
        TypeError: ``schedule`` is not an ``AnnealingSchedule``.
        ValueError: an argument is out of range, or the calibration is not of this solver or too old (on ``solve`` too).
        TooManySpinsError: on ``solve``, a model sees more than ``max_spins`` spins.

    Source: arXiv:2409.18126 and arXiv:2509.09374.
    """

    def __init__(
        self,
        schedule: AnnealingSchedule | AdaptiveSchedule | Literal["adaptive"] | None = None,
        shots: int | None = None,
        gradient: Gradient = "covariance",
        estimator: Estimator = "conditional",
        seed: int | None = None,
        max_spins: int = 20,
        *,
        num_layers: int | None = None,
        refit_every: int = 50,
        polish: int = 0,
        calibration: TemperatureCalibration | None = None,
    ) -> None:
        if gradient not in GRADIENTS:
            raise ValueError(unknown_name("gradient", gradient, GRADIENTS))
        if estimator not in ESTIMATORS:
            raise ValueError(unknown_name("estimator", estimator, ESTIMATORS))
        if polish and gradient == "circuit":
            raise ValueError(f"polish must be 0 with gradient='circuit', whose gradient knows no sweeps, got {polish}.")
        self._schedule = make_schedule(schedule, num_layers, refit_every)
        self.polish = check_integer("polish", polish, at_least=0)
        self.shots = None if shots is None else check_integer("shots", shots, 1, " or None for infinitely many")
        self.gradient: Gradient = gradient
        self.estimator: Estimator = estimator
        self.max_spins = check_integer("max_spins", max_spins)
        self.seeds = SeedStream(seed)
        self.circuits_run = 0
        self.calibration = calibration
        check_calibration(calibration, self.label, self._schedule)

    @property
    def label(self) -> str:
        """What stands for the backend in calibrations."""
        return "statevector"

    @property
    def schedule(self) -> AnnealingSchedule:
        """The present angles."""
        return self._schedule.schedule

    def qubits(self, model: IsingModel) -> None:
        """No physical ones."""
        return

    def solve(self, model: IsingModel) -> SpinEnsemble:
        """The ensemble of the measured spins: all configurations with weights, or ``shots`` drawn ones."""
        parts = visible_parts(model.groups)
        self._check_size(parts)
        check_calibration(self.calibration, self.label, self._schedule)
        schedule = self._schedule.for_model(model)
        with torch.no_grad():
            if self.shots is None:
                ensemble = self._weighted(model, parts, schedule)
            else:
                ensemble = self._drawn(model, parts, schedule, self.shots)
        self.circuits_run += sum(len(part.rows) for part in parts)
        if self.gradient == "circuit":
            return CircuitEnsemble(ensemble, parts, schedule, self.estimator, self.calibration)
        return ensemble

    def state_dict(self) -> dict[str, Any]:
        """Plain data for a checkpoint: the stream of seeds, the count of circuits, an adaptive schedule's angles."""
        return {
            "seeds": self.seeds.state_dict(),
            "circuits_run": self.circuits_run,
            "schedule": self._schedule.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state_dict`` was taken."""
        self.seeds.load_state_dict(state["seeds"])
        self.circuits_run = int(state["circuits_run"])
        self._schedule.load_state_dict(state["schedule"])

    def __repr__(self) -> str:
        return (
            f"StatevectorSolver(num_layers={self.schedule.num_layers}, shots={self.shots}, "
            f"gradient={self.gradient!r}, estimator={self.estimator!r}, polish={self.polish}, "
            f"calibrated={self.calibration is not None})"
        )

    def _weighted(self, model: IsingModel, parts: Sequence[VisiblePart], schedule: AnnealingSchedule) -> SpinEnsemble:
        ensembles = []
        for part in parts:
            restricted = model if part.everything else part.model
            shape = restricted.groups.num_groups, restricted.groups.num_rows, -1
            weights = probabilities(_anneals(part, schedule, self.calibration)).view(shape)
            if self.polish:
                weights = polish_weights(restricted, weights, self.polish)
            table = spin_table(part.num_spins, dtype=weights.dtype, device=weights.device)
            ensembles.append(SampledEnsemble(restricted, table, weights, self.estimator, polish=self.polish))
        if len(parts) == 1 and parts[0].everything:
            return ensembles[0]
        return VisibleEnsemble(model, parts, ensembles)

    def _drawn(
        self, model: IsingModel, parts: Sequence[VisiblePart], schedule: AnnealingSchedule, shots: int
    ) -> SpinEnsemble:
        groups = model.groups
        num_rows = groups.num_groups * groups.num_rows
        device = groups.fields.device
        # One number per row and shot, whatever the mask and the chunks: a row keeps its samples.
        seed = self.seeds.next()
        generator = torch.Generator().manual_seed(integer_seed(seed))
        uniforms = torch.rand(num_rows, shots, dtype=torch.float64, generator=generator).to(device)
        spins = torch.ones(num_rows, shots, groups.num_spins, dtype=torch.int8, device=device)
        for part in parts:
            for piece, weights in populations(_anneals(part, schedule, self.calibration)):
                drawn = spins_of(draw(weights, uniforms[part.rows[piece]]), part.num_spins)
                part.put_samples(spins, drawn, piece)
        shape = groups.num_groups, groups.num_rows, shots, groups.num_spins
        spins = spins.view(shape)
        if self.polish:
            spins = polish(model, spins, self.polish, seed.spawn(1)[0])
        return SampledEnsemble(model, spins, estimator=self.estimator, polish=self.polish)

    def _check_size(self, parts: Sequence[VisiblePart]) -> None:
        n = max((part.num_spins for part in parts), default=0)
        if n > self.max_spins:
            rows = sum(len(part.rows) for part in parts if part.num_spins == n)
            size = parts[0].fields.element_size() * 2.0**n / 2**30
            raise TooManySpinsError(
                f"StatevectorSolver takes at most max_spins = {self.max_spins} visible spins, got {n}. The state "
                f"vector and its buffers would take {5 * size:.3g} GiB, the probabilities {size:.3g} GiB for each "
                f"of {rows} models. "
                "Use ExactSolver (the same distribution without annealing error), GibbsSolver, an AnnealingSolver on a "
                "machine or a tensor-network backend, or raise max_spins."
            )


def _anneals(part: VisiblePart, schedule: AnnealingSchedule, calibration: TemperatureCalibration | None) -> Anneals:
    h, J = part.fields, part.couplings
    if calibration is not None:
        h, J = calibration.rescaled(h, J)
    return Anneals.of(h, J, part.owner, schedule)


def spins_of(numbers: Tensor, num_spins: int) -> Tensor:
    """Configuration numbers ``(..., M)`` to int8 spins ``(..., M, n)``: a byte of a number stands for eight spins."""
    table = spin_table(8, dtype=torch.int8, device=numbers.device).view(torch.int64).flatten()
    octets = [table[numbers >> first & 255] for first in range(0, num_spins, 8)]
    packed = octets[0] if len(octets) == 1 else torch.stack(octets, -1)
    return packed.view(torch.int8).view(*numbers.shape, 8 * len(octets))[..., :num_spins]


class CircuitEnsemble(SpinEnsemble):
    """Magnetization as measured, gradient of the circuit that was run: autograd through the walk and the estimator."""

    def __init__(
        self,
        measured: SpinEnsemble,
        parts: Sequence[VisiblePart],
        schedule: AnnealingSchedule,
        estimator: Estimator,
        calibration: TemperatureCalibration | None = None,
    ) -> None:
        self.model = measured.model
        self.measured = measured
        self.parts = parts
        self.schedule = schedule
        self.estimator: Estimator = estimator
        self.calibration = calibration

    def magnetization(self) -> Tensor:
        return self.measured.magnetization()

    def standard_error(self) -> Tensor:
        """Of the measured magnetization; the gradient has no shot noise."""
        return self.measured.standard_error()

    def pullback(self, grad: Tensor) -> tuple[Tensor, Tensor]:
        groups = self.model.groups
        folded = groups.fold(grad)
        grad_fields = groups.fields.new_zeros(groups.fields.shape)
        grad_couplings = torch.zeros_like(groups.couplings)
        for part in self.parts:
            upstream = part.take(folded)
            fields, couplings = torch.empty_like(part.fields), torch.zeros_like(part.couplings)
            kept = (8 * self.schedule.num_layers + 2 * part.num_spins) << part.num_spins  # numbers per row
            at_once = max(1, GRADIENT_ELEMENTS // kept)
            for start in range(0, len(fields), at_once):
                rows = slice(start, start + at_once)
                owner = part.owner[rows]
                owners = slice(int(owner[0]), int(owner[-1]) + 1)
                with torch.enable_grad():
                    h = part.fields[rows].detach().requires_grad_()
                    J = part.couplings[owners].detach().requires_grad_()
                    m = expected_spins(h, J, owner - owner[0], self.schedule, self.estimator, self.calibration)
                    fields[rows], raw = torch.autograd.grad(m, (h, J), upstream[rows])
                couplings[owners] += 0.5 * (raw + raw.mT)
            couplings.diagonal(dim1=-2, dim2=-1).zero_()
            part.put(grad_fields, fields)
            part.add_couplings(grad_couplings, couplings)
        return groups.unfold(grad_fields), groups.unfold_couplings(grad_couplings)


def expected_spins(
    fields: Tensor,
    couplings: Tensor,
    owner: Tensor,
    schedule: AnnealingSchedule,
    estimator: Estimator,
    calibration: TemperatureCalibration | None = None,
) -> Tensor:
    """Magnetization of the circuits at infinitely many shots, ``(N, k)``, followed by autograd."""
    h, J = (fields, couplings) if calibration is None else calibration.rescaled(fields, couplings)
    weights = probabilities(Anneals.of(h, J, owner, schedule))
    spins = spin_table(fields.shape[-1], dtype=fields.dtype, device=fields.device)
    if estimator == "plain":
        return weights @ spins
    given_others = torch.tanh(fields.unsqueeze(1) + (spins @ couplings)[owner])  # (N, 2**k, k)
    return (weights.unsqueeze(1) @ given_others).squeeze(1)
