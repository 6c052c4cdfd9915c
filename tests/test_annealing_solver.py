"""AnnealingSolver on Aer against the exact distribution of its circuit, its seeds, its masks, its start-up test.

Statistical bounds: Z = 5 standard errors. One comparison breaks it with probability 6e-7, all of this file with less
than 1e-3; the seeds are fixed, so a test that has passed once keeps passing.
"""

import copy
import os
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from qiskit.primitives import BaseSamplerV2, BitArray, DataBin, PrimitiveResult, SamplerPubResult
from qiskit.quantum_info import Statevector
from strategies import random_couplings

from qboltz import (
    AnnealingSchedule,
    AnnealingSolver,
    ExactSolver,
    IsingModel,
    annealing_circuit,
    magnetization,
)
from qboltz.backends import resolve_backend
from qboltz.backends.program import ANGLE_BYTES, ROW_BYTES, SHOT_BYTES
from qboltz.backends.self_test import FIELDS, PAIRS, dense_probabilities, self_test
from qboltz.ensemble import SampledEnsemble
from qboltz.errors import SelfTestError, TooManySpinsError
from qboltz.sampler import AnnealingCircuitSampler
from qboltz.simulator import annealing_probabilities
from qboltz.spins import spin_table

Z = 5.0
FITTED2 = AnnealingSchedule.fitted(2)


def random_model(n=4, rows=6, groups=2, seed=0, sigma_j=0.3, visible=None):
    generator = torch.Generator().manual_seed(seed)
    fields = 0.7 * torch.randn(groups, rows, n, generator=generator, dtype=torch.float64)
    return IsingModel(fields, random_couplings((groups, 1), n, sigma_j, generator), visible)


def exact_ensemble(model, schedule, estimator):
    """Infinitely many shots of the circuit, with one estimator."""
    groups = model.decoupled().groups if model.visible is not None else model.groups
    weights = annealing_probabilities(groups.fields, groups.couplings, schedule)
    return SampledEnsemble(model, spin_table(model.num_spins, dtype=torch.float64), weights, estimator)


class Recording(BaseSamplerV2):
    """Passes everything on and keeps what was asked; ``spoil`` changes the bytes of the answer."""

    def __init__(self, spoil=None):
        self.inner = AnnealingCircuitSampler(seed=5)
        self.spoil = spoil
        self.calls = []

    def run(self, pubs, *, shots=None):
        self.calls.append((list(pubs), shots))
        job = self.inner.run(self.calls[-1][0], shots=shots)
        return job if self.spoil is None else Spoiled(self.spoil(job.result()[0].data.spins))


class Spoiled:
    def __init__(self, bits):
        self.bits = bits

    def result(self):
        return PrimitiveResult([SamplerPubResult(DataBin(spins=self.bits, shape=self.bits.shape))])


# ------------------------------------------------------------------------------------------------- the distribution


@pytest.mark.parametrize("estimator", ["plain", "conditional"])
def test_sampled_magnetizations_follow_the_circuit(estimator):
    model, shots = random_model(), 2000
    ensemble = AnnealingSolver("aer_simulator", FITTED2, shots, estimator, seed=1).solve(model)
    assert ensemble.spins.shape == (2, 6, shots, 4)
    assert ensemble.spins.dtype == torch.int8
    exact = exact_ensemble(model, FITTED2, estimator).magnetization()
    assert exact.abs().max() > 0.5
    deviation = (ensemble.magnetization() - exact) / ensemble.standard_error()
    assert deviation.abs().max() < Z
    assert deviation.square().mean() == pytest.approx(1, abs=1)  # and the standard errors are not simply large


def test_sampled_pair_moments_follow_the_circuit():
    model, shots = random_model(seed=1), 4000
    spins = AnnealingSolver("aer_simulator", FITTED2, shots, seed=2).solve(model).spins.double()
    second = spins.mT @ spins / shots
    table = spin_table(4, dtype=torch.float64)
    weights = annealing_probabilities(model.groups.fields, model.groups.couplings, FITTED2)
    exact = torch.einsum("grc,ck,cl->grkl", weights, table, table)
    error = ((1 - exact.square()).clamp(min=1e-12) / shots).sqrt()
    off_diagonal = ~torch.eye(4, dtype=torch.bool)
    assert ((second - exact) / error)[..., off_diagonal].abs().max() < Z


