"""Mean-field solutions against their equations, brute force at small couplings, and finite differences."""

import math

import pytest
import torch
from hypothesis import given, settings
from oracle import brute_force
from strategies import problems, random_couplings

from qboltz import ConvergenceError, IsingModel, MeanFieldSolver, magnetization
from qboltz.solvers import mean_field_equation

METHODS = ["naive", "tap", "one_step"]


def random_problem(batch=(2, 3), lead=(2, 1), n=4, scale_h=0.7, scale_j=0.25, seed=3):
    generator = torch.Generator().manual_seed(seed)
    fields = scale_h * torch.randn(*batch, n, dtype=torch.float64, generator=generator)
    return fields, random_couplings(lead, n, scale_j, generator)


def right_side(h, J, m, method):
    """The equations spin by spin, for one model, as floats."""
    n = len(h)
    result = []
    for i in range(n):
        local = h[i] + sum(J[i][j] * m[j] for j in range(n))
        if method == "tap":
            local -= m[i] * sum(J[i][j] ** 2 * (1 - m[j] ** 2) for j in range(n))
        result.append(math.tanh(local))
    return result


@pytest.mark.parametrize("method", METHODS)
def test_the_solution_solves_the_equations(method):
    fields, couplings = random_problem()
    m = MeanFieldSolver(method).solve(IsingModel(fields, couplings)).magnetization()
    for g in range(2):
        for r in range(3):
            start = fields[g, r].tanh() if method == "one_step" else m[g, r]
            expected = right_side(fields[g, r].tolist(), couplings[g, 0].tolist(), start.tolist(), method)
            assert m[g, r].tolist() == pytest.approx(expected, abs=1e-14)
    assert (m - fields.tanh()).abs().max() > 0.01


@pytest.mark.parametrize(("method", "order"), [("naive", 2), ("one_step", 2), ("tap", 3)])
def test_errors_start_at_the_stated_order_of_the_couplings(method, order):
    fields, couplings = random_problem(batch=(6,), lead=(6,), scale_j=1.0)

    def error(scale):
        exact = brute_force(fields, scale * couplings).mean
        return (MeanFieldSolver(method).solve(IsingModel(fields, scale * couplings)).magnetization() - exact).norm()

    assert error(0.02) > 1e-8
    assert float(error(0.02) / error(0.01)) == pytest.approx(2**order, rel=0.1)


@pytest.mark.parametrize("method", METHODS)
def test_without_couplings_spins_are_independent(method):
    fields = torch.randn(5, 3, dtype=torch.float64)
    ensemble = MeanFieldSolver(method).solve(IsingModel(fields, torch.zeros(3, 3, dtype=torch.float64)))
    torch.testing.assert_close(ensemble.magnetization(), fields.tanh())
    spread = 1 - fields.tanh() ** 2
    torch.testing.assert_close(ensemble.covariance(), torch.diag_embed(spread))
    upstream = torch.randn_like(fields)
    grad_h, grad_j = ensemble.pullback(upstream)
    torch.testing.assert_close(grad_h, spread * upstream)
    # at J = 0 the mean-field derivative is the exact one
    h, J = fields.clone().requires_grad_(), torch.zeros(3, 3, dtype=torch.float64, requires_grad=True)
    (exact,) = torch.autograd.grad((brute_force(h, J).mean * upstream).sum(), J)
    torch.testing.assert_close(grad_j, (exact + exact.mT) / 2)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("masked", [False, True])
def test_gradients_are_those_of_the_solution(method, masked):
    fields, couplings = random_problem(batch=(2, 2), n=3)
    visible = torch.tensor([[True] * 3, [True, False, True]]) if masked else None
    solver = MeanFieldSolver(method)

    def m(h, raw):  # finite differences must keep the matrix symmetric
        upper = raw.triu(1)
        return magnetization(h, upper + upper.mT, visible, solver=solver)

    assert torch.autograd.gradcheck(m, (fields.requires_grad_(), couplings.requires_grad_()))


