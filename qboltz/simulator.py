r"""The simulator reader of the layer walk: the anneals of many models at once, as dense real matrix products.

In the frame turned by ``diag(1, -i)`` on every qubit (populations do not change) a mixer ``e^{ibX}`` is the *real*
rotation ``[[cos b, -sin b], [sin b, cos b]]``, so that real matrix products on groups of about four qubits act on real
and imaginary parts alike; and ``|+>`` is ``e^{i pi/4 Z} (1, 1) / sqrt 2`` up to a global phase: one more field phase in
the first layer. Field phases are outer products over the two halves of the qubits, coupling phases one table for all
rows with the same couplings.

The amplitudes of ``q r`` circuits are laid out as ``(q, A, B, r)``, ``A B = 2^n``, with the low half of the qubits in
``B``. Many rows of a small model go innermost (``q = 1``), few rows or a large model outermost (``r = 1``): either way
the products have long rows of columns, and no amplitude is ever transposed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from qboltz.schedule import AnnealingSchedule
from qboltz.spins import spin_table

#: Amplitudes treated at once: two buffers of this many complex numbers fit a level-2 cache.
CHUNK_AMPLITUDES = 2**17
#: Rows with the same couplings share one table of phases if they have this many amplitudes; else each makes its own.
SHARED_AMPLITUDES = 2**14
#: Rows go innermost from this many on, for models of at most so many spins (measured).
MIN_INNER_ROWS = 12
MAX_INNER_SPINS = 12
#: Qubits of one matrix product: a 16 x 16 real matrix.
GROUP_QUBITS = 4


class Angles(NamedTuple):
    """A schedule as tensors ``(p,)``: one can differentiate with respect to them."""

    fields: Tensor
    couplings: Tensor
    mixers: Tensor

    @classmethod
    def of(cls, schedule: AnnealingSchedule, device: torch.device | None = None) -> Angles:
        """The angles of ``schedule.layers()``, float64."""
        layers = [list(layer) for layer in schedule.layers()]
        return cls(*torch.tensor(layers, dtype=torch.float64, device=device).unbind(-1))


@dataclass(frozen=True, eq=False)
class Anneals:
    r"""``N`` circuits on ``n`` spins from ``|+>^n``; layer ``k`` is

    .. math:: e^{i \sum_j a_{kj} Z_j}, \qquad e^{i \sum_{j<l} c_{kjl} Z_j Z_l}, \qquad e^{i b_k \sum_j X_j}.

    Attributes:
        fields: ``a``, ``(p, N, n)``.
        couplings: ``c``, ``(p, U, n, n)``, symmetric: ``U`` sets of couplings.
        owner: ``(N,)`` integers in ascending order: row ``i`` has the couplings number ``owner[i]``.
        mixers: ``b``, ``(p,)``.
    """

    fields: Tensor
    couplings: Tensor
    owner: Tensor
    mixers: Tensor

    @classmethod
    def of(cls, fields: Tensor, couplings: Tensor, owner: Tensor, schedule: AnnealingSchedule | Angles) -> Anneals:
        """The anneals of models with ``fields`` ``(N, n)`` and ``couplings`` ``(U, n, n)``."""
        angles = Angles.of(schedule, fields.device) if isinstance(schedule, AnnealingSchedule) else schedule
        return cls(
            angles.fields.to(fields.dtype).view(-1, 1, 1) * fields,
            angles.couplings.to(fields.dtype).view(-1, 1, 1, 1) * couplings,
            owner,
            angles.mixers,
        )

    @property
    def num_rows(self) -> int:
        """``N``."""
        return self.fields.shape[1]

    @property
    def num_spins(self) -> int:
        """``n``."""
        return self.fields.shape[2]

    @property
    def differentiable(self) -> bool:
        """Whether autograd watches, so that nothing may be overwritten."""
        watched = (self.fields, self.couplings, self.mixers)
        return torch.is_grad_enabled() and any(values.requires_grad for values in watched)


def annealing_probabilities(fields: Tensor, couplings: Tensor, schedule: AnnealingSchedule | Angles) -> Tensor:
    r"""Populations of the annealing circuits of ``G R`` models,

    .. math:: p(c) = |\langle c | U_p \cdots U_1 |+\rangle^n|^2.

    Differentiable in ``fields``, in ``couplings`` (the two entries of a pair get half of the derivative each) and, if
    the schedule is given as ``Angles``, in its angles. One walk serves both: out of place while autograd watches.

    Args:
        fields: ``(G, R, n)``, float32 or float64.
        couplings: ``(G, n, n)``, symmetric with zero diagonal, one matrix for the ``R`` rows of a group.
        schedule: an ``AnnealingSchedule``, or its angles as tensors.

    Returns:
        ``(G, R, 2**n)``, configurations in the order of ``qboltz.spins.spin_table``.

    Raises:
        ValueError: the shapes do not fit each other.
    """
    if fields.dim() != 3 or couplings.shape != (fields.shape[0], fields.shape[2], fields.shape[2]):
        raise ValueError(
            "fields must be (groups, rows, spins) and couplings (groups, spins, spins), "
            f"got {tuple(fields.shape)} and {tuple(couplings.shape)}."
        )
    num_groups, num_rows, num_spins = fields.shape
    owner = torch.arange(num_groups, device=fields.device).repeat_interleave(num_rows)
    anneals = Anneals.of(fields.reshape(-1, num_spins), couplings, owner, schedule)
    return probabilities(anneals).view(num_groups, num_rows, 2**num_spins)


def probabilities(anneals: Anneals) -> Tensor:
    """Populations of all rows, ``(N, 2**n)``."""
    result = anneals.fields.new_empty(anneals.num_rows, 2**anneals.num_spins)
    if anneals.differentiable:
        return torch.cat([result[:0], *(part for _, part in populations(anneals))])
    for _ in populations(anneals, result):
        pass
    return result


def populations(anneals: Anneals, result: Tensor | None = None) -> Iterator[tuple[slice, Tensor]]:
    """Populations piece by piece, as ``rows, (rows, 2**n)``: memory stays at a few chunks of amplitudes.

    They sum to 1 up to rounding. A ``result`` ``(N, 2**n)`` is filled as well; then the pieces are views of it.
    """
    walk = _Walk(anneals, result)
    per_chunk = max(1, CHUNK_AMPLITUDES >> anneals.num_spins)
    num_owners = anneals.couplings.shape[1]
    if num_owners > 1 and anneals.num_rows << anneals.num_spins < num_owners * SHARED_AMPLITUDES:
        for rows in _even_pieces(0, anneals.num_rows, per_chunk):
            yield rows, walk.run(rows, None)
        return
    stop = 0
    for owner, count in enumerate(torch.bincount(anneals.owner, minlength=num_owners).tolist()):
        start, stop = stop, stop + count
        if count:
            energies = walk.energies(anneals.couplings[:, owner], inner=False)
            tables = exp_i(energies)  # (p, A, B, 1)
            for rows in _even_pieces(start, stop, per_chunk):
                yield rows, walk.run(rows, tables)


def draw(weights: Tensor, uniforms: Tensor) -> Tensor:
    """Configuration numbers ``(r, M)`` by inverse CDF: probabilities ``(r, 2**n)``, uniform numbers ``(r, M)``."""
    cumulative = weights.cumsum(-1, dtype=torch.float64)
    numbers = torch.searchsorted(cumulative, uniforms * cumulative[:, -1:], right=True)
    return numbers.clamp_(max=weights.shape[-1] - 1)


def _even_pieces(start: int, stop: int, at_most: int) -> Iterator[slice]:
    """``start`` to ``stop`` in pieces of nearly equal size, multiples of 8 where there are as many rows."""
    count = max(1, -(-(stop - start) // at_most))
    size = -(-(stop - start) // count)
    if size > 8:
        size = min(-(-size // 8) * 8, max(at_most // 8 * 8, 8))
    for first in range(start, stop, max(size, 1)):
        yield slice(first, min(first + size, stop))


def exp_i(angles: Tensor) -> Tensor:
    """``e^{i angle}`` (real sines and cosines are vectorized; a complex exponential is thirty times slower)."""
    return torch.complex(angles.cos(), angles.sin())


def qubit_groups(num_spins: int) -> list[tuple[int, int]]:
    """``(first qubit, number of qubits)`` of the matrix products of one mixer, from the low qubits up."""
    count = -(-num_spins // GROUP_QUBITS)
    sizes = [num_spins // count + (index < num_spins % count) for index in range(count)]
    return [(sum(sizes[:index]), size) for index, size in enumerate(sizes)]


@cache
@torch.inference_mode(False)  # what is kept must also serve a later call that autograd follows
def _spin_table(num_spins: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return spin_table(num_spins, dtype=dtype, device=device)


@cache
@torch.inference_mode(False)
def _flips(num_qubits: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """In how many bits two numbers differ, and the sign: -1 for every bit that is 0 in the row and 1 in the column."""
    bits = 0.5 * (1 - spin_table(num_qubits, device=device))
    lowered = (1 - bits) @ bits.mT
    return (lowered + lowered.mT).long(), 1 - 2 * (lowered % 2)


def rotations(mixers: Tensor, num_qubits: int) -> Tensor:
    """``[[cos b, -sin b], [sin b, cos b]]`` on every one of a few qubits, ``(p, 2**m, 2**m)``."""
    flips, signs = _flips(num_qubits, mixers.device)
    cos, sin = mixers.cos(), mixers.sin()
    powers = [cos ** (num_qubits - flip) * sin**flip for flip in range(num_qubits + 1)]
    return torch.stack(powers, -1)[:, flips] * signs


class _Walk:
    """The walk over the layers for pieces of the rows, with the tables and buffers that all pieces use."""

    def __init__(self, anneals: Anneals, result: Tensor | None) -> None:
        self.anneals = anneals
        self.result = result
        n, like = anneals.num_spins, anneals.fields
        self.num_low = n // 2
        self.low = _spin_table(self.num_low, like.dtype, like.device)  # (B, low)
        self.high = _spin_table(n - self.num_low, like.dtype, like.device)  # (A, high)
        self.groups = qubit_groups(n)
        sizes = {size for _, size in self.groups}
        self.rotations = {size: rotations(anneals.mixers, size).to(like.dtype) for size in sizes}
        pair = torch.eye(2, dtype=like.dtype, device=like.device).unsqueeze(0)
        self.pair_rotations = torch.kron(self.rotations[self.groups[0][1]].mT.contiguous(), pair)
        # The frame: |+> is the product state of all phases 0 after a field phase of pi / 4 on every qubit.
        self.frame = like.new_tensor([math.pi / 4] + [0.0] * (len(anneals.mixers) - 1)).view(-1, 1, 1)
        self.buffers: list[Tensor] = []
        if not anneals.differentiable:
            size = min(anneals.num_rows << n, max(CHUNK_AMPLITUDES, 1 << n))
            self.buffers = [like.new_empty(size, dtype=like.dtype.to_complex()) for _ in range(2)]

    def run(self, rows: slice, tables: Tensor | None) -> Tensor:
        """Populations ``(rows, 2**n)``. ``tables`` ``(p, A, B, 1)``: coupling phases, if all these rows share them."""
        n, count = self.anneals.num_spins, rows.stop - rows.start
        inner = n <= MAX_INNER_SPINS and count >= MIN_INNER_ROWS
        shape = (1 if inner else count, len(self.high), len(self.low), count if inner else 1)
        out, spare = self.spaces(shape)
        high, low = self.half_angles(rows, inner)
        if tables is not None:
            high, low = exp_i(high), exp_i(low)
        state = None
        for k in range(len(self.anneals.mixers)):
            if tables is None:
                couplings = self.anneals.couplings[k].index_select(0, self.anneals.owner[rows])
                phases = exp_i(self.energies(couplings, inner).add_(high[k]).add_(low[k]))
                state = phases if state is None else torch.mul(state, phases, out=out)
            else:
                product = (high[k], low[k]) if state is None else (torch.mul(state, high[k], out=out), low[k])
                state = torch.mul(*product, out=out)
                state = torch.mul(state, tables[k], out=out)
            for first, size in self.groups:
                state = self.rotate(state, k, first, size, spare)
                out, spare = spare, out
        assert state is not None  # a schedule has a layer
        return self.measure(state, None if self.result is None else self.result[rows])

    def spaces(self, shape: tuple[int, ...]) -> tuple[Tensor | None, Tensor | None]:
        """Two buffers for amplitudes, or none where autograd has to keep what it has seen."""
        if not self.buffers:
            return None, None
        first, second = (buffer[: math.prod(shape)].view(shape) for buffer in self.buffers)
        return first, second

    def half_angles(self, rows: slice, inner: bool) -> tuple[Tensor, Tensor]:
        """Field phases over the two halves of the qubits, ``(p, q, A, 1, r)`` and ``(p, q, 1, B, r)``."""
        angles = self.anneals.fields[:, rows] + self.frame  # (p, rows, n)
        split = self.num_low
        if inner:
            angles = angles.mT.contiguous()  # (p, n, rows)
            high, low = self.high @ angles[:, split:], self.low @ angles[:, :split]
            return high[:, None, :, None, :], low[:, None, None, :, :]
        high, low = angles[..., split:] @ self.high.mT, angles[..., :split] @ self.low.mT
        return high[..., None, None], low[..., None, :, None]

    def energies(self, couplings: Tensor, inner: bool) -> Tensor:
        """``sum_{j<l} c_jl s_j s_l`` of all configurations: ``(rows, n, n)`` to ``(q, A, B, r)``."""
        low, high, split = self.low, self.high, self.num_low
        if not inner:
            cross = 0.5 * (couplings[:, split:, :split] + couplings[:, :split, split:].mT)
            energy = high @ cross @ low.mT  # (rows, A, B)
            energy += (0.5 * high @ couplings[:, split:, split:] * high).sum(-1).unsqueeze(-1)
            energy += (0.5 * low @ couplings[:, :split, :split] * low).sum(-1).unsqueeze(-2)
            return energy.unsqueeze(-1)
        # The same with the rows innermost, so that no product is small and nothing is transposed afterwards.
        columns = 0.5 * couplings.permute(1, 2, 0).contiguous()  # (n, n, rows)
        cross = columns[split:, :split] + columns[:split, split:].transpose(0, 1)  # (high, low, rows)
        energy = torch.mm(high, (low @ cross).flatten(1)).view(len(high), len(low), len(couplings))
        for spins, block, axis in ((high, columns[split:, split:], 1), (low, columns[:split, :split], 0)):
            within = torch.mm(spins, block.flatten(1)).view(*spins.shape, len(couplings)) * spins.unsqueeze(-1)
            energy += within.sum(1).unsqueeze(axis)
        return energy.unsqueeze(0)

    def rotate(self, state: Tensor, k: int, first: int, num_qubits: int, out: Tensor | None) -> Tensor:
        """The mixer of layer ``k`` on the qubits from ``first`` on: one real matrix for real and imaginary parts."""
        size = 2**num_qubits
        columns = 2 * state.shape[-1] << first
        if columns == 2:
            # Nothing but (re, im) to their right: multiply from the right, by the matrix on such pairs.
            real = torch.view_as_real(state).view(-1, 2 * size)
            target = None if out is None else torch.view_as_real(out).view_as(real)
            result = torch.mm(real, self.pair_rotations[k], out=target)
        else:
            real = torch.view_as_real(state).view(-1, size, columns)
            target = None if out is None else torch.view_as_real(out).view_as(real)
            rotation = self.rotations[num_qubits][k]
            result = torch.bmm(rotation.expand(len(real), size, size), real, out=target)
        return torch.view_as_complex(result.view(*state.shape, 2))

    def measure(self, state: Tensor, out: Tensor | None) -> Tensor:
        """Populations ``(rows, 2**n)``: ``re^2 + im^2``, added by a matrix product that also puts the rows first."""
        real = torch.view_as_real(state)
        squares = real.mul_(real) if self.buffers else real * real
        dimension = 2**self.anneals.num_spins
        rows = state.numel() // dimension
        # The walk began with amplitudes of modulus 1.
        if state.shape[-1] == 1:
            several = min(dimension, 16)
            add = torch.eye(several, dtype=real.dtype, device=real.device).repeat_interleave(2, 0) / dimension
            target = None if out is None else out.view(-1, several)
            return torch.mm(squares.view(-1, 2 * several), add, out=target).view(rows, dimension)
        several = math.gcd(rows, 8)
        add = torch.eye(several, dtype=real.dtype, device=real.device).repeat_interleave(2, 1) / dimension
        blocks = squares.view(dimension, -1, 2 * several).permute(1, 2, 0)
        target = None if out is None else out.view(-1, several, dimension)
        return torch.bmm(add.expand(len(blocks), -1, -1), blocks, out=target).view(rows, dimension)