def test_spin_zero_is_the_bit_of_the_strong_field():
    fields = torch.zeros(2, 9)
    fields[0, 0], fields[1, 0] = 1.5, -1.5
    m = (
        AnnealingSolver("aer_simulator", FITTED2, 1000, "plain", seed=3)
        .solve(IsingModel(fields, torch.zeros(9, 9)))
        .magnetization()
    )
    assert m[0, 0] > 0.7
    assert m[1, 0] < -0.7
    assert m[:, 1:].abs().max() < Z / 1000**0.5


@pytest.mark.parametrize("estimator", ["plain", "conditional"])
def test_gradients_are_unbiased_over_seeds(estimator):
    """The mean over 40 solves of 32 shots, in units of its standard error, against infinitely many shots."""
    model = random_model(n=3, rows=4, groups=1, seed=4)
    upstream = torch.randn(model.fields.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    solver = AnnealingSolver("aer_simulator", FITTED2, 32, estimator, seed=6)
    grads = [solver.solve(model).pullback(upstream) for _ in range(40)]
    exact = exact_ensemble(model, FITTED2, estimator).pullback(upstream)
    off_diagonal = ~torch.eye(3, dtype=torch.bool)
    for sampled, reference in zip(map(torch.stack, zip(*grads, strict=True)), exact, strict=True):
        deviation = (sampled.mean(0) - reference) / (sampled.std(0) / 40**0.5)
        deviation = deviation if reference is exact[0] else deviation[..., off_diagonal]
        assert reference.abs().max() > 0.15
        assert deviation.abs().max() < Z


def test_gradients_flow_through_the_autograd_function():
    model = random_model(n=3, rows=2, groups=1, seed=7)
    h, J = model.fields.clone().requires_grad_(), model.couplings.clone().requires_grad_()
    magnetization(h, J, solver=AnnealingSolver(seed=8)).sum().backward()
    ensemble = AnnealingSolver(seed=8).solve(model)
    for ours, reference in zip((h.grad, J.grad), ensemble.pullback(torch.ones_like(h)), strict=True):
        torch.testing.assert_close(ours, reference)


# ------------------------------------------------------------------------------------------------------------ masks


def test_masked_keys_never_leak():
    visible = torch.tensor([True, False, True, True, False])
    model = random_model(n=5, rows=3, visible=visible)
    fields, couplings = model.fields.clone(), model.couplings.clone()
    fields[..., ~visible] = 7.0
    couplings[..., ~visible, :] = 3.0
    couplings[..., :, ~visible] = 3.0
    couplings.diagonal(dim1=-2, dim2=-1).zero_()
    answers = []
    for one in (model, IsingModel(fields, couplings, visible)):
        ensemble = AnnealingSolver(shots=64, seed=9).solve(one)
        answers.append((ensemble.magnetization(), *ensemble.pullback(torch.ones_like(fields))))
    for ours, theirs in zip(*answers, strict=True):
        assert torch.equal(ours, theirs)
    assert answers[0][0][..., ~visible].abs().max() == 0
    assert answers[0][2][..., ~visible, :].abs().max() == 0


def test_a_masked_model_samples_the_visible_one():
    visible = torch.tensor([True, False, True, True])
    model = random_model(visible=visible, seed=10)
    part = IsingModel(model.fields[..., visible], model.couplings[..., visible, :][..., visible])
    m = AnnealingSolver("aer_simulator", FITTED2, 3000, "plain", seed=11).solve(model).magnetization()
    exact = exact_ensemble(part, FITTED2, "plain").magnetization()
    assert ((m[..., visible] - exact) / ((1 - exact**2) / 3000).sqrt()).abs().max() < Z


def test_rows_without_visible_spins_are_not_run():
    visible = torch.ones(2, 6, 4, dtype=torch.bool)
    visible[0, 2] = visible[1, 5] = False
    recording = Recording()
    solver = AnnealingSolver(recording, FITTED2, 16)
    ensemble = solver.solve(random_model(visible=visible))
    assert solver.circuits_run == 10
    ((_, bindings),), _ = recording.calls[-1]
    assert bindings.shape == (10,)
    m = ensemble.magnetization()
    assert (m == 0).all(-1).nonzero().tolist() == [[0, 2], [1, 5]]
    solver.solve(random_model(visible=torch.zeros(4, dtype=torch.bool)))
    assert solver.circuits_run == 10


# ------------------------------------------------------------------------------------------------------ pubs, seeds


def test_one_pub_for_all_rows():
    recording = Recording()
    solver = AnnealingSolver(recording, FITTED2, 16)
    solver.solve(random_model())
    pubs, shots = recording.calls[-1]
    assert len(recording.calls) == 2  # the self-test, and one job
    assert len(pubs) == 1
    assert pubs[0][1].shape == (12,)
    assert shots == 16
    assert solver.circuits_run == 12


def test_pubs_are_split_by_rows_and_keep_their_order():
    recording = Recording()
    fields = torch.tensor([[2.0, 0.0], [-2.0, 0.0]] * 5)
    ensemble = AnnealingSolver(recording, FITTED2, 400, max_rows_per_pub=4).solve(IsingModel(fields, torch.zeros(2, 2)))
    assert [pubs[0][1].shape for pubs, _ in recording.calls[1:]] == [(4,), (3,), (3,)]
    assert (ensemble.magnetization()[:, 0].sign() == fields[:, 0].sign()).all()


def test_equal_rows_get_different_shots_in_one_pub_and_in_several():
    model = IsingModel(torch.full((10, 4), 0.2), torch.zeros(4, 4))
    for max_rows in (None, 4):
        spins = AnnealingSolver(shots=64, seed=14, max_rows_per_pub=max_rows).solve(model).spins[0]
        assert len({tuple(row.flatten().tolist()) for row in spins}) == 10


def test_memory_bounds_the_rows_of_a_pub(monkeypatch):
    bytes_per_row = ROW_BYTES + 2 * (4 + 6) * ANGLE_BYTES + 16 * SHOT_BYTES
    recording = Recording()
    solver = AnnealingSolver(recording, FITTED2, 16)
    solver.solve(random_model())
    calls = len(recording.calls)
    monkeypatch.setattr("qboltz.backends.program.PUB_BYTES", 5 * bytes_per_row)
    solver.solve(random_model())
    assert [pubs[0][1].size for pubs, _ in recording.calls[calls:]] == [4, 4, 4]


def test_equal_seeds_agree_and_consecutive_calls_differ():
    model = random_model()
    one, other = AnnealingSolver(shots=64, seed=12), AnnealingSolver(shots=64, seed=12)
    first, second = one.solve(model).spins, one.solve(model).spins
    assert torch.equal(first, other.solve(model).spins)
    assert torch.equal(second, other.solve(model).spins)
    assert not torch.equal(first, second)
    assert not torch.equal(first, AnnealingSolver(shots=64, seed=13).solve(model).spins)
    assert not torch.equal(AnnealingSolver(shots=64).solve(model).spins, AnnealingSolver(shots=64).solve(model).spins)


def test_a_resumed_stream_is_bit_identical():
    model = random_model()
    solver = AnnealingSolver(shots=64, seed=15)
    solver.solve(model)
    state = solver.state_dict()
    resumed = AnnealingSolver(shots=64)
    resumed.load_state_dict(pickle.loads(pickle.dumps(state)))
    assert torch.equal(resumed.solve(model).spins, solver.solve(model).spins)
    assert resumed.circuits_run == solver.circuits_run == 24


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda thing: pickle.loads(pickle.dumps(thing))])
def test_copies_hold_nothing_live_and_go_on_alike(duplicate):
    model = random_model()
    solver = AnnealingSolver(shots=64, seed=16)
    solver.solve(model)
    assert solver.backend._programs
    other = duplicate(solver)
    assert not other.backend._programs
    assert torch.equal(other.solve(model).spins, solver.solve(model).spins)