@pytest.mark.parametrize("method", METHODS)
def test_covariance_is_the_response_to_fields(method):
    fields, couplings = random_problem(batch=(3,), lead=())
    visible = torch.tensor([[True] * 4, [True, False, True, True], [False] * 4])
    covariance = MeanFieldSolver(method).solve(IsingModel(fields, couplings, visible)).covariance()
    jacobian = torch.autograd.functional.jacobian(
        lambda h: magnetization(h, couplings, visible, solver=MeanFieldSolver(method)), fields
    )
    response = torch.stack([jacobian[r, :, r] for r in range(3)])
    torch.testing.assert_close(covariance, (response + response.mT) / 2)
    if method != "one_step":
        torch.testing.assert_close(response, response.mT)
    if method == "naive":
        m = magnetization(fields[:1], couplings, solver=MeanFieldSolver(method))
        torch.testing.assert_close(covariance[0], torch.linalg.inv(torch.diag(1 / (1 - m[0] ** 2)) - couplings))


def test_tap_response_is_close_to_the_exact_covariance():
    fields, couplings = random_problem(scale_j=0.1)
    exact = brute_force(fields, couplings)
    covariance = exact.second - exact.mean.unsqueeze(-1) * exact.mean.unsqueeze(-2)
    errors = {
        method: (MeanFieldSolver(method).solve(IsingModel(fields, couplings)).covariance() - covariance).abs().max()
        for method in METHODS
    }
    assert errors["tap"] < 0.01
    assert errors["tap"] < 0.2 * min(errors["naive"], errors["one_step"])


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=15)
@given(problem=problems(max_spins=5))
def test_a_mask_restricts_the_model(method, problem):
    fields, couplings, visible = problem
    couplings = couplings.clamp(-0.3, 0.3)  # TAP need not converge beyond
    if visible is None:
        visible = torch.rand(fields.shape) < 0.7
    solver = MeanFieldSolver(method)
    ensemble = solver.solve(IsingModel(fields, couplings, visible))
    m, covariance = ensemble.magnetization(), ensemble.covariance()
    upstream = torch.randn_like(fields)
    grad_h, grad_j = ensemble.pullback(upstream)
    expected_j = torch.zeros_like(couplings)
    J = couplings.expand(*fields.shape[:-1], *couplings.shape[-2:])
    total_j = torch.zeros_like(J)
    for index in torch.cartesian_prod(*(torch.arange(k) for k in (1, 1, *fields.shape[:-1]))).tolist():
        row = tuple(index[2:])
        seen = visible[row]
        pairs = seen.unsqueeze(-1) & seen.unsqueeze(-2)
        assert m[row][~seen].abs().sum() == 0
        assert grad_h[row][~seen].abs().sum() == 0
        assert covariance[row][~pairs].abs().sum() == 0
        if not bool(seen.any()):
            continue
        k = int(seen.sum())
        alone = solver.solve(IsingModel(fields[row][seen], J[row][pairs].view(k, k)))
        torch.testing.assert_close(m[row][seen], alone.magnetization())
        torch.testing.assert_close(covariance[row][pairs].view(k, k), alone.covariance())
        own_h, own_j = alone.pullback(upstream[row][seen])
        torch.testing.assert_close(grad_h[row][seen], own_h)
        total_j[row][pairs] = own_j.flatten()
    expected_j = total_j.sum_to_size(couplings.shape)
    torch.testing.assert_close(grad_j, expected_j)


@pytest.mark.parametrize("method", ["naive", "tap"])
def test_rows_do_not_depend_on_their_batch(method):
    fields, couplings = random_problem(batch=(2, 5), scale_j=0.8)
    solver = MeanFieldSolver(method, tolerance=1e-3)  # so loose that one update more would show
    together = solver.solve(IsingModel(fields, couplings)).magnetization()
    for g in range(2):
        for r in range(5):
            alone = solver.solve(IsingModel(fields[g, r], couplings[g, 0])).magnetization()
            torch.testing.assert_close(together[g, r], alone, rtol=0, atol=1e-14)


@pytest.mark.parametrize("method", ["naive", "tap"])
def test_pieces_do_not_change_the_result(method, monkeypatch):
    fields, couplings = random_problem(scale_j=0.8)
    model = IsingModel(fields, couplings)
    upstream = torch.randn_like(fields)

    def results():
        ensemble = MeanFieldSolver(method).solve(model)
        return ensemble.magnetization(), ensemble.covariance(), *ensemble.pullback(upstream)

    expected = results()
    monkeypatch.setattr(mean_field_equation, "CHUNK_ELEMENTS", 32)
    for got, want in zip(results(), expected, strict=True):
        torch.testing.assert_close(got, want)


