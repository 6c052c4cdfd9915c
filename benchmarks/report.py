"""Tables in README.md, benchmarks/README.md and docs, made from the records.

    python benchmarks/report.py [--check]

A table stands between `<!-- results:NAME -->` and `<!-- end -->`. With --check nothing is written, and the exit status
is 1 if a file differs from what the records say.
"""

from __future__ import annotations

import argparse
import math
import re
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import claims
import machine_tables
import peers_table
from evidence_tables import EVIDENCE
from fidelity_claims import CLAIMS
from fidelity_tables import TABLES as FIDELITY
from markdown_table import table
from records import RESULTS, read
from scipy.stats import t as student

from qboltz.schedule import fitted_table

ROOT = Path(__file__).parents[1]
FILES = [
    ROOT / "README.md",
    ROOT / "benchmarks" / "README.md",
    *(ROOT / "docs" / name for name in ("dqa.md", "fidelity.md", "results.md", "evidence.md")),
]
BLOCK = re.compile(r"(<!-- results:(\w+) -->\n).*?(<!-- end -->)", re.DOTALL)

#: Rows of the short table in the README.
SHORT_LADDER = {
    "softmax": "softmax",
    "h-only, exact": "`h-only` (no couplings), exact",
    "exact": "`h+J`, exact enumeration",
    "Aer, fitted p=3": "**`h+J`, Aer circuits, 3 layers, 256 shots**",
    "Aer, fitted p=4": "**`h+J`, Aer circuits, 4 layers, 256 shots**",
    "circuits, adaptive p=2, refit every 50": "`h+J`, circuits of 2 layers refitted every 50 steps",
    "circuits, fitted p=2": "`h+J`, circuits of 2 layers, not refitted",
    "circuits, fitted p=1": "`h+J`, circuits of 1 layer, 256 shots",
    "mean field, naive": "`h+J`, naive mean field",
    "mean field, one step": "`h+J`, one mean-field step",
}


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


def paired_t(differences: list[float]) -> tuple[float, float]:
    """Mean and half width of its 95 % interval (Student's t; NaN for one difference)."""
    count = len(differences)
    if count < 2:
        return differences[0], math.nan
    error = statistics.stdev(differences) / math.sqrt(count)
    return statistics.mean(differences), float(student.ppf(0.975, count - 1)) * error


def t_interval(differences: list[float]) -> str:
    if not differences:
        return ""
    mean, half = paired_t(differences)
    text = f"{mean:+.3f} ± {half:.3f}"
    return f"**{text}**" if abs(mean) > half else text


Trainings = dict[str, dict[int, dict[str, Any]]]


def trainings(start: float) -> Trainings:
    """Records of the training grid by run and seed; the softmax and h-only runs belong to both starts."""
    runs: Trainings = defaultdict(dict)
    for record in read(RESULTS / "sampler_training.jsonl"):
        if record["start"] == start or record["run"] in ("softmax", "h-only"):
            runs[record["run"]][record["seed"]] = record
    return runs


def differences(runs: Trainings, name: str, key: str, other: str, other_key: str = "accuracy") -> list[float]:
    """``key`` of one run minus ``other_key`` of another, over the seeds that both have."""
    return [
        record[key] - runs[other][seed][other_key]
        for seed, record in runs[name].items()
        if key in record and other_key in runs[other].get(seed, {})
    ]


def mean_of(records: list[dict[str, Any]], key: str, digits: int = 3) -> str:
    values = [record[key] for record in records if key in record]
    return f"{statistics.mean(values):.{digits}f}" if values else ""


def samplers(start: float) -> str:
    """Bracket matching trained with every sampler, beside exact enumeration of the same seed."""
    runs = trainings(start)
    rows = []
    for name in sorted(runs, key=list(trainings(1.0)).index):
        if name == "agreement" or "circuit gradient" in name or "p=1" in name or "p=2" in name:
            continue
        records = list(runs[name].values())
        done = [record for record in records if "failed" not in record]
        failed = f", {len(records) - len(done)} failed" if len(done) < len(records) else ""
        own, exact = "", ""
        if name != "exact":
            own = t_interval(differences(runs, name, "accuracy", "exact"))
            exact = t_interval(differences(runs, name, "exact_accuracy", "exact"))
        rows.append(
            [
                name,
                f"{len(done)}{failed}",
                mean_of(done, "accuracy"),
                own,
                mean_of(done, "exact_accuracy"),
                exact,
                mean_of(done, "magnetization_rmse"),
                drawn_in_training(done),
                f"{statistics.median(record['seconds'] for record in done):.0f} s" if done else "",
            ]
        )
    head = ["trained with", "seeds", "accuracy, own sampler", "minus exact", "accuracy, exact", "minus exact"]
    return table([*head, "rms error of m", "drawn in training", "time"], rows)


def drawn_in_training(records: list[dict[str, Any]]) -> str:
    if not records or not records[0]["samples"] + records[0]["circuits"]:
        return ""
    record = records[0]
    kind = "circuits" if record["circuits"] else "models"
    shots = f" x {record['samples'] // record['models']}" if record["samples"] else ""
    return f"{record['models']:,} {kind}{shots}"


