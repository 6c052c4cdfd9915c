"""Noise as random Pauli paths, against density matrices; fits under noise, against Aer's noisy simulation."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from qiskit import QuantumCircuit
from qiskit.transpiler import generate_preset_pass_manager

from qboltz import AnnealingSchedule, IsingModel, ModelSet, SampledEnsemble, noise_fit
from qboltz.backends.fake import cut
from qboltz.cli import main
from qboltz.device_noise import as_on, device_noise, find_device
from qboltz.errors import BackendNotFoundError, TooManySpinsError
from qboltz.fidelity import BoltzmannTarget
from qboltz.machine.network import line_anneal, line_network
from qboltz.noise import AnnealNoise, NoisyStep, noisy_populations
from qboltz.noise_fit import fit_angles, fit_for
from qboltz.noisy_fidelity import NoisyTarget
from qboltz.readout import ReadoutErrors
from qboltz.schedule import fitted_table
from qboltz.simulator import Angles, annealing_probabilities
from qboltz.spins import spin_table

#: Three spins whose pairs meet once per layer, in one order and back, with unequal errors.
STEPS = (NoisyStep(0, 1, 0.17), NoisyStep(0, 2, 0.1), NoisyStep(1, 2, 0.22))
NOISE = AnnealNoise(
    3,
    (STEPS, STEPS[::-1]),
    (ReadoutErrors([0.02, 0.05, 0.01], [0.1, 0.03, 0.04]), ReadoutErrors.symmetric([0.03, 0.02, 0.01])),
    9,
    0.01,
)
#: No anneal, but angles at which every sign of every phase matters.
SCHEDULE = AnnealingSchedule((0.7, 0.9, 0.8, 0.6), (0.8, 0.0, 0.9, 0.7), (0.8, 0.6, 0.7, 0.35))
COUPLED = True, False, True, True


def three_spins(models: int = 4) -> IsingModel:
    return ModelSet.random(0.8, 0.7, sizes=(3,), count=models, seed=2).batches[0]


def embedded(operators: dict[int, np.ndarray]) -> np.ndarray:
    full = np.eye(1)
    for spin in range(3):
        full = np.kron(operators.get(spin, np.eye(2)), full)  # spin 0 is the lowest bit
    return full


def depolarized(rho: np.ndarray, first: int, second: int, probability: float) -> np.ndarray:
    """``(1 - l) rho + l tr_pair(rho) x 1/4``, the partial trace as an average over all 16 Pauli operators."""
    X, Y, Z = np.array([[0, 1], [1, 0]]), np.array([[0, -1j], [1j, 0]]), np.diag([1, -1])
    paulis = [embedded({first: a, second: b}) for a, b in itertools.product((np.eye(2), X, Y, Z), repeat=2)]
    return (1 - probability) * rho + probability / 16 * sum(pauli @ rho @ pauli.conj().T for pauli in paulis)


def by_density_matrix(h: np.ndarray, J: np.ndarray) -> np.ndarray:
    """Populations of SCHEDULE under NOISE with its readout, one model, dense."""
    s = 1 - 2 * (np.arange(8)[:, None] >> np.arange(3) & 1)
    rho = np.full((8, 8), 1 / 8, dtype=complex)
    layers = 0
    for layer, coupled in zip(SCHEDULE.layers(), COUPLED, strict=True):
        phase = np.exp(1j * layer.field_angle * (s @ h))
        rho = phase[:, None] * rho * phase.conj()
        if coupled:
            for step in NOISE.steps[layers % 2]:
                pair = J[step.first, step.second] * s[:, step.first] * s[:, step.second]
                phase = np.exp(1j * layer.coupling_angle * pair)
                rho = phase[:, None] * rho * phase.conj()
                rho = depolarized(rho, step.first, step.second, step.depolarizing)
            layers += 1
        cos, sin = math.cos(layer.mixer_angle), 1j * math.sin(layer.mixer_angle)
        mixer = embedded(dict.fromkeys(range(3), np.array([[cos, sin], [sin, cos]])))
        rho = mixer @ rho @ mixer.conj().T
    errors = NOISE.readouts[layers % 2]
    p10, p01 = errors.p10.tolist(), errors.p01.tolist()
    read = embedded({k: np.array([[1 - p10[k], p01[k]], [p10[k], 1 - p01[k]]]) for k in range(3)})
    return read @ np.diag(rho).real


def test_pauli_paths_average_to_the_density_matrix():
    """40000 paths of each of 4 models. A wrong sign, order, place or probability of an error shows at |z| > 10."""
    model = three_spins()
    count = 40_000
    paths = NOISE.paths(COUPLED, 4, count, seed=0)
    h, J = model.fields[:, 0], model.couplings[:, 0]
    parts = noisy_populations(h, J, Angles.of(SCHEDULE), paths, NOISE.readout(COUPLED), parts=100)
    error = parts.std(0) / 10
    expected = torch.tensor(np.array([by_density_matrix(*pair) for pair in zip(h.numpy(), J.numpy(), strict=True)]))
    clean = annealing_probabilities(h.unsqueeze(1), J, SCHEDULE).squeeze(1)
    assert (clean - expected).abs().max() > 0.05  # the noise is not small
    assert ((parts.mean(0) - expected) / error).abs().max() < 4.5  # 32 numbers
    assert error.max() < 1e-3


def test_the_share_without_errors_is_exact_and_every_path_has_one():
    paths = NOISE.paths(COUPLED, 2, 500, seed=0)
    chances = [step.depolarizing * 15 / 16 for step in STEPS] * 3
    assert paths.clean == pytest.approx(np.prod([1 - chance for chance in chances]))
    changed = [paths.phases != 0, paths.field_signs < 0, paths.coupling_signs.flatten(2) < 0]
    touched = torch.stack([change.any(-1).any(0) for change in changed]).any(0) | (paths.flips != 0)
    assert touched.all()
    assert NOISE.paths((False, False), 2, 4, seed=0).clean == 1


def test_without_errors_nothing_changes():
    perfect = replace(NOISE, steps=(tuple(NoisyStep(j, k, 0.0) for j, k, _ in STEPS),))
    model = three_spins()
    h, J = model.fields[:, 0], model.couplings[:, 0]
    got = noisy_populations(h, J, Angles.of(SCHEDULE), perfect.paths(COUPLED, 4, 2, 0), None, parts=2)
    clean = annealing_probabilities(h.unsqueeze(1), J, SCHEDULE).squeeze(1)
    torch.testing.assert_close(got, clean.expand(2, -1, -1))


@pytest.mark.parametrize("estimator", ["plain", "conditional"])
def test_squared_errors_are_those_of_the_estimators_and_unbiased_with_four_paths(estimator):
    """Magnetizations and the covariances that ``SampledEnsemble`` makes gradients of; 200 draws of four paths each."""
    model = three_spins()
    models = ModelSet((model,), {})
    h, J = model.fields[:, 0].numpy(), model.couplings[:, 0].numpy()
    weights = torch.tensor(np.array([by_density_matrix(*pair) for pair in zip(h, J, strict=True)])).unsqueeze(1)
    ensemble = SampledEnsemble(model, spin_table(3, dtype=torch.float64), weights, estimator)
    exact = BoltzmannTarget(model)
    magnetization = (ensemble.magnetization() - exact.mean).square().mean()
    columns = [ensemble.pullback(torch.eye(3).double()[j].expand(4, 1, 3))[0] for j in range(3)]  # Cov(s_j, s_k)
    both = torch.stack(columns, -2)
    first, second = torch.triu_indices(3, 3, 1)
    covariance = torch.stack(
        [(both[..., j, k] - exact.covariance).square() for j, k in ((first, second), (second, first))]
    ).mean()
    draws = []
    for seed in range(200):
        target = NoisyTarget(models, NOISE, COUPLED, estimator=estimator, paths=4, seed=seed)
        draws.append([float(value) for value in target.distances(Angles.of(SCHEDULE))])
    z = (np.mean(draws, 0) - [float(magnetization), float(covariance)]) / (np.std(draws, 0) / 200**0.5)
    assert np.abs(z).max() < 4
    assert (np.std(draws, 0) / 200**0.5 < 0.1 * np.mean(draws, 0)).all()  # precise enough to tell


def test_gradient_with_respect_to_the_angles():
    target = NoisyTarget(ModelSet((three_spins(),), {}), NOISE, COUPLED, paths=4)

    def loss(flat):
        return torch.stack(target.distances(Angles(*flat))).sum()

    flat = torch.tensor(list(SCHEDULE.as_dict().values()), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(loss, (flat,), eps=1e-6, atol=1e-8, rtol=1e-5)


# ------------------------------------------------------------------------------------------------- against Aer's noise


def noisy_by_aer(device, noise: AnnealNoise, schedule: AnnealingSchedule, h: np.ndarray, J: np.ndarray) -> torch.Tensor:
    """Populations ``(N, 2**n)`` of the compiled swap network on the line of ``noise``, with Aer's noise model."""
    from qiskit_aer import AerSimulator
    from qiskit_aer.noise import NoiseModel
    from qiskit_aer.noise.device import basic_device_gate_errors

    n = h.shape[1]
    anneal = line_anneal(n, schedule)
    manager = generate_preset_pass_manager(1, backend=device, initial_layout=list(noise.qubits), seed_transpiler=0)
    circuit, target = cut(manager.run(anneal.circuit), device.target)
    model = NoiseModel(basis_gates=list(target.operation_names))
    for name, qubits, error in basic_device_gate_errors(target=target):
        model.add_quantum_error(error, name, qubits)
    bare = QuantumCircuit(*circuit.qregs)
    place = {}
    for step in circuit.data:
        qubits = [circuit.find_bit(qubit).index for qubit in step.qubits]
        if step.operation.name == "measure":
            place[circuit.find_bit(step.clbits[0]).index] = qubits[0]
        else:
            bare.append(step.operation, qubits)
    bare.save_probabilities([place[spin] for spin in range(n)])
    own = {parameter.name: parameter for parameter in bare.parameters}
    angles = {
        own[name]: values[:, column].tolist()
        for names, values in anneal.bindings(h, J).data.items()
        for column, name in enumerate(names)
    }
    simulator = AerSimulator(method="density_matrix", noise_model=model)
    result = simulator.run(bare, parameter_binds=[angles], shots=1).result()
    seen = []
    for row in range(len(h)):
        populations = result.data(row)["probabilities"].reshape([2] * n)
        for spin in range(n):
            error = target["measure"][(place[spin],)].error
            read = np.array([[1 - error, error], [error, 1 - error]])
            populations = np.moveaxis(np.tensordot(read, populations, (1, n - 1 - spin)), 0, n - 1 - spin)
        seen.append(populations.ravel())
    return torch.tensor(np.array(seen))


