"""``qboltz schedule calibrate`` and ``qboltz schedule fit-for``: schedules on a backend."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from qboltz.schedule import AnnealingSchedule


def add_backend_verbs(verbs: argparse._SubParsersAction[Any]) -> None:
    """Add both commands to those of ``qboltz schedule``."""
    calibrate = verbs.add_parser("calibrate", help="measure the inverse temperatures of a schedule on a backend")
    calibrate.add_argument("--backend", required=True, metavar="NAME", help="aer_simulator, fake_*, ibm_*, statevector")
    calibrate.add_argument("--layers", type=int, default=None, metavar="P", help="depth (default: 4, or that of FILE)")
    calibrate.add_argument(
        "--schedule", default="fitted", metavar="fitted|linear|FILE", help="angles; FILE: JSON, as fit-for writes it"
    )
    # Of weak models samples have one temperature; of strong ones also the errors of a short schedule.
    calibrate.add_argument("--ensemble", default="weak", metavar="NAME", help="models: weak (default), middle, broad")
    calibrate.add_argument("--num-spins", type=int, default=8)
    calibrate.add_argument("--rows", type=int, default=48, help="random models (default: 48)")
    calibrate.add_argument("--shots", type=int, default=1024, help="samples of each (default: 1024)")
    calibrate.add_argument("--rounds", type=int, default=2, help="measurements divided out (default: 2)")
    calibrate.add_argument("--confidence", type=float, default=0.95, help="level of the intervals (default: 0.95)")
    calibrate.add_argument("--max-age", type=float, default=24.0, metavar="HOURS", help="valid for (default: 24)")
    calibrate.add_argument("--seed", type=int, default=0)
    calibrate.add_argument("--output", type=Path, metavar="FILE", help="write the calibration to it")
    calibrate.add_argument("--json", action="store_true", help="print JSON")
    calibrate.set_defaults(run=_calibrate)

    fit_for = verbs.add_parser("fit-for", help="fit schedules under the noise of a backend, and choose the depth")
    fit_for.add_argument("--backend", required=True, metavar="NAME", help="fake_*, ibm_*, least_busy, aer_simulator")
    fit_for.add_argument("--num-spins", type=int, required=True)
    fit_for.add_argument("--max-layers", type=int, default=4, metavar="P", help="deepest (default: 4)")
    fit_for.add_argument("--ensemble", default="broad", metavar="NAME", help="models: weak, middle, broad (default)")
    fit_for.add_argument("--estimator", default="conditional", help="conditional (default) or plain")
    fit_for.add_argument("--correct-readout", action="store_true", help="readout errors are going to be corrected")
    fit_for.add_argument(
        "--max-uncoupled", type=int, default=2, metavar="K", help="try up to K first layers without couplings (2)"
    )
    fit_for.add_argument("--max-iterations", type=int, default=100, help="L-BFGS steps of each fit (default: 100)")
    fit_for.add_argument("--seed", type=int, default=0)
    fit_for.add_argument("--output", type=Path, metavar="FILE", help="write the best schedule to it, as JSON")
    fit_for.add_argument("--json", action="store_true", help="print JSON")
    fit_for.set_defaults(run=_fit_for)


def _calibrate(arguments: argparse.Namespace) -> None:
    from qboltz.calibrating import calibrate
    from qboltz.modelset import ModelSet
    from qboltz.solvers import SOLVERS, make_solver

    if arguments.backend in SOLVERS and arguments.backend != "statevector":
        raise ValueError(f"backend must run annealing circuits, got {arguments.backend!r}.")
    _check_folder(arguments.output)
    schedule = _schedule(arguments.schedule, arguments.layers)
    solver: Any = make_solver(arguments.backend, schedule=schedule, shots=arguments.shots, seed=arguments.seed)
    models = ModelSet.named(arguments.ensemble, sizes=(arguments.num_spins,), count=arguments.rows, seed=arguments.seed)
    calibration = calibrate(
        solver,
        models,
        rounds=arguments.rounds,
        confidence=arguments.confidence,
        max_age_hours=arguments.max_age,
    )
    if arguments.output is not None:
        calibration.save(arguments.output)
    if arguments.json:
        print(json.dumps(calibration.as_dict()))
        return
    print(f"{calibration.backend}, {calibration.schedule.num_layers} layers, {calibration.num_spins} spins, ", end="")
    print(f"{calibration.rows} models of {calibration.shots} shots, {calibration.time}")
    if calibration.qubits is not None:
        print(f"on qubits {' '.join(map(str, calibration.qubits))}")
    print("          without     divide by   interval                with it")
    for index, name in enumerate(("fields", "couplings")):
        low, high = getattr(calibration, f"{name}_interval")
        print(
            f"{name:9s} {calibration.uncalibrated[index]:7.4f}     {getattr(calibration, f'beta_{name}'):7.4f}     "
            f"[{low:.4f}, {high:.4f}]        {calibration.calibrated[index]:7.4f}"
        )


def _fit_for(arguments: argparse.Namespace) -> None:
    from qboltz.files import write_atomically
    from qboltz.noise_fit import fit_for

    def progress(number: int, count: int, layers: int, coupled: int) -> None:
        if sys.stderr.isatty():
            print(f"\rfit {number + 1} of {count}: p = {layers}, {coupled} coupled  ", end="", file=sys.stderr)

    _check_folder(arguments.output)
    result = fit_for(
        arguments.backend,
        arguments.num_spins,
        arguments.max_layers,
        ensemble=arguments.ensemble,
        estimator=arguments.estimator,
        correct_readout=arguments.correct_readout,
        max_uncoupled=arguments.max_uncoupled,
        seed=arguments.seed,
        max_iterations=arguments.max_iterations,
        progress=progress,
    )
    if sys.stderr.isatty():
        print(file=sys.stderr)
    if arguments.output is not None:
        text = json.dumps(result.best.schedule.as_dict(), indent=1) + "\n"
        write_atomically(arguments.output, text.encode())
    if arguments.json:
        print(json.dumps(result.as_dict()))
        return
    print(
        f"{result.backend}, {result.num_spins} spins, estimator {result.estimator}: two-qubit error "
        f"{result.gate_error:.2e}, readout {result.readout_error:.2e}, qubits {' '.join(map(str, result.qubits))}"
    )
    print("layers coupled 2q-gates magnetization covariance   error  schedule   noise")
    for row in result.candidates:
        print(
            f"{row.num_layers:6d} {row.coupled_layers:7d} {row.two_qubit_gates:8d} {row.magnetization:13.4f} "
            f"{row.covariance:10.4f} {row.error:7.4f} {row.schedule_error:9.4f} {row.noise_error:7.4f}"
            f"{'  *' if row is result.best else ''}"
        )
    print(result.reason)


def _schedule(name: str, layers: int | None) -> AnnealingSchedule:
    if name in ("fitted", "linear"):
        depth = 4 if layers is None else layers
        return AnnealingSchedule.fitted(depth) if name == "fitted" else AnnealingSchedule.linear(depth)
    content = json.loads(Path(name).read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise ValueError(f"{name} must hold the angles of a schedule as a JSON object, got {type(content).__name__}.")
    try:
        schedule = AnnealingSchedule(**content)
    except TypeError as error:
        raise ValueError(f"{name} must hold field_angles, coupling_angles and mixer_angles: {error}.") from error
    if layers not in (None, schedule.num_layers):
        raise ValueError(f"layers must be left out or be {schedule.num_layers}, as in {name}, got {layers}.")
    return schedule


def _check_folder(output: Path | None) -> None:
    """Before an hour of work rather than after it."""
    if output is not None and not output.parent.is_dir():
        raise FileNotFoundError(f"No such file or directory: {output.parent}, where {output.name} should go.")
