"""A small training run on the machine of a loopback service, as a process of its own that may be killed."""

from __future__ import annotations

import multiprocessing
import os
import warnings
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path

#: What a worker needs, imported once: workers are forked from a process that has it.
MODULES = [
    "machine_worker",
    "qboltz.experiments.training",
    "qboltz.machine.backend",
    "qiskit_ibm_runtime.executor_sampler",
]
STEPS = 3


def start(
    folder: Path, environment: dict[str, str], *, resume: bool = False, max_qpu_seconds: float | None = None
) -> BaseProcess:
    """Start a worker."""
    process = _context().Process(target=train, args=(folder, environment, resume, max_qpu_seconds), daemon=True)
    process.start()
    return process


def _context() -> BaseContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(MODULES)
    return context


def train(folder: Path, environment: dict[str, str], resume: bool, max_qpu_seconds: float | None) -> None:
    """Three steps of recall with one pair of keys and values, a checkpoint before the first and after the last."""
    os.environ.update(environment)
    warnings.simplefilter("error")
    import torch
    from machine_client import QUICK

    import qboltz
    from qboltz.experiments.model import OneLayerTransformer
    from qboltz.experiments.optimization import TrainingConfig
    from qboltz.experiments.training import train as run
    from qboltz.machine.backend import Machine, MachineOptions
    from qboltz.tasks import make_task

    torch.set_num_threads(1)
    options = MachineOptions(
        patience=QUICK, timeout=60.0, store=folder / "jobs.sqlite", max_qpu_seconds=max_qpu_seconds
    )
    solver = qboltz.AnnealingSolver(
        Machine("ibm_small", options), qboltz.AnnealingSchedule.fitted(1), shots=8, estimator="conditional", seed=5
    )
    task = make_task("recall", length=3)
    model = OneLayerTransformer.for_task(task, seed=0, solver=solver, width=8, coupling_init=0.5)
    config = TrainingConfig(steps=STEPS, batch_size=2, checkpoint_every=100)
    run(model, task, config, folder / "run", resume=resume, stateful={"solver": solver})
    torch.save(model.state_dict(), folder / "parameters.pt")
