"""Schedules fitted under the noise of a device, and the depth that is best on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from qiskit.providers import BackendV2
from scipy import optimize
from torch import Tensor

from qboltz.device_noise import as_on, device_noise, find_device
from qboltz.ensemble import Estimator
from qboltz.errors import check_integer
from qboltz.ising import IsingModel
from qboltz.modelset import ModelSet
from qboltz.noisy_fidelity import NoisyTarget
from qboltz.schedule import AnnealingSchedule
from qboltz.schedule_table import stretched
from qboltz.simulator import Angles

#: Models of more spins are stood in for by models of this many under the same noise per spin.
MAX_FIT_SPINS = 8
#: Models and paths of a fit. Many models matter more than many paths: fits to few models do not carry over.
FIT_MODELS, FIT_PATHS = 192, 4
#: Models and paths of the errors that are reported and compared, none of which was fitted on.
HELD_OUT_MODELS, HELD_OUT_PATHS, HELD_OUT_SEED = 512, 8, 1_000_003
#: Under much noise a fit has no reason to stay near: larger angles are of no use to weak or strong models.
MAX_ANGLE = np.pi
#: Errors that differ by less than this share are as good; the fewest two-qubit gates then decide.
TIE = 0.03

#: Called before each fit with (number of it, number of all, layers, coupled layers).
Progress = Callable[[int, int, int, int], None]


@dataclass(frozen=True)
class Candidate:
    """A schedule fitted under noise, and the errors predicted for it on models it was not fitted on.

    Attributes:
        num_layers: ``p``.
        coupled_layers: those with couplings, the last ones; only they have two-qubit gates.
        two_qubit_gates: of the circuit.
        magnetization: root mean square error of the magnetizations, infinite shots.
        covariance: of the covariances of pairs.
        error: ``sqrt(magnetization^2 + covariance^2)``, what is fitted and compared.
        schedule_error: the same of the best schedule of this shape on an ideal device.
        noise_error: what noise adds to it, ``sqrt(error^2 - schedule_error^2)``, with angles fitted under noise.
        schedule: the angles.
    """

    num_layers: int
    coupled_layers: int
    two_qubit_gates: int
    magnetization: float
    covariance: float
    error: float
    schedule_error: float
    noise_error: float
    schedule: AnnealingSchedule


@dataclass(frozen=True)
class NoiseFit:
    """Which depth is best on a backend, and why.

    Attributes:
        backend: its name.
        num_spins: ``n``.
        fitted_spins: of the models that were simulated: ``n``, or fewer under the same noise per spin.
        qubits: of the line whose errors were used.
        gate_error: mean error of a two-qubit gate with the pulses that come with it.
        readout_error: mean over the spins; 0 if it is to be corrected.
        estimator: of the moments.
        models: what was fitted on, as plain data.
        candidates: one for each number of layers and of coupled layers.
    """

    backend: str
    num_spins: int
    fitted_spins: int
    qubits: tuple[int, ...]
    gate_error: float
    readout_error: float
    estimator: str
    models: dict[str, Any]
    candidates: tuple[Candidate, ...]

    @property
    def best(self) -> Candidate:
        """The smallest error; of those within 3 per cent of it, the fewest two-qubit gates."""
        least = min(candidate.error for candidate in self.candidates)
        good = [candidate for candidate in self.candidates if candidate.error <= (1 + TIE) * least]
        return min(good, key=lambda candidate: (candidate.two_qubit_gates, candidate.num_layers))

    @property
    def schedule(self) -> AnnealingSchedule:
        """The best one."""
        return self.best.schedule

    @property
    def reason(self) -> str:
        """Why that depth, in a sentence."""
        best = self.best
        text = (
            f"{_name(best)} is best: error {best.error:.4f}, of which {best.schedule_error:.4f} is the schedule's and "
            f"{best.noise_error:.4f} is noise of {best.two_qubit_gates} two-qubit gates."
        )
        others = sorted(self.candidates, key=lambda candidate: candidate.error)
        fewer = next((other for other in others if other.two_qubit_gates < best.two_qubit_gates), None)
        more = next((other for other in others if other.two_qubit_gates > best.two_qubit_gates), None)
        for other, word in ((fewer, "fewer"), (more, "more")):
            if other is not None:
                text += (
                    f" With {word} gates, {_name(other)}: {other.error:.4f} "
                    f"(schedule {other.schedule_error:.4f}, noise {other.noise_error:.4f})."
                )
        return text

    def as_dict(self) -> dict[str, Any]:
        """For JSON: all of it, with the choice and the reason."""
        return {**asdict(self), "best": asdict(self.best), "reason": self.reason}


def _name(candidate: Candidate) -> str:
    return f"p = {candidate.num_layers} with {candidate.coupled_layers} coupled"


def fit_for(
    backend: str | BackendV2,
    num_spins: int,
    max_layers: int = 4,
    *,
    ensemble: str | ModelSet = "broad",
    estimator: Estimator = "conditional",
    correct_readout: bool = False,
    max_uncoupled: int = 2,
    seed: int = 0,
    max_iterations: int = 100,
    progress: Progress | None = None,
) -> NoiseFit:
    r"""Fit schedules of every depth under the noise of a backend, and say which is best.

    The noise is that of the best line of qubits: depolarizing two-qubit gates of the swap network and readout, from the
    target. It is simulated by random Pauli paths (:mod:`qboltz.noise`), through which the angles are fitted. The first
    layers need no couplings: what they prepare is the magnetization by the fields that later couplings pass on. And a
    layer without couplings has no two-qubit gate. So depths are tried with none, one and two of these.

    Args:
        backend: a name (``"fake_torino"``, ``"ibm_..."``, ``"aer_simulator"``) or a ``BackendV2``.
        num_spins: ``n``. Beyond 8 the fit is on 8 spins that suffer as much noise each as those of ``n``.
        max_layers: depths 1 to this.
        ensemble: a name in :data:`qboltz.modelset.NAMED`, or models of ``min(n, 8)`` spins of one's own, half of which
            are fitted on.
        estimator: of the moments whose errors are minimized.
        correct_readout: leave readout errors out, since they are going to be corrected.
        max_uncoupled: at most so many first layers without couplings; 0 for circuits that cannot leave them out.
        seed: of models and error paths.
        max_iterations: L-BFGS steps of each fit.
        progress: called before each fit.

    Raises:
        BackendNotFoundError, TypeError: as ``find_device``.
        TooManySpinsError: the device has no line of that many qubits.
        ValueError: an argument is out of its range.
    """
    check_integer("num_spins", num_spins)
    check_integer("max_layers", max_layers)
    check_integer("max_uncoupled", max_uncoupled, 0)
    check_integer("max_iterations", max_iterations)
    noise = device_noise(find_device(backend, num_spins), num_spins)
    size = min(num_spins, MAX_FIT_SPINS)
    simulated = noise if size == num_spins else as_on(noise, size)
    models, held_out = _models(ensemble, size, seed)
    shapes = [
        (False,) * uncoupled + (True,) * (depth - uncoupled)
        for depth in range(1, max_layers + 1)
        for uncoupled in range(min(max_uncoupled, depth - 1), -1, -1)
    ]
    settings: dict[str, Any] = {"estimator": estimator, "correct_readout": correct_readout}
    candidates: list[Candidate] = []
    for number, coupled in enumerate(shapes):
        if progress is not None:
            progress(number, len(shapes), len(coupled), sum(coupled))
        target = NoisyTarget(models, simulated, coupled, paths=FIT_PATHS, seed=seed, **settings)
        ideal = fit_angles(target.clean_distances, _starts(coupled, candidates), coupled, max_iterations)
        begin = [ideal, *(stretched(best.schedule, len(coupled)) for best in _earlier(coupled, candidates))]
        schedule = fit_angles(target.distances, begin, coupled, max_iterations)
        judge = NoisyTarget(held_out, simulated, coupled, paths=HELD_OUT_PATHS, seed=HELD_OUT_SEED + seed, **settings)
        noisy, clean = judge.fidelity(schedule), judge.fidelity(ideal, noisy=False)
        candidates.append(
            Candidate(
                num_layers=len(coupled),
                coupled_layers=sum(coupled),
                two_qubit_gates=noise.num_gates * sum(coupled),
                magnetization=noisy.magnetization,
                covariance=noisy.covariance,
                error=noisy.error,
                schedule_error=clean.error,
                noise_error=max(noisy.error**2 - clean.error**2, 0.0) ** 0.5,
                schedule=schedule,
            )
        )
    readout = noise.readouts[0]
    return NoiseFit(
        backend=backend if isinstance(backend, str) else backend.name,
        num_spins=num_spins,
        fitted_spins=size,
        qubits=noise.qubits,
        gate_error=noise.gate_error,
        readout_error=0.0 if correct_readout else float((readout.p10 + readout.p01).mean() / 2),
        estimator=estimator,
        models=models.origin,
        candidates=tuple(candidates),
    )


def _models(ensemble: str | ModelSet, size: int, seed: int) -> tuple[ModelSet, ModelSet]:
    if isinstance(ensemble, str):
        return (
            ModelSet.named(ensemble, sizes=(size,), count=FIT_MODELS, seed=seed),
            ModelSet.named(ensemble, sizes=(size,), count=HELD_OUT_MODELS, seed=HELD_OUT_SEED + seed),
        )
    if len(ensemble.batches) != 1 or ensemble.batches[0].num_spins != size or ensemble.num_models < 2:
        raise ValueError(
            f"ensemble must be one batch of at least two models of {size} spins, got {ensemble.num_models} models of "
            f"{[batch.num_spins for batch in ensemble.batches]} spins."
        )
    (batch,) = ensemble.batches
    first, second = _halves(batch)
    return ModelSet((first,), {**ensemble.origin, "half": 0}), ModelSet((second,), {**ensemble.origin, "half": 1})


def _halves(batch: IsingModel) -> tuple[IsingModel, IsingModel]:
    """Every other row, or where groups have one row, every other group."""
    groups = batch.decoupled().groups
    h, J = groups.fields.double(), groups.couplings.double().unsqueeze(1)
    if groups.num_rows > 1:
        return IsingModel(h[:, ::2], J), IsingModel(h[:, 1::2], J)
    return IsingModel(h[::2], J[::2]), IsingModel(h[1::2], J[1::2])


def _starts(coupled: Sequence[bool], earlier: Sequence[Candidate]) -> list[AnnealingSchedule]:
    """Where a fit begins: at the table, at the linear ramp, and at earlier fits."""
    p = len(coupled)
    starts = [AnnealingSchedule.linear(p)]
    if p <= 8:
        starts.insert(0, AnnealingSchedule.fitted(p))
    return starts + [stretched(best.schedule, p) for best in _earlier(coupled, earlier)]


def _earlier(coupled: Sequence[bool], candidates: Sequence[Candidate]) -> list[Candidate]:
    """The best candidates of one layer less, and of this depth with fewer coupled layers, where there are any."""
    depths = len(coupled) - 1, len(coupled)
    found = [[candidate for candidate in candidates if candidate.num_layers == depth] for depth in depths]
    return [min(group, key=lambda candidate: candidate.error) for group in found if group]


def fit_angles(
    distances: Callable[[Angles], tuple[Tensor, Tensor]],
    starts: Sequence[AnnealingSchedule],
    coupled: Sequence[bool],
    max_iterations: int = 100,
) -> AnnealingSchedule:
    """The best of several L-BFGS descents of ``magnetization^2 + covariance^2``.

    Args:
        distances: these two, for instance ``NoisyTarget.distances``: then through the simulated error paths.
        starts: where to begin.
        coupled: layers that have couplings; the others keep a coupling angle of 0, and a machine has nothing to run.
        max_iterations: of each descent.
    """
    p = len(coupled)
    free = np.ones((3, p), dtype=bool)
    free[1] = coupled

    def loss(values: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        flat = torch.zeros(3, p, dtype=torch.float64)
        flat[torch.from_numpy(free)] = torch.from_numpy(values)
        flat.requires_grad_()
        with torch.enable_grad():
            magnetization, covariance = distances(Angles(*flat))
            total = magnetization + covariance
        (gradient,) = torch.autograd.grad(total, flat)
        return float(total.detach()), gradient.numpy()[free]

    results = []
    for start in starts:
        origin = np.array([start.field_angles, start.coupling_angles, start.mixer_angles])[free]
        options = {"maxiter": max_iterations, "ftol": 1e-7, "gtol": 1e-7}
        bounds = [(-MAX_ANGLE, MAX_ANGLE)] * len(origin)
        results.append(optimize.minimize(loss, origin, jac=True, method="L-BFGS-B", bounds=bounds, options=options))
    best = min(results, key=lambda result: float(result.fun))
    angles = np.zeros((3, p))
    angles[free] = best.x
    return AnnealingSchedule(*(tuple(map(float, row)) for row in angles))
