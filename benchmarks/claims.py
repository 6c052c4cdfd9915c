"""Claims, one row each: what the paper says, what the records say with its interval, and whether it holds.

The verdicts follow docs/protocol.md: a claim of a gap "holds" if the 95 % interval lies on its side of zero, "fails" if
it lies on the other side or excludes the paper's figure, and is "open" otherwise.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import planted_couplings
import ring_choice
from evidence import (
    Record,
    accuracies,
    brackets,
    find,
    gap_at,
    one,
    pair_matrix,
    percent_gap,
    point_gap,
    text,
)
from paired import Interval, interval
from protocol import KINDS
from scipy import stats

HOLDS, FAILS, OPEN, MISSING = "holds", "**fails**", "open", "not run"
#: Differences below these count as comparable: percent of perplexity, points of accuracy.
COMPARABLE_PERCENT, COMPARABLE_POINTS = 0.5, 1.0

Found = tuple[str, str]
Lookup = Callable[[int, str], Record | None]
Gap = Callable[[Record, Record], Interval]


@dataclass(frozen=True)
class Claim:
    """``found`` gives our figure and the verdict; ``short`` claims stand in the README too."""

    claim: str
    paper: str
    found: Callable[[], Found]
    script: str
    figure: str = ""
    short: bool = False


def verdict(gap: Interval, paper: float) -> str:
    """Of a claimed gap above zero."""
    if gap.side > 0:
        return HOLDS
    return FAILS if gap.side < 0 or not gap.low <= paper <= gap.high else OPEN


def claimed_gap(records: Lookup, length: int, measure: Gap, paper: float, unit: str) -> Found:
    gap = gap_at(records, length, "h+J", measure)
    if gap is None:
        return "", MISSING
    return f"{gap.text(2, sign=True)} {unit}, {seeds(records(length, 'h+J'))} seeds", verdict(gap, paper)


def seeds(record: Record | None) -> int:
    return 0 if record is None else len(record["loss"])


def comparable(records: Lookup, length: int, measure: Gap, unit: str) -> Found:
    """All kinds but ``J-only`` within the margin of softmax."""
    gaps = {kind: gap_at(records, length, kind, measure) for kind in KINDS if kind not in ("softmax", "J-only")}
    known = {kind: gap for kind, gap in gaps.items() if gap is not None}
    if len(known) < len(gaps):
        return "", MISSING
    far = max(known.values(), key=lambda gap: abs(gap.mean))
    margin = COMPARABLE_PERCENT if unit == "%" else COMPARABLE_POINTS
    return f"largest difference {far.text(2, sign=True)} {unit}", HOLDS if abs(far.mean) < margin else FAILS


def growth(records: Lookup, lengths: Sequence[int], measure: str, unit: str) -> Found:
    """Slope of each seed's gap against length, over the lengths of the paper, by least squares."""
    gaps = []
    for length in lengths:
        record, base = records(length, "h+J"), records(length, "softmax")
        if record is None or base is None:
            return "", MISSING
        if measure == "percent":
            pairs = zip(record["loss"], base["loss"], strict=True)
            gaps.append([100 * (1 - float(np.exp(loss - other))) for loss, other in pairs])
        else:
            gaps.append([a - b for a, b in zip(accuracies(record), accuracies(base), strict=True)])
    slopes = np.polyfit(list(lengths), np.array(gaps), 1)[0].tolist()
    found = interval(slopes)
    sign = HOLDS if found.side > 0 else FAILS if found.side < 0 else OPEN
    return f"{found.text(3, sign=True)} {unit} a token, T = {lengths[0]} to {lengths[-1]}", sign


def worse(records: Lookup, lengths: Sequence[int], kind: str, measure: Gap, unit: str) -> Found:
    """``kind`` below softmax at every length."""
    gaps = [gap_at(records, length, kind, measure) for length in lengths]
    known = [gap for gap in gaps if gap is not None]
    if len(known) < len(lengths):
        return "", MISSING
    shown = "; ".join(f"T = {length}: {gap.text(2, True)}" for length, gap in zip(lengths, known, strict=True))
    sides = {gap.side for gap in known}
    return f"{shown} {unit}", HOLDS if sides == {-1} else FAILS if 1 in sides else OPEN


