"""Options of the main job on the command line, and what they stand for."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qboltz.ensemble import ESTIMATORS, Solver
from qboltz.experiments.applicability import ACCOUNT, defaults_for, is_machine, refuse_unused
from qboltz.experiments.checkpoint import check_same_config, load_checkpoint
from qboltz.experiments.model import OneLayerTransformer
from qboltz.experiments.optimization import TrainingConfig
from qboltz.files import write_atomically
from qboltz.functional import VARIANTS
from qboltz.machine.command_line import account_from, add_account_options, add_packing_options
from qboltz.schedule import AnnealingSchedule
from qboltz.seeds import SeedStream
from qboltz.solvers import make_solver
from qboltz.tasks import TASKS, Task, make_task

if TYPE_CHECKING:
    from qboltz.machine.backend import Machine

#: Where a run on a machine notes how it was reached.
SESSION_FILE = "session.json"
#: How a machine is reached, waited for and paid: no property of the run either, but a resumed one remembers them.
SESSION = (*ACCOUNT, "mode", "session_seconds", "max_qpu_seconds", "jobs_store", "timeout")
#: Options that are no property of the run: they may differ between its sessions.
NOT_SETTINGS = ("out", "resume", "overwrite", "threads", "dry_run", "unused", *SESSION)


def make_parser(description: str | None = None) -> argparse.ArgumentParser:
    """All options with their defaults."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add = parser.add_argument_group("sampler").add_argument
    add("--backend", help="exact, statevector, aer_simulator, fake_*, ibm_*, least_busy, gibbs, mean_field")
    add("--layers", type=int, help="layers of the annealing circuit (6; 2 on a machine)")
    add("--schedule", choices=("fitted", "linear", "adaptive"), help="its angles (fitted)")
    add("--shots", type=int, help="per circuit; 0 with statevector: no sampling (128)")
    # Plain, not the solver's default: the conditional mean is itself a classical step of J, and recall can be learned
    # from it alone. Here the circuits have to do it. On a machine shots are money and noise is bias: conditional.
    add("--estimator", choices=ESTIMATORS, help="of the moments (plain; conditional on a machine)")
    add("--polish", type=int, help="classical Gibbs sweeps over the measured spins (0)")
    add("--readout", choices=("raw", "corrected"), help="fake_*, ibm_*: undo the reported readout errors (raw)")
    add = parser.add_argument_group("machine (ibm_*, least_busy); see docs/hardware.md").add_argument
    add("--dry-run", action="store_true", default=None, help="compile, check and price, submit nothing; also fake_*")
    add("--max-qpu-seconds", type=float, metavar="S", help="of the run, all its sessions: a hard stop (no limit)")
    add("--mode", choices=("job", "batch", "session"), help="a session is billed by the clock (job)")
    add("--session-seconds", type=int, metavar="S", help="how long a batch or a session may stay open")
    add("--dynamical-decoupling", choices=("XX", "XpXm", "XY4"), help="pulses on idle qubits (none)")
    add("--twirling", choices=("gates", "measurements"), nargs="+", help="randomize errors of these (none)")
    add("--runtime-sampler", choices=("executor", "legacy"), help="of the client (executor, its present one)")
    add_packing_options(add)
    add("--jobs-store", type=Path, metavar="FILE", help="where jobs are kept (QBOLTZ_JOBS, else the user's)")
    add("--timeout", type=float, metavar="S", help="to wait for the jobs of one step (a day)")
    add_account_options(add)
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
    add("--coupling-lr-factor", type=float, help="times this for the couplings (1)")
    add("--clip", type=float, default=1.0, help="largest norm of the gradient (1)")
    add("--seed", type=int, default=0, help="of weights, data and shots (0)")
    add("--eval-size", type=int, help="test sequences (512; 64 on a machine, where they are paid for)")
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
    given = args = parser.parse_args(argv)
    saved: dict[str, Any] | None = None
    if args.resume:
        if args.out is None or args.overwrite:
            parser.error("--resume needs --out, the directory of the run, and excludes --overwrite")
        saved = load_checkpoint(args.out)["settings"]
        remembered = {**{name: saved[name] for name in settings(args) if name in saved}, **load_session(args.out)}
        parser.set_defaults(**remembered)
        args = parser.parse_args(argv)
    args.backend = args.backend or "aer_simulator"
    args.unused = refuse_unused(parser, given, args.backend, args.variant)
    for name, value in defaults_for(args.backend).items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    if saved is not None:
        check_same_config({name: saved.get(name) for name in settings(args)}, settings(args), args.out)
    for name in ("eval_size", "threads"):
        if getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1, got {getattr(args, name)}")
    if args.shots < (0 if args.backend == "statevector" else 1):
        parser.error(f"--shots must be at least 1 (0 with --backend statevector), got {args.shots}")
    if args.dry_run and args.overwrite:
        parser.error("--dry-run excludes --overwrite")
    if args.coupling_init is None:
        args.coupling_init = 1.0 if args.task == "recall" else 0.0
    return args


