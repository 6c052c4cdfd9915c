"""Bracket matching: name the opening bracket that belongs to a closing one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import torch
from torch import Tensor

from qboltz.tasks.base import Batch, Split, check_int, draw_split, held_out_range


@dataclass(frozen=True)
class BracketTask:
    """Balanced bracket sequences, uniform over the words of the given depth, each pair of a random kind.

    Tokens are ``0 .. kinds - 1`` for opening brackets and ``kinds .. 2 kinds - 1`` for closing ones. A row
    answers with the *position* of the opening bracket that matches it. Sequences of train and test are
    disjoint, wherever the mark.

    Args:
        length: ``T``, even, at least 2.
        kinds: kinds of brackets.
        max_depth: the deepest nesting allowed; ``None`` is no bound.
        form: ``"marked"``: one closing bracket, uniformly chosen, is replaced by a marked token
            ``2 kinds .. 3 kinds - 1`` and asks, under full attention. ``"causal"``: every closing bracket
            asks, and sees only what stands before it.
        fold: which tenth of the words is for testing, 0 to 9. Short words of one kind are few: ten runs on ten folds
            test (nearly) all of them.

    Source: the bracket-matching task of arXiv:2606.12478; how it samples sequences is unstated, this is ours.
    """

    length: int = 16
    kinds: int = 2
    max_depth: int | None = None
    form: Literal["marked", "causal"] = "marked"
    fold: int = 0

    name: ClassVar[str] = "brackets"

    def __post_init__(self) -> None:
        check_int("length", self.length, 2)
        check_int("kinds", self.kinds, 1)
        if self.max_depth is not None:
            check_int("max_depth", self.max_depth, 1)
        if self.length % 2:
            raise ValueError(f"length of brackets must be even, got {self.length}. Use {self.length + 1}.")
        if self.fold not in range(10):
            raise ValueError(f"fold must be 0 to 9, a tenth of the words, got {self.fold!r}.")
        if self.form not in ("marked", "causal"):
            raise ValueError(f"form must be 'marked' or 'causal', got {self.form!r}.")
        _ = self._held_out  # fails if there is nothing to divide

    @property
    def causal(self) -> bool:
        """True for the causal form."""
        return self.form == "causal"

    @property
    def vocab_size(self) -> int:
        """Opening, closing and, in the marked form, marked brackets."""
        return (2 if self.causal else 3) * self.kinds

    @property
    def num_classes(self) -> int:
        """Positions."""
        return self.length

    @cached_property
    def completions(self) -> list[list[int]]:
        """``N[r][h]``: ways to close a word at height ``h`` in ``r`` more brackets within the depth bound."""
        depth = self.length // 2 if self.max_depth is None else min(self.max_depth, self.length // 2)
        table = [[1] + [0] * depth]
        for _ in range(self.length):
            last = table[-1]
            table.append([(last[h + 1] if h < depth else 0) + (last[h - 1] if h > 0 else 0) for h in range(depth + 1)])
        return table

    @cached_property
    def chance(self) -> float:
        """``E[1 / (opening brackets before the closing one)]`` over words and closing brackets."""
        table, total = self.completions, self.completions[self.length][0]
        arrivals = [1] + [0] * (len(table[0]) - 1)  # ways to stand at height h after t brackets
        chance = 0.0
        for t in range(self.length):
            for h in range(1, len(arrivals)):
                words = arrivals[h] * table[self.length - t - 1][h - 1]
                if words:
                    chance += words / total * 2 / (t + h)
            arrivals = [
                (arrivals[h - 1] if h > 0 else 0) + (arrivals[h + 1] if h + 1 < len(arrivals) else 0)
                for h in range(len(arrivals))
            ]
        return chance / (self.length // 2)

    @property
    def chance_note(self) -> str:
        """Which guess ``chance`` is."""
        return "any of the opening brackets before the closing one (exact count over all words)"

    def batch(self, generator: torch.Generator, size: int, split: Split = "train") -> Batch:
        """One row per sequence (marked) or ``T / 2`` (causal)."""
        words = draw_split(lambda count: self._words(generator, count), size, split, self._held_out)
        closing = words >= self.kinds
        rows = closing.nonzero()[:, 1].view(size, self.length // 2)  # (B, T/2), ascending
        tokens = words
        if not self.causal:
            rows = rows.gather(1, torch.randint(self.length // 2, (size, 1), generator=generator))
            tokens = words.scatter(1, rows, words.gather(1, rows) + self.kinds)
        return Batch(tokens, rows, matching(closing).gather(1, rows))

    @cached_property
    def _held_out(self) -> tuple[float, float]:
        generator = torch.Generator().manual_seed(0)
        return held_out_range(lambda count: self._words(generator, count), self.fold)

    @cached_property
    def _opening_odds(self) -> Tensor:
        """``(T + 1, depth + 1)``: probability that the next bracket opens, given brackets left and height."""
        odds = torch.zeros(self.length + 1, len(self.completions[0]), dtype=torch.float64)
        for left in range(1, self.length + 1):
            for height, ways in enumerate(self.completions[left]):
                if ways and height + 1 < odds.shape[1]:
                    odds[left, height] = self.completions[left - 1][height + 1] / ways
        return odds

    def _words(self, generator: torch.Generator, count: int) -> Tensor:
        """``(count, T)`` balanced words, uniform, each pair of a uniform kind."""
        draws = torch.rand(count, self.length, dtype=torch.float64, generator=generator)
        height = torch.zeros(count, dtype=torch.int64)
        closing = torch.empty(count, self.length, dtype=torch.bool)
        for t in range(self.length):
            closing[:, t] = draws[:, t] >= self._opening_odds[self.length - t, height]
            height = height + 1 - 2 * closing[:, t].long()
        kinds = torch.randint(self.kinds, (count, self.length), generator=generator)
        return torch.where(closing, self.kinds + kinds.gather(1, matching(closing)), kinds)


def matching(closing: Tensor) -> Tensor:
    """``(B, T)`` closing flags of balanced words to the position of each closing bracket's opening one.

    An opening bracket is given its own position.
    """
    count, length = closing.shape
    every = torch.arange(count)
    stack = torch.zeros(count, length // 2 + 1, dtype=torch.int64)
    height = torch.zeros(count, dtype=torch.int64)
    partner = torch.empty(count, length, dtype=torch.int64)
    for t in range(length):
        closes = closing[:, t]
        slot = height - closes.long()
        stack[every, slot] = torch.where(closes, stack[every, slot], t)
        partner[:, t] = stack[every, slot]
        height = height + 1 - 2 * closes.long()
    return partner