MEMORY = """
import gc, os, torch
from qboltz import AnnealingSchedule, AnnealingSolver, IsingModel

def resident():
    gc.collect()
    with open("/proc/self/statm") as pages:
        return int(pages.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

model = IsingModel(torch.zeros(3, 2), torch.zeros(2, 2))
solver = AnnealingSolver("aer_simulator", AnnealingSchedule.linear(1), 64, seed=17)
for _ in range(50):
    solver.solve(model)
before = resident()
for _ in range(500):
    solver.solve(model)
kept = ("PrimitiveJob", "PrimitiveResult", "AerJob", "BitArray", "SampledEnsemble")
print(resident() - before, sum(type(thing).__name__ in kept for thing in gc.get_objects()))
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="reads resident memory from /proc")
def test_memory_stays_flat_over_500_calls():
    """In a process of its own: nothing of a job survives, neither objects nor 2 MiB (4 KiB a call) of memory."""
    done = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True, timeout=300)
    growth, objects = map(int, done.stdout.split())
    assert objects == 0
    assert growth < 2 * 2**20


# ------------------------------------------------------------------------------------------------------- self-test


def test_the_reference_of_the_self_test_is_right():
    J = np.zeros((4, 3, 3))
    J[:, [0, 0, 1], [1, 2, 2]] = J[:, [1, 2, 2], [0, 0, 1]] = PAIRS
    anneal = annealing_circuit(3, FITTED2)
    bindings = anneal.bindings(FIELDS, J)
    for row, expected in enumerate(dense_probabilities(FIELDS, PAIRS, FITTED2)):
        bound = bindings.bind(anneal.circuit, (row,)).remove_final_measurements(inplace=False)
        np.testing.assert_allclose(Statevector(bound).probabilities(), expected, atol=1e-12)


def reverse_bits(bits):
    values = bits.array[..., 0]
    return BitArray((values & 2 | values >> 2 & 1 | (values & 1) << 2)[..., None], bits.num_bits)


MISTAKES = {
    "reversed bits": reverse_bits,
    "flipped bits": lambda bits: BitArray(bits.array ^ 7, bits.num_bits),
    "every row the first": lambda bits: BitArray(bits.array[[0] * len(bits.array)], bits.num_bits),
    "rows moved": lambda bits: BitArray(np.roll(bits.array, 1, 0), bits.num_bits),
    "all zeros": lambda bits: BitArray(0 * bits.array, bits.num_bits),
}


@pytest.mark.parametrize("ideal", [True, False])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_self_test_finds(mistake, ideal):
    backend = resolve_backend(Recording(MISTAKES[mistake]))
    backend.ideal = ideal
    with pytest.raises(SelfTestError, match="Recording returned wrong samples for a circuit with a known answer"):
        self_test(backend)


@pytest.mark.parametrize("ideal", [True, False])
def test_the_self_test_finds_swapped_parameters(ideal):
    class Swapping(Recording):
        """Binds by position, in the order of the circuit's sorted parameters."""

        def run(self, pubs, *, shots=None):
            ((circuit, bindings),) = pubs
            return super().run([(circuit, np.concatenate(list(bindings.data.values()), axis=-1))], shots=shots)

    backend = resolve_backend(Swapping())
    backend.ideal = ideal
    with pytest.raises(SelfTestError):
        self_test(backend)