@pytest.mark.parametrize("estimator", ["plain", "conditional"])
def test_predicted_errors_agree_with_aers_noise_model(estimator):
    """n = 4 on fake_torino, p = 2 and 3: within 10 per cent (measured: 3), where the noise is a good half of it."""
    device = find_device("fake_torino", 4)
    noise = device_noise(device, 4)
    models = ModelSet.named("broad", sizes=(4,), count=24, seed=5)
    (batch,) = models.batches
    for schedule, coupled in ((AnnealingSchedule.fitted(2), (True, True)), (uncoupled_first(3), (False, True, True))):
        target = NoisyTarget(models, noise, coupled, estimator=estimator, paths=64)
        seen = noisy_by_aer(device, noise, schedule, batch.fields[:, 0].numpy(), batch.couplings[:, 0].numpy())
        truth = [float(square) ** 0.5 for square in target.squares(seen.expand(4, -1, -1))]
        predicted, ideal = (target.fidelity(schedule, noisy=noisy) for noisy in (True, False))
        assert [predicted.magnetization, predicted.covariance] == pytest.approx(truth, rel=0.1)
        assert abs(ideal.error / math.hypot(*truth) - 1) > 0.1  # the noise matters


def uncoupled_first(p: int) -> AnnealingSchedule:
    schedule = AnnealingSchedule.fitted(p)
    return AnnealingSchedule(schedule.field_angles, (0.0, *schedule.coupling_angles[1:]), schedule.mixer_angles)


