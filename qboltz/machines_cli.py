"""``qboltz backends`` and ``qboltz estimate``: what circuits can run on, and what that takes."""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from qboltz.errors import BackendNotFoundError
from qboltz.machine.command_line import account_from, add_account_options, add_packing_options

HEAD = f"{'backend':20s} {'kind':9s} {'qubits':>6s} {'two-qubit':>9s} {'readout':>8s} {'queue':>6s}  status"


def add_machines_parsers(subparsers: Any) -> None:
    """Add the commands ``backends`` and ``estimate`` to the parsers of ``qboltz``."""
    text = "what circuits can run on: simulator, fake devices, machines of the account, with median errors"
    backends = subparsers.add_parser("backends", help=text, description=text)
    add_account_options(backends.add_argument)
    backends.add_argument("--json", action="store_true", help="print JSON")
    backends.set_defaults(run=_backends)

    text = "what a workload takes on a machine: circuits, gates, fidelity, payload, QPU seconds; submits nothing"
    estimate = subparsers.add_parser("estimate", help=text, description=text)
    add = estimate.add_argument
    add("--backend", required=True, metavar="NAME", help="aer_simulator, fake_* (no account needed), ibm_*, least_busy")
    add("--spins", type=int, required=True, metavar="N", help="of every model: keys that a query can see")
    add("--rows", type=int, required=True, metavar="R", help="models per step: queries, times heads")
    add("--layers", type=int, default=2, metavar="P", help="of the anneal (2)")
    add("--shots", type=int, default=256, metavar="S", help="per model (256)")
    add("--steps", type=int, default=1, metavar="N", help="how often so many rows are asked for; each is a job (1)")
    add("--linear", action="store_true", help="the calibrated linear ramp instead of the fitted schedule")
    add_packing_options(add)
    add_account_options(add)
    add("--json", action="store_true", help="print JSON")
    estimate.set_defaults(run=_estimate)


def find_device(name: str, num_spins: int, account: Any = None) -> tuple[Any, bool]:
    """The device of a backend's name, and whether it is a machine.

    Raises:
        BackendNotFoundError: there is none.
    """
    from qboltz.backends import resolve_backend
    from qboltz.machine.backend import Machine

    backend = resolve_backend(name)
    if isinstance(backend, Machine):
        from qboltz.machine.account import find_machine

        return find_machine(name, num_spins, account), True
    if name == "aer_simulator":
        from qiskit_aer import AerSimulator

        return AerSimulator(), False
    from qboltz.backends.fake import fake_devices

    return fake_devices()[name](), False


# -- backends ---------------------------------------------------------------------------------------------------------


def _backends(arguments: argparse.Namespace) -> None:
    rows = [_row("aer_simulator", "simulator"), *_fakes()]
    try:
        machines, said = _machines(account_from(arguments))
    except BackendNotFoundError as error:
        machines, said = [], str(error)
    rows = [*machines, *rows]
    if arguments.json:
        print(json.dumps({"backends": rows, "account": said}))
        return
    print(HEAD)
    for row in rows:
        numbers = (_number(row["two_qubit_error"], ".4f"), _number(row["readout_error"], ".4f"))
        print(
            f"{row['name']:20s} {row['kind']:9s} {_number(row['qubits'], 'd'):>6s} {numbers[0]:>9s} {numbers[1]:>8s} "
            f"{_number(row['queue'], 'd'):>6s}  {row['status'] or ''}".rstrip()
        )
    print(f"Errors are medians over the qubits and edges that work.\nMachines: {said}")


def _row(name: str, kind: str, **values: Any) -> dict[str, Any]:
    empty = dict.fromkeys(("qubits", "two_qubit_error", "readout_error", "queue", "status"))
    return {"name": name, "kind": kind, **empty, **values}


