"""Associative recall: key-value pairs and a key; the answer is its value."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from qboltz.tasks.base import Batch, Split, check_int, draw_split, held_out_range


@dataclass(frozen=True)
class RecallTask:
    """``k1 v1 k2 v2 ... kP vP q``, all keys different, ``q`` one of them; the last row names its value.

    One softmax layer with one head finds the key but cannot step to its neighbor; couplings between
    neighbors can. Tokens are ``0 .. num_keys - 1`` for keys, then the values. Contexts (everything but ``q``)
    of train and test are disjoint, whichever key is asked for.

    Args:
        length: ``T = 2 P + 1``, odd, at least 3.
        num_keys: different keys, at least ``P``.
        num_values: different values; they may repeat within a sequence.

    Source: a small form of MQAR, the recall benchmark of the zoology project (arXiv:2312.04927).
    """

    length: int = 7
    num_keys: int = 8
    num_values: int = 8

    name: ClassVar[str] = "recall"
    causal: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for name, minimum in (("length", 3), ("num_keys", 1), ("num_values", 2)):
            check_int(name, getattr(self, name), minimum)
        if self.length % 2 == 0:
            raise ValueError(
                f"length of recall must be odd (two tokens a pair and one query), got {self.length}. "
                f"Use {self.length - 1} for {self.num_pairs} pairs, {self.length + 1} for one more."
            )
        if self.num_keys < self.num_pairs:
            raise ValueError(f"num_keys must be at least the number of pairs, {self.num_pairs}, got {self.num_keys}.")
        _ = self._held_out  # fails if there is nothing to divide

    @property
    def num_pairs(self) -> int:
        """``P``."""
        return (self.length - 1) // 2

    @property
    def vocab_size(self) -> int:
        """Keys, then values."""
        return self.num_keys + self.num_values

    @property
    def num_classes(self) -> int:
        """The values."""
        return self.num_values

    @cached_property
    def chance(self) -> float:
        r"""``E[largest multiplicity among P values] / P``.

        With ``V`` values, ``P(multiplicity <= m) = P! / V^P`` times the coefficient of ``x^P`` in
        ``(sum_{k <= m} x^k / k!)^V``.
        """
        pairs, values = self.num_pairs, self.num_values
        expected = Fraction(0)
        for most in range(pairs):
            expected += 1 - Fraction(math.factorial(pairs), values**pairs) * _coefficient(pairs, values, most)
        return float(expected / pairs)

    @property
    def chance_note(self) -> str:
        """Which guess ``chance`` is."""
        return "the most frequent of the values shown, blind to the key (exact count)"

    def batch(self, generator: torch.Generator, size: int, split: Split = "train") -> Batch:
        """One row per sequence, the last."""

        tokens = draw_split(lambda count: self._draw(generator, count), size, split, self._held_out, key=slice(0, -1))
        hit = tokens[:, 0:-1:2] == tokens[:, -1:]  # (B, P), one True a row
        targets = (tokens[:, 1::2] - self.num_keys)[hit].unsqueeze(1)
        return Batch(tokens, torch.full((size, 1), self.length - 1), targets)

    @cached_property
    def _held_out(self) -> tuple[float, float]:
        generator = torch.Generator().manual_seed(0)
        return held_out_range(lambda count: self._draw(generator, count)[:, :-1])

    def _draw(self, generator: torch.Generator, count: int) -> Tensor:
        """``(count, T)`` sequences, uniform."""
        keys = torch.rand(count, self.num_keys, generator=generator).argsort(1)[:, : self.num_pairs]
        values = torch.randint(self.num_values, (count, self.num_pairs), generator=generator)
        pairs = torch.stack([keys, self.num_keys + values], dim=2).flatten(1)  # (count, 2 P)
        asked = torch.randint(self.num_pairs, (count, 1), generator=generator)
        return torch.cat([pairs, keys.gather(1, asked)], dim=1)


def _coefficient(power: int, factors: int, most: int) -> Fraction:
    """Coefficient of ``x^power`` in ``(sum_{k <= most} x^k / k!)^factors``."""
    series = [Fraction(1)] + [Fraction(0)] * power
    for _ in range(factors):
        series = [
            sum((series[total - k] / math.factorial(k) for k in range(min(most, total) + 1)), Fraction(0))
            for total in range(power + 1)
        ]
    return series[power]
