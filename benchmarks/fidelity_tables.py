"""Tables of the fidelity records, for `report.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fidelity_records import (
    CELLS,
    MEAN_FIELDS,
    SCHEDULES,
    Cell,
    compact,
    fitted,
    merged,
    recorded_errors,
    recorded_names,
    records,
    value,
)
from markdown_table import table

KINDS = ("conditional", "corrected")


def fidelity() -> str:
    """Schedules at n = 8 and infinite shots: plain / conditional."""
    rows = []
    for cell in CELLS:
        for depth in (1, 2, 3, 4, 6, 8):
            errors = merged(8, cell, depth)
            both = [[compact(value(errors, name, kind)) for kind in ("plain", "conditional")] for name in SCHEDULES]
            rows.append([str(cell), str(depth), *(" / ".join(pair) for pair in both)])
    return table(["(sigma_h, sigma_J)", "p", "linear", "weak", "middle", "broad", "adaptive"], rows)


def linear() -> str:
    """The linear schedule at its default and at its best anneal time, n = 8, plain."""
    rows = []
    for cell in CELLS:
        for name, label in (("linear", "1.35 p"), ("linear, best time", "best")):
            cells = [compact(value(merged(8, cell, p), name, "plain")) for p in range(2, 9)]
            rows.append([str(cell), label, *cells])
    return table(["(sigma_h, sigma_J)", "anneal time", *(f"p = {p}" for p in range(2, 9))], rows)


def quantities() -> str:
    """All four distances at n = 8, p = 4, with and without polish."""
    rows = []
    for cell in CELLS:
        errors = merged(8, cell, 4)
        for name in ("linear", fitted(cell), "adaptive"):
            for kind in ("plain", "conditional", "plain polished", "conditional polished"):
                numbers = [compact(value(errors, name, kind, q)) for q in ("magnetization", "attention", "covariance")]
                any_kind = "any polished" if "polished" in kind else "any"
                divergence = compact(value(errors, name, any_kind, "kl")) if kind.startswith("plain") else ""
                rows.append([str(cell), name, kind, *numbers, divergence])
    return table(
        ["(sigma_h, sigma_J)", "schedule", "estimator", "magnetization", "attention", "covariance", "KL (nats)"], rows
    )


def shots() -> str:
    """Whole error and its part that is shot noise, n = 8, p = 4."""
    rows = []
    for cell in CELLS:
        errors = merged(8, cell, 4)
        for name in ("linear", fitted(cell), "adaptive"):
            for kind in ("plain", "conditional"):
                cells = [compact(value(errors, name, kind))]
                for count in ("64", "256", "1024"):
                    found = value(errors, name, kind, samples=count)
                    cells.append("" if found is None else f"{compact(found)}, {found[2]:.3f}")
                rows.append([str(cell), name, kind, *cells])
    return table(["(sigma_h, sigma_J)", "schedule", "estimator", "infinite", "64", "256", "1024"], rows)


def sizes() -> str:
    """How the error grows with the number of spins, p = 4, conditional."""
    rows = []
    for cell in CELLS:
        for name in ("linear", fitted(cell), "adaptive"):
            numbers = [compact(value(merged(n, cell, 4), name, "conditional")) for n in (4, 6, 8, 10, 12)]
            rows.append([str(cell), name, *numbers])
    return table(["(sigma_h, sigma_J)", "schedule", *(f"n = {n}" for n in (4, 6, 8, 10, 12))], rows)


def controls() -> str:
    """Errors with 256 samples and the conditional estimator, n = 8, and of mean field."""
    rows = []
    for cell in CELLS:
        circuits, others = merged(8, cell, 4), merged(8, cell, None)
        cells = [
            compact(value(circuits, name, kind, samples="256"))
            for name in (fitted(cell), "adaptive")
            for kind in ("conditional", "conditional polished")
        ]
        for name, kind in (
            ("random spins", "conditional polished"),
            ("independent spins", "conditional"),
            ("independent spins", "conditional polished"),
            ("Gibbs", "conditional"),
            ("Gibbs, a chain per sample", "conditional"),
            ("exact samples", "conditional"),
        ):
            cells.append(compact(value(others, name, kind, samples="256")))
        for method in MEAN_FIELDS:
            found = others[f"mean field, {method}"]
            cells.append(compact(value(others, f"mean field, {method}", "")) + failures(found))
        rows.append([str(cell), *cells])
    names = ["fitted", "polished", "adaptive", "polished", "random spins, polished", "spins of the fields alone"]
    names += ["polished", "Gibbs, 8 samples a chain", "Gibbs, one", "exact samples", *MEAN_FIELDS.values()]
    return table(["(sigma_h, sigma_J)", *names], rows)


def correction() -> str:
    """Conditional estimator without / with the control variate, 256 samples, n = 8."""
    rows = []
    for cell in CELLS:
        for record in records("correction"):
            if (record["sigma_h"], record["sigma_J"]) != cell or record["layers"] == 2:
                continue
            names = ["random spins", "independent spins", "linear", fitted(cell), "exact samples"]
            cells = [
                " / ".join(compact(value(record["errors"], name, kind, samples="256")) for kind in KINDS)
                for name in names
            ]
            rows.append([str(cell), str(record["layers"]), *cells])
    head = ["random spins", "spins of the fields alone", "linear", "fitted", "exact samples"]
    return table(["(sigma_h, sigma_J)", "p", *head], rows)


def failures(found: dict[str, Any]) -> str:
    return f", {found['failed']} failed" if found["failed"] else ""


def noise() -> str:
    """A noisy device beside the ideal circuit, 1024 shots, conditional / plain."""
    rows: dict[tuple[int, Cell, str], dict[int, str]] = {}
    for record in records("noise"):
        cell = record["sigma_h"], record["sigma_J"]
        for name, label in (("fake_torino", "device"), ("ideal", "ideal circuit")):
            numbers = [
                compact(value(record["errors"], name, kind, samples=str(record["shots"])))
                for kind in ("plain", "conditional")
            ]
            rows.setdefault((record["num_spins"], cell, label), {})[record["layers"]] = " / ".join(numbers)
        gates = f"{record['errors']['two_qubit_gates']}"
        rows.setdefault((record["num_spins"], cell, "two-qubit gates"), {})[record["layers"]] = gates
    depths = (1, 2, 3, 4, 6, 8)
    order = sorted(rows, key=lambda key: (key[0], CELLS.index(key[1])))
    shown = [key for key in order if key[2] != "two-qubit gates" or key[1] == CELLS[1]]
    lines = [
        [
            str(n),
            "" if label == "two-qubit gates" else str(cell),
            label,
            *(rows[n, cell, label].get(p, "") for p in depths),
        ]
        for n, cell, label in shown
    ]
    return table(["n", "(sigma_h, sigma_J)", "", *(f"p = {p}" for p in depths)], lines)


def blocks() -> str:
    """Adaptive schedules of models too large to be refitted whole while training: attention weights, p = 4."""
    rows = []
    for name in recorded_names():
        errors = recorded_errors(name, 4)
        if "adaptive, blocks of 10" in errors:
            kinds = ("fitted, broad", "adaptive, blocks of 10", "adaptive, blocks of 12", "adaptive, moments")
            rows.append([f"`{name}`", *(compact(value(errors, kind, "conditional", "attention")) for kind in kinds)])
    return table(["model", "not adapted", "blocks of 10 spins", "blocks of 12 spins", "whole"], rows)


TABLES: dict[str, Callable[[], str]] = {
    "fidelity": fidelity,
    "linear": linear,
    "quantities": quantities,
    "shots": shots,
    "sizes": sizes,
    "controls": controls,
    "correction": correction,
    "noise": noise,
    "blocks": blocks,
}
