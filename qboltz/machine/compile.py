"""Compile an anneal for a device once, packed on its lines, and keep it: in memory, and on disk as QPY."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import math
import os
import warnings
from collections import OrderedDict
from pathlib import Path
from typing import Any

import platformdirs
import qiskit
from qiskit import qpy
from qiskit.circuit import QuantumCircuit
from qiskit.providers import BackendV2
from qiskit.transpiler import Target

from qboltz.errors import TooManySpinsError, check_integer
from qboltz.files import write_atomically
from qboltz.machine.isa import check_isa, translate
from qboltz.machine.lines import Line, any_to_any, find_lines
from qboltz.machine.network import Pair, all_pairs, checked_pairs
from qboltz.machine.packing import PackedAnneal, packed_circuit
from qboltz.schedule import AnnealingSchedule

__all__ = ["check_isa", "pack", "cache_directory", "calibration_digest"]

#: Environment variable with the folder for compiled circuits; without it the user's cache folder.
CACHE_VARIABLE = "QBOLTZ_CACHE"
#: Raised whenever a circuit compiled by an earlier version would be wrong or worse.
FORMAT = 1
HEADER = f"qboltz packed anneal {FORMAT}\n".encode()
#: Compiled circuits kept in memory, and on disk (schedules that are refitted make new ones all the time).
MAX_IN_MEMORY, MAX_ON_DISK = 32, 256

_memory: OrderedDict[str, PackedAnneal] = OrderedDict()


def pack(
    device: BackendV2,
    num_spins: int,
    schedule: AnnealingSchedule,
    *,
    pairs: tuple[Pair, ...] | None = None,
    guard: int = 0,
    max_error: float | None = None,
    lines: int | None = None,
) -> PackedAnneal:
    """The anneal on as many lines of the device as fit, compiled once per device, calibration and arguments.

    Devices where any two qubits interact get plain ``rzz`` on blocks of qubits; all others the swap network on lines.

    Args:
        device: whose target is read. A machine's target is that of its last calibration when it was looked up.
        num_spins: ``n``.
        schedule: the angles.
        pairs: pairs whose coupling may differ from zero (``coupled_pairs(couplings)``); ``None`` for all.
        guard: unused qubits between two lines, at least.
        max_error: leave out lines with more than this probability of an error, see ``find_lines``.
        lines: at most so many; ``None`` for all that fit.

    Raises:
        TooManySpinsError: the device has no such line.
        TypeError, ValueError: an argument is out of its range.
    """
    check_integer("num_spins", num_spins)
    wanted = all_pairs(num_spins) if pairs is None else checked_pairs(num_spins, pairs)
    key = _key(device, num_spins, schedule, wanted, guard, max_error, lines)
    packed = _memory.get(key) or _load(key, num_spins, schedule, wanted)
    if packed is None:
        packed = _compile(device, num_spins, schedule, wanted, guard, max_error, lines)
        _save(key, packed)
    _memory[key] = packed
    _memory.move_to_end(key)
    while len(_memory) > MAX_IN_MEMORY:
        _memory.popitem(last=False)
    return packed


def _compile(
    device: BackendV2,
    num_spins: int,
    schedule: AnnealingSchedule,
    pairs: tuple[Pair, ...],
    guard: int,
    max_error: float | None,
    limit: int | None,
) -> PackedAnneal:
    target = device.target
    layers = sum(layer.coupling_angle != 0 for layer in schedule.layers())
    lines = find_lines(target, num_spins, num_layers=layers, guard=guard, max_error=max_error, limit=limit, pairs=pairs)
    if not lines:
        bound = "" if max_error is None else f" with an error of at most {max_error}"
        raise TooManySpinsError(
            f"num_spins must be at most the length of a line of usable qubits{bound} on {device.name} "
            f"({target.num_qubits} qubits), got {num_spins}. Shorten the context, allow a larger error, or use another "
            "device."
        )
    abstract = packed_circuit(
        tuple(line.qubits for line in lines), target.num_qubits, schedule, pairs, any_to_any=any_to_any(target)
    )
    circuit = translate(abstract, target)
    return PackedAnneal(circuit, lines, num_spins, schedule, pairs, line_fidelities(circuit, lines, target))


def line_fidelities(circuit: QuantumCircuit, lines: tuple[Line, ...], target: Target) -> tuple[float, ...]:
    """Of each line: the product of ``1 - error`` over all its gates and readouts (what is not reported counts 0)."""
    line_of = {qubit: number for number, line in enumerate(lines) for qubit in line.qubits}
    costs = [0.0] * len(lines)
    for step in circuit.data:
        qubits = tuple(circuit.find_bit(qubit).index for qubit in step.qubits)
        reported = (target[step.operation.name] or {}).get(qubits) if step.operation.name in target else None
        error = None if reported is None else reported.error
        if error is not None:
            costs[line_of[qubits[0]]] += -math.log1p(-error) if error < 1 else math.inf
    return tuple(math.exp(-cost) for cost in costs)


def calibration_digest(target: Target) -> str:
    """Fingerprint of what a target reports: operations, qubits, errors and durations. It changes with a calibration."""
    digest = hashlib.sha256(repr((target.num_qubits, target.dt)).encode())
    for name in sorted(target.operation_names):
        for qubits, properties in sorted((target[name] or {}).items(), key=lambda item: item[0] or ()):
            reported = None if properties is None else (properties.error, properties.duration)
            digest.update(repr((name, qubits, reported)).encode())
    return digest.hexdigest()


def cache_directory() -> Path:
    """Where compiled circuits are kept: ``$QBOLTZ_CACHE``, or the user's cache folder."""
    given = os.environ.get(CACHE_VARIABLE)
    return Path(given) if given else Path(platformdirs.user_cache_dir("qboltz", appauthor=False)) / "circuits"


