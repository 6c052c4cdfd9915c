"""The main job: a model trained with one solver, beside twins of the same seed and the same data."""

from __future__ import annotations

import argparse
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qboltz.ensemble import Solver
from qboltz.errors import DryRunError
from qboltz.experiments.applicability import LEAST_BUSY, is_machine
from qboltz.experiments.checkpoint import load_checkpoint
from qboltz.experiments.evaluation import Evaluation, evaluate, evaluate_sampler, using_solver
from qboltz.experiments.figures import save_couplings, save_learning_curves
from qboltz.experiments.model import OneLayerTransformer
from qboltz.experiments.optimization import data_generator
from qboltz.experiments.options import (
    config_from,
    machine_from,
    model_from,
    save_session,
    settings,
    solver_from,
    task_from,
)
from qboltz.experiments.processes import Processes, StopSignal
from qboltz.experiments.progress import make_display, print_table, say
from qboltz.experiments.runs import claim, next_folder, write_summary
from qboltz.experiments.training import Stateful, TrainingResult, train
from qboltz.solvers.exact import ExactSolver


@dataclass(frozen=True)
class Trained:
    """A model and how its training went."""

    label: str
    solver_name: str
    model: OneLayerTransformer
    result: TrainingResult


class Comparison:
    """Trains, evaluates and reports what the options ask for; of several processes the first one reports.

    Args:
        args: from :func:`qboltz.experiments.options.parse`.
        processes: those of this run.
        stop: whether to stop early; training then ends with a ``KeyboardInterrupt``.

    Attributes:
        folder: the directory of the run.
        exact: exact enumeration; ``None`` if nothing is solved for (softmax) or there are too many spins.

    Raises:
        ValueError, OSError: an option is wrong or the directory of the run cannot be used.
    """

    def __init__(self, args: argparse.Namespace, processes: Processes, stop: StopSignal | None = None) -> None:
        self.task, self.config = task_from(args), config_from(args)
        args.length = self.task.length
        run = processes.gather(uuid.uuid4().hex[:12])[0]
        self.paid = is_machine(args.backend) and args.variant != "softmax"
        if self.paid and args.backend == LEAST_BUSY:  # the run stays there, resumed or not
            found = machine_from(args).runtime(self.task.length).name if processes.first else None
            args.backend = processes.gather(found)[0]
        self.solver = solver_from(args, processes.index, run)
        if processes.first:
            args.out = args.out or next_folder(Path("runs"), f"{args.task}-{args.backend}")
            if not args.dry_run:
                claim(args.out, resume=args.resume, overwrite=args.overwrite)
        args.out = processes.gather(args.out)[0]
        self.args, self.processes, self.stop = args, processes, stop
        self.folder: Path = args.out
        self.has_spins = args.variant != "softmax"
        enumeration = ExactSolver()
        fits = self.has_spins and self.task.length <= enumeration.max_spins
        self.exact = enumeration if fits else None
        self._test_batch = self.task.batch(data_generator(args.seed, "test"), args.eval_size, "test")
        self._rmse: float | None = None
        self._curves: dict[str, list[dict[str, Any]]] = {}
        self._rows: list[list[str]] = []
        if processes.first:
            say(f"{self.task}\nchance {self.task.chance:.3f}: {self.task.chance_note}")
            say(f"{args.variant} attention by {self.solver_name}, writing to {self.folder}")
            if args.unused:
                say(f"unused with --variant {args.variant}: {', '.join(args.unused)}")
            if self.paid or args.dry_run:
                self._say_price()
            if self.paid and not args.dry_run:
                save_session(args)

    def _say_price(self) -> None:
        """What the run will cost; for a dry run that is all, but for a check of the first batch."""
        from qboltz.experiments.pricing import price_run
        from qboltz.machine.account import seconds_left

        args, task = self.args, self.task
        solver: Any = self.solver
        runtime = solver.backend.runtime(task.length) if self.paid else None
        device = solver.backend.device if runtime is None else runtime.device
        model = model_from(args, task, args.variant, "exact")
        done = load_checkpoint(args.out)["step"] if args.resume else 0
        left = None if runtime is None else seconds_left(runtime.service)
        price = price_run(
            model,
            task,
            args,
            self._test_batch,
            device,
            solver.schedule,
            processes=self.processes.count,
            done=done,
            left=left,
        )
        for line in price.lines(args, done):
            say(line)
        if runtime is None:
            say(f" {args.backend} is a snapshot that runs here: this is what the machine would charge")

    def dry_run(self) -> None:
        """Compile and check the first batch as it would be submitted."""
        if not self.processes.first:
            return
        if self.paid:
            batch = self.task.batch(data_generator(self.args.seed, "train", 0), self.config.batch_size)
            try:
                evaluate(model_from(self.args, self.task, self.args.variant, self.solver), batch)
            except DryRunError as message:
                say(str(message))
                return
        say("dry run: nothing was run")

    @property
    def solver_name(self) -> str:
        """The backend, or ``softmax`` where none is asked."""
        return str(self.args.backend) if self.has_spins else "softmax"

    def train(self, label: str, variant: str, solver: Solver, solver_name: str, folder: Path) -> Trained:
        """A model of the seed of this run, trained on its data.

        Raises:
            KeyboardInterrupt: a stop was asked for; the checkpoint is written.
        """
        model = model_from(self.args, self.task, variant, solver).to(self.processes.device)
        result = train(
            model,
            self.task,
            self.config,
            folder,
            resume=self.args.resume,
            settings=settings(self.args),
            stateful={"solver": solver} if isinstance(solver, Stateful) else {},
            count_circuits=lambda: getattr(solver, "circuits_run", 0),
            display=make_display(label),
            stop=self.stop,
        )
        if result.interrupted:
            raise KeyboardInterrupt
        self._curves[label] = result.history
        return Trained(label, solver_name, model, result)

    def train_own(self) -> Trained:
        """The model the options ask for."""
        return self.train(self.args.variant, self.args.variant, self.solver, self.solver_name, self.folder)

    def train_exact_twin(self, own: Trained) -> Trained | None:
        """The same with exact enumeration; a model trained with it already is its own twin."""
        if self.exact is None or self.args.no_twin:
            return None
        if self.args.backend == "exact":
            return own
        label = f"{self.args.variant}, exact twin"
        return self.train(label, self.args.variant, self.exact, "exact", self.folder / "exact-twin")

    def train_softmax_twin(self, own: Trained) -> Trained | None:
        """The same with softmax attention."""
        if self.args.no_twin:
            return None
        if not self.has_spins:
            return own
        return self.train("softmax twin", "softmax", ExactSolver(), "softmax", self.folder / "softmax-twin")

    def evaluate(self, trained: Trained | None, solver: Solver | None = None) -> Evaluation | None:
        """Quality on the test sequences with the model's own solver or another; ``None`` if there is none."""
        if trained is None or not self.processes.first:
            return None
        if solver is None and trained.model.attention.solver is self.solver:
            quality, self._rmse = evaluate_sampler(trained.model, self._test_batch, self.solver, self.exact)
            if self.paid:  # nothing more is asked of the machine, and an open session is billed while the twins train
                machine: Any = self.solver
                machine.backend.close()
        else:
            with using_solver(trained.model, solver or trained.model.attention.solver):
                quality = evaluate(trained.model, self._test_batch)
        with_ = trained.solver_name if solver is None else "exact"
        numbers = [f"{number:.4f}" for number in (quality.loss, quality.perplexity, quality.accuracy)]
        row = [trained.label, trained.solver_name, with_, *numbers]
        if row not in self._rows:  # a model trained with exact enumeration is its own twin
            self._rows.append(row)
        return quality

    @property
    def rmse(self) -> float | None:
        """Root mean square error of the magnetizations with which the sampler was evaluated; ``None`` before that."""
        return self._rmse

    def report(self, own: Trained, **measured: Any) -> None:
        """Print the table, draw the figures, write ``summary.json`` with ``measured`` in it."""
        if not self.processes.first:
            return
        result, args = own.result, self.args
        circuits_per_second = result.circuits / result.seconds if result.seconds else 0.0
        runs_circuits = hasattr(self.solver, "circuits_run") and self.has_spins
        samples = hasattr(self.solver, "seeds") and self.has_spins
        summary = {
            "task": args.task,
            "backend": args.backend,
            "variant": args.variant,
            "length": self.task.length,
            "steps": result.steps,
            "shots": args.shots if runs_circuits else None,
            "layers": args.layers if runs_circuits else None,
            "schedule": args.schedule if runs_circuits else None,
            "estimator": args.estimator if samples else None,
            "polish": args.polish if runs_circuits else None,
            "seed": args.seed,
            "processes": self.processes.count,
            "chance": self.task.chance,
            **measured,
            "circuits": result.circuits,
            "seconds": result.seconds,
            "circuits_per_second": circuits_per_second,
        }
        print_table(["model", "trained with", "evaluated with", "loss", "perplexity", "accuracy"], self._rows)
        say(f"chance {self.task.chance:.3f}; test sequences {self._test_batch.size}")
        if measured.get("magnetization_rmse") is not None:
            say(f"rms magnetization error of {self.solver_name} on them: {measured['magnetization_rmse']:.4f}")
        rate = f"{circuits_per_second:,.0f} circuits/s"
        say(f"{result.circuits:,} circuits in {result.seconds:.1f} s of training, {rate}")
        save_learning_curves(self.folder / "learning_curves.png", self._curves, chance=self.task.chance)
        if own.model.attention.coupling_weights is not None:
            save_couplings(self.folder / "couplings.png", own.model.attention.couplings)
        write_summary(self.folder, summary)
        say(f"{self.folder / 'summary.json'} and figures are written")
