"""The autograd function: any solver, exact gradients, and what it refuses."""

import pytest
import torch
from hypothesis import given
from oracle import brute_force
from strategies import problems, random_couplings

from qboltz import ExactSolver, IsingModel, SampledEnsemble, magnetization
from qboltz.spins import spin_table


def weights_of_all_configurations(model):
    groups = model.groups
    table = spin_table(model.num_spins, dtype=model.dtype)
    couplings = groups.couplings.unsqueeze(1)
    energies = -(groups.fields @ table.mT) - 0.5 * ((table @ couplings) * table).sum(-1)
    return torch.softmax(-energies, -1)


class CountingSolver:
    """Enumerates through ``SampledEnsemble``, another path than ``ExactSolver``, and counts its calls."""

    def __init__(self):
        self.calls = 0

    def solve(self, model):
        self.calls += 1
        return SampledEnsemble(model, spin_table(model.num_spins), weights_of_all_configurations(model), "plain")


@given(problems())
def test_values_and_gradients_agree_with_brute_force(problem):
    fields, couplings, visible = problem
    h, J = fields.clone().requires_grad_(), couplings.clone().requires_grad_()
    upstream = torch.randn_like(fields)
    m = magnetization(h, J, visible)
    m.backward(upstream)
    h2, J2 = fields.clone().requires_grad_(), couplings.clone().requires_grad_()
    expected = brute_force(h2, J2, visible).mean
    torch.testing.assert_close(m, expected)
    grad_h, grad_j = torch.autograd.grad(
        (expected * upstream).sum(), (h2, J2), allow_unused=True, materialize_grads=True
    )
    torch.testing.assert_close(h.grad, grad_h)
    torch.testing.assert_close(J.grad, (grad_j + grad_j.mT) / 2)
    assert h.grad.shape == fields.shape
    assert J.grad.shape == couplings.shape


@pytest.mark.parametrize(
    ("solver", "visible"),
    [
        (ExactSolver(), None),
        (ExactSolver(), torch.tensor([[True, True, False, True], [False, True, True, True]])),
        (CountingSolver(), None),
    ],
    ids=["exact", "exact, masked", "counting"],
)
def test_gradcheck_through_the_upper_triangle(solver, visible):
    fields = torch.randn(3, 2, 4, dtype=torch.float64, requires_grad=True)
    upper = torch.randn(3, 1, 4, 4, dtype=torch.float64, requires_grad=True)

    def through_triangle(h, W):
        J = W.triu(1)
        return magnetization(h, J + J.mT, visible, solver=solver)

    assert torch.autograd.gradcheck(through_triangle, (fields, upper))


@pytest.mark.parametrize("beta", [0.5, 1, 2.0])
@given(problem=problems())
def test_values_and_gradients_at_another_temperature(beta, problem):
    fields, couplings, visible = problem
    h, J = fields.clone().requires_grad_(), couplings.clone().requires_grad_()
    upstream = torch.randn_like(fields)
    m = magnetization(h, J, visible, beta=beta)
    m.backward(upstream)
    h2, J2 = fields.clone().requires_grad_(), couplings.clone().requires_grad_()
    expected = brute_force(h2, J2, visible, beta).mean
    torch.testing.assert_close(m, expected)
    grad_h, grad_j = torch.autograd.grad(
        (expected * upstream).sum(), (h2, J2), allow_unused=True, materialize_grads=True
    )
    torch.testing.assert_close(h.grad, grad_h)
    torch.testing.assert_close(J.grad, (grad_j + grad_j.mT) / 2)


def test_temperature_in_half_precision_is_applied_before_rounding():
    fields = torch.tensor([2.001, -0.3], dtype=torch.bfloat16)
    m = magnetization(fields, torch.zeros(2, 2, dtype=torch.bfloat16), beta=0.7)
    assert m.dtype == torch.bfloat16
    assert torch.equal(m, torch.tanh(0.7 * fields.float()).bfloat16())


