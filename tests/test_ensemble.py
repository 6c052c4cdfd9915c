"""Moments and gradients from weighted configurations and from samples, against brute force."""

import pytest
import torch
from hypothesis import given
from oracle import brute_force
from strategies import problems, random_couplings

from qboltz import IsingModel, SampledEnsemble
from qboltz.spins import spin_table


def exact_weights(model: IsingModel) -> torch.Tensor:
    """Boltzmann probabilities of all configurations, ``(G, R, 2**n)``: masked spins are free in them."""
    groups = model.groups
    table = spin_table(model.num_spins, dtype=model.dtype)
    visible = groups.visible if groups.visible is not None else torch.ones_like(groups.fields, dtype=torch.bool)
    seen = table * visible.unsqueeze(-2)  # (G, R, 2**n, n)
    couplings = groups.couplings.unsqueeze(1)
    energies = -(seen * groups.fields.unsqueeze(-2)).sum(-1) - 0.5 * ((seen @ couplings) * seen).sum(-1)
    return torch.softmax(-energies, -1)


def oracle_gradients(fields, couplings, visible, upstream):
    h, J = fields.clone().requires_grad_(), couplings.clone().requires_grad_()
    grad_h, grad_j = torch.autograd.grad(
        (brute_force(h, J, visible).mean * upstream).sum(), (h, J), allow_unused=True, materialize_grads=True
    )
    return grad_h, (grad_j + grad_j.mT) / 2


@pytest.mark.parametrize("estimator", ["plain", "conditional"])
@given(problem=problems(max_spins=4))
def test_all_configurations_with_boltzmann_weights_give_exact_moments_and_gradients(estimator, problem):
    fields, couplings, visible = problem
    model = IsingModel(fields, couplings, visible)
    ensemble = SampledEnsemble(model, spin_table(model.num_spins), exact_weights(model), estimator)
    torch.testing.assert_close(ensemble.magnetization(), brute_force(fields, couplings, visible).mean)
    upstream = torch.randn_like(fields)
    grad_h, grad_j = ensemble.pullback(upstream)
    expected_h, expected_j = oracle_gradients(fields, couplings, visible, upstream)
    torch.testing.assert_close(grad_h, expected_h)
    torch.testing.assert_close(grad_j, expected_j)
    assert torch.equal(ensemble.standard_error(), torch.zeros_like(fields))


def draw(model: IsingModel, samples: int, seed: int) -> torch.Tensor:
    """Exact samples ``(G, R, M, n)`` int8 from the enumerated distribution."""
    weights = exact_weights(model)
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.multinomial(weights.flatten(0, 1), samples, replacement=True, generator=generator)
    return spin_table(model.num_spins, dtype=torch.int8)[numbers].unflatten(0, weights.shape[:2])


def random_model(n=5, rows=6, scale_h=0.7, scale_j=0.4, seed=3, visible=None):
    generator = torch.Generator().manual_seed(seed)
    fields = torch.randn(2, rows, n, dtype=torch.float64, generator=generator) * scale_h
    return IsingModel(fields, random_couplings((2, 1), n, scale_j, generator), visible)


def copies(model: IsingModel, number: int) -> IsingModel:
    """The batch ``number`` times over, each copy with couplings of its own: independent repetitions in one call."""
    return IsingModel(
        model.fields.expand(number, *model.fields.shape),
        model.couplings.expand(number, *model.couplings.shape),
        model.visible,
    )


@pytest.mark.parametrize("estimator", ["plain", "conditional"])
def test_sampled_magnetization_and_standard_error_agree_with_the_spread_of_many_draws(estimator):
    model = random_model()
    many = copies(model, 200)
    ensemble = SampledEnsemble(many, draw(many, 64, seed=0), None, estimator)
    means = ensemble.magnetization()
    spread = means.std(0)
    z = (means.mean(0) - brute_force(model.fields, model.couplings).mean) / (spread / 200**0.5)
    assert z.abs().max() < 5  # 60 numbers, two-sided: false alarm below 1e-4
    claimed = ensemble.standard_error().square().mean(0).sqrt()
    torch.testing.assert_close(claimed, spread, rtol=0.25, atol=0)  # spread of 200 draws: 5 % (1 sigma)


@pytest.mark.parametrize("estimator", ["plain", "conditional"])
@pytest.mark.parametrize("masked", [False, True])
def test_sampled_gradients_are_unbiased_even_from_three_samples(estimator, masked):
    visible = torch.tensor([[True] * 5, [True, False, True, True, False]] * 3) if masked else None
    model = random_model(visible=visible)
    upstream = torch.randn(2, 6, 5, dtype=torch.float64)
    expected = oracle_gradients(model.fields, model.couplings, visible, upstream)
    many = copies(model, 2000)
    pulled = SampledEnsemble(many, draw(many, 3, seed=1), None, estimator).pullback(upstream.expand(many.fields.shape))
    for values, exact in zip(pulled, expected, strict=True):
        error = values.std(0) / 2000**0.5
        z = (values.mean(0) - exact) / torch.where(error > 0, error, 1)
        assert z.abs().max() < 5.5  # about 110 numbers; without M / (M - 1) the largest |z| is far above 10


def test_conditional_estimator_needs_one_shot_when_spins_are_independent():
    fields = torch.randn(3, 4, dtype=torch.float64)
    model = IsingModel(fields, torch.zeros(4, 4, dtype=torch.float64))
    ensemble = SampledEnsemble(model, draw(model, 1, 0))
    torch.testing.assert_close(ensemble.magnetization(), torch.tanh(fields))
    upstream = torch.randn_like(fields)
    torch.testing.assert_close(ensemble.pullback(upstream)[0], upstream * (1 - torch.tanh(fields) ** 2))


def test_conditional_estimator_has_less_variance():
    model = random_model()
    many = copies(model, 60)
    spins = draw(many, 32, seed=0)
    variance = {
        estimator: SampledEnsemble(many, spins, None, estimator).magnetization().var(0)
        for estimator in ("plain", "conditional")
    }
    assert variance["conditional"].mean() < 0.6 * variance["plain"].mean()


@pytest.mark.parametrize("shape", [((4, 1), (4,)), ((1, 1), (50,)), ((4, 7), (4, 7))])
def test_pieces_do_not_change_the_result(shape, monkeypatch):
    lead, _ = shape
    generator = torch.Generator().manual_seed(0)
    fields = torch.randn(4, 7, 3, dtype=torch.float64, generator=generator)
    model = IsingModel(fields, random_couplings(lead, 3, 0.5, generator))
    spins = draw(model, 10, 1)
    upstream = torch.randn_like(fields)
    whole = SampledEnsemble(model, spins)
    expected = (whole.magnetization(), whole.standard_error(), *whole.pullback(upstream))
    for elements in (1, 70, 300):
        monkeypatch.setattr(SampledEnsemble, "chunk_elements", elements)
        pieces = SampledEnsemble(model, spins)
        for got, want in zip(
            (pieces.magnetization(), pieces.standard_error(), *pieces.pullback(upstream)), expected, strict=True
        ):
            torch.testing.assert_close(got, want)


def test_bad_samples_are_refused():
    model = IsingModel(torch.zeros(2, 3), torch.zeros(3, 3))
    with pytest.raises(ValueError, match="estimator must be one of 'conditional', 'plain', got 'callen'"):
        SampledEnsemble(model, torch.ones(8, 3), estimator="callen")
    with pytest.raises(ValueError, match=r"spins must be \(1, 2, samples, 3\) or \(samples, 3\), got \(2, 4, 3\)"):
        SampledEnsemble(model, torch.ones(2, 4, 3))
