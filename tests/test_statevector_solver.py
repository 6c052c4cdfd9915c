"""The statevector solver: masks, samples, seeds, both gradients, limits."""

import copy
import pickle

import pytest
import torch
from oracle import brute_force
from strategies import random_couplings

from qboltz import AnnealingSchedule, IsingModel, SampledEnsemble, StatevectorSolver, TooManySpinsError, simulator
from qboltz.simulator import annealing_probabilities
from qboltz.solvers import statevector
from qboltz.solvers.statevector import spins_of
from qboltz.solvers.visible import visible_parts
from qboltz.spins import spin_table

SCHEDULE = AnnealingSchedule.fitted(2)
BATCH, HEADS, QUERIES, SPINS = 3, 2, 5, 5


def random_model(mask=None, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    shape = (BATCH, HEADS, QUERIES, SPINS)
    fields = 0.8 * torch.randn(shape, dtype=torch.float64, generator=generator)
    couplings = random_couplings((HEADS, 1), SPINS, 0.4, generator)
    return IsingModel(fields.to(dtype), couplings.to(dtype), None if mask is None else MASKS[mask])


def masks():
    generator = torch.Generator().manual_seed(5)
    scattered = torch.rand(BATCH, HEADS, QUERIES, SPINS, generator=generator) < 0.6
    scattered[0, 0, 0] = False  # a query that sees nothing
    causal = torch.ones(QUERIES, SPINS, dtype=torch.bool).tril()
    lengths = torch.tensor([5, 2, 3]).view(BATCH, 1, 1, 1)
    padding = torch.arange(SPINS) < lengths
    everything = torch.ones(SPINS, dtype=torch.bool)
    return {"causal": causal, "padding": padding, "scattered": scattered, "everything": everything}


MASKS = masks()
MASK_NAMES = [None, *MASKS]


def every_query_alone(model, schedule, estimator):
    """The ensemble of the same models, each with its own decoupled couplings and all 2**n configurations."""
    decoupled = IsingModel(model.fields, model.couplings.expand(*model.batch_shape, SPINS, SPINS), model.visible)
    groups = decoupled.decoupled().groups
    weights = annealing_probabilities(groups.fields, groups.couplings, schedule)
    return SampledEnsemble(decoupled, spin_table(SPINS), weights, estimator)


@pytest.mark.parametrize("estimator", ["conditional", "plain"])
@pytest.mark.parametrize("mask", MASK_NAMES)
def test_masked_queries_equal_decoupled_circuits(mask, estimator):
    model = random_model(mask)
    ensemble = StatevectorSolver(SCHEDULE, estimator=estimator).solve(model)
    reference = every_query_alone(model, SCHEDULE, estimator)
    torch.testing.assert_close(ensemble.magnetization(), reference.magnetization(), atol=1e-12, rtol=0)
    upstream = torch.randn(model.fields.shape, dtype=torch.float64)
    grad_h, grad_j = ensemble.pullback(upstream)
    reference_h, reference_j = reference.pullback(upstream)
    torch.testing.assert_close(grad_h, reference_h, atol=1e-12, rtol=0)
    torch.testing.assert_close(grad_j, reference_j.sum((0, 2)).unsqueeze(1), atol=1e-12, rtol=0)
    assert grad_j.abs().max() > 1e-2


@pytest.mark.parametrize("options", [{}, {"shots": 50, "seed": 3}, {"gradient": "circuit"}])
@pytest.mark.parametrize("mask", MASKS)
def test_what_is_masked_changes_nothing(mask, options):
    model = random_model(mask)
    hidden = ~MASKS[mask].expand(model.fields.shape)
    noise = torch.where(hidden, 7.0, 0.0).double()
    couplings = model.couplings.clone()
    never_seen = hidden.all(dim=(0, 1, 2))
    couplings[..., never_seen, :] = couplings[..., :, never_seen] = 0.9
    couplings.diagonal(dim1=-2, dim2=-1).zero_()
    results = []
    for changed in (model, IsingModel(model.fields + noise, couplings, model.visible)):
        ensemble = StatevectorSolver(SCHEDULE, **options).solve(changed)
        grad_h, grad_j = ensemble.pullback(torch.ones_like(model.fields))
        results.append((ensemble.magnetization(), grad_h, grad_j))
        assert not ensemble.magnetization()[hidden].any()
        assert not grad_h[hidden].any()
    for first, second in zip(*results, strict=True):
        assert torch.equal(first, second)


def test_a_causal_query_is_a_smaller_model():
    model = random_model("causal")
    full = StatevectorSolver(SCHEDULE).solve(model).magnetization()
    for query in range(QUERIES):
        seen = query + 1
        part = IsingModel(model.fields[:, :, query, :seen], model.couplings[:, 0, :seen, :seen])
        small = StatevectorSolver(SCHEDULE).solve(part).magnetization()
        torch.testing.assert_close(full[:, :, query, :seen], small, atol=1e-13, rtol=0)


def test_parts_hold_every_row_once_and_share_what_can_be_shared():
    model = random_model("causal")
    parts = visible_parts(model.groups)
    assert [part.num_spins for part in parts] == [1, 2, 3, 4, 5]
    assert all(part.couplings.shape[0] == HEADS for part in parts)  # one table per head, whatever the batch
    rows = torch.cat([part.rows for part in visible_parts(random_model("scattered").groups)])
    assert len(rows) == BATCH * HEADS * QUERIES - 1  # one query sees nothing
    assert len(rows.unique()) == len(rows)


def test_masks_wider_than_a_machine_word():
    n = 130
    visible = torch.zeros(4, n, dtype=torch.bool)
    visible[0, [0, 64, 129]] = visible[1, [0, 64, 129]] = visible[2, [0, 64, 128]] = visible[3, [5]] = True
    generator = torch.Generator().manual_seed(0)
    fields = torch.randn(4, n, generator=generator)
    couplings = random_couplings((), n, 0.3, generator).float()
    m = StatevectorSolver(SCHEDULE).solve(IsingModel(fields, couplings, visible)).magnetization()
    for row, seen in ((0, [0, 64, 129]), (1, [0, 64, 129]), (2, [0, 64, 128]), (3, [5])):
        small = IsingModel(fields[row, seen], couplings[seen][:, seen])
        expected = StatevectorSolver(SCHEDULE).solve(small).magnetization()
        torch.testing.assert_close(m[row, seen], expected, atol=1e-6, rtol=0)
        assert m[row].count_nonzero() == len(seen)


@pytest.mark.parametrize("estimator", ["conditional", "plain"])
@pytest.mark.parametrize("mask", [None, "causal", "scattered"])
@pytest.mark.parametrize("shots", [None, 7])
def test_the_circuit_gradient_is_the_derivative_of_the_magnetization(mask, estimator, shots, monkeypatch):
    monkeypatch.setattr(statevector, "GRADIENT_ELEMENTS", 2**11)  # several pieces
    model = random_model(mask)
    solver = StatevectorSolver(SCHEDULE, shots=shots, gradient="circuit", estimator=estimator)
    upstream, step_h = torch.randn(2, *model.fields.shape, dtype=torch.float64)
    step_j = random_couplings(model.couplings.shape[:-2], SPINS, 1.0, torch.Generator().manual_seed(2))
    grad_h, grad_j = solver.solve(model).pullback(upstream)

    def objective(t):
        moved = IsingModel(model.fields + t * step_h, model.couplings + t * step_j, model.visible)
        m = StatevectorSolver(SCHEDULE, estimator=estimator).solve(moved).magnetization()
        return (upstream * m).sum()

    slope = (objective(1e-5) - objective(-1e-5)) / 2e-5
    torch.testing.assert_close((grad_h * step_h).sum() + (grad_j * step_j).sum(), slope, atol=1e-7, rtol=1e-7)
    assert torch.equal(grad_j, grad_j.mT)
    covariance_h, _ = StatevectorSolver(SCHEDULE, estimator=estimator).solve(model).pullback(upstream)
    assert (covariance_h - grad_h).abs().max() > 1e-3  # another gradient than linear response


def test_the_circuit_gradient_approaches_the_boltzmann_one_for_small_models():
    model = random_model()
    tiny = IsingModel(1e-3 * model.fields, 1e-3 * model.couplings)
    upstream = torch.randn(model.fields.shape, dtype=torch.float64)
    circuit, covariance = (
        StatevectorSolver(AnnealingSchedule.linear(4), gradient=gradient).solve(tiny).pullback(upstream)
        for gradient in ("circuit", "covariance")
    )
    for one, other in zip(circuit, covariance, strict=True):
        torch.testing.assert_close(one, other, atol=1e-2 * float(other.abs().max()), rtol=0)


@pytest.mark.parametrize("mask", [None, "scattered"])
def test_sampled_magnetizations_lie_within_five_standard_errors(mask):
    shots = 4000
    model = random_model(mask)
    ensemble = StatevectorSolver(SCHEDULE, shots=shots, estimator="plain", seed=1).solve(model)
    assert ensemble.spins.dtype == torch.int8
    assert ensemble.spins.shape == (HEADS, BATCH * QUERIES, shots, SPINS)
    m = StatevectorSolver(SCHEDULE, estimator="plain").solve(model).magnetization()
    deviation = (ensemble.magnetization() - m).abs()
    assert (deviation <= 5 * ((1 - m * m) / shots).sqrt() + 1e-12).all()
    assert deviation.max() > 0.005  # samples, not expectations


def test_sampled_pair_moments_lie_within_five_standard_errors():
    shots = 4000
    model = random_model()
    spins = StatevectorSolver(SCHEDULE, shots=shots, seed=1).solve(model).spins.double()
    weights = StatevectorSolver(SCHEDULE).solve(model).weights
    table = spin_table(SPINS, dtype=torch.float64)
    expected = torch.einsum("grc,ck,cl->grkl", weights, table, table)
    error = ((1 - expected**2).clamp(min=0) / shots).sqrt()
    assert ((spins.mT @ spins / shots - expected).abs() <= 5 * error + 1e-12).all()


def test_sampled_gradients_are_unbiased():
    model = random_model("causal")
    upstream = torch.randn(model.fields.shape, dtype=torch.float64)
    exact = StatevectorSolver(SCHEDULE).solve(model).pullback(upstream)
    solver = StatevectorSolver(SCHEDULE, shots=8, seed=4)
    draws = [solver.solve(model).pullback(upstream) for _ in range(150)]
    for index in (0, 1):
        samples = torch.stack([draw[index] for draw in draws])
        error = samples.std(0) / len(draws) ** 0.5
        assert ((samples.mean(0) - exact[index]).abs() <= 5 * error + 1e-12).all()


def test_equal_seeds_agree_and_consecutive_calls_differ():
    model = random_model("causal")
    first, second = (StatevectorSolver(SCHEDULE, shots=20, seed=7) for _ in range(2))
    spins = first.solve(model).spins
    assert torch.equal(spins, second.solve(model).spins)
    state = first.state_dict()
    following = first.solve(model).spins
    assert not torch.equal(spins, following)
    resumed = StatevectorSolver(SCHEDULE, shots=20, seed=99)
    resumed.load_state_dict(state)
    assert torch.equal(resumed.solve(model).spins, following)
    assert resumed.circuits_run == first.circuits_run
    assert not torch.equal(StatevectorSolver(SCHEDULE, shots=20, seed=8).solve(model).spins, spins)
    copies = copy.deepcopy(first), pickle.loads(pickle.dumps(first))
    following = first.solve(model).spins
    assert all(torch.equal(one.solve(model).spins, following) for one in copies)


def test_samples_do_not_depend_on_the_pieces_or_on_the_company_of_a_row(monkeypatch):
    model = random_model("causal", dtype=torch.float32)
    whole = StatevectorSolver(SCHEDULE, shots=100, seed=7).solve(model).spins
    monkeypatch.setattr(simulator, "CHUNK_AMPLITUDES", 3 * 2**SPINS)
    assert torch.equal(StatevectorSolver(SCHEDULE, shots=100, seed=7).solve(model).spins, whole)
    # Another row that joins the same part changes nothing.
    other = MASKS["causal"].clone()
    other[0] = other[2]
    changed = IsingModel(model.fields, model.couplings, other)
    spins = StatevectorSolver(SCHEDULE, shots=100, seed=7).solve(changed).spins
    rows = torch.arange(BATCH * QUERIES) % QUERIES != 0
    assert torch.equal(spins[:, rows], whole[:, rows])


@pytest.mark.parametrize("num_spins", [1, 4, 8, 11])
def test_numbers_become_the_rows_of_the_spin_table(num_spins):
    numbers = torch.arange(2**num_spins)
    assert torch.equal(spins_of(numbers, num_spins), spin_table(num_spins, dtype=torch.int8))


def test_circuits_are_counted():
    solver = StatevectorSolver(SCHEDULE)
    solver.solve(random_model())
    assert solver.circuits_run == BATCH * HEADS * QUERIES
    solver.solve(random_model("scattered"))
    assert solver.circuits_run == 2 * BATCH * HEADS * QUERIES - 1


def test_too_many_visible_spins_are_refused_with_their_cost():
    fields, couplings = torch.zeros(6, 30), torch.zeros(30, 30)
    with pytest.raises(TooManySpinsError, match=r"max_spins = 20 visible spins, got 30.*20 GiB.*4 GiB for each of 6"):
        StatevectorSolver().solve(IsingModel(fields, couplings))
    few = torch.arange(30) < 3
    assert StatevectorSolver().solve(IsingModel(fields, couplings, few)).magnetization().shape == (6, 30)
    with pytest.raises(TooManySpinsError, match="max_spins = 2 "):
        StatevectorSolver(max_spins=2).solve(IsingModel(fields, couplings, few))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schedule": 4}, "schedule must be an AnnealingSchedule, .adaptive. or None, got"),
        ({"shots": 0}, "shots must be at least 1 or None for infinitely many, got 0"),
        ({"shots": True}, "shots must be .* got True"),
        ({"gradient": "adjoint"}, "gradient must be one of 'circuit', 'covariance', got 'adjoint'"),
        ({"estimator": "conditonal"}, "Did you mean 'conditional'"),
        ({"seed": -1}, "seed must be"),
        ({"max_spins": 0}, "max_spins must be at least 1, got 0"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        StatevectorSolver(**options)


def test_defaults():
    solver = StatevectorSolver()
    assert solver.schedule == AnnealingSchedule.fitted(4)
    assert solver.shots is None
    assert "statevector" in repr(solver).lower()


def chain(rows=6, n=5, strength=1.0):
    generator = torch.Generator().manual_seed(3)
    couplings = torch.diag(torch.full((n - 1,), strength), 1)
    return IsingModel(0.5 * torch.randn(rows, n, generator=generator), couplings + couplings.mT)


@pytest.mark.parametrize("shots", [None, 4000])
def test_polish_brings_spins_closer_to_boltzmann_and_can_be_repeated(shots):
    model = chain()
    exact = brute_force(model.fields, model.couplings).mean
    error = {}
    for sweeps in (0, 1, 3):
        solver = StatevectorSolver(AnnealingSchedule.fitted(2), shots, estimator="plain", seed=1, polish=sweeps)
        m = solver.solve(model).magnetization()
        error[sweeps] = (m - exact).square().mean().sqrt().item()
        again = StatevectorSolver(AnnealingSchedule.fitted(2), shots, estimator="plain", seed=1, polish=sweeps)
        assert torch.equal(again.solve(model).magnetization(), m)
    assert error[1] < 0.85 * error[0]
    assert error[3] < 0.85 * error[1]


def test_polish_respects_masks():
    model = chain()
    visible = torch.tensor([True, True, False, True, True])
    solver = StatevectorSolver(polish=1)
    masked = solver.solve(IsingModel(model.fields, model.couplings, visible)).magnetization()
    kept = visible.nonzero().flatten()
    alone = solver.solve(IsingModel(model.fields[:, kept], model.couplings[kept][:, kept])).magnetization()
    torch.testing.assert_close(masked[:, kept], alone)


def test_an_adaptive_schedule_is_refitted_and_resumed():
    model = chain()
    solver = StatevectorSolver("adaptive", num_layers=3, refit_every=2)
    exact = brute_force(model.fields, model.couplings).mean
    fixed = StatevectorSolver(num_layers=3).solve(model).magnetization() - exact
    followed = solver.solve(model).magnetization() - exact
    assert followed.square().mean() < fixed.square().mean()
    assert solver.schedule != AnnealingSchedule.fitted(3)
    other = StatevectorSolver("adaptive", num_layers=3, refit_every=2)
    other.load_state_dict(solver.state_dict())
    for _ in range(3):
        assert torch.equal(other.solve(model).magnetization(), solver.solve(model).magnetization())


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"schedule": "fast"}, TypeError, "schedule must be an AnnealingSchedule, 'adaptive' or None, got 'fast'"),
        (
            {"schedule": AnnealingSchedule.linear(2), "num_layers": 3},
            ValueError,
            "num_layers must .* agree with schedule",
        ),
        ({"schedule": "adaptive", "refit_every": 0}, ValueError, "refit_every must be at least 1"),
        ({"polish": -1}, ValueError, "polish must be at least 0, got -1"),
        ({"polish": 1, "gradient": "circuit"}, ValueError, "polish must be 0 with gradient='circuit'"),
    ],
)
def test_bad_schedules_and_polishes_are_refused(options, error, words):
    with pytest.raises(error, match=words):
        StatevectorSolver(**options)