def _fakes() -> list[dict[str, Any]]:
    """From the files of the snapshots: making all the devices would take half a minute."""
    from qboltz.backends.fake import fake_devices
    from qboltz.machine.lines import TWO_QUBIT_GATES

    rows = []
    for name, kind in sorted(fake_devices().items()):
        files: Any = kind
        with (Path(files.dirname) / files.conf_filename).open(encoding="utf-8") as file:
            qubits = json.load(file)["n_qubits"]
        with (Path(files.dirname) / files.props_filename).open(encoding="utf-8") as file:
            properties = json.load(file)
        edges: dict[tuple[int, ...], float] = {}  # the better direction of each
        for gate in properties["gates"]:
            if gate["gate"] in TWO_QUBIT_GATES:
                error = _named(gate["parameters"], "gate_error")
                edge = tuple(sorted(gate["qubits"]))
                edges[edge] = min(edges.get(edge, 1.0), 1.0 if error is None else error)
        readout = [_named(qubit, "readout_error") for qubit in properties["qubits"]]
        rows.append(
            _row(name, "fake", qubits=qubits, two_qubit_error=_median(edges.values()), readout_error=_median(readout))
        )
    return rows


def _machines(account: Any) -> tuple[list[dict[str, Any]], str]:
    from qboltz.machine.account import CONNECT_SECONDS, connect, seconds_left
    from qboltz.machine.diagnosis import service_trouble
    from qboltz.machine.lines import read_calibration
    from qboltz.machine.patience import within

    service = connect(account)
    trouble = service_trouble(service, account.secrets)
    if trouble is not None:
        raise trouble
    rows = []
    for machine in within(CONNECT_SECONDS, service.backends):
        state, calibration = machine.status(), read_calibration(machine.target)
        rows.append(
            _row(
                machine.name,
                "machine",
                qubits=machine.num_qubits,
                two_qubit_error=_median(calibration.edges.values()),
                readout_error=_median(calibration.readout.values()),
                queue=state.pending_jobs,
                status=state.status_msg if state.operational or state.status_msg != "active" else "not operational",
            )
        )
    left = seconds_left(service)
    said = "no limit of QPU seconds" if left is None else f"{left:.0f} QPU seconds left"
    return sorted(
        rows, key=lambda row: str(row["name"])
    ), f"{len(rows)} in instance {service.active_instance()}, {said}"


def _named(values: Iterable[dict[str, Any]], name: str) -> float | None:
    return next((float(item["value"]) for item in values if item["name"] == name), None)


def _median(errors: Iterable[float | None]) -> float | None:
    from qboltz.machine.lines import UNUSABLE_ERROR

    usable = [error for error in errors if error is not None and error < UNUSABLE_ERROR]
    return statistics.median(usable) if usable else None


def _number(value: Any, form: str) -> str:
    return "" if value is None else format(value, form)


# -- estimate ---------------------------------------------------------------------------------------------------------


def _estimate(arguments: argparse.Namespace) -> None:
    from qboltz.machine.account import seconds_left
    from qboltz.machine.estimate import estimate
    from qboltz.schedule import AnnealingSchedule

    make = AnnealingSchedule.linear if arguments.linear else AnnealingSchedule.fitted
    schedule = make(arguments.layers)
    device, billed = find_device(arguments.backend, arguments.spins, account_from(arguments))
    found = estimate(
        device,
        arguments.spins,
        schedule,
        arguments.rows,
        arguments.shots,
        steps=arguments.steps,
        simulator=arguments.backend == "aer_simulator",
        guard=arguments.guard or 0,
        max_error=arguments.max_line_error,
        lines=arguments.lines,
    )
    left = seconds_left(device.service) if billed else None
    if arguments.json:
        print(json.dumps({**found.as_dict(), "qpu_seconds_left": left}))
        return
    print("\n".join(found.lines_of_text()))
    if left is not None:
        print(f"  on account   {left:,.0f} s left{'' if left >= found.seconds.total else ': NOT ENOUGH'}")
    elif not billed and found.seconds.total:
        print("  (if it were the machine: a fake device runs here and costs nothing)")