@pytest.mark.parametrize(
    ("beta", "error"),
    [
        (0, ValueError),
        (-1.0, ValueError),
        (float("nan"), ValueError),
        (float("inf"), ValueError),
        ("1", TypeError),
        (True, TypeError),
    ],
)
def test_a_temperature_must_be_positive(beta, error):
    with pytest.raises(error, match="beta must be"):
        magnetization(torch.zeros(2), torch.zeros(2, 2), beta=beta)


def test_two_spins_in_closed_form():
    h1, h2, J = 0.3, -0.8, 0.6
    fields = torch.tensor([h1, h2], dtype=torch.float64)
    couplings = torch.tensor([[0, J], [J, 0]], dtype=torch.float64)
    th1, th2, tj = (torch.tanh(torch.tensor(x, dtype=torch.float64)) for x in (h1, h2, J))
    norm = 1 + th1 * th2 * tj
    expected = torch.stack([(th1 + th2 * tj) / norm, (th2 + th1 * tj) / norm])
    torch.testing.assert_close(magnetization(fields, couplings), expected)


def test_no_couplings_is_tanh_and_no_fields_is_zero():
    fields = torch.randn(5, 6, dtype=torch.float64)
    torch.testing.assert_close(magnetization(fields, torch.zeros(6, 6, dtype=torch.float64)), torch.tanh(fields))
    J = random_couplings((), 6, 1.0, torch.Generator().manual_seed(0))
    torch.testing.assert_close(magnetization(fields * 0, J), fields * 0)


@given(problems())
def test_relabeling_spins_relabels_magnetizations(problem):
    fields, couplings, visible = problem
    order = torch.randperm(fields.shape[-1])
    relabeled = magnetization(
        fields[..., order],
        couplings[..., order, :][..., order],
        None if visible is None else visible[..., order],
    )
    torch.testing.assert_close(relabeled, magnetization(fields, couplings, visible)[..., order])


@given(problems())
def test_flipping_all_fields_flips_all_magnetizations(problem):
    fields, couplings, visible = problem
    torch.testing.assert_close(magnetization(-fields, couplings, visible), -magnetization(fields, couplings, visible))


def test_masked_spins_are_removed_decoupled_clamped_and_restricted_agree():
    generator = torch.Generator().manual_seed(4)
    fields = torch.randn(6, dtype=torch.float64, generator=generator)
    J = random_couplings((), 6, 1.0, generator)
    visible = torch.tensor([True, False, True, True, False, True])
    kept = visible.nonzero().flatten()
    removed = magnetization(fields, J, visible)
    restricted = magnetization(fields[kept], J[kept][:, kept])
    model = IsingModel(fields, J, visible).decoupled()
    decoupled = magnetization(model.fields, model.couplings)
    pinned = fields + J[:, ~visible].sum(-1)  # masked spins at -1, their pull compensated
    pinned[~visible] = -60.0
    clamped = magnetization(pinned, J)
    assert (magnetization(fields, J) - removed).abs().max() > 0.05  # could it fail? the mask matters here
    for other in (decoupled[kept], clamped[kept], restricted):
        torch.testing.assert_close(other, removed[kept])
    assert torch.equal(removed[~visible], torch.zeros(2, dtype=torch.float64))


def test_masked_values_change_nothing_and_get_no_gradient():
    generator = torch.Generator().manual_seed(5)
    fields = torch.randn(3, 5, dtype=torch.float64, generator=generator)
    J = random_couplings((), 5, 1.0, generator)
    visible = torch.tensor([True, True, False, True, True])
    other_fields, other_J = fields.clone(), J.clone()
    other_fields[:, 2] = 7.0
    other_J[2, :] = other_J[:, 2] = torch.tensor([3.0, -2.0, 0.0, 5.0, 1.0])
    torch.testing.assert_close(
        magnetization(other_fields, other_J, visible), magnetization(fields, J, visible), rtol=0, atol=1e-14
    )
    h, K = other_fields.requires_grad_(), other_J.requires_grad_()
    magnetization(h, K, visible).square().sum().backward()
    assert h.grad[:, 2].abs().max() == 0
    assert K.grad[2].abs().max() == 0
    assert K.grad[0, 1].abs() > 0