def beyond(records: Lookup, length: int, kind: str, measure: Gap, unit: str) -> Found:
    """``kind`` above ``h+J``."""
    gap = gap_at(records, length, kind, measure, "h+J")
    if gap is None:
        return "", MISSING
    return f"{kind}: {gap.text(2, True)} {unit} against h+J", HOLDS if gap.side > 0 else FAILS if gap.side < 0 else OPEN


def signs(records: Lookup, length: int) -> Found:
    """Mean ``J`` at distances 2 to 4 and from 6 on."""
    record = records(length, "h+J")
    if record is None:
        return "", MISSING
    dense = pair_matrix(record)
    j, k = np.indices(dense.shape[1:])
    near, far = (k - j >= 2) & (k - j <= 4), k - j >= 6
    parts = [interval(dense[:, chosen].mean(1).tolist()) for chosen in (near, far)]
    shown = f"2 to 4: {parts[0].text(3, True)}; from 6: {parts[1].text(3, True)}"
    if (parts[0].side, parts[1].side) == (1, -1):
        return shown, HOLDS
    return shown, FAILS if parts[0].side < 0 or parts[1].side > 0 else OPEN


def competitive(task: str, trained: str, length: int, norm: bool | None = None) -> Found:
    """Trained through circuits against trained exactly, each with its own solver: not worse by more than a margin."""
    at = {"task": task, "length": length, "qk_norm": norm}
    record, exact = (one("dqa_training", trained=name, **at) for name in (trained, "exact"))
    if record is None or exact is None:
        return "", MISSING
    measure, margin, unit = (
        (point_gap, COMPARABLE_POINTS, "points") if task == "brackets" else (percent_gap, COMPARABLE_PERCENT, "%")
    )
    gap = measure(record, exact)
    sign = HOLDS if gap.low > -margin else FAILS if gap.side < 0 else OPEN
    return f"{gap.text(2, True)} {unit}, {seeds(record)} seeds", sign


def recalled() -> Found:
    """The fewest right answers over pairs and seeds with couplings, the most with softmax."""
    ours = find("associative_recall", kind="h+J", start=1.0, ffn=False, seeds=[0, 5])
    base = find("associative_recall", kind="softmax", start=0.0, ffn=False, seeds=[0, 5])
    if not ours or not base:
        return "", MISSING
    least, most = min(min(r["accuracy"]) for r in ours), max(max(r["accuracy"]) for r in base if r["cell"]["pairs"] > 2)
    pairs = sorted(record["cell"]["pairs"] for record in ours)
    shown = f"P = {pairs[0]} to {pairs[-1]}: h+J at least {least:.3f}; softmax from P = 3 at most {most:.3f}"
    return shown, HOLDS if least > 0.99 and most < 0.6 else FAILS


def mixing_recalls() -> Found:
    found = find("associative_recall", kind="softmax+mixing", start=0.0, ffn=False, seeds=[0, 5])
    if not found:
        return "", MISSING
    least = min(min(record["accuracy"]) for record in found)
    return f"softmax((1 + A) h) from A = 0, no start needed: at least {least:.3f}", HOLDS if least > 0.99 else FAILS


def ring(length: int, ffn: bool) -> Found:
    """Couplings against the best rival on fresh seeds."""
    at = {"length": length, "ffn": ffn, "seeds": ring_choice.SEEDS}
    ours = one("ring_choice", kind="h+J", start=ring_choice.START, **at)
    rivals = [record for record in find("ring_choice", **at) if record["cell"]["kind"] != "h+J"]
    if ours is None or not rivals:
        return "", MISSING
    best = max(rivals, key=lambda record: statistics.mean(record["accuracy"]))
    gap = point_gap(ours, best)
    own, other = (statistics.mean(accuracies(record)) for record in (ours, best))
    shown = f"{own:.1f} against {other:.1f} % ({best['cell']['kind']}): {gap.text(1, True)} points"
    return shown, HOLDS if gap.side > 0 else FAILS if gap.side < 0 else OPEN


