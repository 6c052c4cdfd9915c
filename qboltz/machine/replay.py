"""Moments and gradients from stored spins, as the run had them, without the machine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from qboltz.ensemble import Estimator, SampledEnsemble
from qboltz.ising import IsingModel
from qboltz.machine.records import JobRecord
from qboltz.machine.store import JobStore


@dataclass(frozen=True, eq=False)
class Replayed:
    """What the rows of a job say.

    Attributes:
        magnetization: ``m``, ``(rows, n)``.
        grad_fields: ``dL/dh``, ``(rows, n)``.
        grad_couplings: ``dL/dJ`` of each row, ``(rows, n, n)``; rows that share a J add up.
    """

    magnetization: NDArray[np.float64]
    grad_fields: NDArray[np.float64]
    grad_couplings: NDArray[np.float64]


def replay(
    store: JobStore,
    job: JobRecord,
    estimator: Estimator = "conditional",
    upstream: NDArray[np.float64] | None = None,
) -> Replayed:
    """Moments of a stored job, and the gradients for an upstream ``dL/dm``, ``(rows, n)`` (ones by default).

    Invisible spins were decoupled before they were submitted: here they are spins without field and couplings.

    Raises:
        ValueError: the job is not done, ``upstream`` has another shape, or there is no such estimator.
    """
    fields, couplings = (torch.from_numpy(array) for array in store.models(job))
    gradient = torch.ones_like(fields) if upstream is None else torch.as_tensor(upstream, dtype=fields.dtype)
    if gradient.shape != fields.shape:
        raise ValueError(f"upstream must be (rows, n) = {tuple(fields.shape)}, got {tuple(gradient.shape)}.")
    spins = torch.from_numpy(store.spins(job))[:, None]
    ensemble = SampledEnsemble(IsingModel(fields, couplings), spins, estimator=estimator)
    grad_fields, grad_couplings = ensemble.pullback(gradient)
    return Replayed(ensemble.magnetization().numpy(), grad_fields.numpy(), grad_couplings.numpy())
