"""What a task is: sequences, the rows that are read, what they should say, and how well guessing does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

Split = Literal["train", "test"]

#: Target of a padded row; ``torch.nn.functional.cross_entropy`` leaves it out by default.
IGNORED = -100

#: One sequence in ten belongs to the test split.
TEST_SHARE = 0.1

_PRIME = 2**31 - 1
_BASE = 1_103_515_245  # below 2**31, so that no product of the hash leaves 63 bits


@dataclass(frozen=True, eq=False)
class Batch:
    """``B`` sequences and the ``Q`` rows of each that are read.

    Attributes:
        tokens: ``(B, T)`` int64.
        rows: ``(B, Q)`` int64, the positions that ask; only they go through attention as queries.
        targets: ``(B, Q)`` int64, the class each of them should answer; ``IGNORED`` for a padded row.
    """

    tokens: Tensor
    rows: Tensor
    targets: Tensor

    @property
    def size(self) -> int:
        """``B``."""
        return self.tokens.shape[0]

    @property
    def num_targets(self) -> int:
        """Rows that count, padding left out."""
        return int((self.targets != IGNORED).sum())

    def part(self, start: int, stop: int) -> Batch:
        """Sequences ``start`` to ``stop``; the last part of a batch may be shorter."""
        return Batch(self.tokens[start:stop], self.rows[start:stop], self.targets[start:stop])

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on another device."""
        return Batch(self.tokens.to(device), self.rows.to(device), self.targets.to(device))


class Task(Protocol):
    """A source of batches. Everything random comes from the generator that is handed in."""

    @property
    def name(self) -> str:
        """The key in ``TASKS``."""
        ...

    @property
    def length(self) -> int:
        """``T``, tokens per sequence: the number of spins of a row without a mask."""
        ...

    @property
    def vocab_size(self) -> int:
        """Tokens are ``0 .. vocab_size - 1``."""
        ...

    @property
    def num_classes(self) -> int:
        """Targets are ``0 .. num_classes - 1``."""
        ...

    @property
    def causal(self) -> bool:
        """Whether a row sees only the positions up to its own."""
        ...

    @property
    def chance(self) -> float:
        """Accuracy of guessing."""
        ...

    @property
    def chance_note(self) -> str:
        """Which guess ``chance`` is, and how it was computed."""
        ...

    def batch(self, generator: torch.Generator, size: int, split: Split = "train") -> Batch:
        """Draw ``size`` sequences of one split; the two splits share none."""
        ...


def stable_hash(tokens: Tensor) -> Tensor:
    r"""``(B, T)`` non-negative tokens to ``(B,)`` numbers in ``[0, 1)``, the same on every machine and run.

    ``x = sum_t (token_t + 1) b^{T-1-t} mod (2^31 - 1)``, squared modulo the same prime and divided by it.
    """
    value = torch.zeros(tokens.shape[0], dtype=torch.int64)
    for column in tokens.unbind(1):
        value = (value * _BASE + column + 1) % _PRIME
    return (value * value % _PRIME).double() / _PRIME


def held_out_range(draw: Callable[[int], Tensor], fold: int = 0) -> tuple[float, float]:
    """``(low, high)``: sequences with a hash in between are for testing: one tenth of all, and at least one.

    Args:
        draw: ``draw(m)`` returns ``m`` random rows of the columns that decide; from a generator of its own, so that
            the part is the same whoever asks.
        fold: which tenth, 0 to 9: ten folds test every sequence (of ten or more) once.

    Raises:
        ValueError: there is only one sequence.
    """
    hashes = stable_hash(draw(2000)).unique()  # ascending
    if len(hashes) == 1:
        raise ValueError(
            "train and test cannot be disjoint: there is only one sequence. "
            "Use longer sequences or a larger vocabulary."
        )
    if len(hashes) > 200:
        return fold * TEST_SHARE, (fold + 1) * TEST_SHARE
    first = round(fold * TEST_SHARE * len(hashes))
    last = max(first + 1, round((fold + 1) * TEST_SHARE * len(hashes)))
    if first == len(hashes):  # fewer than ten sequences: some are tested twice
        first, last = 0, 1
    edges = torch.cat([hashes.new_zeros(1), (hashes[:-1] + hashes[1:]) / 2, hashes.new_ones(1)])
    return float(edges[first]), float(edges[last])


def draw_split(
    draw: Callable[[int], Tensor], size: int, split: Split, part: tuple[float, float], *, key: slice = slice(None)
) -> Tensor:
    """``size`` sequences of one split by rejection: those of ``draw`` whose hash falls into its part.

    Args:
        draw: ``draw(m)`` returns ``m`` fresh sequences ``(m, T)``.
        size: how many are wanted; 0 gives an empty batch.
        split: ``"train"`` or ``"test"``.
        part: of the hashes that are for testing, from ``held_out_range``.
        key: the columns that decide. Sequences that agree in them stay in one split.
    """
    if split not in ("train", "test"):
        raise ValueError(f"split must be 'train' or 'test', got {split!r}.")
    if size < 0:
        raise ValueError(f"size must not be negative, got {size}.")
    share = TEST_SHARE if split == "test" else 1 - TEST_SHARE
    found: list[Tensor] = []
    missing = size
    while True:
        candidates = draw(int(1.1 * missing / share) + 16)
        hashes = stable_hash(candidates[:, key])
        in_test = (hashes >= part[0]) & (hashes < part[1])
        kept = candidates[in_test if split == "test" else ~in_test][:missing]
        found.append(kept)
        missing -= kept.shape[0]
        if missing == 0:
            return torch.cat(found)


def check_int(name: str, value: object, minimum: int) -> None:
    """Raise ``ValueError`` unless ``value`` is an integer of at least ``minimum``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise ValueError(f"{name} must be an integer of at least {minimum}, got {value!r}.")