def test_the_solution_on_the_side_of_the_fields_is_taken_and_symmetry_is_kept():
    ferromagnet = 0.5 * (1 - torch.eye(6, dtype=torch.float64))
    fields = torch.tensor([0.01, 0.0, -0.01], dtype=torch.float64).unsqueeze(-1).expand(3, 6)
    m = MeanFieldSolver().solve(IsingModel(fields, ferromagnet)).magnetization()
    assert m[0].min() > 0.95
    assert m[1].abs().max() == 0
    torch.testing.assert_close(m[2], -m[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_slow_rows_near_a_critical_point_converge_to_the_stable_solution(dtype):
    n = 6
    strengths = torch.tensor([0.98, 1.0, 1.002, 1.1], dtype=dtype).view(-1, 1, 1) / (n - 1)
    couplings = strengths * (1 - torch.eye(n, dtype=dtype))
    fields = torch.full((4, n), 1e-4, dtype=dtype)
    m = MeanFieldSolver().solve(IsingModel(fields, couplings)).magnetization()
    # all spins are alike: m = tanh(h + c m) by bisection on the positive side
    for c, got in zip((strengths.double().flatten() * (n - 1)).tolist(), m[:, 0].tolist(), strict=True):
        low, high = 0.0, 1.0
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (middle, high) if math.tanh(1e-4 + c * middle) > middle else (low, middle)
        assert got == pytest.approx(low, abs=1e-3 if dtype == torch.float32 else 1e-9)


@pytest.mark.parametrize("damping", [0.0, 0.3])
def test_oscillating_rows_are_damped_until_they_converge(damping):
    antiferromagnet = -2.0 * (1 - torch.eye(8, dtype=torch.float64))
    model = IsingModel(torch.full((3, 8), 0.5, dtype=torch.float64), antiferromagnet)
    m = MeanFieldSolver(damping=damping).solve(model).magnetization()
    torch.testing.assert_close(m, torch.tanh(0.5 + m @ antiferromagnet))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_saturated_spins_give_no_nan(method, dtype):
    fields = torch.tensor([[1e3, -1e3, 0.2], [40.0, 40.0, 40.0], [1e30, 0.0, -1e30]], dtype=dtype)
    ensemble = MeanFieldSolver(method).solve(IsingModel(fields, 0.3 * (1 - torch.eye(3, dtype=dtype))))
    assert torch.equal(ensemble.magnetization()[1], torch.ones(3, dtype=dtype))
    for values in (*ensemble.pullback(torch.ones_like(fields)), ensemble.covariance()):
        assert bool(values.isfinite().all())
    assert ensemble.covariance()[1].abs().max() == 0


def test_no_convergence_is_an_error_that_says_what_to_do():
    fields, couplings = random_problem()
    with pytest.raises(ConvergenceError, match="max_iterations=2, got a residual of .* 6 of 6 rows") as caught:
        MeanFieldSolver("tap", max_iterations=2).solve(IsingModel(fields, couplings))
    for advice in ("Raise max_iterations or damping", "method='naive'", "GibbsSolver or ExactSolver"):
        assert advice in str(caught.value)
    with pytest.raises(ConvergenceError) as caught:
        MeanFieldSolver("naive", max_iterations=2).solve(IsingModel(fields, couplings))
    assert "method='naive', G" not in str(caught.value)
    loose = MeanFieldSolver("tap", max_iterations=2, tolerance=0.5).solve(IsingModel(fields, couplings))
    assert bool(loose.magnetization().isfinite().all())


def test_an_infinite_response_is_an_error():
    critical = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
    fields = torch.tensor([[0.0, 0.0], [0.3, 0.1]], dtype=torch.float64)
    ensemble = MeanFieldSolver().solve(IsingModel(fields, critical))
    with pytest.raises(ConvergenceError, match="infinite one for 1 of 2 rows"):
        ensemble.pullback(torch.ones_like(fields))
    with pytest.raises(ConvergenceError, match="critical point"):
        ensemble.covariance()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "taps"}, "method must be one of 'naive', 'one_step', 'tap', got 'taps'. Did you mean 'tap'"),
        ({"max_iterations": 0}, "max_iterations must be a positive integer, got 0"),
        ({"tolerance": 0.0}, "tolerance must be positive or None, got 0.0"),
        ({"tolerance": math.nan}, "tolerance must be positive or None, got nan"),
        ({"damping": 1.0}, "damping must be at least 0 and below 1, got 1.0"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        MeanFieldSolver(**options)
