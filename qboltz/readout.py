r"""Readout errors of spins, and what undoes them in closed form.

Every spin is read wrongly on its own: with :math:`p_{10} = p(1 | 0)` and :math:`p_{01} = p(0 | 1)` (spin +1 is bit 0),

.. math:: E[s^{\text{meas}} | s] = a s + b, \qquad a = 1 - p_{10} - p_{01}, \qquad b = p_{01} - p_{10},

so that :math:`c = (s^{\text{meas}} - b) / a` has the mean of the spin, and so has a product over *different* spins.

Source: Bravyi et al., Phys. Rev. A 103 (2021) 042605 (tensored errors).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qboltz.errors import TooManySpinsError

#: Functions of a whole configuration are corrected over all ``2**n`` of them, in every row.
MAX_TABLE_SPINS = 14


@dataclass(frozen=True, eq=False)
class ReadoutErrors:
    """Probabilities of reading a spin wrongly.

    Attributes:
        p10: that a 0 (spin +1) is read as 1: ``(n,)``, or ``(rows, n)`` where rows sit on different qubits (the lines
            of one chip); row ``g R + r`` is row ``(g, r)`` of ``model.groups``. Kept as float64 tensors.
        p01: that a 1 (spin -1) is read as 0, likewise.

    Raises:
        ValueError: shapes differ, a number is no probability, or ``p10 + p01 >= 1``: such a readout tells nothing.
    """

    p10: Tensor
    p01: Tensor

    def __post_init__(self) -> None:
        for name in ("p10", "p01"):
            values = torch.as_tensor(getattr(self, name), dtype=torch.float64).detach()
            if values.dim() not in (1, 2):
                raise ValueError(f"{name} must be (spins,) or (rows, spins), got {tuple(values.shape)}.")
            if not bool(((values >= 0) & (values < 1)).all()):
                raise ValueError(f"{name} must be probabilities below 1, got {values.min():.3g} to {values.max():.3g}.")
            object.__setattr__(self, name, values)
        if self.p10.shape != self.p01.shape:
            raise ValueError(f"p10 and p01 must have one shape, got {tuple(self.p10.shape)}, {tuple(self.p01.shape)}.")
        worst = float((self.p10 + self.p01).max()) if self.p10.numel() else 0.0
        if worst >= 1:
            raise ValueError(f"p10 + p01 must be below 1 for every spin, got {worst:.3g}: its readout tells nothing.")

    @classmethod
    def symmetric(cls, errors: Tensor | Sequence[float]) -> ReadoutErrors:
        """One number per spin for both directions, which is what a device's target reports."""
        return cls(torch.as_tensor(errors), torch.as_tensor(errors))

    def at_rows(self, rows: Sequence[int] | NDArray[np.int64], num_rows: int) -> ReadoutErrors:
        """The errors of some ``rows`` among ``num_rows``, the others without errors; those of all rows as they are."""
        if self.p10.dim() == 1 or self.p10.shape[0] != len(rows):
            return self
        wide = [torch.zeros(num_rows, self.p10.shape[1], dtype=torch.float64) for _ in range(2)]
        for whole, part in zip(wide, (self.p10, self.p01), strict=True):
            whole[torch.as_tensor(rows)] = part
        return ReadoutErrors(*wide)

    @property
    def gain(self) -> Tensor:
        """``a``."""
        return 1 - self.p10 - self.p01

    @property
    def offset(self) -> Tensor:
        """``b``."""
        return self.p01 - self.p10

    def for_groups(self, shape: tuple[int, int, int], like: Tensor) -> tuple[Tensor, Tensor]:
        """``a`` and ``b`` as ``(G, R, n)`` for rows of that shape, in the dtype of ``like``.

        Raises:
            ValueError: there is neither one row nor ``G R`` rows, or ``n`` differs.
        """
        num_groups, num_rows, n = shape
        if self.p10.shape not in ((n,), (1, n), (num_groups * num_rows, n)):
            raise ValueError(
                f"readout must be of ({n},) or ({num_groups * num_rows}, {n}) spins, got {tuple(self.p10.shape)}."
            )
        folded = [values.to(like) for values in (self.gain, self.offset)]
        if self.p10.shape == (num_groups * num_rows, n):
            folded = [values.view(shape) for values in folded]
        gain, offset = (values.expand(shape) for values in folded)
        return gain, offset

    def as_dict(self) -> dict[str, Any]:
        """For records."""
        return {"p10": self.p10.tolist(), "p01": self.p01.tolist()}


def misread(values: Tensor, gain: Tensor, offset: Tensor) -> Tensor:
    """Distributions ``(..., 2**n)`` as they are read with the errors of all spins; see ``undo_readout``."""
    return undo_readout(values, 1 / gain, -offset / gain)


def undo_readout(values: Tensor, gain: Tensor, offset: Tensor, *, of_function: bool = False) -> Tensor:
    r"""Apply the inverse of all spins' errors to the last axis, which counts configurations.

    A histogram of measured configurations becomes a quasi-distribution (sum 1, some entries negative) whose averages
    are unbiased: :math:`\sum_c W_c F(c)`, :math:`W = (\otimes_k A_k^{-1}) \hat q`. A *function* of the configuration
    becomes the one whose plain average over measured configurations is that same number, :math:`\otimes_k A_k^{-T} F`.

    Args:
        values: ``(..., 2**n)``.
        gain: ``a``, ``(..., n)`` broadcastable to the leading dimensions.
        offset: ``b``, likewise.
        of_function: transposed.
    """
    n = gain.shape[-1]
    lead = values.shape[:-1]
    for spin in range(n):
        pairs = values.reshape(*lead, 2 ** (n - 1 - spin), 2, 2**spin)
        a, b = gain[..., spin, None, None], offset[..., spin, None, None]
        plus, minus = pairs[..., 0, :], pairs[..., 1, :]  # spin +1, spin -1
        if of_function:  # F = even + odd s, and s becomes (s - b) / a
            even, odd = 0.5 * (plus + minus), 0.5 * (plus - minus) / a
            even = even - odd * b
        else:  # total stays, the mean of s becomes (mean - b total) / a
            even = 0.5 * (plus + minus)
            odd = (0.5 * (plus - minus) - b * even) / a
        values = torch.stack([even + odd, even - odd], -2).reshape(*lead, 2**n)
    return values


def check_table_spins(num_spins: int) -> None:
    """Refuse tables of too many configurations.

    Raises:
        TooManySpinsError: more than ``MAX_TABLE_SPINS``.
    """
    if num_spins > MAX_TABLE_SPINS:
        raise TooManySpinsError(
            f"estimator='conditional' with a readout correction takes at most {MAX_TABLE_SPINS} spins, got "
            f"{num_spins}: a function of all spins is corrected over all 2**n configurations of every row. Use "
            "estimator='plain', whose correction is in closed form for any number."
        )