def test_noise_of_a_line_counts_the_gates_of_its_network():
    noise = device_noise(find_device("fake_torino", 5), 5)
    network = line_network(5)
    assert noise.num_gates == network.num_cx
    assert len(noise.qubits) == 5
    assert sorted((min(step[:2]), max(step[:2])) for step in noise.steps[0]) == [
        (j, k) for j in range(5) for k in range(j + 1, 5)
    ]
    assert [set(step[:2]) for step in noise.steps[1]] == [set(step[:2]) for step in noise.steps[0][::-1]]
    assert all(0.002 < step.depolarizing < 0.1 for step in noise.steps[0])
    total = sum(math.log1p(-step.depolarizing) for step in noise.steps[0])
    assert total == pytest.approx(network.num_cx * math.log1p(-4 / 3 * noise.gate_error), rel=0.01)
    target = find_device("fake_torino", 5).target
    on_line = [target["cz"][edge].error for edge in itertools.pairwise(noise.qubits)]
    assert min(on_line) < noise.gate_error < 1.3 * max(on_line)  # pulses come on top
    ideal = device_noise(find_device("aer_simulator", 5), 5)
    assert ideal.num_gates == 10
    assert ideal.paths((True,), 1, 2, 0).clean == 1


def test_fewer_spins_stand_in_for_many_with_equal_noise_each():
    noise = device_noise(find_device("fake_torino", 12), 12)
    smaller = as_on(noise, 6)
    assert (smaller.num_gates, smaller.num_spins, smaller.qubits) == (noise.num_gates, 6, noise.qubits)

    def survival(which: AnnealNoise) -> float:
        """Geometric mean over the spins of the share of paths in which none of a spin's gates fails."""
        logs = [math.log1p(-step.depolarizing) for step in which.steps[0]]
        return math.exp(2 * sum(logs) / which.num_spins)

    assert survival(smaller) == pytest.approx(survival(noise), rel=0.02)


