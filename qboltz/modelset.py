"""Sets of Ising models as data: what schedules are fitted on, and what fidelity is measured on."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from qboltz.errors import check_integer, unknown_name
from qboltz.files import write_atomically
from qboltz.ising import IsingModel

#: sigma_h and sigma_J of the named random sets; pairs are ranges, drawn log-uniformly model by model.
NAMED: dict[str, tuple[tuple[float, float], tuple[float, float]]] = {
    "weak": ((0.5, 0.5), (0.1, 0.1)),
    "middle": ((0.5, 0.5), (0.3, 0.3)),
    "broad": ((0.1, 1.5), (0.05, 0.5)),
}


@dataclass(frozen=True, eq=False)
class ModelSet:
    """Batches of Ising models, float64, one batch per number of spins.

    Attributes:
        batches: each ``IsingModel`` has fields ``(G, R, n)`` and couplings ``(G, 1, n, n)``.
        origin: where the models come from, as plain data that a record can hold.
    """

    batches: tuple[IsingModel, ...]
    origin: dict[str, Any]

    @property
    def num_models(self) -> int:
        """Models in all batches."""
        return sum(batch.fields.shape[:-1].numel() for batch in self.batches)

    @classmethod
    def random(
        cls,
        sigma_h: float | tuple[float, float],
        sigma_J: float | tuple[float, float],
        sizes: Sequence[int] = (8,),
        count: int = 48,
        seed: int = 0,
    ) -> ModelSet:
        """``h_j ~ N(0, sigma_h^2)``, ``J_jk ~ N(0, sigma_J^2)``: ``count`` models of each size, each with a ``J``.

        A pair of numbers is a range: each model draws its own sigma from it, log-uniformly.
        """
        ranges = _range("sigma_h", sigma_h), _range("sigma_J", sigma_J)
        if not sizes or any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in sizes):
            raise ValueError(f"sizes must be positive integers, got {sizes!r}.")
        check_integer("count", count)
        check_integer("seed", seed, at_least=0)
        generator = torch.Generator().manual_seed(seed)
        batches = []
        for n in sizes:
            sigmas = [_log_uniform(limits, count, generator) for limits in ranges]
            fields = torch.randn(count, 1, n, dtype=torch.float64, generator=generator) * sigmas[0].view(-1, 1, 1)
            upper = torch.randn(count, n, n, dtype=torch.float64, generator=generator).triu(1)
            upper = upper * sigmas[1].view(-1, 1, 1)
            batches.append(IsingModel(fields, (upper + upper.mT).unsqueeze(1)))
        origin = {
            "kind": "random",
            "sigma_h": ranges[0],
            "sigma_J": ranges[1],
            "sizes": list(sizes),
            "count": count,
            "seed": seed,
        }
        return cls(tuple(batches), origin)

    @classmethod
    def named(cls, name: str, sizes: Sequence[int] = (8,), count: int = 48, seed: int = 0) -> ModelSet:
        """One of the random sets of ``NAMED``: ``"weak"``, ``"middle"`` or ``"broad"``."""
        if name not in NAMED:
            raise ValueError(unknown_name("ensemble", name, NAMED))
        return cls.random(*NAMED[name], sizes=sizes, count=count, seed=seed)

    @classmethod
    def recorded(cls, model: IsingModel, rows: int | None = None, seed: int = 0, **origin: Any) -> ModelSet:
        """The models a layer asked for, for instance while training; ``rows`` of each group drawn at random.

        Invisible spins are kept, decoupled: they are free in the circuit and in the Boltzmann distribution alike.
        """
        groups = model.groups
        fields, visible = groups.fields.double(), groups.visible
        if rows is not None and rows < groups.num_rows:
            order = torch.randperm(groups.num_rows, generator=torch.Generator().manual_seed(seed))[:rows]
            fields = fields[:, order.to(fields.device)]
            visible = None if visible is None else visible[:, order.to(fields.device)]
        batch = IsingModel(fields, groups.couplings.double().unsqueeze(1), visible).decoupled()
        return cls((batch,), {"kind": "recorded", "rows": fields.shape[1], "seed": seed, **origin})

    def save(self, path: str | Path) -> None:
        """Write the set to a file, atomically."""
        batches = [{"fields": batch.fields, "couplings": batch.couplings} for batch in self.batches]
        buffer = io.BytesIO()
        torch.save({"origin": self.origin, "batches": batches}, buffer)
        write_atomically(Path(path), buffer.getvalue())

    @classmethod
    def load(cls, path: str | Path) -> ModelSet:
        """Read what ``save`` wrote (no code in the file is run)."""
        payload = torch.load(path, weights_only=True)
        return cls(tuple(IsingModel(**batch) for batch in payload["batches"]), payload["origin"])


def _range(name: str, value: float | tuple[float, float]) -> tuple[float, float]:
    low, high = value if isinstance(value, tuple) else (value, value)
    if not 0 < low <= high < float("inf"):
        raise ValueError(f"{name} must be a positive number or an ascending pair of them, got {value!r}.")
    return float(low), float(high)


def _log_uniform(limits: tuple[float, float], count: int, generator: torch.Generator) -> Tensor:
    low, high = torch.tensor(limits, dtype=torch.float64).log()
    logs: Tensor = low + (high - low) * torch.rand(count, dtype=torch.float64, generator=generator)
    return logs.exp()
