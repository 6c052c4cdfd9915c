"""Tables of the evidence, as Markdown. Every cell is empty until its runs are recorded."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

import dqa_training
import exploration
import numpy as np
import planted_couplings
import ring_choice
from evidence import (
    BRACKET_LENGTHS,
    TEXT_LENGTHS,
    Record,
    accuracies,
    brackets,
    by_distance,
    find,
    gap_at,
    one,
    pair_matrix,
    percent_gap,
    perplexities,
    point_gap,
    steps_to,
    text,
)
from joint_choice import CASES
from markdown_table import table
from paired import Interval, interval
from protocol import KINDS
from started import combinations


def shown(found: Interval | None, digits: int, sign: bool = False) -> str:
    """An interval, in bold if it is a difference that excludes zero."""
    if found is None:
        return ""
    text_ = found.text(digits, sign)
    return f"**{text_}**" if sign and found.side else text_


def scaling(
    records: Callable[[int, str], Record | None],
    lengths: Sequence[int],
    level: Callable[[Record], list[float]],
    measure: Callable[[Record, Record], Interval],
    digits: int,
) -> str:
    """A column a length: the level of softmax, the paired difference of every other kind."""
    rows = []
    for kind in KINDS:
        cells = []
        for length in lengths:
            record = records(length, kind)
            if kind == "softmax":
                cells.append("" if record is None else f"{statistics.mean(level(record)):.{digits}f}")
            else:
                cells.append(shown(gap_at(records, length, kind, measure), digits, sign=True))
        rows.append([f"`{kind}`" if kind != "softmax" else "`softmax`, mean", *cells])
    return table(["", *(f"T = {length}" for length in lengths)], rows)


def text_scaling() -> str:
    return scaling(text, TEXT_LENGTHS, perplexities, percent_gap, 2)


def bracket_scaling(ffn: bool) -> str:
    return scaling(brackets(ffn), BRACKET_LENGTHS, accuracies, point_gap, 1)


def bracket_forms() -> str:
    """The other forms of the task, T = 12 and 16."""
    rows = []
    forms = {"two kinds, marked": {"kinds": 2}, "one kind, every closing bracket, causal": {"form": "causal"}}
    for label, form in forms.items():
        records = brackets(True, **form)
        for length in (12, 16):
            base = records(length, "softmax")
            cells = ["" if base is None else f"{statistics.mean(accuracies(base)):.1f}"]
            cells += [shown(gap_at(records, length, kind, point_gap), 1, sign=True) for kind in KINDS[1:]]
            rows.append([f"{label}, T = {length}", *cells])
    return table(["", "`softmax`", *(f"`{kind}`" for kind in KINDS[1:])], rows)


def bracket_steps() -> str:
    """Median steps to 95 % accuracy over the seeds, and how many reach it."""
    rows = []
    for ffn in (False, True):
        for length in BRACKET_LENGTHS:
            cells = []
            for kind in KINDS:
                record = brackets(ffn)(length, kind)
                if record is None:
                    cells.append("")
                    continue
                steps = steps_to(record, 0.95)
                reached = [value for value in steps if math.isfinite(value)]
                median = statistics.median(steps)
                cells.append(f"{median:.0f} ({len(reached)})" if math.isfinite(median) else f"never ({len(reached)})")
            if any(cells):
                rows.append([f"T = {length}, {'with' if ffn else 'without'} feed-forward", *cells])
    return table(["median steps (seeds that reach it, of 10)", *(f"`{kind}`" for kind in KINDS)], rows)


def bracket_pairs(key: str, length: int = 16) -> str:
    """Accuracy at each distance or depth of the pair that is asked for, all seeds together, without feed-forward."""
    records = {kind: brackets(False)(length, kind) for kind in KINDS}
    done = {kind: record for kind, record in records.items() if record is not None}
    if not done:
        return ""
    values = sorted({int(value) for record in done.values() for value in record[key]})
    rows = []
    for value in values:
        asked = next(sum(record[key][str(value)][0]) for record in done.values() if str(value) in record[key])
        cells = [
            f"{100 * sum(record[key][str(value)][1]) / sum(record[key][str(value)][0]):.1f}"
            if str(value) in record[key]
            else ""
            for record in done.values()
        ]
        rows.append([str(value), str(asked), *cells])
    name = {"by_distance": "distance", "by_depth": "depth"}[key]
    return table([name, "questions", *(f"`{kind}`" for kind in done)], rows)


def ablation() -> str:
    """Every kind at T = 12 and 16 on both tasks, with the parameters of one model."""
    cases = [
        ("text, T = 12", text, 12, perplexities, percent_gap, 3),
        ("text, T = 16", text, 16, perplexities, percent_gap, 3),
        ("brackets, T = 12", brackets(True), 12, accuracies, point_gap, 1),
        ("brackets, T = 16", brackets(True), 16, accuracies, point_gap, 1),
        ("brackets, T = 16, no feed-forward", brackets(False), 16, accuracies, point_gap, 1),
    ]
    rows = []
    for kind in KINDS:
        cells = []
        for _, records, length, level, measure, digits in cases:
            record = records(length, kind)
            if record is None:
                cells.append("")
                continue
            own = f"{statistics.mean(level(record)):.{digits}f}"
            gap = gap_at(records, length, kind, measure)
            cells.append(own if kind == "softmax" else f"{own}; {shown(gap, min(digits, 2), sign=True)}")
        at = [text(12, kind), brackets(True)(12, kind)]
        counts = " / ".join("" if record is None else f"{record['parameters']:,}" for record in at)
        rows.append([f"`{kind}`", counts, *cells])
    head = ["", "parameters, text / brackets, T = 12", *(case[0] for case in cases)]
    return table(head, rows)


def structure() -> str:
    """Mean learned coupling at each distance, with the interval over seeds."""
    found = {
        "text, T = 12": text(12, "h+J"),
        "text, T = 16": text(16, "h+J"),
        **{f"brackets, T = {length}": brackets(False)(length, "h+J") for length in (12, 16)},
    }
    columns = {name: by_distance(record) for name, record in found.items() if record is not None}
    distances = sorted({d for column in columns.values() for d in column})
    rows = [[str(d), *(shown(column.get(d), 3, sign=True) for column in columns.values())] for d in distances]
    return table(["distance", *columns], rows)


def planted() -> str:
    """Correlation of learned with planted couplings, and share of equal signs, against the size of the data."""
    rows = []
    for solver in planted_couplings.SOLVERS:
        cells = []
        for size in planted_couplings.SIZES:
            found = find("planted_couplings", solver=solver, examples=size)
            if not found:
                cells.append("")
                continue
            correlation = interval([record["correlation"] for record in found])
            signs = statistics.mean(record["equal_signs"] for record in found)
            error = statistics.mean(record["rms_error"] for record in found)
            cells.append(f"{correlation.text(3)}; {100 * signs:.0f}%; {error:.3f}")
        rows.append([solver, *cells])
    return table(["trained with", *(f"{size:,} examples" for size in planted_couplings.SIZES)], rows)


def label(kind: str, start: float) -> str:
    return f"`{kind}`" + (f", start {start:g}" if start else "")


def recall_pairs() -> str:
    """Accuracy against the number of pairs: mean over seeds, and the lowest."""
    pairs = range(2, 10)
    rows = []
    for kind, start in combinations(1.0):
        found = [one("associative_recall", pairs=p, kind=kind, start=start, ffn=False, seeds=[0, 5]) for p in pairs]
        rows.append([label(kind, start), *(spread(record) for record in found)])
    deeper = [one("associative_recall", pairs=p, kind="softmax", start=0.0, ffn=True, seeds=[0, 5]) for p in pairs]
    rows.append(["`softmax` with a feed-forward layer", *(spread(record) for record in deeper)])
    return table(["mean (lowest)", *(f"P = {p}" for p in pairs)], rows)


def recall_starts() -> str:
    """Accuracy at P = 4 against the start between neighbors."""
    starts = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
    rows = []
    for kind in ("h+J", "softmax+mixing"):
        found = [one("associative_recall", pairs=4, kind=kind, start=s, ffn=False, seeds=[0, 5]) for s in starts]
        rows.append([f"`{kind}`", *(spread(record) for record in found)])
    return table(["mean (lowest), P = 4", *(f"start {start:g}" for start in starts)], rows)


def recall_couplings() -> str:
    """Learned numbers over pairs of positions by their role, started at 1 between neighbors."""
    rows = []
    for kind in ("h+J", "softmax+mixing"):
        for pairs in (4, 6, 8):
            record = one("associative_recall", pairs=pairs, kind=kind, start=1.0, ffn=False, seeds=[0, 5])
            if record is None:
                continue
            dense = pair_matrix(record)[:, : 2 * pairs + 1, : 2 * pairs + 1]
            bonds = np.diagonal(dense, 1, 1, 2)  # (S, 2 P)
            j, k = np.triu_indices(2 * pairs, 2)
            roles = [bonds[:, :-1:2], bonds[:, 1:-1:2], dense[:, j, k], dense[:, -1, :-1]]
            cells = [interval(role.mean(1).tolist()).text(2, True) for role in roles]
            rows.append([f"`{kind}`, P = {pairs}", *cells])
    return table(["", "key and its value", "value and next key", "other pairs", "with the query's position"], rows)


def spread(record: Record | None) -> str:
    if record is None:
        return ""
    return f"{statistics.mean(record['accuracy']):.3f} ({min(record['accuracy']):.3f})"


def joint() -> str:
    """Tasks of joint choice: accuracy, and couplings minus the best start of mixing, paired."""
    rows = []
    for kind, started in [(kind, False) for kind in KINDS] + [("softmax+mixing", True), ("h+J", True)]:
        cells = []
        for task, length, start in CASES:
            at = start if started else 0.0
            record = one("joint_choice", task=task, length=length, kind=kind, start=at, seeds=[0, 5])
            cells.append("" if record is None else interval(accuracies(record)).text(1))
        rows.append([f"`{kind}`" + (", started" if started else ""), *cells])
    cells = []
    for task, length, start in CASES:
        ours = one("joint_choice", task=task, length=length, kind="h+J", start=start, seeds=[0, 5])
        rivals = [
            record
            for kind in KINDS
            if kind != "h+J"
            for begin in (0.0, start)
            if (record := one("joint_choice", task=task, length=length, kind=kind, start=begin, seeds=[0, 5]))
        ]
        if ours is None or not rivals:
            cells.append("")
            continue
        best = max(rivals, key=lambda record: statistics.mean(record["accuracy"]))
        cells.append(shown(point_gap(ours, best), 1, sign=True))
    rows.append(["`h+J`, started, minus the best other kind", *cells])
    return table(["accuracy, percent", *(f"{task}, T = {length}" for task, length, _ in CASES)], rows)


def rings() -> str:
    """Couplings and rivals on rings, fresh seeds, and the paired difference to couplings."""
    rows = []
    for kind, start, ffn in ring_choice.RUNS:
        cells = []
        for length in ring_choice.LENGTHS:
            at = {"length": length, "ffn": ffn, "seeds": ring_choice.SEEDS}
            record = one("ring_choice", kind=kind, start=start, **at)
            ours = one("ring_choice", kind="h+J", start=ring_choice.START, **at)
            if record is None or ours is None:
                cells += ["", ""]
                continue
            solved = sum(value > ring_choice.SOLVED for value in record["accuracy"])
            own = f"{interval(accuracies(record)).text(1)}; best {max(accuracies(record)):.1f}; {solved} solved"
            cells += [own, "" if record is ours or kind == "h+J" else shown(point_gap(ours, record), 1, sign=True)]
        rows.append([label(kind, start) + (", feed-forward layer" if ffn else ""), *cells])
    head = [part for length in ring_choice.LENGTHS for part in (f"T = {length}: accuracy, %", "`h+J` minus it")]
    return table(["", *head], rows)


def dqa() -> str:
    """Trained through circuits and exactly: paired differences, and each with the other's solver."""
    rows = []
    cases: list[tuple[str, int, bool | None]] = [
        (task, length, None) for task in ("brackets", "shakespeare") for length in (8, 12)
    ]
    for task, length, norm in [*cases, *((task, length, True) for task, length in dqa_training.BOUNDED_AT)]:
        at = {"task": task, "length": length, "steps": dqa_training.STEPS, "qk_norm": norm}
        exact = one("dqa_training", trained="exact", **at)
        for name in dqa_training.TRAINERS:
            record = one("dqa_training", trained=name, **at)
            if record is None or exact is None:
                continue
            where = f"{task}, T = {length}{', q and k normalized' if norm else ''}"
            rows.append([where, name, *dqa_cells(task, record, exact)])
    head = ["task", "trained with", "own solver", "minus exactly trained", "with exact", "with fitted circuits"]
    return table([*head, "with angles refitted to it", "correlation of J", "z² of Aer"], rows)


