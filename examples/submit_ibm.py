"""Magnetizations of one batch of models from a machine: submit now, collect hours later, in another process.

    python examples/submit_ibm.py submit --backend ibm_fez --folder batch      prints the price, submits, and ends
    python examples/submit_ibm.py collect --folder batch                       figure and numbers beside exact ones

`submit --dry-run` submits nothing. What was submitted is in the store of jobs (`qboltz jobs list`) whatever happens
to this computer; collecting twice costs nothing. A fake device (`--backend fake_fez`) runs while it is "submitted".
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import torch

import qboltz
from qboltz.ensemble import SampledEnsemble
from qboltz.errors import BudgetError, DryRunError, JobError, JobPendingError
from qboltz.experiments.figures import save_magnetizations
from qboltz.machine.backend import Machine, MachineOptions
from qboltz.machine.command_line import account_from, add_account_options
from qboltz.machine.estimate import estimate


def batch_of(batch):
    generator = torch.Generator().manual_seed(batch["seed"])
    upper = 0.15 * torch.randn(batch["spins"], batch["spins"], generator=generator).triu(1)
    return qboltz.IsingModel(0.6 * torch.randn(batch["rows"], batch["spins"], generator=generator), upper + upper.mT)


def solver_of(batch, backend):
    return qboltz.AnnealingSolver(backend, num_layers=batch["layers"], shots=batch["shots"], seed=batch["seed"])


def machine_of(batch, args, **options):
    options |= {"run": batch["run"], "store": batch["store"] or args.jobs_store, "account": account_from(args)}
    return Machine(batch["backend"], MachineOptions(**options))


def submit(args):
    batch = {name: getattr(args, name) for name in ("backend", "spins", "rows", "layers", "shots", "seed")}
    batch |= {"run": None, "store": None}
    machine = args.backend.startswith(("ibm_", "least_busy"))
    if not machine and not args.backend.startswith("fake_"):
        raise ValueError(f"--backend must be ibm_*, least_busy or fake_*, got {args.backend!r}.")
    if (args.folder / "batch.json").exists():
        raise ValueError(f"{args.folder} holds a batch already: collect it, or choose another --folder.")
    options = {"max_qpu_seconds": args.max_qpu_seconds, "dry_run": args.dry_run}
    backend = machine_of(batch, args, wait=False, **options) if machine else args.backend
    solver = solver_of(batch, backend)
    device = backend.runtime(args.spins).device if machine else solver.backend.device
    print(*estimate(device, args.spins, solver.schedule, args.rows, args.shots).lines_of_text(), sep="\n")
    if machine:  # by these the batch is found again, so they are written down before anything is submitted
        batch |= {"backend": device.name, "run": backend.run, "store": str(backend.store.path.absolute())}
    done = f"Collect with: python {sys.argv[0]} collect --folder {args.folder}"
    if not args.dry_run:
        args.folder.mkdir(parents=True, exist_ok=True)
        (args.folder / "batch.json").write_text(json.dumps(batch, indent=2) + "\n")
    elif not machine:
        return print("dry run: nothing was run")
    try:
        np.save(args.folder / "spins.npy", solver.solve(batch_of(batch)).spins.numpy())
    except DryRunError as message:
        done = message
    except JobPendingError as message:
        print(message)
    print(done)


def collect(args):
    batch = json.loads((args.folder / "batch.json").read_text())
    model = batch_of(batch)
    if batch["run"] is None:
        spins = torch.from_numpy(np.load(args.folder / "spins.npy"))
    else:
        machine = machine_of(batch, args, timeout=args.timeout)
        if not machine.store.jobs(run=batch["run"]):  # to collect it would be to submit it
            raise ValueError(f"{machine.store.path} has no job of this batch. Submit it again, to another --folder.")
        spins = solver_of(batch, machine).solve(model).spins
    exact = qboltz.ExactSolver().solve(model).magnetization()
    result, measured = {"batch": batch, "exact": exact.tolist()}, {}
    for estimator in ("plain", "conditional"):
        ensemble = SampledEnsemble(model, spins, estimator=estimator)
        m, error = measured[estimator] = ensemble.magnetization(), ensemble.standard_error()
        rms = float((m - exact).square().mean().sqrt())
        result[estimator] = {"magnetization": m.tolist(), "standard_error": error.tolist(), "rms_error": rms}
        print(f"{estimator:12s} rms error {rms:.4f}, mean standard error {error.mean():.4f}")
    print(f"result.json and magnetizations.png are in {args.folder}")
    save_magnetizations(args.folder / "magnetizations.png", exact, measured, batch["backend"])
    (args.folder / "result.json").write_text(json.dumps(result) + "\n")


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True, metavar="submit|collect")
    for name, run in (("submit", submit), ("collect", collect)):
        verb = verbs.add_parser(name)
        verb.set_defaults(run=run)
        verb.add_argument("--folder", type=Path, required=True)
        verb.add_argument("--jobs-store", type=Path, metavar="FILE", help="(QBOLTZ_JOBS, else the user's)")
        add_account_options(verb.add_argument)
        if name == "collect":
            verb.add_argument("--timeout", type=float, default=86_400.0, metavar="SECONDS", help="(a day)")
            continue
        verb.add_argument("--backend", required=True, help="ibm_*, least_busy, fake_*")
        for option, default in (("spins", 8), ("rows", 24), ("layers", 2), ("shots", 256), ("seed", 0)):
            verb.add_argument(f"--{option}", type=int, default=default, help=f"({default})")
        verb.add_argument("--max-qpu-seconds", type=float, help="refuse to spend more")
        verb.add_argument("--dry-run", action="store_true", help="compile, check and price only")
    args = parser.parse_args(argv)
    try:
        args.run(args)
    except (ValueError, OSError, BudgetError, JobError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
