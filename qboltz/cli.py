"""The command ``qboltz``: schedules, backends, prices, jobs and reports from the shell."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from qboltz.errors import BudgetError, ConvergenceError, JobError
from qboltz.jobs_cli import add_jobs_parser
from qboltz.machines_cli import add_machines_parsers
from qboltz.report.command_line import add_report_parser
from qboltz.schedule import AnnealingSchedule
from qboltz.schedule_cli import add_backend_verbs


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns 0, or 130 when interrupted; bad arguments exit with 2."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    try:
        arguments.run(arguments)
    except (ValueError, OSError, BudgetError, ConvergenceError, JobError) as error:
        parser.exit(2, f"qboltz: error: {error}\n")
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="qboltz", description="Boltzmann attention on annealing circuits.")
    parser.add_argument("--version", action="version", version=f"qboltz {version('qboltz')}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    schedule = commands.add_parser("schedule", help="show, fit and compare annealing schedules")
    verbs = schedule.add_subparsers(required=True, metavar="VERB")

    show = verbs.add_parser("show", help="angles, inverse temperatures and K_hJ of one schedule")
    _depth(show)
    _source(show)
    show.add_argument("--json", action="store_true", help="print JSON")
    show.set_defaults(run=_show)

    fit = verbs.add_parser("fit", help="fit schedules to random models; finished entries of FILE are kept")
    fit.add_argument("--layers", type=int, nargs="+", default=list(range(1, 9)), metavar="P")
    fit.add_argument("--ensemble", nargs="+", default=["weak", "middle", "broad"], metavar="NAME")
    fit.add_argument("--objective", default="moments", help="moments or kl (default: moments)")
    fit.add_argument("--restarts", type=int, default=3)
    fit.add_argument("--seed", type=int, default=0)
    fit.add_argument("--output", type=Path, required=True, metavar="FILE", help="JSON table to extend")
    fit.set_defaults(run=_fit)

    compare = verbs.add_parser("compare", help="errors of linear and fitted schedules on held-out random models")
    compare.add_argument("--layers", type=int, nargs="+", default=[2, 3, 4, 6, 8], metavar="P")
    compare.add_argument("--ensemble", default="weak", metavar="NAME", help="weak, middle or broad (default: weak)")
    compare.add_argument("--num-spins", type=int, default=8)
    compare.add_argument("--count", type=int, default=48, help="models (default: 48)")
    compare.add_argument("--seed", type=int, default=1)
    compare.add_argument("--json", action="store_true", help="print JSON")
    compare.set_defaults(run=_compare)
    add_backend_verbs(verbs)

    add_machines_parsers(commands)
    add_jobs_parser(commands)
    add_report_parser(commands)
    return parser


def _depth(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--layers", type=int, default=4, metavar="P", help="depth (default: 4)")


def _source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--linear", action="store_true", help="the calibrated linear ramp instead of the fitted table")
    parser.add_argument("--ensemble", default=None, metavar="NAME", help="what it was fitted on: weak, middle or broad")


def _show(arguments: argparse.Namespace) -> None:
    schedule = _schedule(arguments.layers, arguments.linear, arguments.ensemble)
    facts: dict[str, Any] = {
        **schedule.as_dict(),
        "beta_fields": schedule.beta_fields,
        "beta_couplings": schedule.beta_couplings,
        "k_hj": schedule.k_hj,
    }
    if arguments.json:
        print(json.dumps(facts))
        return
    for name, value in facts.items():
        values = value if isinstance(value, list) else [value]
        print(f"{name:16s}" + " ".join(f"{number:8.4f}" for number in values))


def _schedule(layers: int, linear: bool, ensemble: str | None) -> AnnealingSchedule:
    if linear:
        return AnnealingSchedule.linear(layers)
    return AnnealingSchedule.fitted(layers) if ensemble is None else AnnealingSchedule.fitted(layers, ensemble)


def _fit(arguments: argparse.Namespace) -> None:
    from qboltz.schedule_table import extend_table

    def progress(restart: int, evaluations: int, loss: float) -> None:
        if sys.stderr.isatty():
            print(f"\rrestart {restart}, evaluation {evaluations}: {loss:.3e}  ", end="", file=sys.stderr)

    def report(ensemble: str, depth: int, entry: dict[str, Any]) -> None:
        errors = entry["held_out"]
        print(
            f"{ensemble} p={depth}: rms magnetization error {errors['magnetization']:.4f} plain, "
            f"{errors['conditional']:.4f} conditional; KL {errors['kl']:.2e}",
            flush=True,
        )

    extend_table(
        arguments.output,
        arguments.layers,
        arguments.ensemble,
        objective=arguments.objective,
        restarts=arguments.restarts,
        seed=arguments.seed,
        progress=progress,
        report=report,
    )


def _compare(arguments: argparse.Namespace) -> None:
    from qboltz.fidelity import schedule_fidelity
    from qboltz.modelset import ModelSet

    models = ModelSet.named(
        arguments.ensemble, sizes=(arguments.num_spins,), count=arguments.count, seed=arguments.seed
    )
    rows = [
        {"layers": depth, "schedule": kind, **schedule_fidelity(schedule, models).as_dict()}
        for depth in arguments.layers
        for kind, schedule in (
            ("linear", AnnealingSchedule.linear(depth)),
            ("fitted", AnnealingSchedule.fitted(depth, arguments.ensemble)),
        )
    ]
    if arguments.json:
        print(json.dumps(rows))
        return
    names = ["magnetization", "conditional", "covariance", "attention", "kl"]
    print("layers schedule " + " ".join(f"{name:>13s}" for name in names))
    for row in rows:
        print(f"{row['layers']:6d} {row['schedule']:8s} " + " ".join(f"{row[name]:13.5f}" for name in names))


if __name__ == "__main__":
    sys.exit(main())