@pytest.mark.parametrize("ideal", [True, False])
def test_the_self_test_passes_a_good_sampler(ideal):
    backend = resolve_backend(Recording())
    backend.ideal = ideal
    self_test(backend)


def test_a_broken_backend_is_refused_before_its_first_use():
    solver = AnnealingSolver(Recording(reverse_bits), seed=0)
    with pytest.raises(SelfTestError):
        solver.solve(random_model())
    assert solver.circuits_run == 0


def test_the_self_test_runs_once_and_never_where_it_would_cost_money():
    recording = Recording()
    solver = AnnealingSolver(recording, FITTED2, 16)
    for _ in range(3):
        solver.solve(random_model())
    assert [shots for _, shots in recording.calls] == [2048, 16, 16, 16]
    billed = Recording()
    solver = AnnealingSolver(billed, FITTED2, 16)
    solver.backend.billed = True
    solver.solve(random_model())
    assert [shots for _, shots in billed.calls] == [16]


# ------------------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"shots": 0}, ValueError, "shots must be at least 1, got 0"),
        ({"shots": 2.5}, TypeError, "shots must be an integer of at least 1, got 2.5"),
        ({"shots": True}, TypeError, "shots must be an integer of at least 1, got True"),
        ({"estimator": "conditionl"}, ValueError, "estimator must be one of .* Did you mean 'conditional'"),
        ({"schedule": 4}, TypeError, "schedule must be an AnnealingSchedule, .adaptive. or None, got"),
        ({"seed": -1}, ValueError, "seed must be a non-negative integer or None, got -1"),
        ({"max_rows_per_pub": 0}, ValueError, "max_rows_per_pub must be at least 1, got 0"),
        ({"backend": 3}, TypeError, "backend must be a name, a BaseSamplerV2 or a BackendV2, got int"),
        ({"backend": AnnealingCircuitSampler}, TypeError, "got <class .*AnnealingCircuitSampler"),
    ],
)
def test_bad_arguments_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        AnnealingSolver(**options)


