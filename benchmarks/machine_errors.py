"""Parts "seconds" and "noise" of machine_cost.py: what magnetizations cost on a noisy chip, and how wrong they are.

Everything is computed from the populations of the noisy circuits (density matrices of every line, Aer's noise model,
see `qboltz.machine.chip`), so that errors at any number of shots are numbers without any sampling error of their own:
`error^2 = mean (bias^2) + mean (variance) / shots`, from which follow the shots for a given error. A gate holds them
against real shots.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from records import RESULTS, append, environment, read
from torch import Tensor

from qboltz import AnnealingSchedule, AnnealingSolver, ExactSolver, IsingModel, annealing_circuit
from qboltz.ensemble import SampledEnsemble
from qboltz.modelset import ModelSet
from qboltz.readout import ReadoutErrors, undo_readout
from qboltz.spins import spin_table

torch.set_num_threads(1)

#: Of the part "seconds".
CHIP = "fake_fez"
LAYERS = 2
SHOTS = 256
WORKLOADS = {"brackets": ("brackets_t8", 32), "text": ("text_t8", 128)}
#: Samples per model that gradients are tried with, and repetitions of each.
GRADIENT_SHOTS = (2, 4, 8, 16, 32, 64, 128, 256)
REPEATS = 8
#: QPU seconds of the Open plan.
OPEN_PLAN = 600.0
#: Of the part "noise".
CASES = (("fake_torino", 6), ("fake_torino", 8), ("fake_sherbrooke", 6))
DEPTHS = (1, 2, 3, 4)
MODELS = 64
ENSEMBLE = "middle"
SEED = 20_261_202


@cache
def device(name: str) -> Any:
    from qboltz.backends.fake import fake_devices

    return fake_devices()[name]()


# -- populations ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Noisy:
    """Populations `(rows, 2**n)` of models on a chip, the length of their circuit and its readout errors."""

    model: IsingModel
    populations: Tensor
    seconds: float
    num_lines: int
    two_qubit_gates: int
    readout: ReadoutErrors

    def moments(self, estimator: str, corrected: bool = False) -> tuple[Tensor, Tensor]:
        """Mean and variance of one shot, `(rows, n)`, of the estimator."""
        h, J = self.model.fields, self.model.couplings
        table = spin_table(h.shape[-1]).to(h)
        values = table.expand(len(h), -1, -1) if estimator == "plain" else torch.tanh(h.unsqueeze(1) + table @ J)
        if corrected:  # what is averaged over the shots as they were read, see qboltz.readout
            gain, offset = (part.expand_as(h) for part in (self.readout.gain, self.readout.offset))
            values = undo_readout(values.mT, gain.unsqueeze(1), offset.unsqueeze(1), of_function=True).mT
        mean = (self.populations.unsqueeze(-1) * values).sum(1)
        return mean, (self.populations.unsqueeze(-1) * values.square()).sum(1) - mean.square()

    def squares(self, estimator: str, corrected: bool = False) -> tuple[float, float]:
        """Mean squared bias against the exact magnetizations, and mean variance of one shot."""
        mean, variance = self.moments(estimator, corrected)
        return float((mean - exact(self.model)).square().mean()), float(variance.mean())

    def error(self, estimator: str, shots: float = math.inf, corrected: bool = False) -> float:
        """Root mean square error of magnetizations."""
        bias, variance = self.squares(estimator, corrected)
        return math.sqrt(bias + variance / shots)

    def shots_for(self, estimator: str, error: float) -> int | None:
        """The fewest shots with at most this error; `None` if no number is enough."""
        bias, variance = self.squares(estimator)
        return max(1, math.ceil(variance / (error**2 - bias))) if error**2 > bias else None

    def draw(self, shots: int, seed: int, estimator: str) -> SampledEnsemble:
        generator = torch.Generator().manual_seed(seed)
        numbers = torch.multinomial(self.populations.clamp_min(0), shots, replacement=True, generator=generator)
        n = self.model.fields.shape[-1]
        spins = spin_table(n).to(torch.int8)[numbers]
        return SampledEnsemble(self.model, spins.unsqueeze(1), estimator=estimator)  # type: ignore[arg-type]


def exact(model: IsingModel) -> Tensor:
    return ExactSolver().solve(model).magnetization()


def packed(chip: str, model: IsingModel, schedule: AnnealingSchedule, lines: int | None = None) -> Noisy:
    """On as many lines as fit: row `r` on line `r % K`, as `PackedAnneal` has it."""
    from qboltz.backends.readout import measured_lines, target_readout
    from qboltz.machine.chip import ChipSampler
    from qboltz.machine.compile import pack
    from qboltz.machine.price import circuit_seconds

    fields, couplings = model.fields.numpy(), model.couplings.numpy()
    rows, n = fields.shape
    anneal = pack(device(chip), n, schedule, lines=lines)
    names = [parameter.name for parameter in anneal.circuit.parameters]
    angles = anneal.bindings(fields, couplings).as_array(names)
    populations = torch.empty(rows, 2**n, dtype=torch.float64)
    with torch.no_grad():
        for line, part in enumerate(ChipSampler(device(chip)).parts(anneal.circuit)):
            own = [names.index(name) for name in part.parameters]
            here = range(line, rows, anneal.num_lines)
            if here:
                populations[list(here)] = part.probabilities(angles[: len(here)][:, own])
    readout = target_readout(device(chip), measured_lines(anneal, rows))
    seconds = circuit_seconds(anneal.circuit, device(chip))
    return Noisy(model, populations, seconds, anneal.num_lines, anneal.two_qubit_gates, readout)


def routed(chip: str, model: IsingModel, schedule: AnnealingSchedule) -> Noisy:
    """One model per circuit, compiled by Qiskit's preset level 3, the best of three seeds by two-qubit gates."""
    from qiskit.transpiler import generate_preset_pass_manager

    from qboltz.backends.readout import measured_qubits, target_readout
    from qboltz.machine.chip import ChipSampler
    from qboltz.machine.price import circuit_seconds

    anneal = annealing_circuit(model.fields.shape[-1], schedule)
    circuits = [
        generate_preset_pass_manager(optimization_level=3, backend=device(chip), seed_transpiler=seed).run(
            anneal.circuit
        )
        for seed in range(3)
    ]
    gates, best = min(((_two_qubit_gates(circuit), index) for index, circuit in enumerate(circuits)))
    circuit = circuits[best]
    (part,) = ChipSampler(device(chip)).parts(circuit)
    bindings = anneal.bindings(model.fields.numpy(), model.couplings.numpy())
    with torch.no_grad():
        populations = part.probabilities(bindings.as_array(list(part.parameters)))
    readout = target_readout(device(chip), measured_qubits(circuit))
    return Noisy(model, populations, circuit_seconds(circuit, device(chip)), 1, gates, readout)