def solved(length: int, ffn: bool) -> Found:
    """Seeds above 95 %, with couplings and with the best rival; Fisher's exact test, one-sided."""
    at = {"length": length, "ffn": ffn, "seeds": ring_choice.SEEDS}
    found = find("ring_choice", **at)
    counts = {
        (record["cell"]["kind"], record["cell"]["start"]): sum(v > ring_choice.SOLVED for v in record["accuracy"])
        for record in found
    }
    ours = counts.pop(("h+J", ring_choice.START), None)
    if ours is None or not counts:
        return "", MISSING
    total, most = seeds(found[0]), max(counts.values())
    p = float(stats.fisher_exact([[ours, total - ours], [most, total - most]], alternative="greater").pvalue)
    return f"{ours} of {total} seeds, rivals at most {most} (Fisher's p = {p:.3g})", HOLDS if p < 0.05 else OPEN


def planted(solver: str, least: float) -> Found:
    sizes = sorted({record["cell"]["examples"] for record in find("planted_couplings", solver=solver)})
    if not sizes:
        return "", MISSING
    correlations = [r["correlation"] for r in find("planted_couplings", solver=solver, examples=sizes[-1])]
    if len(correlations) < planted_couplings.SEEDS:
        return "", MISSING
    found = interval(correlations)
    shown = f"correlation {found.text(3)} with {sizes[-1]:,} examples"
    return shown, HOLDS if found.low > least else FAILS