def test_too_many_spins_for_the_simulator():
    model = IsingModel(torch.zeros(60), torch.zeros(60, 60))
    with pytest.raises(TooManySpinsError, match=r"num_spins must be at most \d+, the qubits of aer_simulator .*got 60"):
        AnnealingSolver(schedule=AnnealingSchedule.linear(1)).solve(model)


def test_an_interrupt_passes_through():
    class Interrupted(Recording):
        def run(self, pubs, *, shots=None):
            if shots == 16:
                raise KeyboardInterrupt
            return super().run(pubs, shots=shots)

    with pytest.raises(KeyboardInterrupt):
        AnnealingSolver(Interrupted(), shots=16).solve(random_model())


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda bits: BitArray(bits.array[:, :-1], bits.num_bits),
            r"\(rows, shots, bits\) = \(12, 15, 4\), expected \(12, 16, 4\)",
        ),
        (
            lambda bits: BitArray(bits.array[1:], bits.num_bits),
            r"\(rows, shots, bits\) = \(11, 16, 4\), expected \(12, 16, 4\)",
        ),
    ],
)
def test_an_incomplete_result_is_refused(spoil, message):
    solver = AnnealingSolver(Recording(spoil), FITTED2, 16)
    solver.backend.billed = True  # no self-test, which such a sampler would fail
    with pytest.raises(RuntimeError, match=f"Recording returned {message}"):
        solver.solve(random_model())


def test_nothing_is_said_on_the_way():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        AnnealingSolver(shots=8, seed=0).solve(random_model())


def test_polish_and_adaptive_schedules_work_and_resume():
    generator = torch.Generator().manual_seed(3)
    couplings = torch.diag(torch.full((3,), 1.0), 1)
    model = IsingModel(0.5 * torch.randn(20, 4, generator=generator), couplings + couplings.mT)
    exact = ExactSolver().solve(model).magnetization()
    options = {"shots": 2000, "estimator": "plain", "seed": 5, "num_layers": 3}

    def error(**more):
        m = AnnealingSolver(**options, **more).solve(model).magnetization()
        return (m - exact).square().mean().sqrt().item()

    plain = error()
    assert error(polish=2) < 0.6 * plain
    assert error(schedule="adaptive") < plain
    first = AnnealingSolver(**options, schedule="adaptive", refit_every=2, polish=1)
    first.solve(model)
    second = AnnealingSolver(**options, schedule="adaptive", refit_every=2, polish=1)
    second.load_state_dict(first.state_dict())
    for _ in range(3):
        assert torch.equal(first.solve(model).spins, second.solve(model).spins)
