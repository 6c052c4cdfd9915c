"""Gibbs sweeps, polish and chains, against brute force and against transition probabilities written out."""

import json
import math

import numpy as np
import pytest
import torch
from oracle import brute_force
from scipy.stats import chi2
from strategies import random_couplings

from qboltz import GibbsSolver, IsingModel, SampledEnsemble
from qboltz import gibbs as kernel
from qboltz.gibbs import polish, polish_weights, sweep
from qboltz.solvers.chains import effective_samples, split_rhat
from qboltz.spins import spin_table


def random_model(n=4, rows=3, scale_h=0.6, scale_j=0.5, seed=5, visible=None, groups=2, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    fields = scale_h * torch.randn(groups, rows, n, dtype=torch.float64, generator=generator)
    return IsingModel(fields.to(dtype), random_couplings((groups, 1), n, scale_j, generator).to(dtype), visible)


def boltzmann(model):
    """Probabilities of all configurations, ``(G, R, 2**n)``, of a batch ``(G, R)`` without mask."""
    table = spin_table(model.num_spins, dtype=torch.float64)
    return torch.softmax(-model.energy(table.unsqueeze(1).unsqueeze(1)), 0).permute(1, 2, 0)


def configuration_counts(spins):
    """``(..., M, n)`` spins to ``(..., 2**n)`` counts."""
    numbers = ((spins < 0) << torch.arange(spins.shape[-1])).sum(-1)
    return torch.nn.functional.one_hot(numbers, 2 ** spins.shape[-1]).sum(-2)


def chi_square(spins, probabilities):
    """Largest over the rows of the statistic, and what it stays below with probability 1 - 1e-6 in all of them."""
    expected = probabilities * spins.shape[-2]
    assert expected.min() > 5
    statistic = ((configuration_counts(spins) - expected).square() / expected).sum(-1)
    degrees = probabilities.shape[-1] - 1
    return float(statistic.max()), float(chi2.isf(1e-6 / statistic.numel(), degrees))


def transition_matrix(h, J):
    """One sequential sweep as a matrix ``(from, to)``, spin by spin and configuration by configuration."""
    n = len(h)
    total = np.eye(2**n)
    for k in range(n):
        step = np.zeros((2**n, 2**n))
        for c in range(2**n):
            s = [1 - 2 * ((c >> i) & 1) for i in range(n)]
            local = h[k] + sum(J[k][i] * s[i] for i in range(n) if i != k)
            up = 1 / (1 + math.exp(-2 * local))
            step[c, c & ~(1 << k)] += up
            step[c, c | (1 << k)] += 1 - up
        total = total @ step
    return total


def test_a_sweep_keeps_boltzmann_samples_boltzmann_and_moves_them():
    model = random_model(scale_h=0.4, scale_j=0.4)
    weights = boltzmann(model)
    numbers = torch.multinomial(weights.flatten(0, 1), 20_000, replacement=True)
    spins = spin_table(4, dtype=torch.int8)[numbers].unflatten(0, (2, 3))
    before = spins.clone()
    groups = model.groups
    sweep(spins, groups.fields, groups.couplings, np.random.SFC64(1), sweeps=2)
    assert (spins != before).double().mean() > 0.2
    statistic, bound = chi_square(spins, weights)
    assert statistic < bound
    uniform = torch.full_like(weights, 1 / 16)
    assert chi_square(spins, uniform)[0] > 10 * bound  # the test can tell distributions apart


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_sweep_has_the_transition_probabilities_of_a_sequential_scan(dtype):
    model = random_model(rows=2, scale_h=0.4, scale_j=0.4, dtype=dtype)
    spins = torch.ones(2, 2, 20_000, 4, dtype=torch.int8)
    spins[..., 1:3] = -1  # configuration 6
    polished = polish(model, spins, 1, np.random.SeedSequence(3))
    assert polished.dtype == torch.int8
    expected = [
        [transition_matrix(h.tolist(), J[0].tolist())[6] for h in fields]
        for fields, J in zip(model.fields, model.couplings, strict=True)
    ]
    statistic, bound = chi_square(polished, torch.tensor(np.array(expected)))
    assert statistic < bound
    assert bool((spins[..., 1:3] == -1).all())
    assert bool((spins[..., [0, 3]] == 1).all())


@pytest.mark.parametrize("sweeps", [1, 3])
def test_polished_weights_are_the_transition_matrix_applied_to_them(sweeps, monkeypatch):
    model = random_model()
    weights = torch.rand(2, 3, 16, dtype=torch.float64)
    weights /= weights.sum(-1, keepdim=True)
    expected = torch.empty_like(weights)
    for g in range(2):
        for r in range(3):
            matrix = transition_matrix(model.fields[g, r].tolist(), model.couplings[g, 0].tolist())
            expected[g, r] = weights[g, r] @ torch.from_numpy(np.linalg.matrix_power(matrix, sweeps))
    assert (expected - weights).abs().max() > 0.01
    torch.testing.assert_close(polish_weights(model, weights, sweeps), expected)
    monkeypatch.setattr(kernel, "CHUNK_WEIGHTS", 32)
    torch.testing.assert_close(polish_weights(model, weights, sweeps), expected)
    exact = boltzmann(model)
    torch.testing.assert_close(polish_weights(model, exact), exact)


def test_polish_brings_random_spins_closer_to_boltzmann():
    model = random_model(n=6, rows=10, scale_j=0.2)
    exact = brute_force(model.fields, model.couplings).mean
    spins = 2 * torch.randint(0, 2, (2, 10, 2000, 6), dtype=torch.int8) - 1

    def error(samples):
        return float((SampledEnsemble(model, samples, None, "plain").magnetization() - exact).square().mean().sqrt())

    errors = [error(spins), *(error(polish(model, spins, k, np.random.SeedSequence(1))) for k in (1, 2, 5))]
    noise = 1 / math.sqrt(2000)
    assert errors[1] < 0.3 * errors[0]
    assert errors[2] < 0.6 * errors[1]
    assert errors[3] < 1.2 * noise < errors[2]


def test_polish_without_couplings_forgets_the_start_at_once():
    model = IsingModel(torch.randn(1, 5, 3), torch.zeros(3, 3))
    up = torch.ones(1, 5, 400, 3, dtype=torch.int8)
    seed = np.random.SeedSequence(2)
    assert torch.equal(polish(model, up, 1, seed), polish(model, -up, 1, seed))
    assert not torch.equal(polish(model, up, 1, seed), polish(model, up, 1, np.random.SeedSequence(4)))


def test_invisible_spins_stay_and_act_on_nothing():
    visible = torch.tensor([[True, False, True, True], [False] * 4, [True, True, True, False]])
    model = random_model(visible=visible)
    spins = 2 * torch.randint(0, 2, (2, 3, 101, 4), dtype=torch.int8) - 1
    other = torch.where(visible.unsqueeze(-2), spins, -spins)
    seed = np.random.SeedSequence(2)
    polished, polished_other = polish(model, spins, 2, seed), polish(model, other, 2, seed)
    hidden = ~visible.unsqueeze(-2).expand(spins.shape)
    assert torch.equal(polished[hidden], spins[hidden])
    assert torch.equal(polished_other[hidden], other[hidden])
    assert torch.equal(polished[~hidden], polished_other[~hidden])
    assert not torch.equal(polished[~hidden], spins[~hidden])


@pytest.mark.parametrize("tempering", [None, 3])
@pytest.mark.parametrize("shape", [((2, 3), (2, 1)), ((6,), ()), ((5,), (5,)), ((), ())])
def test_pieces_do_not_change_the_samples(tempering, shape, monkeypatch):
    batch, lead = shape
    generator = torch.Generator().manual_seed(0)
    fields = 0.2 * torch.randn(*batch, 3, generator=generator, dtype=torch.float64)
    model = IsingModel(fields, random_couplings(lead, 3, 0.3, generator))
    options = {"chains": 5, "samples_per_chain": 3, "warmup": 4, "tempering": tempering, "seed": 8}
    expected = GibbsSolver(**options).solve(model)
    assert len(expected.spins.flatten(0, 2).unique(dim=0)) > 4
    for spins, uniforms in ((1, 2**24), (2**18, 1), (2**18, 150), (31, 1000)):
        monkeypatch.setattr(kernel, "CHUNK_SPINS", spins)
        monkeypatch.setattr(kernel, "CHUNK_UNIFORMS", uniforms)
        got = GibbsSolver(**options).solve(model)
        assert torch.equal(got.spins, expected.spins)
        torch.testing.assert_close(got.exchange_rates, expected.exchange_rates)


def copies(model, number):
    return IsingModel(
        model.fields.expand(number, *model.fields.shape),
        model.couplings.expand(number, *model.couplings.shape),
        model.visible,
    )


@pytest.mark.parametrize("estimator", ["plain", "conditional"])
@pytest.mark.parametrize("options", [{}, {"tempering": 3, "beta_min": 0.3}], ids=["plain chains", "tempered"])
def test_moments_gradients_and_errors_agree_with_brute_force(estimator, options):
    repeats = 120
    visible = torch.tensor([[True] * 5, [True, False, True, True, False], [True] * 5])
    model = random_model(n=5, scale_j=0.35, visible=visible)
    many = copies(model, repeats)
    solver = GibbsSolver(16, 8, warmup=15, estimator=estimator, seed=1, **options)
    ensemble = solver.solve(many)
    h, J = model.fields.clone().requires_grad_(), model.couplings.clone().requires_grad_()
    exact = brute_force(h, J, visible)
    upstream = torch.randn(model.fields.shape, dtype=torch.float64)
    grad_h, grad_j = torch.autograd.grad((exact.mean * upstream).sum(), (h, J))
    means = ensemble.magnetization()
    pulled = ensemble.pullback(upstream.expand(many.fields.shape))
    for values, expected in zip((means, *pulled), (exact.mean, grad_h, (grad_j + grad_j.mT) / 2), strict=True):
        error = values.std(0) / math.sqrt(repeats)
        z = (values.mean(0) - expected).detach() / torch.where(error > 0, error, 1)
        assert z.abs().max() < 5.5  # about 200 numbers in all with 119 degrees of freedom: false alarm below 1e-4
    claimed = ensemble.standard_error().square().mean(0).sqrt()
    torch.testing.assert_close(claimed, means.std(0), rtol=0.35, atol=1e-12)  # 120 draws: 6.5 % (1 sigma)


def test_standard_error_counts_the_correlation_within_chains():
    n = 6
    model = IsingModel(torch.full((300, n), 0.1), 0.25 * (1 - torch.eye(n)))  # slow: about 9 sweeps per sample
    ensemble = GibbsSolver(16, 16, warmup=50, estimator="plain", seed=0).solve(model)
    spread = ensemble.magnetization().std(0).mean()
    assert abs(ensemble.standard_error().square().mean().sqrt() / spread - 1) < 0.15
    assert SampledEnsemble.standard_error(ensemble).mean() < 0.6 * spread
    claimed = (1 / ensemble.diagnostics().effective_samples).mean().sqrt()
    assert 0.6 < claimed / spread < 1.3  # unit variance, nearly: the fields are small


def ferromagnet(n=8):
    """Two modes, all up and all down, that single flips do not connect: the field prefers the first by e^(2 n h)."""
    return IsingModel(torch.full((4, n), 0.06), 0.6 * (1 - torch.eye(n)))


def test_rhat_finds_stuck_chains_and_tempering_mixes_them():
    model = ferromagnet()
    exact = brute_force(model.fields, model.couplings).mean
    stuck = GibbsSolver(32, 50, warmup=50, seed=2).solve(model)
    assert stuck.diagnostics().split_rhat.min() > 3
    assert stuck.diagnostics().effective_samples.max() < 50  # of 1600: hardly more than one for each of the 32 chains
    assert (stuck.magnetization() - exact).abs().min() > 0.1  # the modes as the starts chose them, not as their weights
    tempered = GibbsSolver(32, 50, warmup=50, thin=4, tempering=8, beta_min=0.1, seed=2).solve(model)
    diagnostics = tempered.diagnostics()
    assert diagnostics.split_rhat.max() < 1.2
    assert diagnostics.exchange_rates.shape == (7,)
    assert diagnostics.exchange_rates.min() > 0.1
    assert diagnostics.exchange_rates.max() < 1
    z = (tempered.magnetization() - exact) / tempered.standard_error()
    assert z.abs().max() < 6  # 4 independent rows with 31 degrees of freedom: false alarm below 1e-5


def test_split_rhat_is_the_textbook_formula():
    generator = np.random.default_rng(0)
    chains = generator.normal(size=(4, 11, 2)) + np.array([0.0, 0.3, 0.0, 1.0])[:, None, None]
    for j in range(2):
        halves = [part for chain in chains[..., j] for part in (chain[:5], chain[-5:])]
        within = np.mean([np.var(half, ddof=1) for half in halves])
        between = 5 * np.var([np.mean(half) for half in halves], ddof=1)
        expected = math.sqrt((4 / 5 * within + between / 5) / within)
        assert expected > 1.05
        assert float(split_rhat(torch.from_numpy(chains))[j]) == pytest.approx(expected, rel=1e-12)


def test_split_rhat_sees_a_trend_common_to_all_chains():
    trend = torch.linspace(0, 5, 40).view(40, 1) + torch.randn(8, 40, 1)
    assert split_rhat(trend) > 1.3
    assert split_rhat(torch.randn(8, 40, 1)) < 1.05


@pytest.mark.parametrize(("chains", "length"), [(1, 20_000), (8, 2000), (2000, 8)])
@pytest.mark.parametrize("phi", [0.0, 0.6, -0.3])
def test_effective_samples_of_autoregressive_chains(chains, length, phi):
    noise = torch.randn(chains, length, 3, dtype=torch.float64)
    x = torch.empty_like(noise)
    x[:, 0] = noise[:, 0] / math.sqrt(1 - phi**2)
    for t in range(1, length):
        x[:, t] = phi * x[:, t - 1] + noise[:, t]
    # variance of the mean of one chain of this length, in units of the variance
    lags = np.arange(1, length)
    tau = 1 + 2 * np.sum((1 - lags / length) * phi**lags)
    expected = chains * length / tau
    assert effective_samples(x).tolist() == pytest.approx([expected] * 3, rel=0.2)


def test_diagnostics_of_extreme_chains():
    model = IsingModel(torch.zeros(1, 2), torch.zeros(2, 2), torch.tensor([True, False]))
    stuck = torch.tensor([[1.0], [-1.0], [1.0], [-1.0]]).unsqueeze(1).expand(4, 10, 1)
    assert float(effective_samples(stuck)) == pytest.approx(4)
    assert float(split_rhat(stuck)) == math.inf
    constant = torch.ones(4, 10, 1)
    assert float(effective_samples(constant)) == 40
    assert float(split_rhat(constant)) == 1
    diagnostics = GibbsSolver(4, 10, thin=3, seed=0).solve(model).diagnostics()
    assert diagnostics.split_rhat[0, 1] == 1
    assert diagnostics.effective_samples[0, 1] == 40
    assert diagnostics.autocorrelation_time[0, 1] == 3
    assert diagnostics.exchange_rates.shape == (0,)
    assert diagnostics.split_rhat.shape == (1, 2)
    with pytest.raises(ValueError, match="samples_per_chain must be at least 4 for diagnostics.*got 3"):
        GibbsSolver(4, 3, seed=0).solve(model).diagnostics()


def test_thinning_and_warmup_select_sweeps_of_the_same_run():
    """Random numbers are used up per sweep, so runs of equal length differ only in what they record."""
    model = IsingModel(torch.randn(4), torch.zeros(4, 4))
    every = GibbsSolver(3, 12, warmup=0, seed=1).solve(model).spins.unflatten(2, (3, 12))
    thinned = GibbsSolver(3, 4, warmup=4, thin=2, seed=1).solve(model).spins.unflatten(2, (3, 4))
    assert torch.equal(thinned, every[:, :, :, 5::2])


def test_seeds_calls_and_resumption():
    model = random_model()
    options = {"chains": 4, "samples_per_chain": 4, "warmup": 3}
    solver = GibbsSolver(seed=3, **options)
    first, state = solver.solve(model).spins, json.loads(json.dumps(solver.state_dict()))
    second = solver.solve(model).spins
    assert first.dtype == torch.int8
    assert torch.equal(first, GibbsSolver(seed=3, **options).solve(model).spins)
    assert not torch.equal(first, second)
    assert not torch.equal(first, GibbsSolver(seed=4, **options).solve(model).spins)
    resumed = GibbsSolver(seed=99, **options)
    resumed.load_state_dict(state)
    assert torch.equal(resumed.solve(model).spins, second)


def test_large_fields_and_many_spins():
    n = 70
    fields = torch.full((2, n), 80.0)
    fields[1] = -80.0
    ensemble = GibbsSolver(4, 4, warmup=2, seed=0).solve(IsingModel(fields, 0.5 * (1 - torch.eye(n))))
    assert torch.equal(ensemble.magnetization(), fields.sign())


def test_temperatures_are_geometric():
    betas = GibbsSolver(tempering=4, beta_min=0.125).betas
    torch.testing.assert_close(betas, torch.tensor([0.125, 0.25, 0.5, 1.0], dtype=torch.float64))
    assert GibbsSolver().betas.tolist() == [1.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"chains": 0}, "chains must be an integer of at least 1, got 0"),
        ({"samples_per_chain": 2.0}, "samples_per_chain must be an integer of at least 1, got 2.0"),
        ({"warmup": -1}, "warmup must be an integer of at least 0, got -1"),
        ({"thin": True}, "thin must be an integer of at least 1, got True"),
        ({"tempering": 1}, "tempering must be an integer of at least 2, got 1"),
        ({"beta_min": 1.0}, "beta_min must be between 0 and 1, got 1.0"),
        ({"estimator": "callen"}, "estimator must be one of 'conditional', 'plain', got 'callen'"),
        ({"seed": -1}, "seed must be a non-negative integer or None, got -1"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        GibbsSolver(**options)


def test_bad_spins_and_sweeps_are_refused():
    model = random_model()
    seed = np.random.SeedSequence(0)
    with pytest.raises(ValueError, match=r"spins must be \(2, 3, samples, 4\), got \(8, 4\)"):
        polish(model, torch.ones(8, 4), 1, seed)
    with pytest.raises(ValueError, match="sweeps must be a positive integer, got 0"):
        polish(model, torch.ones(2, 3, 8, 4), 0, seed)
    with pytest.raises(ValueError, match=r"weights must be \(2, 3, 16\), got \(2, 3, 8\)"):
        polish_weights(model, torch.ones(2, 3, 8))
    with pytest.raises(ValueError, match="model must have visible=None"):
        polish_weights(random_model(visible=torch.ones(4, dtype=torch.bool)), torch.ones(2, 3, 16))
