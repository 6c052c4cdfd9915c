"""Tables of the records of machine_cost.py and machine_training.py."""

from __future__ import annotations

import math
from typing import Any

from records import RESULTS, read

#: A chosen depth may be so much worse than the best.
TIES = 1.1


def records(part: str) -> list[dict[str, Any]]:
    return [record for record in read(RESULTS / "machine_cost.jsonl") if record["part"] == part]


def seconds_head() -> list[str]:
    return [
        "one step",
        "shots",
        "circuits",
        "rms error of m",
        "error of gradients",
        "QPU s of executions",
        "less",
        "with 2 s per job",
        "less",
        "steps in ten minutes",
    ]


def seconds_rows() -> list[list[str]]:
    rows = []
    for record in records("seconds"):
        for step in record["steps"]:
            gradient = "" if step["gradient_error"] is None else f"{step['gradient_error']:.2f}"
            rows.append(
                [
                    f"{record['workload']}, {record['rows']} rows: {step['name']}",
                    str(step["shots"]),
                    str(step["circuits"]),
                    f"{step['error']:.3f}",
                    gradient,
                    f"{step['qpu_seconds']:.4g}",
                    f"{step['ratio']:,.0f}x",
                    f"{step['qpu_seconds_with_job']:.2f}",
                    f"{step['ratio_with_job']:.1f}x",
                    f"{step['steps_in_open_plan_with_jobs']:,}",
                ]
            )
        coins = record["random_spins"]
        rows.append(
            [
                f"{record['workload']}: random spins, conditional, no machine",
                str(coins["shots"]),
                "",
                f"{coins['bias']:.3f} at infinite shots",
                f"{coins['gradient_error']:.2f}",
                *[""] * 5,
            ]
        )
    return rows


def noise_head() -> list[str]:
    return [
        "chip, n, schedule",
        "p (coupled)",
        "gates",
        "plain",
        "plain, corrected",
        "conditional",
        "conditional, corrected",
        "waiting decays",
        "and decoupled",
        "covariances",
        "chosen",
    ]


def noise_rows() -> list[list[str]]:
    rows = []
    for record in records("noise"):
        fitted = [row for row in record["rows"] if row["schedule"] == "fitted"]
        shown = [row for row in record["rows"] if row["schedule"] == "table"]
        shown += [best_of(fitted, depth) for depth in sorted({row["layers"] for row in fitted})]
        shown += [row for row in fitted if row["chosen"] and row not in shown]
        for row in shown:
            errors = row["errors"]
            names = ["plain", "plain, readout corrected", "conditional", "conditional, readout corrected"]
            names += ["waiting qubits decay", "waiting qubits decay, decoupled"]
            cells = [f"{errors[name]:.4f}" if name in errors else "" for name in names]
            chosen = "" if row["schedule"] == "table" else verdict(row, fitted)
            label = f"{record['chip']}, {record['num_spins']}, {row['schedule']}"
            depth = f"{row['layers']} ({row['coupled']})"
            rows.append([label, depth, str(row["two_qubit_gates"]), *cells, f"{row['covariance']:.4f}", chosen])
    return rows


def best_of(rows: list[dict[str, Any]], depth: int) -> dict[str, Any]:
    """Of one depth with any number of coupled layers: the smallest measured error."""
    return min((row for row in rows if row["layers"] == depth), key=combined)


def combined(row: dict[str, Any]) -> float:
    """What the fit minimizes, measured: errors of magnetizations (conditional) and of covariances."""
    return math.hypot(row["errors"]["conditional"], row["covariance"])


def verdict(row: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    if not row["chosen"]:
        return ""
    ratios = [score(row) / min(map(score, rows)) for score in (combined, lambda other: other["errors"]["conditional"])]
    holds = "holds" if max(ratios) <= TIES else "**falls short**"
    return f"yes: {ratios[0]:.2f} times the best of all, magnetizations alone {ratios[1]:.3f}; {holds}"


def gates_head() -> list[str]:
    return ["n", "bound", "swap network", "preset level 3", "commuting router"]


def gates_rows() -> list[list[str]]:
    """Two-qubit gates / depth of one layer, ranges over the chips."""
    found: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for record in records("gates"):
        if record["num_layers"] == 1:
            found.setdefault((record["num_spins"], record["contender"]), []).append(record)
    rows = []
    for size in sorted({size for size, _ in found}):
        bound = found[size, "network"][0]
        cells = [f"{bound['bound_gates']:.0f} / {bound['bound_depth']:.0f}"]
        for contender in ("network", "preset", "commuting"):
            of = found.get((size, contender), [])
            spans = [span([record[f"two_qubit_{name}"] for record in of]) for name in ("gates", "depth")]
            cells.append(" / ".join(spans) if of else "")
        rows.append([str(size), *cells])
    return rows


def span(values: list[int]) -> str:
    """Least to greatest, or the one value."""
    return f"{min(values)}" if min(values) == max(values) else f"{min(values)} to {max(values)}"


def training_head() -> list[str]:
    return [
        "n",
        "trained on",
        "accuracy, own sampler",
        "accuracy, exact",
        "chance",
        "rms error of m",
        "s per step (first)",
    ]


def training_rows() -> list[list[str]]:
    rows = []
    for record in read(RESULTS / "machine_training.jsonl"):
        cell = record["cell"]
        place = cell["backend"] if record["qubits"] is None else f"`{cell['backend']}`, {record['qubits']} qubits"
        rows.append(
            [
                str(cell["length"]),
                place,
                f"{record['accuracy']:.3f}",
                f"{record['exact_accuracy']:.3f}",
                f"{record['chance']:.3f}",
                f"{record['magnetization_rmse']:.3f}",
                f"{record['step_seconds']:.2f} ({record['first_step_seconds']:.1f})",
            ]
        )
    return rows
