"""Final figures of a run, beside chance and its twins; of one that is not finished, how far it has come."""

from __future__ import annotations

import math
from typing import Any

from qboltz.report.page import Html, paragraph, table
from qboltz.report.run_folder import RunFolder


def results(run: RunFolder) -> list[Html]:
    """The section."""
    chance = chance_of(run)
    if run.summary is None:
        rows = [
            [name, f"{len(records)}", *(f"{_last_mean(records, key):.4f}" for key in ("accuracy", "loss"))]
            for name, records in histories(run).items()
            if records
        ]
        said = "" if chance is None else f" (chance is {chance:.4f})"
        head = ["model", "steps", "accuracy", "loss"]
        return [
            paragraph(f"No test sequences were evaluated yet. On the last 20 training batches so far{said}:"),
            table(head, rows) if rows else paragraph("No step was recorded."),
        ]
    summary = run.summary
    own = str(run.args.backend) if run.has_spins else "softmax"
    variant = run.args.variant
    found = [
        (variant, own, own, summary.get("accuracy")),
        (variant, own, "exact", summary.get("exact_eval_accuracy") if own != "exact" else None),
        (f"{variant}, exact twin", "exact", "exact", summary.get("exact_twin_accuracy") if own != "exact" else None),
        ("softmax twin", "softmax", "softmax", summary.get("softmax_twin_accuracy") if run.has_spins else None),
    ]
    rows = [[*names, _accuracy(run, value)] for *names, value in found if value is not None]
    if chance is not None:
        rows.append(["chance", "", "", f"{chance:.4f}"])
    errors = "After ± the standard error of so many test sequences." if "±" in str(rows) else ""
    parts = [
        table(["model", "trained with", "evaluated with", f"accuracy ({run.args.eval_size} test sequences)"], rows),
        *([paragraph(errors, class_="small")] if errors else []),
    ]
    if summary.get("loss") is not None:
        loss = float(summary["loss"])
        perplexity = math.exp(min(loss, 700))
        parts.append(paragraph(f"Loss with the run's own solver: {loss:.4f} (perplexity {perplexity:.4f})."))
    if summary.get("magnetization_rmse") is not None:
        rmse = summary["magnetization_rmse"]
        parts.append(paragraph(f"Root mean square error of its magnetizations on these sequences: {rmse:.4f}."))
    return parts


def _accuracy(run: RunFolder, value: float) -> str:
    """With its standard error where every test sequence asks once, and so independently of the others."""
    count = run.args.eval_size
    if run.args.task == "shakespeare" or run.args.form == "causal":
        return f"{value:.4f}"
    return f"{value:.4f} ± {math.sqrt(value * (1 - value) / count):.4f}"


def chance_of(run: RunFolder) -> float | None:
    """Accuracy of guessing; ``None`` if neither the summary nor the task can say it."""
    if run.summary is not None and run.summary.get("chance") is not None:
        return float(run.summary["chance"])
    try:
        return run.task.chance
    except (ValueError, OSError):  # the text is elsewhere, which other sections say
        return None


def histories(run: RunFolder) -> dict[str, list[dict[str, Any]]]:
    """Metrics of the run and its twins, by name."""
    twins = {name: lines.records for name, lines in run.twins.items()}
    return {run.args.variant: run.metrics.records, **twins}


def _last_mean(records: list[dict[str, Any]], key: str) -> float:
    values = [record[key] for record in records[-20:]]
    return float(sum(values) / len(values))
