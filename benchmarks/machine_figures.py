"""Figure of the gates a chip needs, from the records of machine_cost.py.

python benchmarks/machine_figures.py
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from pathlib import Path

import matplotlib
from figure_style import LOOKS, STYLES
from matplotlib.figure import Figure
from records import RESULTS, read

IMAGE = Path(__file__).parents[1] / "docs" / "images" / "machine_gates.png"
#: Contender: label and look.
CONTENDERS = {
    "preset": ("Qiskit, preset level 3", STYLES["linear"]),
    "commuting": ("Qiskit's commuting router", STYLES["fitted"]),
    "network": ("qboltz, swap network on a line", STYLES["adaptive"]),
}


def gates() -> Figure:
    """Two-qubit gates and depth of one layer over those of the bound, mean of three chips."""
    found = defaultdict(list)
    for record in read(RESULTS / "machine_cost.jsonl"):
        if record["part"] == "gates" and record["num_layers"] == 1:
            for name in ("gates", "depth"):
                ratio = record[f"two_qubit_{name}"] / record[f"bound_{name}"]
                found[name, record["contender"], record["num_spins"]].append(ratio)
    sizes = sorted({size for _, _, size in found})
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    for axis, name, title in zip(
        figure.subplots(1, 2),
        ("gates", "depth"),
        ("two-qubit gates of a layer", "two-qubit depth of a layer"),
        strict=True,
    ):
        for contender, (label, style) in CONTENDERS.items():
            known = [size for size in sizes if (name, contender, size) in found]
            means = [statistics.mean(found[name, contender, size]) for size in known]
            axis.plot(known, means, label=label, **style)
        axis.axhline(1, color="0.8", zorder=0)
        axis.set(
            title=title, xlabel="spins n", ylabel="over 3n(n-1)/2 - (n/2 - 1)" if name == "gates" else "over 3n - 1"
        )
    figure.axes[0].legend()
    return figure


if __name__ == "__main__":
    matplotlib.rcParams.update(LOOKS)
    gates().savefig(IMAGE, dpi=110, metadata={"Software": None})
