"""Sampling from annealing circuits on anything that is a Qiskit sampler: Aer, fake devices, IBM machines."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from qiskit.primitives import BaseSamplerV2
from qiskit.providers import BackendV2

from qboltz.adaptive import AdaptiveSchedule, make_schedule
from qboltz.backends import Backend, SampleRequest, resolve_backend
from qboltz.backends.self_test import self_test
from qboltz.calibration import TemperatureCalibration
from qboltz.circuits import decoupled_rows
from qboltz.ensemble import ESTIMATORS, Estimator, SampledEnsemble
from qboltz.errors import check_integer, unknown_name
from qboltz.gibbs import polish
from qboltz.ising import IsingModel
from qboltz.readout import ReadoutErrors
from qboltz.schedule import AnnealingSchedule
from qboltz.seeds import SeedStream
from qboltz.solvers.calibrated import check_calibration
from qboltz.spins import to_torch


class AnnealingSolver:
    r"""Spins measured after a diabatic anneal of every model: close to ``exp(-E)/Z`` at inverse temperature 1.

    All models of a batch are rows of ONE pub of one compiled circuit; rows without a visible spin are not
    run. Shots become int8 spins at once, and nothing of the job is kept.

    Equal seeds give equal samples, consecutive calls different ones, and a solver that has loaded the
    ``state_dict`` of another continues exactly as that one would (on simulators: a machine has its own
    randomness). The split into pubs is part of this: another ``max_rows_per_pub`` gives other samples of the
    same distribution.

    Before its first use every backend that is not billed runs ``qboltz.backends.self_test``: four circuits of
    three spins.

    Args:
        backend: ``"aer_simulator"``, ``"fake_..."``, ``"ibm_..."``, ``"least_busy"``, any ``BaseSamplerV2``
            or ``BackendV2``; see ``qboltz.backends.resolve_backend``.
        schedule: the anneal; ``None`` takes ``AnnealingSchedule.fitted(num_layers)``, ``"adaptive"`` refits that to the
            models of the moment, see :class:`qboltz.adaptive.AdaptiveSchedule`: every refit is another circuit, which
            a machine has to compile anew.
        shots: samples per model.
        estimator: ``"conditional"`` or ``"plain"``, see ``SampledEnsemble``.
        seed: of all shots, a non-negative integer; ``None`` draws one.
        max_rows_per_pub: larger batches are split; by default so that a pub takes about 256 MiB.
        num_layers: depth where ``schedule`` does not say it (4).
        refit_every: solves between refits of an adaptive schedule.
        polish: Gibbs sweeps over the measured spins before moments are taken, a classical help.
        calibration: inverse temperatures of this backend and schedule; fields and couplings are divided by them before
            the circuits, and only there. See :class:`qboltz.calibration.TemperatureCalibration`.
        readout: readout errors of the spins, or ``"reported"`` for those that the device reports of the qubits each row
            is measured on; their effect on the moments is undone. Not with ``polish`` (sweeps leave no trace of them)
            nor with ``calibration`` (a temperature of measured spins has them in it already).

    Attributes:
        seeds: the stream of seeds, one per call of ``solve``.
        circuits_run: circuits (rows) run so far, without those of the self-test.

    Raises:
        BackendNotFoundError: the backend is unknown (for machines: when it is first used).
        ValueError, TypeError: another argument is out of its range.

    Note:
        Aer and torch use OpenMP, which hangs in a process forked after it has run: in a ``DataLoader`` or a
        ``multiprocessing`` pool use the start method "spawn".

    Source: arXiv:2409.18126 and arXiv:2509.09374; arXiv:2606.12478 for attention.
    """

    def __init__(
        self,
        backend: str | BaseSamplerV2 | BackendV2 | Backend = "aer_simulator",
        schedule: AnnealingSchedule | AdaptiveSchedule | Literal["adaptive"] | None = None,
        shots: int = 256,
        estimator: Estimator = "conditional",
        seed: int | None = None,
        max_rows_per_pub: int | None = None,
        *,
        num_layers: int | None = None,
        refit_every: int = 50,
        polish: int = 0,
        calibration: TemperatureCalibration | None = None,
        readout: ReadoutErrors | Literal["reported"] | None = None,
    ) -> None:
        if estimator not in ESTIMATORS:
            raise ValueError(unknown_name("estimator", estimator, ESTIMATORS))
        self.shots = check_integer("shots", shots)
        self.max_rows_per_pub = (
            None if max_rows_per_pub is None else check_integer("max_rows_per_pub", max_rows_per_pub)
        )
        self._schedule = make_schedule(schedule, num_layers, refit_every)
        self.polish = check_integer("polish", polish, at_least=0)
        self.estimator = estimator
        self.backend = resolve_backend(backend)
        self.seeds = SeedStream(self.backend.seed if seed is None else seed)
        self.circuits_run = 0
        self._tested = False
        if isinstance(readout, str) and readout != "reported":
            raise ValueError(unknown_name("readout", readout, ["reported"]))
        if readout is not None and (self.polish or calibration is not None):
            other = f"polish={self.polish}" if self.polish else "a calibration, which is of spins as they are measured"
            raise ValueError(f"readout must be left out with {other}: the errors would be undone twice.")
        self.readout = readout
        self.calibration = calibration
        check_calibration(calibration, self.label, self._schedule)

    @property
    def label(self) -> str:
        """Name of the backend, for messages and records."""
        return self.backend.label

    @property
    def schedule(self) -> AnnealingSchedule:
        """The present angles."""
        return self._schedule.schedule

    def solve(self, model: IsingModel) -> SampledEnsemble:
        """Draw ``shots`` configurations of every model of the batch.

        Raises:
            TooManySpinsError: the backend has fewer qubits than the model has spins.
            SelfTestError: the backend fails its test.
            RuntimeError: a result does not have the rows and shots that were asked for.
            ValueError: the calibration is too old by now, or of another number of spins on a noisy backend.
        """
        groups = model.groups
        self._schedule.for_model(model)
        # Noise, and with it the temperature, grows with the number of qubits; without, it hardly depends on it.
        num_spins = None if self.backend.ideal else groups.num_spins
        check_calibration(self.calibration, self.label, self._schedule, num_spins)
        seed = self.seeds.next()
        polish_seed, pub_seed = seed.spawn(2)
        rows = np.arange(groups.num_groups * groups.num_rows)
        if groups.visible is not None:
            rows = rows[groups.visible.any(-1).flatten().cpu().numpy()]
        # A row that is not run has no visible spin: what stands there does not count.
        shape = groups.num_groups, groups.num_rows, self.shots, groups.num_spins
        spins = torch.ones(shape, dtype=torch.int8, device=model.fields.device)
        readout = self.readout
        if len(rows):
            h, J = decoupled_rows(model, rows)
            if self.calibration is not None:
                h, J = self.calibration.rescaled(h, J)
            request = SampleRequest(self.schedule, h, J, self.shots, pub_seed, self.max_rows_per_pub)
            drawn = to_torch(self._sample(request), spins)
            spins.flatten(0, 1)[torch.from_numpy(rows).to(spins.device)] = drawn
            if readout == "reported":
                readout = self.backend.readout(request).at_rows(rows, spins.shape[0] * spins.shape[1])
        if readout == "reported":
            readout = None
        if self.polish:
            spins = polish(model, spins, self.polish, polish_seed)
        return SampledEnsemble(model, spins, estimator=self.estimator, readout=readout, polish=self.polish)

    def qubits(self, model: IsingModel) -> tuple[int, ...] | None:
        """The physical qubits that these models are measured on, ascending; ``None`` on a simulator."""
        h, J = decoupled_rows(model, np.arange(math.prod(model.groups.fields.shape[:2])))
        request = SampleRequest(self.schedule, h, J, self.shots, np.random.SeedSequence(0), self.max_rows_per_pub)
        places = self.backend.places(request)
        return None if places is None else tuple(np.unique(places).tolist())

    def _sample(self, request: SampleRequest) -> NDArray[np.int8]:
        if not self._tested and not self.backend.billed:
            self_test(self.backend)
            self._tested = True
        spins = self.backend.sample(request)
        self.circuits_run += request.num_rows
        return spins

    def state_dict(self) -> dict[str, Any]:
        """Stream of seeds, circuits run and angles of an adaptive schedule, as plain numbers and text."""
        return {
            "seeds": self.seeds.state_dict(),
            "circuits_run": self.circuits_run,
            "schedule": self._schedule.state_dict(),
            "backend": self.backend.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue exactly where ``state_dict`` was taken."""
        self.seeds.load_state_dict(state["seeds"])
        self.circuits_run = int(state["circuits_run"])
        self._schedule.load_state_dict(state["schedule"])
        self.backend.load_state_dict(state.get("backend", {}))  # checkpoints of 0.1.0 have none

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_tested": False}

    def __repr__(self) -> str:
        return (
            f"AnnealingSolver({self.backend.label!r}, num_layers={self.schedule.num_layers}, shots={self.shots}, "
            f"estimator={self.estimator!r}, polish={self.polish}, calibrated={self.calibration is not None}, "
            f"readout_corrected={self.readout is not None})"
        )
