"""What follows from the fidelity records: which bounds hold, trained attention, where annealing can be trusted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fidelity_records import (
    CELLS,
    MEAN_FIELDS,
    NEAREST,
    compact,
    fitted,
    merged,
    recorded_errors,
    recorded_names,
    records,
    value,
)
from markdown_table import table

Measured = list[float]
WEAK, MIDDLE = (0.5, 0.1), (0.5, 0.3)


def bounds() -> str:
    """What was asked for at n = 8 and on the recall model of six pairs, and what was measured."""
    rows = [
        bound("fitted (weak), p = 4, plain, at (0.5, 0.1)", 0.012, error(WEAK, 4, "fitted, weak")),
        bound("fitted (middle), p = 4, plain, at (0.5, 0.3)", 0.055, error(MIDDLE, 4, "fitted, middle")),
        bound("fitted (middle), p = 8, plain, at (0.5, 0.3)", 0.025, error(MIDDLE, 8, "fitted, middle")),
        bound("adaptive, p = 4, plain, at (0.5, 0.1)", 0.006, error(WEAK, 4, "adaptive")),
        *(
            bound(f"{label} 256 shots, at (0.5, 0.1)", 0.012, of_256_shots(name, estimator))
            for label, name, estimator in (
                ("fitted (weak), p = 4, conditional,", "fitted, weak", "conditional"),
                ("exact samples, no circuit: conditional,", "exact samples", "conditional"),
                ("fitted (weak), p = 4, conditional with control variate,", "fitted, weak", "corrected"),
            )
        ),
    ]
    thirds = [
        ratio(error(WEAK, p, name, "conditional"), error(WEAK, p, name))
        for p in range(1, 9)
        for name in ("fitted, weak", "adaptive")
    ]
    rows.append(
        bound(
            "conditional over plain at (0.5, 0.1), fitted (weak) and adaptive, largest of p = 1..8",
            1 / 3,
            worst(thirds, max),
        )
    )
    for name, label in (("linear", "calibrated linear"), ("linear, best time", "linear with its best anneal time")):
        gains = [ratio(error(WEAK, p, name), error(WEAK, p, "fitted, weak")) for p in range(3, 9)]
        rows.append(
            bound(
                f"{label} over fitted (weak), plain, at (0.5, 0.1), smallest of p = 3..8",
                3,
                worst(gains, min),
                least=True,
            )
        )
    for depth, limit in ((4, 0.06), (8, 0.016)):
        for goal in ("moments", "kl"):
            for model in ("recall_p6", "recall_p6_long"):
                found = value(recorded_errors(model, depth), f"adaptive, {goal}", "conditional", "attention")
                rows.append(
                    bound(f"attention weights, `{model}`, adaptive ({goal}), p = {depth}, conditional", limit, found)
                )
    return table(["infinite shots unless it says otherwise", "required", "measured", ""], rows)


def of_256_shots(name: str, estimator: str) -> Measured | None:
    """From the part of the grid that has the most models with finite shots."""
    for record in records("correction"):
        if (record["sigma_h"], record["sigma_J"], record["layers"]) == (*WEAK, 4):
            return value(record["errors"], name, estimator, samples="256")
    return None


def error(
    cell: tuple[float, float], depth: int, name: str, estimator: str = "plain", samples: str = "infinite"
) -> Measured | None:
    return value(merged(8, cell, depth), name, estimator, samples=samples)


def ratio(over: Measured | None, under: Measured | None) -> Measured | None:
    """Quotient and its standard error, as if both were independent (they share their models: it is smaller)."""
    if over is None or under is None:
        return None
    quotient = over[0] / under[0]
    return [quotient, quotient * ((over[1] / over[0]) ** 2 + (under[1] / under[0]) ** 2) ** 0.5]


def worst(values: list[Measured | None], choose: Callable[..., Measured]) -> Measured | None:
    known = [number for number in values if number is not None]
    return choose(known) if known else None


def bound(claim: str, limit: float, measured: Measured | None, least: bool = False) -> list[str]:
    sign = "at least" if least else "at most"
    if measured is None:
        return [claim, f"{sign} {limit:.3g}", "", "not measured"]
    passed = measured[0] >= limit if least else measured[0] <= limit
    near = abs(measured[0] - limit) < 2 * measured[1]
    verdict = "holds" if passed else "**falls short**"
    return [
        claim,
        f"{sign} {limit:.3g}",
        compact(measured),
        verdict + (" (within two standard errors)" if near else ""),
    ]


def trust() -> str:
    """Where the error of the anneal is below the noise of 256 exact samples, and whether mean field does as well."""
    rows = []
    for cell in CELLS:
        by_depth = {p: merged(8, cell, p) for p in range(1, 9)}
        names = {"linear": "linear", "fitted": fitted(cell), "adaptive": "adaptive"}
        label = f"random, n = 8, {cell}, fitted: {NEAREST[cell]}"
        rows.append(trusted(label, by_depth, names, merged(8, cell, None), "magnetization"))
    for model in recorded_names():
        spins = next(r["num_spins"] for r in records("recorded") if r["name"] == model)
        by_depth = {p: recorded_errors(model, p) for p in range(1, 9)}
        names = {"linear": "linear", "fitted": "fitted, broad", "adaptive": "adaptive, moments"}
        label = f"`{model}`, n = {spins}, fitted: broad"
        rows.append(trusted(label, by_depth, names, recorded_errors(model, None), "attention"))
    head = ["models", "256 exact samples", "linear from", "fitted from", "adaptive from"]
    return table([*head, "best mean field", "below that noise"], rows)


def trusted(
    label: str,
    by_depth: dict[int, dict[str, Any]],
    names: dict[str, str],
    others: dict[str, Any],
    quantity: str,
) -> list[str]:
    noise = value(others, "exact samples", "conditional", quantity, "256")
    if noise is None:
        return [label, *[""] * 6]
    cells, reached = [], []
    for kind, name in names.items():
        found = {p: value(errors, name, "conditional", quantity) for p, errors in by_depth.items()}
        known = {p: number for p, number in found.items() if number is not None}
        good = stays_below(known, noise[0])
        cells.append("not measured" if not known else f"not up to p = {max(known)}" if good is None else f"p = {good}")
        if good is not None:
            reached.append(kind)
    fields = {
        label: number
        for method, label in MEAN_FIELDS.items()
        if not others[f"mean field, {method}"]["failed"]
        and (number := value(others, f"mean field, {method}", "", quantity)) is not None
    }
    best = min(fields, key=lambda method: fields[method][0])
    if fields[best][0] <= noise[0]:
        reached.append(best)
    return [label, compact(noise), *cells, f"{best}: {compact(fields[best])}", ", ".join(reached) or "neither"]


def stays_below(errors: dict[int, Measured], limit: float) -> int | None:
    """The smallest measured depth from which on the error is below the limit."""
    below = [depth for depth in sorted(errors) if all(errors[p][0] <= limit for p in errors if p >= depth)]
    return below[0] if below else None


def recorded() -> str:
    """Attention-weight errors on models of trained attention, conditional, infinite shots."""
    rows = []
    for name in recorded_names():
        record = next(r for r in records("recorded") if r["name"] == name)
        others = recorded_errors(name, None)
        rivals = [compact(value(others, f"mean field, {m}", "", "attention")) for m in MEAN_FIELDS]
        rivals.append(compact(value(others, "exact samples", "conditional", "attention", "256")))
        for depth in (2, 4, 6, 8):
            errors = recorded_errors(name, depth)
            schedules = ("linear", "fitted, broad", "adaptive, moments", "adaptive, kl")
            numbers = [compact(value(errors, s, "conditional", "attention")) for s in schedules]
            label = f"`{name}`, n = {record['num_spins']}" if depth == 2 else ""
            strength = f"{record['rms_J']:.2f}, {record['max_J']:.2f}" if depth == 2 else ""
            rows.append([label, strength, str(depth), *numbers, *(rivals if depth == 2 else [""] * len(rivals))])
    head = ["model", "J: rms, largest", "p", "linear", "broad", "adaptive, moments", "adaptive, KL"]
    return table([*head, *MEAN_FIELDS.values(), "256 exact samples"], rows)


def refit() -> str:
    """What following J costs."""
    rows = []
    for record in records("refit"):
        seconds = record["errors"]
        whole = "whole" if record["num_spins"] <= 12 else "blocks of 10 spins"
        spread = f"{seconds['median']:.2f} s ({seconds['low_quartile']:.2f} to {seconds['high_quartile']:.2f})"
        rows.append(
            [str(record["num_spins"]), whole, f"{seconds['first']:.2f} s", spread, f"{20 * seconds['median']:.0f} ms"]
        )
    return table(["n", "fitted on", "first refit", "median refit (quartiles)", "per step, refit every 50"], rows)


CLAIMS: dict[str, Callable[[], str]] = {"bounds": bounds, "trust": trust, "recorded": recorded, "refit": refit}
