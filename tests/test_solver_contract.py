"""The promises every solver keeps, run on every entry of SOLVERS."""

import copy
import pickle

import pytest
import torch
from oracle import brute_force
from strategies import random_couplings

from qboltz import SOLVERS, IsingModel, SpinEnsemble, magnetization, make_solver
from qboltz.ensemble import Solver

#: Options that make a solver quick and its error known: largest magnetization error allowed on the models below,
#: where |h| ~ 0.5 and |J| ~ 0.1 (the error of the annealing schedule plus 5 standard errors of the samples).
OPTIONS = {
    "exact": ({}, 1e-6),
    "statevector": ({}, 0.02),
    "annealing": ({"shots": 2000, "seed": 1}, 0.04),
    "gibbs": ({"chains": 500, "warmup": 10, "seed": 1}, 0.02),
    "mean_field": ({"method": "tap"}, 0.01),
}


def models():
    generator = torch.Generator().manual_seed(11)
    fields = 0.5 * torch.randn(2, 3, 4, generator=generator)
    couplings = random_couplings((2, 1), 4, 0.1, generator).float()
    visible = torch.tensor([[True] * 4, [True, False, True, True], [False, False, False, True]])
    return {
        "shared couplings": IsingModel(fields, couplings[0, 0]),
        "heads": IsingModel(fields, couplings),
        "masked": IsingModel(fields, couplings, visible),
        "own couplings": IsingModel(fields, random_couplings((2, 3), 4, 0.1, generator).float()),
        "one spin": IsingModel(fields[..., :1], torch.zeros(1, 1)),
        "no batch": IsingModel(fields[0, 0], couplings[0, 0]),
        "float64": IsingModel(fields.double(), couplings.double()),
        "half": IsingModel(fields.half(), couplings.half()),
    }


@pytest.fixture(params=sorted(SOLVERS))
def solver_and_bound(request):
    assert set(OPTIONS) == set(SOLVERS), "give the new solver a line in OPTIONS"
    options, bound = OPTIONS[request.param]
    return make_solver(request.param, **options), bound


@pytest.mark.parametrize("name", models())
def test_an_ensemble_stands_for_the_boltzmann_distribution(solver_and_bound, name):
    solver, bound = solver_and_bound
    model = models()[name]
    ensemble = solver.solve(model)
    assert isinstance(solver, Solver)
    assert isinstance(ensemble, SpinEnsemble)
    m = ensemble.magnetization()
    exact = brute_force(model.fields, model.couplings, model.visible)
    assert m.shape == model.fields.shape
    assert m.dtype == model.fields.dtype
    bound = max(bound, 2 * torch.finfo(model.fields.dtype).eps)
    assert (m.double() - exact.mean).abs().max() <= bound
    assert torch.equal(m, ensemble.magnetization())  # asking twice changes nothing
    upstream = torch.linspace(-1, 1.5, model.fields.numel()).reshape(model.fields.shape).to(model.fields.dtype)
    grad_h, grad_j = ensemble.pullback(upstream)
    assert grad_h.shape == model.fields.shape
    assert grad_j.shape == model.couplings.shape
    assert grad_h.dtype == model.fields.dtype
    assert grad_j.dtype == model.couplings.dtype
    torch.testing.assert_close(grad_j, grad_j.mT)
    leaves = model.fields.double().requires_grad_(), model.couplings.double().requires_grad_()
    loss = (brute_force(*leaves, model.visible).mean * upstream.double()).sum()
    exact_h, exact_j = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
    exact_j = (exact_j + exact_j.mT) / 2
    assert (grad_h.double() - exact_h).abs().max() <= 8 * bound
    assert (grad_j.double() - exact_j).abs().max() <= 4 * bound
    if name not in ("one spin", "no batch"):
        assert exact_j.abs().max() > 8 * bound  # or the comparison would show nothing


@pytest.mark.parametrize("beta", [0.5, 2.0])
def test_a_layer_can_ask_for_another_temperature(solver_and_bound, beta):
    solver, bound = solver_and_bound
    model = models()["heads"]
    m = magnetization(model.fields, model.couplings, solver=solver, beta=beta)
    exact = brute_force(model.fields, model.couplings, beta=beta).mean
    assert (m - exact).abs().max() <= max(1, beta) ** 3 * bound  # the errors of schedules grow like J h
    assert (exact - brute_force(model.fields, model.couplings).mean).abs().max() > 0.1


def test_masked_spins_are_zero_and_get_no_gradient(solver_and_bound):
    solver, _ = solver_and_bound
    model = models()["masked"]
    hidden = ~model.visible.expand(model.fields.shape)
    ensemble = solver.solve(model)
    assert ensemble.magnetization()[hidden].abs().max() == 0
    grad_h, _ = ensemble.pullback(torch.ones_like(model.fields))
    assert grad_h[hidden].abs().max() == 0
    alone = IsingModel(model.fields, model.couplings, torch.tensor([False, False, False, True]))
    assert solver.solve(alone).pullback(torch.ones_like(model.fields))[1].abs().max() == 0


def test_rows_without_visible_spins(solver_and_bound):
    solver, _ = solver_and_bound
    model = models()["shared couplings"]
    visible = torch.zeros(4, dtype=torch.bool)
    ensemble = solver.solve(IsingModel(model.fields, model.couplings, visible))
    assert ensemble.magnetization().abs().max() == 0
    for gradient in ensemble.pullback(torch.ones_like(model.fields)):
        assert gradient.abs().max() == 0


def test_empty_batches(solver_and_bound):
    solver, _ = solver_and_bound
    ensemble = solver.solve(IsingModel(torch.zeros(0, 2, 3), torch.zeros(3, 3)))
    assert ensemble.magnetization().shape == (0, 2, 3)
    grad_h, grad_j = ensemble.pullback(torch.zeros(0, 2, 3))
    assert grad_h.shape == (0, 2, 3)
    assert torch.equal(grad_j, torch.zeros(3, 3))


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda solver: pickle.loads(pickle.dumps(solver))])
def test_copies_of_a_solver_go_on_alike(solver_and_bound, duplicate):
    solver, _ = solver_and_bound
    model = models()["heads"]
    solver.solve(model)
    other = duplicate(solver)
    assert torch.equal(other.solve(model).magnetization(), solver.solve(model).magnetization())


def test_unknown_names_and_options_are_refused():
    with pytest.raises(ValueError, match="solver must be one of .*got 'exat'. Did you mean 'exact'"):
        make_solver("exat")
    with pytest.raises(TypeError, match="name must be a string"):
        make_solver(None)
    with pytest.raises(TypeError, match="shots"):
        make_solver("exact", shots=3)