def dqa_cells(task: str, record: Record, exact: Record) -> list[str]:
    def level(part: Record) -> str:
        values = accuracies(part) if task == "brackets" else perplexities(part)
        return f"{statistics.mean(values):.{1 if task == 'brackets' else 3}f}"

    gap = point_gap(record, exact) if task == "brackets" else percent_gap(record, exact)
    others = [level(record[key]) if key in record else "" for key in ("with exact", "with circuits", "with adaptive")]
    similar, agreed = "", ""
    if record["kind"] == "h+J" and record != exact:
        pairs = zip(record["pairs"], exact["pairs"], strict=True)
        similar = interval([correlation(one_, other) for one_, other in pairs]).text(2)
    if "aer" in record:
        agreed = f"{record['aer']['mean_z2']:.2f} ± {record['aer']['mean_z2_error']:.2f}"
    own = "" if record == exact else shown(gap, 1 if task == "brackets" else 2, sign=True)
    return [level(record), own, *others, similar, agreed]


def correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Pearson's, of the numbers over pairs; 0 if one of them is constant."""
    if min(statistics.pstdev(first), statistics.pstdev(second)) == 0:
        return 0.0
    return statistics.correlation(first, second)


def explored() -> str:
    """Exploratory runs: accuracy of each kind under each variation, and couplings minus softmax, paired."""
    rows = []
    for name in exploration.VARIATIONS:
        found = {record["cell"]["kind"]: record for record in find("exploration", variation=name)}
        base = find("exploration", variation="as in the protocol", kind="softmax")
        cells = [interval(accuracies(found[kind])).text(1) if kind in found else "" for kind in exploration.COMPARED]
        other = found.get("softmax") or (base[0] if base else None)
        gap = "" if other is None or "h+J" not in found else shown(point_gap(found["h+J"], other), 1, sign=True)
        rows.append([name, *cells, gap])
    head = ["changed", *(f"`{kind}`" for kind in exploration.COMPARED), "`h+J` minus `softmax`"]
    return table(head, rows)


EVIDENCE: dict[str, Callable[[], str]] = {
    "text_scaling": text_scaling,
    "bracket_scaling": lambda: bracket_scaling(False),
    "bracket_scaling_ffn": lambda: bracket_scaling(True),
    "bracket_forms": bracket_forms,
    "bracket_steps": bracket_steps,
    "bracket_distance": lambda: bracket_pairs("by_distance"),
    "bracket_depth": lambda: bracket_pairs("by_depth"),
    "ablation": ablation,
    "structure": structure,
    "planted": planted,
    "recall_pairs": recall_pairs,
    "recall_starts": recall_starts,
    "recall_couplings": recall_couplings,
    "joint": joint,
    "rings": rings,
    "dqa_training": dqa,
    "explored": explored,
}
