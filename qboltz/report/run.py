"""The page of a run."""

from __future__ import annotations

from qboltz.experiments.applicability import COUPLINGS, SAMPLER, applicable
from qboltz.report.circuit import circuit_section
from qboltz.report.costs import costs, environment, shown_path
from qboltz.report.couplings import couplings_of_run
from qboltz.report.examples import examples
from qboltz.report.fidelity import fidelity, without_shot_noise
from qboltz.report.looked import Looked, sampler_name, shown
from qboltz.report.page import Html, Section, element, facts, figure, note, page, paragraph
from qboltz.report.pictures import training_curves
from qboltz.report.results import chance_of, histories, results
from qboltz.report.run_folder import RunFolder
from qboltz.schedule import AnnealingSchedule

#: Keys of the metrics that are no quantity of training.
_NOT_DRAWN = ("step", "lr", "circuits", "seconds")
#: Options that are none of the run.
_HIDDEN = ("out", "resume", "overwrite", "dry_run", "unused", "threads", "no_twin")


def run_page(run: RunFolder, most: int = 6) -> str:
    """HTML of a run, finished or not, with ``most`` examples of attention."""
    looked = Looked.at(run)
    sections = [
        Section("What was run", _options(run)),
        Section("Results", results(run)),
        Section("Learning curves", _curves(run)),
        Section("Couplings", shown(run, lambda: couplings_of_run(run))),
        Section("Attention examples", looked.part(lambda: examples(run.task, looked.passes, most), needed=False)),
    ]
    if run.samples:
        sections.append(Section("Solver fidelity", looked.part(lambda: _fidelity(run, looked))))
    if run.runs_circuits:
        sections.append(Section("Circuit", looked.part(lambda: _circuit(run, looked))))
    recorded = (run.summary or {}).get("environment")
    sections += [Section("Costs", costs(run)), Section("Environment", environment(recorded))]
    return page(f"Run {run.folder.resolve().name}", _head(run), sections)


def _head(run: RunFolder) -> list[Html]:
    args, steps = run.args, run.steps_done
    how = f"{args.variant} attention" + (f" through {args.backend}" if run.samples else "")
    parts = [paragraph(f"{_task_name(run)}: {how}, seed {args.seed}.", class_="lead")]
    if run.summary is None:
        done = f"{steps} of {args.steps} steps are done"
        twins = "".join(
            f"; {name}: {lines.records[-1]['step'] if lines.records else 0}" for name, lines in run.twins.items()
        )
        parts.append(note(element("strong", "This run is not finished: "), f"{done}{twins}. What is there is shown."))
    torn = [name for name, lines in {"its own": run.metrics, **run.twins}.items() if lines.torn]
    if torn:
        parts.append(note(f"The last line of the metrics ({', '.join(torn)}) is half written and left out."))
    return parts


def _task_name(run: RunFolder) -> str:
    return {
        "recall": "Associative recall",
        "brackets": "Bracket matching",
        "shakespeare": "Next character of a text",
    }.get(run.args.task, str(run.args.task))


def _options(run: RunFolder) -> list[Html]:
    saved = run.checkpoint["settings"] if run.checkpoint is not None else (run.summary or {})
    chosen = {name: value for name, value in vars(run.args).items() if name in saved and name not in _HIDDEN}
    useless = set(SAMPLER) - (applicable(run.args.backend) if run.has_spins else frozenset())
    if run.args.variant in ("softmax", "h-only"):
        useless |= set(COUPLINGS)
    chosen = {name: value for name, value in chosen.items() if name not in useless}
    if chosen.get("data"):
        chosen["data"] = shown_path(chosen["data"])
    if "no_ffn" in chosen:
        chosen["feed-forward layer"] = not chosen.pop("no_ffn")
    if "processes" in saved:
        chosen["processes"] = saved["processes"]
    given = [(name.replace("_", " "), _plain(value)) for name, value in chosen.items() if value is not None]
    if not given:
        return [paragraph("The run has noted no options: there is neither a checkpoint nor a summary.")]
    half = -(-len(given) // 2)
    return [element("div", facts(given[:half]), facts(given[half:]), class_="examples")]


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _curves(run: RunFolder) -> list[Html]:
    by_name = histories(run)
    if not any(by_name.values()):
        return [paragraph("No step was recorded.")]
    keys = dict.fromkeys(key for records in by_name.values() for record in records[-1:] for key in record)
    names = [name for name in keys if name not in _NOT_DRAWN]
    picture = training_curves(by_name, names, chance=chance_of(run))
    return [figure(picture, "On the training batches, running means of 20 steps.")]


def _fidelity(run: RunFolder, looked: Looked) -> list[Html]:
    exact = looked.passes.get("exact")
    if exact is None:
        return [paragraph(f"Models of {run.task.length} spins are too large for exact enumeration.")]
    ideal, args = None, run.args
    plain = run.runs_circuits and args.shots and args.estimator == "plain" and not args.polish
    plain_shots = args.shots if plain else None
    if run.runs_circuits and args.shots:
        ideal = without_shot_noise(args, looked.solver.schedule, run.model, exact.batch)
    parts = fidelity(sampler_name(run), looked.own, exact, ideal, plain_shots)
    if run.paid:
        parts.insert(
            0, note(f"A report submits nothing: in place of {run.args.backend}, its circuits without noise are shown.")
        )
    return parts


def _circuit(run: RunFolder, looked: Looked) -> list[Html]:
    ising = looked.own.model
    assert ising is not None
    schedule: AnnealingSchedule = looked.solver.schedule
    simulated = run.args.backend == "statevector"
    where = "simulated exactly" if simulated else f"run on {run.args.backend}"
    return circuit_section(ising, schedule, run.args.shots or None, where)
