r"""Gibbs sampling, all rows and samples at once: the classical control, and the polish of drawn spins.

One sweep visits the spins one after the other and draws each from its distribution given all others,

.. math:: p(s_k = +1 \mid s) = \sigma(2 f_k), \qquad f_k = h_k + \sum_l J_{kl} s_l.

With :math:`u` uniform, :math:`s_k = \mathrm{sign}(f_k - \tfrac12 \log\frac{u}{1 - u})` has that distribution. At an
inverse temperature :math:`\beta` the noise is divided by :math:`\beta`: samples at different temperatures share one
matrix product.

Random numbers come from numpy's SFC64 (torch's generator is three times as slow, and would be half of the work). They
are used up row by row (sweeps, spins and samples within a row), so that the result does not depend on the pieces the
batch is treated in.

Source: Geman and Geman 1984 (the sweep); Hukushima and Nemoto 1996 (exchange of replicas).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from qboltz.ising import IsingModel
from qboltz.spins import spin_table

#: Spins treated at once (a level-2 cache in float32), and random numbers drawn at once (64 MiB).
CHUNK_SPINS = 2**18
CHUNK_UNIFORMS = 2**24
#: Probabilities treated at once by ``polish_weights``.
CHUNK_WEIGHTS = 2**20


def sweep(
    spins: Tensor,
    fields: Tensor,
    couplings: Tensor,
    bits: np.random.BitGenerator,
    sweeps: int = 1,
    visible: Tensor | None = None,
) -> None:
    """Gibbs sweeps in place: every sample of ``spins`` makes ``sweeps`` steps towards ``exp(-E)/Z``.

    Args:
        spins: ``(G, R, M, n)`` in {-1, +1}, any dtype.
        fields: ``(G, R, n)``.
        couplings: ``(G, n, n)``, symmetric with zero diagonal, shared by the ``R`` rows of a group.
        bits: source of the random numbers, for instance ``numpy.random.SFC64(seed)``.
        sweeps: how many.
        visible: ``(G, R, n)`` boolean; spins that are not visible stay as they are and act on nothing.

    Raises:
        ValueError: shapes do not fit, or ``sweeps`` is not a positive integer.
    """
    num_groups, num_rows, n = fields.shape
    if spins.dim() != 4 or (*spins.shape[:2], spins.shape[3]) != (num_groups, num_rows, n):
        raise ValueError(f"spins must be ({num_groups}, {num_rows}, samples, {n}), got {tuple(spins.shape)}.")
    _check_sweeps(sweeps)
    samples = spins.shape[2]
    for where in row_chunks(num_groups, num_rows, n * samples, n * samples * sweeps):
        seen = None if visible is None else visible[where]
        scan = Scan(fields[where], couplings[where[0]], samples, seen)
        scan.start(spins[where])
        for uniforms in scan.uniforms(sweeps, bits):
            scan.step(uniforms)
        target = spins[where]
        new = scan.spins().permute(0, 2, 3, 1)
        target.copy_(new if seen is None else torch.where(seen.unsqueeze(-2), new, target))


def polish(model: IsingModel, spins: Tensor, sweeps: int, seed: np.random.SeedSequence) -> Tensor:
    """Drawn spins after ``sweeps`` Gibbs sweeps: samples of an imperfect sampler come closer to ``exp(-E)/Z``.

    It is a classical help: results that used it must say so, beside the same sweeps from random spins.

    Args:
        model: the models the spins were drawn for.
        spins: ``(G, R, M, n)`` in the order of ``model.groups``; not changed.
        sweeps: how many, at least 1.
        seed: of the sweeps.

    Returns:
        New spins of the same shape and dtype.

    Raises:
        ValueError: shapes do not fit, or ``sweeps`` is not a positive integer.
    """
    groups = model.groups
    polished = spins.clone()
    sweep(polished, groups.fields, groups.couplings, np.random.SFC64(seed), sweeps, groups.visible)
    return polished


def polish_weights(model: IsingModel, weights: Tensor, sweeps: int = 1) -> Tensor:
    r"""``polish`` in the limit of infinitely many samples: probabilities after ``sweeps`` exact Gibbs sweeps.

    For every spin in turn, ``p(s) <- (p(s) + p(s with s_k flipped)) p(s_k | other spins)``.

    Args:
        model: models whose spins are all visible.
        weights: ``(G, R, 2**n)``, configurations in the order of ``qboltz.spins.spin_table``; not changed.
        sweeps: how many, at least 1.

    Raises:
        ValueError: the model has a mask, shapes do not fit, or ``sweeps`` is not a positive integer.
    """
    groups = model.groups
    num_groups, num_rows, n = groups.fields.shape
    if model.visible is not None:
        raise ValueError("model must have visible=None: polish_weights takes models of the visible spins alone.")
    if weights.shape != (num_groups, num_rows, 2**n):
        raise ValueError(f"weights must be ({num_groups}, {num_rows}, {2**n}), got {tuple(weights.shape)}.")
    _check_sweeps(sweeps)
    polished = weights.clone()
    table = spin_table(n, dtype=groups.fields.dtype, device=groups.fields.device)
    for where in _pieces(num_groups, num_rows, max(1, CHUNK_WEIGHTS // 2**n)):
        chunk = polished[where]
        for k in [*range(n)] * sweeps:
            pairs = chunk.view(*chunk.shape[:2], 2 ** (n - 1 - k), 2, 2**k)
            others = (table @ groups.couplings[where[0], k].unsqueeze(-1)).view(-1, 1, *pairs.shape[2:])[..., 0, :]
            local = 2 * (groups.fields[where][..., k, None, None] + others)  # (g, r, 2**(n-1-k), 2**k)
            both = pairs.sum(-2)
            pairs[..., 0, :] = both * torch.sigmoid(local)
            pairs[..., 1, :] = both * torch.sigmoid(-local)
    return polished


class Scan:
    """The spins of some rows of some groups while they are swept.

    ``up (g, n, r, M)`` is 1 for a visible spin +1, else 0.

    Args:
        fields: ``(g, r, n)``.
        couplings: ``(g, n, n)``.
        samples: ``M``, a multiple of the number of ``betas``, which run fastest among the samples.
        visible: ``(g, r, n)`` boolean or ``None``.
        betas: ``(K,)`` inverse temperatures; ``None`` is 1.
    """

    def __init__(
        self,
        fields: Tensor,
        couplings: Tensor,
        samples: int,
        visible: Tensor | None = None,
        betas: Tensor | None = None,
    ) -> None:
        num_groups, num_rows, n = fields.shape
        self.fields = fields
        self.couplings = couplings
        self.betas = fields.new_ones(1) if betas is None else betas.to(fields)
        seen = torch.ones_like(fields) if visible is None else visible.to(fields.dtype)
        self.visible = None if visible is None else seen.mT.unsqueeze(-1)  # (g, n, r, 1)
        self.up = fields.new_empty(num_groups, n, num_rows, samples)
        # f_k = h_k + sum_l J_kl (2 up_l - 1) over the visible l
        self._doubled = 2 * couplings
        self._all_down = (fields - seen @ couplings).unsqueeze(-1)  # (g, r, n, 1)
        self._noise_scale = (0.5 / self.betas).repeat(samples // len(self.betas))  # (M,)
        self._local = fields.new_empty(num_groups, 1, num_rows * samples)
        slots = n + (len(self.betas) > 1)
        self._uniforms = fields.new_empty(num_groups, num_rows, slots, samples)

    def start(self, spins: Tensor) -> None:
        """Begin with the signs of ``(g, r, M, n)``."""
        torch.gt(spins.permute(0, 3, 1, 2), 0, out=self.up)
        if self.visible is not None:
            self.up *= self.visible

    def spins(self) -> Tensor:
        """``(g, n, r, M)`` in {-1, +1}; 0 where not visible."""
        spins = (2 * self.up).sub_(1)
        return spins if self.visible is None else spins.mul_(self.visible)

    def uniforms(self, sweeps: int, bits: np.random.BitGenerator) -> Iterator[Tensor]:
        """Random numbers of one sweep after the other, ``(g, r, n, M)``, one spin more with replicas to exchange.

        They stand in one buffer, which the user may overwrite.
        """
        num_groups, num_rows, slots, samples = self._uniforms.shape
        # A single row may be cut along the sweeps without a change of order; several rows may not.
        at_once = sweeps if num_groups * num_rows > 1 else max(1, CHUNK_UNIFORMS // (slots * samples))
        for first in range(0, sweeps, at_once):
            count = min(at_once, sweeps - first)
            words = num_groups * num_rows * count * slots * -(-samples // 2)
            drawn = torch.from_numpy(bits.random_raw(words).view(np.int32)).to(self.up.device)
            drawn = drawn.view(num_groups, num_rows, count, slots, -1)
            for numbers in drawn.unbind(2):
                yield self._uniforms.copy_(numbers[..., :samples]).mul_(2.0**-32).add_(0.5)

    def step(self, uniforms: Tensor) -> None:
        """One sweep: spin by spin, all rows and samples at once; overwrites the numbers of the spins."""
        num_groups, n, num_rows, samples = self.up.shape
        noise = uniforms[:, :, :n].logit_().mul_(self._noise_scale).sub_(self._all_down)  # (g, r, n, M)
        flat = self.up.view(num_groups, n, num_rows * samples)
        local = self._local.view(num_groups, num_rows, samples)
        for k in range(n):
            torch.bmm(self._doubled[:, k : k + 1], flat, out=self._local)
            torch.gt(local, noise[:, :, k], out=self.up[:, k])
            if self.visible is not None:
                self.up[:, k] *= self.visible[:, k]

    def exchange(self, uniforms: Tensor, parity: int) -> Tensor:
        """Offer pairs ``(i, i + 1)`` of temperatures with ``i % 2 == parity`` an exchange, ``uniforms`` ``(g, r, M)``.

        Accepted with probability ``min(1, exp((beta_i - beta_{i+1}) (E_i - E_{i+1})))``; returns how many were, for
        each pair ``(K - 1,)``.
        """
        replicas = len(self.betas)
        pairs = (replicas - parity) // 2
        low, high = slice(parity, parity + 2 * pairs, 2), slice(parity + 1, parity + 2 * pairs, 2)
        ladder = self.up.unflatten(-1, (-1, replicas))  # (g, n, r, C, K)
        minus_energy = self._minus_energy().unflatten(-1, (-1, replicas))
        gain = (self.betas[high] - self.betas[low]) * (minus_energy[..., low] - minus_energy[..., high])
        accept = uniforms.unflatten(-1, (-1, replicas))[..., :pairs].log() < gain  # (g, r, C, pairs)
        counts = torch.zeros(replicas - 1, dtype=torch.float64, device=self.up.device)
        counts[low] = accept.sum((0, 1, 2)).double()
        swap = accept.unsqueeze(1)
        cold, hot = ladder[..., high], ladder[..., low]
        ladder[..., low], ladder[..., high] = torch.where(swap, cold, hot), torch.where(swap, hot, cold)
        return counts

    def _minus_energy(self) -> Tensor:
        """``-E`` of every sample, ``(g, r, M)``."""
        spins = self.spins()
        pulls = (self.couplings @ spins.flatten(2)).view(spins.shape)
        return (spins * (self.fields.mT.unsqueeze(-1) + 0.5 * pulls)).sum(1)


def row_chunks(num_groups: int, num_rows: int, spins: int, uniforms: int) -> Iterator[tuple[slice, slice]]:
    """Pieces ``(groups, rows)`` of a batch, given the spins and the random numbers of one row."""
    return _pieces(num_groups, num_rows, max(1, min(CHUNK_SPINS // max(1, spins), CHUNK_UNIFORMS // max(1, uniforms))))


def _pieces(num_groups: int, num_rows: int, rows: int) -> Iterator[tuple[slice, slice]]:
    """Pieces of about ``rows`` rows, in the order of the rows: several whole groups, or part of one."""
    whole_groups = max(1, rows // max(1, num_rows))
    for group in range(0, num_groups, whole_groups):
        for row in range(0, num_rows, rows):
            yield slice(group, group + whole_groups), slice(row, row + rows)


def _check_sweeps(sweeps: object) -> None:
    if isinstance(sweeps, bool) or not isinstance(sweeps, int) or sweeps < 1:
        raise ValueError(f"sweeps must be a positive integer, got {sweeps!r}.")
