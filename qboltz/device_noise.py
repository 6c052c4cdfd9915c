"""The noise that anneals meet on a device, from what its target reports."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from qiskit.providers import BackendV2
from qiskit.transpiler import Target

from qboltz.backends import LEAST_BUSY, resolve_backend
from qboltz.backends.fake import FakeBackend
from qboltz.errors import TooManySpinsError
from qboltz.machine.account import find_machine
from qboltz.machine.lines import any_to_any, find_lines
from qboltz.machine.network import Network, all_pairs, line_network
from qboltz.noise import AnnealNoise, NoisyStep
from qboltz.readout import ReadoutErrors

#: Pulses on single qubits that come with each two-qubit gate once a compiler has merged them (counted on chips with CZ
#: and ECR), each worth 1.2 times its error as an error of the two-qubit gate.
PULSES_PER_GATE = 1.6
PULSE_WEIGHT = 1.2


def find_device(backend: str | BackendV2, num_spins: int) -> BackendV2 | None:
    """The device of that name, or the object itself; ``None`` for the ideal ``"aer_simulator"``.

    Raises:
        BackendNotFoundError: there is none of that name.
        TypeError: ``backend`` is neither a name nor a ``BackendV2``.
    """
    if isinstance(backend, BackendV2):
        return backend
    if not isinstance(backend, str):
        raise TypeError(f"backend must be a name or a BackendV2, whose target can be read, got {backend!r}.")
    if backend == LEAST_BUSY or backend.startswith("ibm_"):
        return find_machine(backend, num_spins)
    found = resolve_backend(backend)
    return found.device if isinstance(found, FakeBackend) else None


def device_noise(device: BackendV2 | None, num_spins: int) -> AnnealNoise:
    r"""Noise of the anneals of ``num_spins`` spins on the best line of a device, or on an ideal one (``None``).

    A two-qubit gate of reported error :math:`\epsilon` (1 - average fidelity), with the single-qubit pulses that come
    with it, is a depolarizing channel of probability :math:`\lambda = \tfrac43 \epsilon`.

    Raises:
        TooManySpinsError: there is no line of that many usable qubits.
    """
    if device is None:
        return _all_to_all(num_spins, 0.0, (0.0,) * num_spins, ())
    target = device.target
    lines = find_lines(target, num_spins, limit=1)
    if not lines:
        raise TooManySpinsError(
            f"num_spins must leave room for a line of usable qubits on {device.name}, which has {device.num_qubits} "
            f"qubits and no line of {num_spins}. Shorten the context, or use another device."
        )
    (line,) = lines
    pulse = PULSES_PER_GATE * PULSE_WEIGHT * _pulse_error(target, line.qubits)
    if any_to_any(target):
        return _all_to_all(num_spins, _gate_error(target) + pulse, line.readout_errors, line.qubits)
    return _on_line([error + pulse for error in line.two_qubit_errors], line.readout_errors, line.qubits)


def as_on(noise: AnnealNoise, num_spins: int) -> AnnealNoise:
    """Noise of fewer spins, each of which suffers as much per layer as one of ``noise``: large models are fitted by it.

    The mean gate error of ``noise``, raised so that the gates a spin takes part in do as much harm; its mean readout.
    """
    network = line_network(num_spins)
    power = (noise.num_gates / noise.num_spins) / (network.num_cx / num_spins)
    depolarizing = 1 - (1 - 4 / 3 * noise.gate_error) ** power
    readout = float(torch.stack([(errors.p10 + errors.p01) / 2 for errors in noise.readouts]).mean())
    smaller = _on_line([0.75 * depolarizing] * (num_spins - 1), (readout,) * num_spins, noise.qubits)
    return replace(smaller, num_gates=noise.num_gates, gate_error=noise.gate_error)


def _on_line(errors: list[float], readout: tuple[float, ...], qubits: tuple[int, ...]) -> AnnealNoise:
    """The swap network on a line with these errors of its edges and of its qubits' readout."""
    num_spins = len(readout)
    network = line_network(num_spins)
    readouts = tuple(
        ReadoutErrors.symmetric([readout[order.index(spin)] for spin in range(num_spins)])
        for order in (network.start, network.end)
    )
    weights = network.cx_per_edge
    mean = float(np.average(errors, weights=weights)) if weights.sum() else 0.0
    steps = tuple(_steps(part, errors) for part in (network, network.backwards()))
    return AnnealNoise(num_spins, steps, readouts, network.num_cx, mean, qubits)


def _steps(network: Network, errors: list[float]) -> tuple[NoisyStep, ...]:
    order = list(network.start)
    steps = []
    for step in network.steps:
        first, second = order[step.wire : step.wire + 2]
        steps.append(NoisyStep(first, second, 1 - (1 - 4 / 3 * errors[step.wire]) ** step.num_cx))
        if step.swap:
            order[step.wire : step.wire + 2] = second, first
    return tuple(steps)


def _all_to_all(num_spins: int, error: float, readout: tuple[float, ...], qubits: tuple[int, ...]) -> AnnealNoise:
    """One gate for each pair, in any order."""
    pairs = all_pairs(num_spins)
    steps = tuple(NoisyStep(first, second, 4 / 3 * error) for first, second in pairs)
    return AnnealNoise(num_spins, (steps,), (ReadoutErrors.symmetric(readout),), len(pairs), error, qubits)


def _gate_error(target: Target) -> float:
    """Median error of the two-qubit gates of a target that couples any two qubits; 0 if it reports none."""
    errors = [
        properties.error
        for name in target.operation_names
        if target.operation_from_name(name).num_qubits == 2
        for properties in (target[name] or {}).values()
        if properties is not None and properties.error is not None
    ]
    return float(np.median(errors)) if errors else 0.0


def _pulse_error(target: Target, qubits: tuple[int, ...]) -> float:
    """Mean error of a single-qubit pulse on some qubits; 0 if the target reports none."""
    name = next((name for name in ("sx", "rx", "x") if name in target.operation_names), None)
    reported = [] if name is None else [(target[name] or {}).get((qubit,)) for qubit in qubits]
    errors = [properties.error for properties in reported if properties is not None and properties.error is not None]
    return float(np.mean(errors)) if errors else 0.0