def _two_qubit_gates(circuit: Any) -> int:
    return sum(len(step.qubits) == 2 for step in circuit.data)


# -- seconds ----------------------------------------------------------------------------------------------------------


def seconds(out: Path, quick: bool) -> None:
    """QPU seconds of one training step, from one query per circuit and plain averages to what qboltz does."""
    for workload, (name, rows) in WORKLOADS.items():
        key = {"benchmark": "machine_cost", "part": "seconds", "chip": CHIP, "workload": workload}
        if any(all(record.get(k) == v for k, v in key.items()) for record in read(out)):
            continue
        start = time.perf_counter()
        model = recorded(name, rows if not quick else 16)
        record = {**key, **step_costs(model), "seconds": time.perf_counter() - start, "seed": SEED}
        append(out, record | environment())
        for step in record["steps"]:
            print(f"{workload:9s} {step['name']:50s} {step['shots']:4d} shots {step['qpu_seconds']:8.2f} s", flush=True)


def recorded(name: str, rows: int) -> IsingModel:
    """Test rows of a trained model (see recorded_models.py), one coupling matrix per row."""
    models = ModelSet.load(RESULTS / "models" / f"{name}.pt")
    (batch,) = models.batches[1:]
    groups = batch.groups
    h = groups.fields[0, :rows].double()
    if len(h) != rows or groups.visible is not None:
        sys.exit(f"{name} must have {rows} test rows without a mask, got {len(h)}")
    return IsingModel(h, groups.couplings.double().expand(rows, -1, -1).clone())