RING_CASES = ((False, 9), (False, 13), (True, 9))
PAPER_TEXT, PAPER_BRACKETS = (4, 6, 8, 10, 12), (8, 10, 12, 14, 16)
CLAIMS: list[Claim] = [
    Claim(
        "text, T = 4: the kinds are comparable",
        "comparable",
        lambda: comparable(text, 4, percent_gap, "%"),
        "length_scaling",
        "text_scaling",
    ),
    Claim(
        "text, T = 12: perplexity of h+J below softmax",
        "1.08 %",
        lambda: claimed_gap(text, 12, percent_gap, 1.08, "%"),
        "length_scaling",
        "text_scaling",
        short=True,
    ),
    Claim(
        "text, T = 12: a position bias of as many numbers does more than J",
        "",
        lambda: beyond(text, 12, "softmax+bias", percent_gap, "%"),
        "ablation",
        "text_scaling",
        short=True,
    ),
    Claim(
        "text: that gap grows with T",
        "yes",
        lambda: growth(text, PAPER_TEXT, "percent", "%"),
        "length_scaling",
        "text_scaling",
    ),
    Claim(
        "text, T >= 8: h-only is worse than softmax",
        "yes",
        lambda: worse(text, (8, 10, 12), "h-only", percent_gap, "%"),
        "length_scaling",
        "text_scaling",
        short=True,
    ),
    Claim(
        "text, T = 12: J-only is poor",
        "yes",
        lambda: worse(text, (12,), "J-only", percent_gap, "%"),
        "ablation",
        "text_scaling",
    ),
    Claim(
        "brackets, T = 16: accuracy of h+J above softmax",
        "2.89 points",
        lambda: claimed_gap(brackets(True), 16, point_gap, 2.89, "points"),
        "bracket_matching",
        "bracket_scaling",
        short=True,
    ),
    Claim(
        "brackets, T = 16, no feed-forward layer: the same",
        "4.53 points",
        lambda: claimed_gap(brackets(False), 16, point_gap, 4.53, "points"),
        "bracket_matching",
        "bracket_scaling",
        short=True,
    ),
    Claim(
        "brackets: that gap grows with T",
        "yes",
        lambda: growth(brackets(True), PAPER_BRACKETS, "points", "points"),
        "bracket_matching",
        "bracket_scaling",
    ),
    Claim(
        "text, T = 12: J is positive at distances 2 to 4, negative from 6",
        "yes",
        lambda: signs(text, 12),
        "coupling_structure",
        "coupling_structure",
        short=True,
    ),
    Claim(
        "brackets, T = 12: circuits of fitted angles train as well as exact enumeration",
        "competitive",
        lambda: competitive("brackets", "circuits, plain", 12),
        "dqa_training",
    ),
    Claim(
        "brackets, T = 12: circuits of fitted angles with the conditional estimator do",
        "",
        lambda: competitive("brackets", "circuits, conditional", 12),
        "dqa_training",
        short=True,
    ),
    Claim(
        "brackets, T = 12, normalized queries and keys: circuits refitted while training do",
        "",
        lambda: competitive("brackets", "adaptive circuits, plain", 12, True),
        "dqa_training",
        short=True,
    ),
    Claim(
        "brackets, T = 12, normalized queries and keys: fitted angles, the circuit's own gradient",
        "",
        lambda: competitive("brackets", "circuits, plain, circuit gradient", 12, True),
        "dqa_training",
        short=True,
    ),
    Claim(
        "text, T = 12: circuits of fitted angles do",
        "competitive",
        lambda: competitive("shakespeare", "circuits, plain", 12),
        "dqa_training",
    ),
    Claim(
        "text, T = 8, normalized queries and keys: circuits refitted while training do",
        "",
        lambda: competitive("shakespeare", "adaptive circuits, plain", 8, True),
        "dqa_training",
        short=True,
    ),
    Claim(
        "recall in one layer: couplings solve it, softmax cannot",
        "",
        recalled,
        "associative_recall",
        "recall_pairs",
        short=True,
    ),
    Claim(
        "recall: the linear mixing of scores solves it too",
        "",
        mixing_recalls,
        "associative_recall",
        "recall_pairs",
        True,
    ),
    *(
        Claim(
            f"ring of {length}{', feed-forward layer' if ffn else ''}: more seeds above 95 % with h+J",
            "",
            lambda length=length, ffn=ffn: solved(length, ffn),
            "ring_choice",
            "ring_choice",
            short=not ffn,
        )
        for ffn, length in RING_CASES
    ),
    *(
        Claim(
            f"ring of {length}{', feed-forward layer' if ffn else ''}: h+J above linear mixing and position bias",
            "",
            lambda length=length, ffn=ffn: ring(length, ffn),
            "ring_choice",
            "ring_choice",
            short=not ffn,
        )
        for ffn, length in RING_CASES
    ),
    Claim(
        "planted couplings are recovered by training through circuits (p = 4, 256 shots, refitted)",
        "",
        lambda: planted("circuits, adaptive p=4, 256 shots, conditional", 0.9),
        "planted_couplings",
        "planted_couplings",
        short=True,
    ),
]


def rows(short: bool) -> tuple[list[str], list[list[str]]]:
    """Head and rows; the long form names command, record and figure."""
    chosen = [claim for claim in CLAIMS if claim.short or not short]
    head = ["claim", "paper", "here: mean (95 % interval)", ""]
    if not short:
        head += ["command", "record", "figure"]
    lines = []
    for claim in chosen:
        ours, sign = claim.found()
        line = [claim.claim, claim.paper or "-", ours, sign]
        if not short:
            image = f"../docs/images/{claim.figure}.png"
            figure = f"[{claim.figure}]({image})" if claim.figure else ""
            line += [f"`{claim.script}.py`", "`results/" + record_of(claim.script) + "`", figure]
        lines.append(line)
    return head, lines


def record_of(script: str) -> str:
    """Scripts of the ablation and of the structure share the records of the grids."""
    return {"ablation": "length_scaling.jsonl", "coupling_structure": "length_scaling.jsonl"}.get(
        script, f"{script}.jsonl"
    )
