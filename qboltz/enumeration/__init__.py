"""Exact sums over all configurations: as matrix products, in logarithms where numbers get too small, in closed form
where nothing is coupled. Four kinds of :class:`Factors` with one set of questions."""

from qboltz.enumeration.base import Factors
from qboltz.enumeration.direct import DirectFactors
from qboltz.enumeration.free import FreeFactors
from qboltz.enumeration.products import ProductFactors
from qboltz.enumeration.streaming import StreamedFactors
from qboltz.enumeration.tables import CouplingTable

__all__ = ["CouplingTable", "DirectFactors", "Factors", "FreeFactors", "ProductFactors", "StreamedFactors"]