def settings(args: argparse.Namespace) -> dict[str, Any]:
    """The options that make a run what it is."""
    return {name: value for name, value in vars(args).items() if name not in NOT_SETTINGS}


def save_session(args: argparse.Namespace) -> None:
    """Note in ``--out`` how the machine was reached, so that ``--resume`` needs no repetition."""
    values = {name: getattr(args, name) for name in SESSION}
    if values["jobs_store"] is not None:
        values["jobs_store"] = str(Path(values["jobs_store"]).absolute())
    args.out.mkdir(parents=True, exist_ok=True)
    write_atomically(args.out / SESSION_FILE, (json.dumps(values, indent=2) + "\n").encode())


def load_session(folder: Path) -> dict[str, Any]:
    """What ``save_session`` noted; nothing for a run without a machine."""
    path = folder / SESSION_FILE
    if not path.exists():
        return {}
    values = json.loads(path.read_text(encoding="utf-8"))
    return {name: Path(value) if name == "jobs_store" and value else value for name, value in values.items()}


def task_from(args: argparse.Namespace) -> Task:
    """The task, with its options; those of other tasks are refused."""
    names = ("length", "num_keys", "num_values", "kinds", "max_depth", "form", "data")
    return make_task(args.task, **{name: getattr(args, name) for name in names})


def config_from(args: argparse.Namespace) -> TrainingConfig:
    """How to train."""
    names = ("steps", "batch_size", "lr", "coupling_lr_factor", "clip", "seed", "checkpoint_every")
    return TrainingConfig(**{name: getattr(args, name) for name in names})


def machine_from(args: argparse.Namespace, run: str | None = None) -> Machine:
    """The machine of ``--backend``, used as the options say; the processes of a run share its name and its budget."""
    from qboltz.machine.backend import Machine, MachineOptions

    options: dict[str, Any] = {
        "dynamical_decoupling": args.dynamical_decoupling,
        "twirling": tuple(args.twirling or ()),
        "guard": args.guard or 0,
        "max_line_error": args.max_line_error,
        "lines": args.lines,
        "max_qpu_seconds": args.max_qpu_seconds,
        "session_seconds": args.session_seconds,
        "store": args.jobs_store,
        "dry_run": bool(args.dry_run),
        "account": account_from(args),
        "run": run,
    }
    chosen = {"mode": args.mode, "sampler": args.runtime_sampler, "timeout": args.timeout}
    options |= {name: value for name, value in chosen.items() if value is not None}
    return Machine(args.backend, MachineOptions(**options))


def solver_from(args: argparse.Namespace, process: int = 0, run: str | None = None) -> Solver:
    """The solver; one that samples has its own stream of seeds in each process.

    Args:
        args: the options.
        process: number of this process.
        run: name under which a machine's jobs are kept.
    """
    stream = SeedStream(args.seed, key=(process,))
    if args.backend in ("exact", "mean_field"):
        return make_solver(args.backend)
    if args.backend == "gibbs":
        solver = make_solver("gibbs", estimator=args.estimator)
    else:
        circuits: dict[str, Any] = {"name": args.backend}
        if is_machine(args.backend):
            circuits = {"name": "annealing", "backend": machine_from(args, run)}
        if args.readout == "corrected":
            circuits["readout"] = "reported"
        solver = make_solver(
            **circuits,
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
