"""Random small problems, for hypothesis and for plain loops."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor


def random_couplings(shape: tuple[int, ...], num_spins: int, scale: float, generator: torch.Generator) -> Tensor:
    """Symmetric, zero diagonal, entries of standard deviation ``scale``; float64."""
    upper = torch.randn(*shape, num_spins, num_spins, dtype=torch.float64, generator=generator).triu(1) * scale
    return upper + upper.mT


@st.composite
def problems(draw: st.DrawFn, max_spins: int = 5, masks: bool = True) -> tuple[Tensor, Tensor, Tensor | None]:
    """``(fields, couplings, visible)`` in float64: batches of up to three dimensions, couplings shared along any."""
    num_spins = draw(st.integers(1, max_spins))
    batch = tuple(draw(st.lists(st.integers(1, 3), max_size=3)))
    lead = tuple(size if draw(st.booleans()) else 1 for size in batch)
    lead = lead[draw(st.integers(0, len(lead))) :]
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    scale_h, scale_j = draw(st.sampled_from([0.1, 1.0, 3.0])), draw(st.sampled_from([0.0, 0.3, 1.0]))
    fields = torch.randn(*batch, num_spins, dtype=torch.float64, generator=generator) * scale_h
    couplings = random_couplings(lead, num_spins, scale_j, generator)
    visible = None
    if masks and draw(st.booleans()):
        visible = torch.rand(fields.shape, generator=generator) < draw(st.sampled_from([0.2, 0.6, 0.9]))
    return fields, couplings, visible