def step_costs(model: IsingModel) -> dict[str, Any]:
    from qboltz.machine.price import Tariff

    schedule = AnnealingSchedule.fitted(LAYERS)
    rows, n = model.fields.shape
    plain = routed(CHIP, model, schedule)
    alone, together = packed(CHIP, model, schedule, lines=1), packed(CHIP, model, schedule)
    goal = plain.error("plain", SHOTS)
    gradients = {"goal": gradient_error(plain, "plain", SHOTS)}
    check_shots(model, schedule, together)

    def step(name: str, noisy: Noisy, estimator: str, shots: int | None) -> dict[str, Any]:
        if shots is None:
            sys.exit(f"{name}: no number of shots reaches the error {goal:.4f}")
        circuits = -(-rows // noisy.num_lines)
        spent = Tariff(noisy.seconds).seconds(circuits * shots)
        return {
            "name": name,
            "estimator": estimator,
            "shots": shots,
            "lines": noisy.num_lines,
            "circuits": circuits,
            "executions": circuits * shots,
            "two_qubit_gates": noisy.two_qubit_gates,
            "circuit_seconds": noisy.seconds,
            "error": noisy.error(estimator, shots),
            "bias": noisy.error(estimator),
            "gradient_error": gradient_error(noisy, estimator, shots) if shots > 1 else None,
            "qpu_seconds": spent.repetition + spent.circuits,
            "qpu_seconds_with_job": spent.total,
        }

    gradient_shots = next(
        (shots for shots in GRADIENT_SHOTS if gradient_error(together, "conditional", shots) <= gradients["goal"]), None
    )
    steps = [
        step("one query per circuit, preset level 3, plain", plain, "plain", SHOTS),
        step("swap network on the best line", alone, "plain", alone.shots_for("plain", goal)),
        step("conditional estimator", alone, "conditional", alone.shots_for("conditional", goal)),
        step("packed", together, "conditional", together.shots_for("conditional", goal)),
        step("packed, gradients too as good", together, "conditional", gradient_shots),
        step("packed, with the shots of the first line", together, "conditional", SHOTS),
    ]
    first = steps[0]
    for each in steps:
        each["ratio"] = first["qpu_seconds"] / each["qpu_seconds"]
        each["ratio_with_job"] = first["qpu_seconds_with_job"] / each["qpu_seconds_with_job"]
        each["steps_in_open_plan"] = math.floor(OPEN_PLAN / each["qpu_seconds"])
        each["steps_in_open_plan_with_jobs"] = math.floor(OPEN_PLAN / each["qpu_seconds_with_job"])
    coins = Noisy(model, torch.full((rows, 2**n), 0.5**n, dtype=torch.float64), 0.0, 1, 0, together.readout)
    random = {
        "bias": coins.error("conditional"),
        "shots": coins.shots_for("conditional", goal),
        "gradient_error": gradient_error(coins, "conditional", SHOTS),
    }
    return {"rows": rows, "num_spins": n, "num_layers": LAYERS, "goal": goal, "steps": steps, "random_spins": random}


def gradient_error(noisy: Noisy, estimator: str, shots: int) -> float:
    """Relative error of the gradients of fields (every row) and couplings (their sum), for a random upstream.

    The root mean square over both and over repetitions.
    """
    upstream = torch.randn(noisy.model.fields.shape, generator=torch.Generator().manual_seed(SEED)).double()
    truth = combined(ExactSolver().solve(noisy.model).pullback(upstream))
    squares = []
    for repeat in range(REPEATS):
        found = combined(noisy.draw(shots, SEED + repeat, estimator).pullback(upstream))
        squares += [
            float((one - other).square().sum() / other.square().sum()) for one, other in zip(found, truth, strict=True)
        ]
    return math.sqrt(sum(squares) / len(squares))


def combined(gradients: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    fields, couplings = gradients
    return fields, couplings.sum(0)


def check_shots(model: IsingModel, schedule: AnnealingSchedule, noisy: Noisy) -> None:
    """The gate: the solver's own shots on the fake device have the errors that were computed."""
    for estimator in ("plain", "conditional"):
        for shots in (16, 1024):
            solver = AnnealingSolver(CHIP, schedule, shots, estimator, seed=SEED)  # type: ignore[arg-type]
            found = float((solver.solve(model).magnetization() - exact(model)).square().mean().sqrt())
            expected = noisy.error(estimator, shots)
            # Hundreds of squares with few outliers: a mean of them is within a fifth, its root within a tenth.
            if abs(found / expected - 1) > 0.15:
                sys.exit(f"correctness gate failed: {estimator}, {shots} shots: {found:.4f}, computed {expected:.4f}")


# -- noise ------------------------------------------------------------------------------------------------------------


def noise(out: Path, quick: bool) -> None:
    """Errors by depth and estimator, and whether the depth that the noise-aware fit chooses is the best one."""
    for chip, n in (("fake_torino", 4),) if quick else CASES:
        key = {"benchmark": "machine_cost", "part": "noise", "chip": chip, "num_spins": n}
        if any(all(record.get(k) == v for k, v in key.items()) for record in read(out)):
            continue
        start = time.perf_counter()
        (batch,) = ModelSet.named(ENSEMBLE, sizes=(n,), count=MODELS, seed=SEED + n).batches
        couplings = batch.couplings.double().expand(-1, batch.fields.shape[1], -1, -1).flatten(0, 1)
        model = IsingModel(batch.fields.double().flatten(0, 1), couplings.clone())
        rows = list(noise_rows(chip, model))
        record = {**key, "ensemble": ENSEMBLE, "models": MODELS, "seed": SEED, "rows": rows}
        append(out, record | {"seconds": time.perf_counter() - start} | environment())
        for row in rows:
            print(f"{chip} n = {n} {row['schedule']} p = {row['layers']} ({row['coupled']} coupled): {row['errors']}")


def noise_rows(chip: str, model: IsingModel) -> Iterator[dict[str, Any]]:
    from qboltz.noise_fit import fit_for

    n = model.fields.shape[-1]
    fit = fit_for(chip, n, max(DEPTHS), ensemble=ENSEMBLE)
    for depth in DEPTHS:
        schedule = AnnealingSchedule.fitted(depth)
        found = measured(chip, model, schedule)
        for name, sequence in (("waiting qubits decay", 0), ("waiting qubits decay, decoupled", 2)):
            found["errors"][name] = waiting(chip, model, schedule, sequence).error("conditional")
        yield {"schedule": "table", "chosen": False, **found}
    for candidate in fit.candidates:
        found = measured(chip, model, candidate.schedule)
        yield {"schedule": "fitted", "chosen": candidate is fit.best, "predicted": candidate.error, **found}


def measured(chip: str, model: IsingModel, schedule: AnnealingSchedule) -> dict[str, Any]:
    """Infinite-shot errors on the best line, as the fit assumes it."""
    noisy = packed(chip, model, schedule, lines=1)
    errors = {
        f"{estimator}{', readout corrected' * corrected}": noisy.error(estimator, corrected=corrected)
        for estimator in ("plain", "conditional")
        for corrected in (False, True)
    }
    return {
        "layers": schedule.num_layers,
        "coupled": sum(layer.coupling_angle != 0 for layer in schedule.layers()),
        "two_qubit_gates": noisy.two_qubit_gates,
        "errors": errors,
        "covariance": covariance_error(noisy),
    }


def waiting(chip: str, model: IsingModel, schedule: AnnealingSchedule, pulses: int) -> Noisy:
    """With the decay (T1, T2) of qubits that wait, and so many X pulses in every wait.

    A fake has no slow noise that pulses could undo: all that decoupling can do on it is add the errors of the pulses.
    """
    from qiskit.circuit.library import XGate
    from qiskit.transpiler import PassManager
    from qiskit.transpiler.passes import ALAPScheduleAnalysis, PadDelay, PadDynamicalDecoupling

    from qboltz.machine.chip import ChipSampler
    from qboltz.machine.compile import pack

    target = device(chip).target
    anneal = pack(device(chip), model.fields.shape[-1], schedule, lines=1)
    pad = PadDynamicalDecoupling(dd_sequence=[XGate()] * pulses, target=target) if pulses else PadDelay(target=target)
    circuit = PassManager([ALAPScheduleAnalysis(target=target), pad]).run(anneal.circuit)
    (part,) = ChipSampler(device(chip)).parts(circuit)
    angles = anneal.bindings(model.fields.numpy(), model.couplings.numpy()).as_array(list(part.parameters))
    with torch.no_grad():
        populations = part.probabilities(angles)
    nothing = ReadoutErrors.symmetric([0.0] * anneal.num_spins)
    return Noisy(model, populations, 0.0, 1, anneal.two_qubit_gates, nothing)


def covariance_error(noisy: Noisy) -> float:
    """Root mean square error of the covariances of pairs by the conditional estimator: `E[t_k s_l] - E[t_k] E[s_l]`."""
    h, J = noisy.model.fields, noisy.model.couplings
    n = h.shape[-1]
    table = spin_table(n).to(h)
    given = torch.tanh(h.unsqueeze(1) + table @ J)

    def covariances(weights: Tensor, values: Tensor) -> Tensor:
        both = torch.einsum("rc,rck,cl->rkl", weights, values, table)
        return both - (weights.unsqueeze(-1) * values).sum(1).unsqueeze(-1) * (weights @ table).unsqueeze(-2)

    energies = (h @ table.mT) + 0.5 * torch.einsum("cj,rjk,ck->rc", table, J, table)
    truth = covariances(torch.softmax(energies, -1), table.expand(len(h), -1, -1))
    error = covariances(noisy.populations, given) - truth
    off = ~torch.eye(n, dtype=torch.bool)
    return float(error[:, off].square().mean().sqrt())
