"""Options of the main job on the command line, and what they stand for."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from qboltz.ensemble import ESTIMATORS, Solver
from qboltz.experiments.checkpoint import check_same_config, load_checkpoint
from qboltz.experiments.model import OneLayerTransformer
from qboltz.experiments.optimization import TrainingConfig
from qboltz.functional import VARIANTS
from qboltz.schedule import AnnealingSchedule
from qboltz.seeds import SeedStream
from qboltz.solvers import make_solver
from qboltz.tasks import TASKS, Task, make_task

#: Options that are no property of the run: they may differ between its sessions.
NOT_SETTINGS = ("out", "resume", "overwrite", "threads")


def make_parser(description: str | None = None) -> argparse.ArgumentParser:
    """All options with their defaults."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add = parser.add_argument_group("sampler").add_argument
    add(
        "--backend", default="aer_simulator", help="exact, statevector, aer_simulator, fake_*, ibm_*, gibbs, mean_field"
    )
    add("--layers", type=int, default=6, help="layers of the annealing circuit (6)")
    add("--schedule", choices=("fitted", "linear", "adaptive"), default="fitted", help="its angles (fitted)")
    add("--shots", type=int, default=128, help="per circuit; 0 with statevector: no sampling (128)")
    # Plain, not the solver's default: the conditional mean is itself a classical step of J, and recall can be learned
    # from it alone. Here the circuits have to do it.
    add("--estimator", choices=ESTIMATORS, default="plain", help="of the moments (plain)")
    add("--polish", type=int, default=0, help="classical Gibbs sweeps over the measured spins (0)")
    add = parser.add_argument_group("task").add_argument
    add("--task", choices=sorted(TASKS), default="recall", help="(recall)")
    add("--length", type=int, help="tokens; recall: 2 pairs + 1; brackets: even (the default of the task)")
    add("--num-keys", type=int, help="recall: different keys (8)")
    add("--num-values", type=int, help="recall: different values (8)")
    add("--kinds", type=int, help="brackets: kinds of brackets (2)")
    add("--max-depth", type=int, help="brackets: deepest nesting (no bound)")
    add("--form", choices=("marked", "causal"), help="brackets: one marked, or every closing one (marked)")
    add("--data", help="shakespeare: a local text file, instead of fetching Tiny Shakespeare")
    add = parser.add_argument_group("model").add_argument
    add("--variant", choices=VARIANTS, default="h+J", help="(h+J)")
    add("--width", type=int, default=64, help="features (64)")
    add("--heads", type=int, default=1, help="attention heads (1)")
    add("--coupling-init", type=float, help="J of neighboring keys at the start (1 for recall, else 0)")
    add("--no-ffn", action="store_true", help="leave out the feed-forward layer")
    add = parser.add_argument_group("training").add_argument
    add("--steps", type=int, default=200, help="(200)")
    add("--batch-size", type=int, default=64, help="sequences per step, over all processes (64)")
    add("--lr", type=float, default=3e-3, help="highest learning rate (0.003)")
    add("--coupling-lr-factor", type=float, default=1.0, help="times this for the couplings (1)")
    add("--clip", type=float, default=1.0, help="largest norm of the gradient (1)")
    add("--seed", type=int, default=0, help="of weights, data and shots (0)")
    add("--eval-size", type=int, default=512, help="test sequences (512)")
    add("--checkpoint-every", type=int, default=100, help="steps (100)")
    add("--no-twin", action="store_true", help="do not train the exact and the softmax twin")
    add = parser.add_argument_group("run").add_argument
    add("--out", type=Path, help="directory of the run (runs/TASK-BACKEND-NUMBER)")
    add("--resume", action="store_true", help="continue the run in --out; its options need not be repeated")
    add("--overwrite", action="store_true", help="replace the run in --out")
    add("--threads", type=int, default=1, help="of torch; circuits use all cores anyway (1)")
    return parser


def parse(parser: argparse.ArgumentParser, argv: list[str] | None = None) -> argparse.Namespace:
    """Parse; a resumed run takes the options that are not given from its checkpoint.

    Raises:
        FileNotFoundError: there is no run to resume in ``--out``.
        ValueError: an option of a resumed run differs from what it was.
    """
    args = parser.parse_args(argv)
    if args.resume:
        if args.out is None or args.overwrite:
            parser.error("--resume needs --out, the directory of the run, and excludes --overwrite")
        saved = load_checkpoint(args.out)["settings"]
        parser.set_defaults(**{name: saved[name] for name in settings(args) if name in saved})
        args = parser.parse_args(argv)
        own = {name: saved.get(name) for name in settings(args)}
        check_same_config(own, settings(args), args.out)
    for name in ("eval_size", "threads"):
        if getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1, got {getattr(args, name)}")
    if args.shots < (0 if args.backend == "statevector" else 1):
        parser.error(f"--shots must be at least 1 (0 with --backend statevector), got {args.shots}")
    if args.coupling_init is None:
        args.coupling_init = 1.0 if args.task == "recall" else 0.0
    return args


def settings(args: argparse.Namespace) -> dict[str, Any]:
    """The options that make a run what it is."""
    return {name: value for name, value in vars(args).items() if name not in NOT_SETTINGS}


def task_from(args: argparse.Namespace) -> Task:
    """The task, with its options; those of other tasks are refused."""
    names = ("length", "num_keys", "num_values", "kinds", "max_depth", "form", "data")
    return make_task(args.task, **{name: getattr(args, name) for name in names})


def config_from(args: argparse.Namespace) -> TrainingConfig:
    """How to train."""
    names = ("steps", "batch_size", "lr", "coupling_lr_factor", "clip", "seed", "checkpoint_every")
    return TrainingConfig(**{name: getattr(args, name) for name in names})


def solver_from(args: argparse.Namespace, process: int = 0) -> Solver:
    """The solver; one that samples has its own stream of seeds in each process."""
    stream = SeedStream(args.seed, key=(process,))
    if args.backend in ("exact", "mean_field"):
        return make_solver(args.backend)
    if args.backend == "gibbs":
        solver = make_solver("gibbs", estimator=args.estimator)
    else:
        solver = make_solver(
            args.backend,
            schedule={"fitted": None, "adaptive": "adaptive", "linear": AnnealingSchedule.linear(args.layers)}[
                args.schedule
            ],
            num_layers=args.layers,
            shots=args.shots or None,
            estimator=args.estimator,
            polish=args.polish,
        )
    solver.seeds = stream  # type: ignore[attr-defined]
    return solver


def model_from(args: argparse.Namespace, task: Task, variant: str, solver: str | Solver) -> OneLayerTransformer:
    """The model with a given variant and solver; its first weights depend on the seed alone."""
    return OneLayerTransformer.for_task(
        task,
        seed=args.seed,
        variant=variant,
        solver=solver,
        width=args.width,
        num_heads=args.heads,
        coupling_init=args.coupling_init,
        ffn=not args.no_ffn,
    )