def _key(device: BackendV2, num_spins: int, schedule: AnnealingSchedule, pairs: tuple[Pair, ...], *options: Any) -> str:
    content = {
        "format": FORMAT,
        "qiskit": qiskit.__version__,
        "device": device.name,
        "calibration": calibration_digest(device.target),
        "num_spins": num_spins,
        "schedule": schedule.as_dict(),
        "pairs": pairs,
        "options": options,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _save(key: str, packed: PackedAnneal) -> None:
    """Header, checksum, QPY. A folder that cannot be written costs a compilation next time, and is said."""
    circuit = packed.circuit.copy()
    circuit.metadata = {
        "lines": [dataclasses.asdict(line) for line in packed.lines],
        "fidelities": packed.fidelities,
    }
    buffer = io.BytesIO()
    qpy.dump(circuit, buffer)
    content = buffer.getvalue()
    path = _path(key)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, HEADER + hashlib.sha256(content).digest() + content)
        written = {file: file.stat().st_mtime for file in path.parent.glob("*.qpy")}
        for file in sorted(written, key=lambda file: written[file])[:-MAX_ON_DISK]:
            file.unlink(missing_ok=True)
    except OSError as error:
        warnings.warn(
            f"the compiled circuit cannot be kept in {path.parent}: {error}. It will be compiled again next time; "
            f"set {CACHE_VARIABLE} to a folder that can be written.",
            stacklevel=3,
        )


def _load(key: str, num_spins: int, schedule: AnnealingSchedule, pairs: tuple[Pair, ...]) -> PackedAnneal | None:
    """What was kept; ``None`` if there is nothing or the file is damaged (it is then compiled and written anew)."""
    try:
        data = _path(key).read_bytes()
    except OSError:
        return None
    digest, content = data[len(HEADER) : len(HEADER) + 32], data[len(HEADER) + 32 :]
    if not data.startswith(HEADER) or hashlib.sha256(content).digest() != digest:
        return None
    (circuit,) = qpy.load(io.BytesIO(content))
    kept = circuit.metadata
    lines = tuple(
        Line(tuple(line["qubits"]), tuple(line["two_qubit_errors"]), tuple(line["readout_errors"]), line["fidelity"])
        for line in kept["lines"]
    )
    circuit.metadata = {}
    return PackedAnneal(circuit, lines, num_spins, schedule, pairs, tuple(kept["fidelities"]))


def _path(key: str) -> Path:
    return cache_directory() / f"{key}.qpy"
