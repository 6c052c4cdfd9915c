"""Conventions, stated once: bit and spin, qubit order, pair order.

* Spin ``+1`` ("attend") is bit 0, the state ``|0>``; spin ``-1`` ("ignore") is bit 1, the state ``|1>``.
* Spin ``i`` sits on qubit ``i`` and in classical bit ``i``; configuration number ``c`` has bit ``i`` of ``c`` on spin
  ``i`` (little endian, as in Qiskit).
* Pairs ``(k, l)``, ``k < l``, are listed row by row: (0,1), (0,2), ..., (1,2), ...
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray


def spin_table(
    num_spins: int, *, dtype: torch.dtype = torch.float32, device: torch.device | None = None
) -> torch.Tensor:
    """All ``2**n`` configurations in order of their number, shape ``(2**n, n)``, values -1 and +1."""
    numbers = torch.arange(2**num_spins, device=device)
    bits = (numbers[:, None] >> torch.arange(num_spins, device=device)) & 1
    return (1 - 2 * bits).to(dtype)


def pair_indices(num_spins: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The pairs ``k < l`` as two index arrays of length ``n (n - 1) / 2``."""
    first, second = np.triu_indices(num_spins, 1)
    return first.astype(np.int64), second.astype(np.int64)


def num_pairs(num_spins: int) -> int:
    """``n (n - 1) / 2``."""
    return num_spins * (num_spins - 1) // 2


def spins_from_bytes(packed: NDArray[np.uint8], num_spins: int) -> NDArray[np.int8]:
    """Spins of a Qiskit ``BitArray.array``: ``(..., num_bytes)`` big-endian bytes to ``(..., n)`` int8 in {-1, +1}."""
    bits = np.unpackbits(packed[..., ::-1], axis=-1, count=num_spins, bitorder="little")
    return 1 - 2 * bits.view(np.int8)


def to_numpy(tensor: torch.Tensor) -> NDArray[np.float64]:
    """Torch to numpy, the one way: detached, on the host, float64 (what circuits and parameters are made of)."""
    array: NDArray[np.float64] = tensor.detach().to("cpu", torch.float64).numpy()
    return array


def to_torch(spins: NDArray[np.int8], like: torch.Tensor) -> torch.Tensor:
    """Numpy to torch, the one way: integer spins to an int8 tensor on the device of ``like``."""
    return torch.from_numpy(np.ascontiguousarray(spins, dtype=np.int8)).to(like.device)
