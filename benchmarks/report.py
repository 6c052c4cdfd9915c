"""Tables in README.md and benchmarks/README.md, made from the records.

    python benchmarks/report.py [--check]

A table stands between `<!-- results:NAME -->` and `<!-- end -->`. With --check nothing is written, and the exit status
is 1 if a file differs from what the records say.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from records import RESULTS, read

from qboltz.schedule import fitted_table

ROOT = Path(__file__).parents[1]
FILES = [ROOT / "README.md", ROOT / "benchmarks" / "README.md", ROOT / "docs" / "dqa.md"]
BLOCK = re.compile(r"(<!-- results:(\w+) -->\n).*?(<!-- end -->)", re.DOTALL)

#: Rows of the short table in the README.
SHORT_LADDER = {
    "softmax": "softmax",
    "h-only, exact": "`h-only` (no couplings), exact",
    "exact": "`h+J`, exact enumeration",
    "Aer, fitted p=3": "**`h+J`, Aer circuits, 3 layers, 256 shots**",
    "Aer, fitted p=4": "**`h+J`, Aer circuits, 4 layers, 256 shots**",
    "circuits, fitted p=1": "`h+J`, circuits of 1 layer, 256 shots",
    "mean field, naive": "`h+J`, naive mean field",
    "mean field, one step": "`h+J`, one mean-field step",
}


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def holds(passed: bool) -> str:
    return "holds" if passed else "**falls short**"


def speed() -> str:
    rows = []
    for record in read(RESULTS / "exact_speed.jsonl") + read(RESULTS / "exact_speed_1_thread.jsonl"):
        if record["case"] != "compared" or not record["required_ratio"]:
            continue
        low, _, high = record["ratio_quartiles"]
        ratio, threads = record["ratio"], record["threads"]
        claim = f"exact, forward + backward, n = {record['num_spins']}, {record['rows']} rows, against softmax over 2^n"
        claim += f", {threads} thread{'s' if threads > 1 else ''}"
        required = record["required_ratio"]
        measured = f"{ratio:.1f}x ({low:.1f} to {high:.1f})"
        rows.append([claim, f"{required:.0f}x", measured, f"{record['peak_fraction']:.0%}", holds(ratio >= required)])
    for record in read(RESULTS / "exact_speed.jsonl"):
        if record["case"] == "alone" and record["num_spins"] >= 20:
            claim = f"exact, n = {record['num_spins']}, {record['rows']} rows: peak memory growth"
            grown = record["memory_growth_mib"]
            share = f"{record['peak_fraction']:.0%}"
            rows.append([claim, "1024 MiB", f"{grown:.0f} MiB", share, holds(grown < 1024)])
    for record in read(RESULTS / "simulator_speed.jsonl"):
        claim = f"batched simulator with 256 shots against Aer, p = 4, n = {record['num_spins']}, {record['rows']} rows"
        low, high = record["samples_ratio_range"]
        measured = f"{record['samples_ratio']:.0f}x ({low:.0f} to {high:.0f})"
        share = f"{record['share_of_peak']:.0%}"
        rows.append([claim, f"{record['target_ratio']:.0f}x", measured, share, holds(record["passed"])])
    for record in read(RESULTS / "annealing_overhead.jsonl"):
        claim = f"`AnnealingSolver` on Aer, all included, of the bare sampler, n = {record['num_spins']}, 256 shots"
        low, _, high = record["fraction_quartiles"]
        fraction = record["fraction_of_bare"]
        measured = f"{fraction:.0%} ({low:.0%} to {high:.0%})"
        rows.append([claim, f"{record['required']:.0%}", measured, "", holds(fraction >= record["required"])])
    return table(["claim", "required", "measured: median (spread)", "of the matrix-product peak", ""], rows)


def ladder(names: dict[str, str] | None = None) -> str:
    runs: dict[str, dict[int, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for record in read(RESULTS / "recall_ladder.jsonl"):
        runs[record["run"]][record["pairs"]].append(record)
    pairs = sorted({p for run in runs.values() for p in run})
    rows = []
    for name, label in (names or {name: name for name in runs}).items():
        cells = [accuracies(runs[name][p]) for p in pairs]
        rows.append([label, *cells])
    return table(["accuracy: mean (lowest to highest), seeds", *(f"P = {p}" for p in pairs)], rows)


def accuracies(records: list[dict[str, Any]]) -> str:
    values = [record["accuracy"] for record in records if "accuracy" in record]
    failed = len(records) - len(values)
    if not values:
        return f"no result ({failed} failed)" if failed else ""
    text = f"{statistics.mean(values):.3f} ({min(values):.3f} to {max(values):.3f}), {len(values)}"
    return text + (f", {failed} failed" if failed else "")


def recall() -> str:
    return ladder(SHORT_LADDER)


def step() -> str:
    records = read(RESULTS / "training_step.jsonl")
    names = list(dict.fromkeys(name for record in records for name in record["parts_ms"]))
    rows = [[name, *(part(record["parts_ms"].get(name), record["step_ms"]) for record in records)] for name in names]
    rows.append(["**whole step**", *(f"**{record['step_ms']:.1f} ms**" for record in records)])
    return table(["median per step", *(record["backend"] for record in records)], rows)


def part(value: float | None, whole: float) -> str:
    return "" if value is None else f"{value:.2f} ms, {value / whole:.0%}"


def schedules() -> str:
    rows = []
    for ensemble in ("weak", "middle", "broad"):
        for depth, entry in sorted(fitted_table()[ensemble].items()):
            errors = entry["held_out"]
            numbers = [f"{errors[name]:.4f}" for name in ("magnetization", "conditional", "covariance", "kl")]
            rows.append([ensemble, depth, *numbers])
    return table(["ensemble", "p", "plain", "conditional", "covariance", "KL (nats)"], rows)


def cells() -> list[dict[str, Any]]:
    return [record for record in read(RESULTS / "dqa_fidelity.jsonl") if record["num_spins"] == 8]


def fidelity() -> str:
    """Errors of schedules at infinite shots: plain / conditional, by depth."""
    rows = []
    for record in cells():
        if record["layers"] in (2, 4, 6, 8):
            errors = record["errors"]
            names = ("linear", "fitted, weak", "fitted, middle", "fitted, broad", "adaptive")
            numbers = [f"{errors[name]['magnetization']:.4f} / {errors[name]['conditional']:.4f}" for name in names]
            rows.append([f"({record['sigma_h']}, {record['sigma_J']})", str(record["layers"]), *numbers])
    return table(["(sigma_h, sigma_J)", "p", "linear", "weak", "middle", "broad", "adaptive"], rows)


def controls() -> str:
    """Errors at 256 samples, conditional estimator, and of mean field."""
    names = {
        "circuits p=4, conditional, polish 0": "circuits, p = 4",
        "circuits p=4, conditional, polish 1": "circuits, polished",
        "random spins, conditional, polish 1": "random spins, polished",
        "Gibbs, conditional": "Gibbs chains",
        "mean field, one_step": "one mean-field step",
        "mean field, naive": "naive mean field",
        "mean field, tap": "TAP",
    }
    rows = []
    for record in cells():
        if record["layers"] is None:
            errors = (record["errors"][name] for name in names)
            numbers = [f"{error['magnetization']:.4f}" if "magnetization" in error else "failed" for error in errors]
            rows.append([f"({record['sigma_h']}, {record['sigma_J']})", *numbers])
    return table(["(sigma_h, sigma_J)", *names.values()], rows)


TABLES = {
    "fidelity": fidelity,
    "controls": controls,
    "speed": speed,
    "ladder": ladder,
    "recall": recall,
    "step": step,
    "schedules": schedules,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 on a difference")
    options = parser.parse_args()
    stale = []
    for path in FILES:
        old = path.read_text(encoding="utf-8")
        new = BLOCK.sub(lambda block: block[1] + TABLES[block[2]]() + block[3], old)
        if new == old:
            continue
        stale.append(path.relative_to(ROOT))
        if not options.check:
            path.write_text(new, encoding="utf-8")
    for path in stale:
        print(f"{path} {'differs from the records: run python benchmarks/report.py' if options.check else 'updated'}")
    return 1 if stale and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