# --------------------------------------------------------------------------------------------------------------- fits


def test_a_fit_under_noise_is_better_under_noise():
    models = ModelSet.random(0.8, 0.4, sizes=(3,), count=24, seed=4)
    target = NoisyTarget(models, NOISE, (True, True), paths=8, estimator="plain")
    start = [AnnealingSchedule.fitted(2)]
    ideal = fit_angles(target.clean_distances, start, (True, True))
    fitted = fit_angles(target.distances, start, (True, True))
    judge = NoisyTarget(models, NOISE, (True, True), paths=64, seed=1, estimator="plain")
    assert judge.fidelity(fitted).error < 0.95 * judge.fidelity(ideal).error
    assert judge.fidelity(ideal, noisy=False).error < judge.fidelity(fitted, noisy=False).error
    without = fit_angles(target.distances, [uncoupled_first(2)], (False, True))
    assert without.coupling_angles[0] == 0
    assert without.coupling_angles[1] != 0


@pytest.fixture
def few_models(monkeypatch):
    monkeypatch.setattr(noise_fit, "FIT_MODELS", 16)
    monkeypatch.setattr(noise_fit, "HELD_OUT_MODELS", 64)


def test_without_noise_depth_pays_and_with_much_of_it_gates_do_not(few_models, monkeypatch):
    ideal = fit_for("aer_simulator", 3, 2, max_iterations=10)
    shapes = [(row.num_layers, row.coupled_layers) for row in ideal.candidates]
    assert shapes == [(1, 1), (2, 1), (2, 2)]
    assert (ideal.best.num_layers, ideal.gate_error, ideal.qubits) == (2, 0, ())
    assert ideal.best.noise_error < 0.5 * ideal.best.error
    assert ideal.best.error <= 1.03 * min(row.error for row in ideal.candidates)
    steps = tuple(NoisyStep(first, second, 0.6) for first, second, _ in STEPS)
    monkeypatch.setattr(noise_fit, "device_noise", lambda *_: replace(NOISE, steps=(steps,)))
    noisy = fit_for("aer_simulator", 3, 2, max_iterations=10)
    assert noisy.best.coupled_layers == 1
    assert noisy.best.noise_error > 0
    same_shape = ideal.candidates[noisy.candidates.index(noisy.best)]
    assert noisy.best.schedule.beta_fields > 1.1 * same_shape.schedule.beta_fields  # angles make up for the noise
    assert noisy.readout_error == pytest.approx(float((NOISE.readouts[0].p10 + NOISE.readouts[0].p01).mean() / 2))
    assert f"p = {noisy.best.num_layers} with 1 coupled is best: error {noisy.best.error:.4f}" in noisy.reason
    assert "With more gates, p = " in noisy.reason


