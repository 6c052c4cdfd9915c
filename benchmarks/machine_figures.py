"""Figure of the gates a chip needs, from the records of machine_cost.py.

python benchmarks/machine_figures.py
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from pathlib import Path

from matplotlib.figure import Figure
from records import RESULTS, read

IMAGE = Path(__file__).parents[1] / "docs" / "images" / "machine_gates.png"
#: Contender: label, marker, gray, line.
LOOKS = {
    "preset": ("Qiskit, preset level 3", "s", "0.6", ":"),
    "commuting": ("Qiskit's commuting router", "^", "0.35", "--"),
    "network": ("qboltz, swap network on a line", "o", "0.0", "-"),
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
        for contender, (label, marker, shade, line) in LOOKS.items():
            known = [size for size in sizes if (name, contender, size) in found]
            means = [statistics.mean(found[name, contender, size]) for size in known]
            axis.plot(known, means, marker=marker, color=shade, linestyle=line, label=label)
        axis.axhline(1, color="0.8", zorder=0)
        axis.set(
            title=title, xlabel="spins n", ylabel="over 3n(n-1)/2 - (n/2 - 1)" if name == "gates" else "over 3n - 1"
        )
        axis.grid(color="0.93")
    figure.axes[0].legend(fontsize=8)
    return figure


if __name__ == "__main__":
    gates().savefig(IMAGE, dpi=110, metadata={"Software": None})