def gradient_training() -> str:
    """Trained with the covariance rule and with the circuit's own gradient, from couplings of 1."""
    runs = trainings(1.0)
    rows = []
    for name in runs:
        own = f"{name}, circuit gradient"
        if own not in runs:
            continue
        cells = [mean_of(list(runs[run].values()), "accuracy") for run in (name, own)]
        exact = [mean_of(list(runs[run].values()), "exact_accuracy") for run in (name, own)]
        rows.append(
            [
                name,
                *cells,
                t_interval(differences(runs, own, "accuracy", name)),
                *exact,
                t_interval(differences(runs, own, "exact_accuracy", name, "exact_accuracy")),
            ]
        )
    head = ["trained with", "covariance rule", "circuit gradient", "difference"]
    return table([*head, "evaluated with exact: covariance rule", "circuit gradient", "difference"], rows)


def agreement() -> str:
    """Qiskit Aer beside the batched simulator: samples of the same circuits, and training."""
    runs = trainings(1.0)
    records = list(runs["agreement"].values())
    rows = []
    for schedule in ("linear", "fitted"):
        parts = [[record[f"{solver}, {schedule}"] for record in records] for solver in SAMPLED]
        likelihoods = [", ".join(f"{part['z_log_likelihood']:+.1f}" for part in seeds) for seeds in parts]
        rows.append([f"{schedule} p=4: z of the log-likelihood of all samples, per seed", *likelihoods, ""])
        squares = [
            f"{statistics.mean(part['mean_z2'] for part in seeds):.3f} ± "
            f"{math.sqrt(sum(part['mean_z2_error'] ** 2 for part in seeds)) / len(seeds):.3f}"
            if seeds
            else ""
            for seeds in parts
        ]
        rows.append([f"{schedule} p=4: mean of z^2 of the magnetizations (expected 1)", *squares, ""])
    for end in ("64 shots, plain", "256 shots, plain", "1024 shots, plain", "256 shots, conditional"):
        names = f"Aer, fitted p=4, {end}", f"circuits, fitted p=4, {end}"
        means = [mean_of(list(runs[name].values()), "accuracy") for name in names]
        rows.append(
            [f"accuracy after training, fitted p=4, {end}", *means, t_interval(differences(runs, *_pair(names)))]
        )
    return table(["", "Aer", "batched simulator", "difference"], rows)


def _pair(names: tuple[str, str]) -> tuple[str, str, str]:
    return names[0], "accuracy", names[1]


SAMPLED = ("AnnealingSolver", "StatevectorSolver")


def gradient_records() -> list[dict[str, Any]]:
    return [record for record in read(RESULTS / "gradients.jsonl") if record["num_spins"] == 8]


def gradient_bias() -> str:
    """Relative error (cosine) against the exact Boltzmann gradient, infinite shots."""
    rows = []
    for record in gradient_records():
        for schedule in ("linear", "fitted, broad"):
            errors = record["schedules"][schedule]
            cells = [
                f"{errors[estimator][kind]['relative_error']:.3f} ({errors[estimator][kind]['cosine']:.3f})"
                for estimator in ("plain", "conditional")
                for kind in ("covariance", "circuit")
            ]
            rows.append([f"({record['sigma_h']}, {record['sigma_J']})", str(record["layers"]), schedule, *cells])
    kinds = [f"{estimator}: {kind}" for estimator in ("plain", "conditional") for kind in ("covariance", "circuit")]
    return table(["(sigma_h, sigma_J)", "p", "schedule", *kinds], rows)


def gradient_noise() -> str:
    """Variance relative to the squared exact gradient, broad fitted schedules."""
    rows = []
    for record in gradient_records():
        errors = record["schedules"]["fitted, broad"]
        cells = [
            f"{errors[estimator][f'covariance, {shots} shots']['variance']:.4f}"
            for estimator in ("plain", "conditional")
            for shots in (64, 256)
        ]
        shifts = errors["parameter_shift"]
        cell = f"({record['sigma_h']}, {record['sigma_J']})"
        rows.append(
            [cell, str(record["layers"]), *cells, str(shifts["circuits"]), f"{shifts['variance, 256 shots']:.4f}"]
        )
    rules = [f"covariance, {estimator}, {shots}" for estimator in ("plain", "conditional") for shots in (64, 256)]
    return table(["(sigma_h, sigma_J)", "p", *rules, "shifted circuits", "parameter shifts, 256 each"], rows)


TABLES = {
    **FIDELITY,
    **CLAIMS,
    **EVIDENCE,
    "peers": lambda: peers_table.table(read(RESULTS / "against_peers.jsonl")),
    "claims": lambda: table(*claims.rows(short=False)),
    "claims_short": lambda: table(*claims.rows(short=True)),
    "samplers_strong": lambda: samplers(1.0),
    "samplers_zero": lambda: samplers(0.0),
    "sampler_agreement": agreement,
    "gradient_training": gradient_training,
    "gradient_bias": gradient_bias,
    "gradient_noise": gradient_noise,
    "speed": speed,
    "ladder": ladder,
    "recall": recall,
    "step": step,
    "schedules": schedules,
    "machine_gates": lambda: table(machine_tables.gates_head(), machine_tables.gates_rows()),
    "machine_training": lambda: table(machine_tables.training_head(), machine_tables.training_rows()),
    "machine_seconds": lambda: table(machine_tables.seconds_head(), machine_tables.seconds_rows()),
    "machine_noise": lambda: table(machine_tables.noise_head(), machine_tables.noise_rows()),
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
