"""One stream of seeds per sampling solver: equal seeds agree, consecutive calls differ, a resumed run continues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


class SeedStream:
    """A counted stream of independent seeds.

    Call ``t`` returns ``SeedSequence(entropy=seed, spawn_key=(*key, t))``, so that its value depends on
    ``(seed, key, t)`` alone. ``key`` separates parallel streams (for instance the rank of a process). A seed of
    ``None`` draws entropy from the operating system once; ``entropy`` tells what was drawn.
    """

    def __init__(self, seed: int | None = None, key: Sequence[int] = ()) -> None:
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0):
            raise ValueError(f"seed must be a non-negative integer or None, got {seed!r}.")
        self.entropy: int = int(np.random.SeedSequence(None if seed is None else int(seed)).entropy)  # type: ignore[arg-type]
        self.key: tuple[int, ...] = tuple(int(part) for part in key)
        self.count = 0

    def next(self) -> np.random.SeedSequence:
        """The next seed; the counter goes up by one."""
        sequence = np.random.SeedSequence(self.entropy, spawn_key=(*self.key, self.count))
        self.count += 1
        return sequence

    def state_dict(self) -> dict[str, Any]:
        """Plain integers that a checkpoint can hold (the entropy as text: it may exceed 64 bits)."""
        return {"entropy": str(self.entropy), "key": list(self.key), "count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue exactly where ``state_dict`` was taken."""
        self.entropy = int(state["entropy"])
        self.key = tuple(int(part) for part in state["key"])
        self.count = int(state["count"])

    def __repr__(self) -> str:
        return f"SeedStream(entropy={self.entropy}, key={self.key}, count={self.count})"


def integer_seed(sequence: np.random.SeedSequence) -> int:
    """A 63-bit integer from a seed sequence, for generators that take one integer."""
    return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))