def test_a_fully_masked_row_is_zero_with_zero_gradient():
    fields = torch.randn(2, 4, requires_grad=True)
    J = random_couplings((), 4, 1.0, torch.Generator().manual_seed(0)).float().requires_grad_()
    visible = torch.tensor([[False] * 4, [True] * 4])
    m = magnetization(fields, J, visible)
    assert torch.equal(m[0], torch.zeros(4))
    m[0].sum().backward()
    assert fields.grad.abs().max() == 0
    assert J.grad.abs().max() == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_dtype_in_is_dtype_out_and_the_inside_is_at_least_float32(dtype):
    fields = torch.randn(20, 8).to(dtype).requires_grad_()
    J = random_couplings((), 8, 0.5, torch.Generator().manual_seed(0)).to(dtype).requires_grad_()
    m = magnetization(fields, J)
    m.sum().backward()
    assert m.dtype == fields.grad.dtype == J.grad.dtype == dtype
    exact = brute_force(fields.detach(), J.detach()).mean
    rounding = torch.finfo(dtype).eps  # of the result alone: computing in half precision would lose more
    assert (m.detach().double() - exact).abs().max() <= max(rounding, 2e-6 if dtype != torch.float64 else 1e-14)


def test_autocast_does_not_reach_inside():
    fields = torch.randn(20, 8)
    J = random_couplings((), 8, 0.5, torch.Generator().manual_seed(0)).float()
    plain = magnetization(fields, J)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(magnetization(fields, J), plain)


def test_one_solve_serves_forward_and_backward():
    solver = CountingSolver()
    fields = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    magnetization(fields, torch.zeros(3, 3, dtype=torch.float64), solver=solver).sum().backward()
    assert solver.calls == 1


def test_a_change_in_place_before_backward_is_an_error():
    fields = torch.randn(2, 3, requires_grad=True)
    J = torch.zeros(3, 3)
    m = magnetization(fields, J)
    J += 0.0
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        m.sum().backward()


@pytest.mark.parametrize("loss", [torch.sum, lambda m: m.square().sum()], ids=["linear", "quadratic"])
def test_double_backward_is_refused(loss):
    fields = torch.randn(2, 3, requires_grad=True)
    J = torch.zeros(3, 3)
    (grad,) = torch.autograd.grad(loss(magnetization(fields, J)), fields, create_graph=True)
    with pytest.raises(RuntimeError, match="has no second derivative"):
        (grad.sum() + fields.sum()).backward()


def test_vmap_is_refused_with_advice():
    with pytest.raises(RuntimeError, match="does not run under torch.func.vmap.*leading batch dimensions"):
        torch.func.vmap(lambda h: magnetization(h, torch.zeros(3, 3)))(torch.randn(4, 3))


def test_functional_gradients_work():
    J = random_couplings((), 4, 0.5, torch.Generator().manual_seed(0))
    fields = torch.randn(4, dtype=torch.float64)
    grad = torch.func.grad(lambda h: magnetization(h, J).sum())(fields)
    moments = brute_force(fields, J)
    torch.testing.assert_close(grad, (moments.second - torch.outer(moments.mean, moments.mean)).sum(0))


def test_compiled_models_run_it_uncompiled():
    J = random_couplings((), 4, 0.5, torch.Generator().manual_seed(0)).float()
    fields = torch.randn(2, 4)
    compiled = torch.compile(lambda h: magnetization(2 * h, J) + 1, backend="eager")
    torch.testing.assert_close(compiled(fields), magnetization(2 * fields, J) + 1)


def test_an_empty_batch_works():
    fields = torch.zeros(0, 5, requires_grad=True)
    J = torch.zeros(5, 5, requires_grad=True)
    m = magnetization(fields, J)
    m.sum().backward()
    assert m.shape == fields.grad.shape == (0, 5)
    assert torch.equal(J.grad, torch.zeros(5, 5))


def test_a_solver_must_solve():
    with pytest.raises(TypeError, match=r"solver must have a method solve\(model\), got str"):
        magnetization(torch.zeros(3), torch.zeros(3, 3), solver="exact")