def test_the_command_fits_for_a_backend(few_models, capsys, tmp_path, monkeypatch):
    output = tmp_path / "schedule.json"
    monkeypatch.setattr(noise_fit, "FIT_MODELS", 8)
    command = ["schedule", "fit-for", "--backend", "fake_manila", "--num-spins", "2", "--max-layers", "2"]
    command += ["--max-iterations", "5"]
    assert main([*command, "--json", "--output", str(output)]) == 0
    content = json.loads(capsys.readouterr().out)
    assert [row["num_layers"] for row in content["candidates"]] == [1, 2, 2]
    assert content["best"] in content["candidates"]
    assert content["backend"] == "fake_manila"
    assert AnnealingSchedule(**json.loads(output.read_text())) == AnnealingSchedule(**content["best"]["schedule"])
    assert main([*command, "--max-uncoupled", "0", "--estimator", "plain", "--correct-readout"]) == 0
    text = capsys.readouterr().out.splitlines()
    assert len(text) == 5
    assert "*" in text[2] + text[3]


def test_own_models_are_cut_in_half(few_models):
    own = ModelSet.random(0.5, 0.3, sizes=(3,), count=20, seed=9)
    result = fit_for("aer_simulator", 3, 1, ensemble=own, max_iterations=5)
    assert result.models["half"] == 0
    with pytest.raises(ValueError, match="one batch of at least two models of 4 spins, got 20 models of \\[3\\] spins"):
        fit_for("aer_simulator", 4, 1, ensemble=own)


def test_what_cannot_be_fitted_for_is_refused():
    with pytest.raises(TooManySpinsError, match="fake_manila, which has 5 qubits and no line of 6"):
        fit_for("fake_manila", 6)
    with pytest.raises(BackendNotFoundError, match="Did you mean 'fake_torino'"):
        fit_for("fake_torin", 4)
    with pytest.raises(TypeError, match="backend must be a name or a BackendV2"):
        fit_for(3, 4)
    with pytest.raises(ValueError, match="max_layers must be at least 1, got 0"):
        fit_for("aer_simulator", 3, 0)
    models = ModelSet((three_spins(),), {})
    with pytest.raises(ValueError, match="paths must be a multiple of 4, got 3"):
        NoisyTarget(models, NOISE, COUPLED, paths=3)
    with pytest.raises(ValueError, match="noise must be of 4 spins, as the models, got 3"):
        NoisyTarget(ModelSet.random(0.5, 0.3, sizes=(4,), count=2), NOISE, COUPLED)
    with pytest.raises(TooManySpinsError, match="at most 10 spins under noise, got 11"):
        NoisyTarget(ModelSet.random(0.5, 0.3, sizes=(11,), count=2), NOISE, COUPLED)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fake_torino", "fake_fez", "fake_brisbane"])
def test_the_depth_that_is_chosen_is_close_to_the_best_by_direct_simulation(name):
    """n = 4, 96 other models: within 10 per cent of the best shape (measured: 0), and well below the table's."""
    result = fit_for(name, 4)
    device = find_device(name, 4)
    noise = device_noise(device, 4)
    models = ModelSet.named("broad", sizes=(4,), count=96, seed=4242)
    h, J = models.batches[0].fields[:, 0].numpy(), models.batches[0].couplings[:, 0].numpy()
    judge = NoisyTarget(models, noise, (True,), paths=4)

    def error(schedule: AnnealingSchedule) -> float:
        seen = noisy_by_aer(device, noise, schedule, h, J)
        return math.sqrt(sum(float(square) for square in judge.squares(seen.expand(4, -1, -1))))

    direct = {row: error(row.schedule) for row in result.candidates}
    assert direct[result.best] < 1.1 * min(direct.values())
    table = min(error(AnnealingSchedule.fitted(int(p))) for p in fitted_table()["broad"] if int(p) <= 4)
    assert direct[result.best] < 0.9 * table
