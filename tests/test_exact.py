"""The exact solver against brute force, closed forms, transfer matrices and itself."""

import math
import pickle
import subprocess
import sys

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from oracle import brute_force
from strategies import problems, random_couplings

import qboltz.enumeration.tables as tables
import qboltz.solvers.factorized as factorized
from qboltz.enumeration import ProductFactors, StreamedFactors
from qboltz.errors import TooManySpinsError
from qboltz.ising import IsingModel
from qboltz.solvers.buckets import Bucket, bucketed, cheapest_merge
from qboltz.solvers.exact import ExactSolver

WAYS = ["as it comes", "products", "float64 products", "logarithms"]


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    """Which of the ways to sum is taken, whatever the size of the problem."""
    take(request.param, monkeypatch)
    return request.param


def take(way, monkeypatch):
    if way != "as it comes":
        monkeypatch.setattr(factorized, "DIRECT_TERMS", 0)
    if way == "float64 products":
        monkeypatch.setattr(factorized, "MAX_ENERGY", 0.0)
    if way == "logarithms":
        monkeypatch.setattr(
            ProductFactors, "_is_reliable", lambda self, even: torch.zeros_like(self._z, dtype=torch.bool)
        )


def kinds(ensemble):
    """The ways that were taken: kind and dtype of every piece that had rows of its own."""
    return {(type(f).__name__, f.fields.dtype) for _, f in ensemble._pieces if bool(f.reliable.any())}


def oracle_answers(fields, couplings, visible, grad):
    """Everything an exact ensemble says, by brute force and autograd in float64."""
    h, J = (x.detach().clone().double().requires_grad_() for x in (fields, couplings))
    moments = brute_force(h, J, visible)
    grad_fields, upper = torch.zeros_like(h), torch.zeros_like(J)  # the oracle reads the upper triangle only
    if moments.mean.requires_grad:
        objective = (moments.mean * grad.double()).sum()
        grad_fields, upper = torch.autograd.grad(objective, (h, J), allow_unused=True, materialize_grads=True)
    mean = moments.mean.detach()
    return {
        "magnetization": mean,
        "log_partition": moments.log_z.detach(),
        "entropy": moments.entropy.detach(),
        "covariance": moments.second.detach() - mean.unsqueeze(-1) * mean.unsqueeze(-2),
        "second_moments": moments.second.detach(),
        "grad_fields": grad_fields,
        "grad_couplings": 0.5 * (upper + upper.mT),
    }


def exact_answers(fields, couplings, visible, grad):
    ensemble = ExactSolver().solve(IsingModel(fields, couplings, visible))
    asked = ["magnetization", "log_partition", "entropy", "covariance", "second_moments"]
    answers = {name: getattr(ensemble, name)() for name in asked}
    answers["grad_fields"], answers["grad_couplings"] = ensemble.pullback(grad)
    return answers


def check(fields, couplings, visible=None, *, atol):
    generator = torch.Generator().manual_seed(5)
    grad = torch.randn(fields.shape, dtype=torch.float64, generator=generator).to(fields.dtype)
    expected = oracle_answers(fields, couplings, visible, grad)
    for name, answer in exact_answers(fields, couplings, visible, grad).items():
        assert answer.dtype == (couplings.dtype if name == "grad_couplings" else fields.dtype), name
        assert answer.shape == expected[name].shape, name
        scale = 1 + expected[name].abs()
        worst = ((answer.double() - expected[name]).abs() / scale).amax().item() if answer.numel() else 0.0
        assert worst <= atol, f"{name} is off by {worst:.2e}"  # NaN fails


def random_problem(num_rows, num_spins, scale_h=1.0, scale_j=0.3, lead=(), seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    fields = scale_h * torch.randn(*lead, num_rows, num_spins, dtype=torch.float64, generator=generator)
    couplings = random_couplings((*lead, 1) if lead else (), num_spins, scale_j, generator)
    return fields.to(dtype), couplings.to(dtype)


# --- against brute force --------------------------------------------------------------------------------------


@pytest.mark.parametrize("chosen", WAYS)
def test_every_answer_agrees_with_brute_force(chosen):
    @settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
    @given(problems())
    def run(problem):
        with pytest.MonkeyPatch.context() as monkeypatch:
            take(chosen, monkeypatch)
            check(*problem, atol=1e-10)

    run()


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(problems())
def test_float32_agrees_with_brute_force(problem):
    fields, couplings, visible = problem
    with pytest.MonkeyPatch.context() as monkeypatch:
        take("products", monkeypatch)
        check(fields.float(), couplings.float(), visible, atol=1e-4)


@pytest.mark.parametrize("fields_dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_dtypes_are_kept_and_computed_in_at_least_float32(fields_dtype):
    fields, couplings = random_problem(3, 4)
    fields = fields.to(fields_dtype)
    ensemble = ExactSolver().solve(IsingModel(fields, couplings.float()))
    grads = ensemble.pullback(torch.ones_like(fields))
    assert (ensemble.magnetization().dtype, grads[0].dtype, grads[1].dtype) == (
        fields_dtype,
        fields_dtype,
        torch.float32,
    )
    exact = brute_force(fields, couplings.float()).mean
    torch.testing.assert_close(ensemble.magnetization(), exact.to(fields_dtype))


def visible_masks(rows, n):
    generator = torch.Generator().manual_seed(1)
    causal = torch.arange(n) <= torch.arange(rows)[:, None] % n
    padding = torch.arange(n) < torch.randint(0, n + 1, (rows, 1), generator=generator)
    left_padding = padding.flip(-1)
    window = causal & (torch.arange(n) > torch.arange(rows)[:, None] % n - 3)
    random = torch.rand(rows, n, generator=generator) < 0.5
    nothing = torch.zeros(rows, n, dtype=torch.bool)
    return {
        "causal": causal,
        "padding": padding,
        "left padding": left_padding,
        "window": window,
        "random": random,
        "some rows empty": random & (torch.arange(rows) % 2 == 0)[:, None],
        "nothing": nothing,
        "all": ~nothing,
    }


@pytest.mark.parametrize("mask", list(visible_masks(1, 1)))
def test_masks_remove_spins(mask, way):
    fields, couplings = random_problem(9, 6)
    check(fields, couplings, visible_masks(9, 6)[mask], atol=1e-10)


@pytest.mark.parametrize("mask", ["causal", "padding", "random", "window"])
@pytest.mark.parametrize("cost", ["apart", "together"])
def test_buckets_change_nothing(mask, cost, way, monkeypatch):
    """Every class of rows apart, and all of them in one bucket."""
    prices = {"apart": lambda spins, rows: 2.0**spins * rows, "together": lambda spins, rows: 1.0}
    monkeypatch.setattr("qboltz.solvers.buckets.enumeration_cost", prices[cost])
    fields, couplings = random_problem(9, 6)
    visible = visible_masks(9, 6)[mask]
    classes = len(set((visible * torch.arange(1, 7)).amax(-1).tolist()) - {0})
    assert len(list(bucketed(visible[None], (1, 9, 6), 24))) == (classes if cost == "apart" else 1)
    check(fields, couplings, visible, atol=1e-10)


INDICES = [slice(None), slice(1, 5), slice(2, None), torch.tensor([4, 1, 2, 5])]


@pytest.mark.parametrize("outer", INDICES)
@pytest.mark.parametrize("inner", [slice(None), slice(1, 3), torch.tensor([2, 0])])
def test_a_bucket_of_a_bucket(outer, inner):
    values = torch.arange(6 * 6 * 3).view(6, 6, 3)
    bucket, swapped = Bucket(outer, slice(None)), Bucket(slice(None), outer)
    assert torch.equal(bucket.narrowed(groups=inner).take(values), values[outer][inner])
    assert torch.equal(swapped.narrowed(rows=inner).take(values), values[:, outer][:, inner])
    total = torch.zeros_like(values)
    bucket.narrowed(groups=inner).put(total, values[outer][inner])
    assert torch.equal(total[outer][inner], values[outer][inner])
    assert total.count_nonzero() == values[outer][inner].count_nonzero()


def test_buckets_cut_into_pieces_of_which_some_rows_are_done_again(monkeypatch):
    take("products", monkeypatch)
    monkeypatch.setattr(factorized, "PIECE_ELEMENTS", 32)
    monkeypatch.setattr("qboltz.solvers.buckets.enumeration_cost", lambda spins, rows: 2.0**spins * rows)
    fields, couplings = random_problem(12, 6, lead=(3,), dtype=torch.float32)
    fields *= torch.tensor([1.0, 1.0, 40.0, 3.0, 400.0]).repeat(8)[:36].view(3, 12, 1)
    visible = visible_masks(12, 6)["causal"]
    assert len(kinds(ExactSolver().solve(IsingModel(fields, 2 * couplings, visible)))) > 1
    check(fields, 2 * couplings, visible, atol=2e-4)


def test_groups_with_masks_of_their_own(way):
    fields, couplings = random_problem(5, 5, lead=(4,))
    visible = torch.rand(4, 5, 5, generator=torch.Generator().manual_seed(2)) < 0.6
    check(fields, couplings, visible, atol=1e-10)
    check(fields, couplings, visible[:1], atol=1e-10)


def test_groups_of_which_some_are_uncoupled(way):
    fields, couplings = random_problem(3, 5, lead=(4,))
    couplings[1] = 0
    couplings[3] = 0
    check(fields, couplings, visible_masks(3, 5)["random"], atol=1e-10)


def test_couplings_of_every_row(way):
    fields, _ = random_problem(12, 5)
    couplings = random_couplings((12,), 5, 0.5, torch.Generator().manual_seed(3))
    check(fields, couplings, visible_masks(12, 5)["random"], atol=1e-10)
    check(fields, couplings, visible_masks(12, 5)["causal"], atol=1e-10)


def test_more_patterns_of_masks_than_buckets_are_made_for(monkeypatch):
    monkeypatch.setattr("qboltz.solvers.buckets.MAX_PATTERNS", 2)
    fields, _ = random_problem(12, 5)
    couplings = random_couplings((12,), 5, 0.5, torch.Generator().manual_seed(3))
    check(fields, couplings, visible_masks(12, 5)["causal"], atol=1e-10)


def test_what_is_masked_does_not_matter(way):
    fields, couplings = random_problem(8, 6)
    visible = visible_masks(8, 6)["random"]
    visible[:, 2] = False
    grad = torch.ones_like(fields)
    before = exact_answers(fields, couplings, visible, grad)
    other = torch.full_like(couplings, 7.0).masked_fill(torch.arange(6) != 2, 0.0)
    changed = couplings + (other + other.mT).fill_diagonal_(0)
    after = exact_answers(fields.masked_fill(~visible, 1e3), changed, visible, grad)
    for name, answer in after.items():
        torch.testing.assert_close(answer, before[name], rtol=1e-9, atol=1e-10, msg=name)


@pytest.mark.parametrize(("rows", "n"), [(0, 4), (1, 1), (3, 1), (1, 2), (1, 7)])
def test_small_shapes(rows, n, way):
    fields, couplings = random_problem(rows, n)
    check(fields, couplings, atol=1e-10)
    check(fields, couplings, torch.rand(rows, n) < 0.5, atol=1e-10)


def test_an_unbatched_model_and_an_empty_group_axis():
    fields, couplings = random_problem(1, 4)
    check(fields[0], couplings, atol=1e-12)
    check(fields[:0], couplings.expand(0, 4, 4), atol=1e-12)


# --- limits and symmetries ------------------------------------------------------------------------------------


def test_without_couplings_any_number_of_spins_is_solved_in_closed_form():
    fields = torch.randn(3, 1000, dtype=torch.float64)
    ensemble = ExactSolver(max_spins=1).solve(IsingModel(fields, torch.zeros(1000, 1000)))
    torch.testing.assert_close(ensemble.magnetization(), fields.tanh())
    torch.testing.assert_close(ensemble.log_partition(), torch.log(2 * torch.cosh(fields)).sum(-1))


def test_without_fields_spins_point_nowhere(way):
    _, couplings = random_problem(1, 7, scale_j=2.0)
    ensemble = ExactSolver().solve(IsingModel(torch.zeros(4, 7, dtype=torch.float64), couplings))
    torch.testing.assert_close(ensemble.magnetization(), torch.zeros(4, 7, dtype=torch.float64), rtol=0, atol=1e-14)


def test_two_spins_in_closed_form(way):
    h1, h2, J = 0.7, -0.4, 0.9
    up, down = math.exp(J), math.exp(-J)
    z = 2 * up * math.cosh(h1 + h2) + 2 * down * math.cosh(h1 - h2)
    m1 = (2 * up * math.sinh(h1 + h2) + 2 * down * math.sinh(h1 - h2)) / z
    m2 = (2 * up * math.sinh(h1 + h2) - 2 * down * math.sinh(h1 - h2)) / z
    fields, couplings = (
        torch.tensor([[h1, h2]], dtype=torch.float64),
        torch.tensor([[0, J], [J, 0]], dtype=torch.float64),
    )
    ensemble = ExactSolver().solve(IsingModel(fields, couplings))
    torch.testing.assert_close(ensemble.magnetization(), torch.tensor([[m1, m2]], dtype=torch.float64))
    torch.testing.assert_close(ensemble.log_partition(), torch.tensor([math.log(z)], dtype=torch.float64))


def test_relabeling_the_spins_relabels_the_answers():
    """Twelve spins: every pair is within the left half, within the right half or across for some order."""
    fields, couplings = random_problem(64, 12, dtype=torch.float32)
    grad = torch.randn(64, 12)
    order = torch.randperm(12)
    there = exact_answers(fields, couplings, None, grad)
    here = exact_answers(fields[:, order], couplings[order][:, order], None, grad[:, order])
    for name, axes in {"magnetization": 1, "grad_fields": 1, "covariance": 2, "grad_couplings": 2}.items():
        expected = there[name][..., order] if axes == 1 else there[name][..., order, :][..., order]
        torch.testing.assert_close(here[name], expected, rtol=1e-4, atol=2e-5, msg=name)


def test_flipping_all_fields_flips_all_spins():
    fields, couplings = random_problem(64, 13, dtype=torch.float32)
    m = ExactSolver().solve(IsingModel(fields, couplings)).magnetization()
    flipped = ExactSolver().solve(IsingModel(-fields, couplings)).magnetization()
    torch.testing.assert_close(flipped, -m, rtol=0, atol=1e-5)


# --- extremes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scales", [(50, 50), (50, 0.1), (0.1, 50), (0, 50), (10, 3), (3, 10)])
def test_strong_fields_and_couplings(scales, dtype, monkeypatch):
    take("products", monkeypatch)
    fields, couplings = random_problem(6, 8, *scales, dtype=dtype)
    atol = 2e-4 if dtype == torch.float32 else 1e-9
    check(fields, couplings, atol=atol)
    check(fields.sign() * scales[0], couplings.sign() * scales[1], atol=atol)  # many degenerate states
    check(fields, couplings, visible_masks(6, 8)["random"], atol=atol)


@pytest.mark.parametrize("coupling", [1.5, 2.5, 3.5])
def test_fields_that_disagree_with_the_couplings(coupling, monkeypatch):
    """The largest weights of the fields meet the smallest of the couplings: sums far below their largest factors."""
    take("products", monkeypatch)
    signs = torch.tensor([1.0, -1.0]).repeat(4)
    fields = torch.linspace(2, 14, 25)[:, None] * signs + 0.01 * torch.arange(8)
    check(fields, coupling * (1 - torch.eye(8)), atol=2e-4)


def test_extremes_take_every_way(monkeypatch):
    """The guard of the tests above: weak, strong and extreme rows side by side are treated differently."""
    take("products", monkeypatch)
    fields, couplings = random_problem(12, 8, 1.0, 0.5, dtype=torch.float32)
    weak = ExactSolver().solve(IsingModel(fields, couplings))
    assert kinds(weak) == {("ProductFactors", torch.float32)}
    fields[3:] *= 60
    assert kinds(ExactSolver().solve(IsingModel(fields, couplings))) >= {
        ("ProductFactors", torch.float32),
        ("ProductFactors", torch.float64),
    }
    visible = visible_masks(12, 8)["random"]
    assert ("StreamedFactors", torch.float64) in kinds(
        ExactSolver().solve(IsingModel(fields, 100 * couplings, visible))
    )


def chain_log_z(fields, couplings):
    """``log Z`` of a chain by transfer matrices in logarithms; derivatives by autograd."""
    s = torch.tensor([1.0, -1.0], dtype=torch.float64)
    alpha = fields[:, :1] * s
    for j in range(1, fields.shape[1]):
        bond = couplings[j - 1, j] * s[:, None] * s
        alpha = torch.logsumexp(alpha.unsqueeze(-1) + bond, 1) + fields[:, j : j + 1] * s
    return torch.logsumexp(alpha, -1)


@pytest.mark.parametrize(("scale_h", "scale_j"), [(1, 0.5), (1, 2), (50, 1), (1, 50), (50, 50)])
def test_a_chain_of_twenty_spins(scale_h, scale_j):
    generator = torch.Generator().manual_seed(4)
    fields = (scale_h * torch.randn(5, 20, generator=generator)).requires_grad_()
    bonds = scale_j * torch.randn(19, generator=generator)
    couplings = torch.diag(bonds, 1).requires_grad_()
    h, J = fields.double(), couplings.double()
    log_z = chain_log_z(h, J)
    (mean,) = torch.autograd.grad(log_z.sum(), h, create_graph=True)
    grad = torch.randn(5, 20, generator=generator)
    grads = torch.autograd.grad((mean * grad.double()).sum(), (h, J))
    symmetric = (couplings + couplings.mT).detach()
    ensemble = ExactSolver().solve(IsingModel(fields.detach(), symmetric))
    torch.testing.assert_close(ensemble.magnetization().double(), mean.detach(), rtol=0, atol=3e-5)
    torch.testing.assert_close(ensemble.log_partition().double(), log_z.detach(), rtol=1e-6, atol=1e-4)
    grad_fields, grad_couplings = ensemble.pullback(grad)
    torch.testing.assert_close(grad_fields.double(), grads[0], rtol=0, atol=2e-4)
    torch.testing.assert_close(2 * grad_couplings.double().diagonal(1), grads[1].diagonal(1), rtol=0, atol=5e-4)


def test_huge_numbers_give_numbers():
    fields = torch.tensor([[3e38, -3e38, 1.0, 0.0], [0.5, 0.1, -0.2, 0.3]])
    couplings = random_couplings((), 4, 0.5, torch.Generator().manual_seed(0)).float()
    grad = torch.ones_like(fields)
    for J in (couplings, couplings * 1e38):
        for name, answer in exact_answers(fields, J, None, grad).items():
            assert not answer.isnan().any(), name
    m = ExactSolver().solve(IsingModel(fields, couplings)).magnetization()
    assert m[0, :2].tolist() == [1.0, -1.0]


# --- pieces, tiles and memory ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "small",
    [("PIECE_ELEMENTS",), ("TILE_ELEMENTS",), ("KEPT_ELEMENTS",), ("PIECE_ELEMENTS", "TILE_ELEMENTS", "KEPT_ELEMENTS")],
)
def test_pieces_tiles_and_what_is_kept_change_nothing(small, way, monkeypatch):
    fields, couplings = random_problem(5, 6, lead=(2,))
    visible = visible_masks(5, 6)["random"]
    grad = torch.randn_like(fields)
    one_piece = exact_answers(fields, couplings, visible, grad)
    for name in small:
        for module in (factorized, tables, sys.modules["qboltz.enumeration.streaming"]):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, 50)
    for name, answer in exact_answers(fields, couplings, visible, grad).items():
        torch.testing.assert_close(answer, one_piece[name], rtol=1e-10, atol=1e-10, msg=name)


def test_tiles_are_smaller_than_the_table(monkeypatch):
    """The guard of the test above."""
    monkeypatch.setattr(tables, "TILE_ELEMENTS", 20)
    table = tables.CouplingTable(random_couplings((3,), 6, 0.3, torch.Generator()), 2)
    assert len(list(table.tiles())) > 1
    assert not table.whole


MEMORY = """
import torch
from qboltz.ising import IsingModel
from qboltz.solvers.exact import ExactSolver
torch.set_num_threads(1)
def step(n, rows):
    J = (0.1 * torch.randn(n, n)).triu(1)
    ensemble = ExactSolver().solve(IsingModel(torch.randn(rows, n), J + J.mT))
    assert ensemble.magnetization().isfinite().all()
    assert ensemble.pullback(torch.randn(rows, n))[1].isfinite().all()
step(10, 256)
def kib(key):  # the peak that getrusage reports would be that of the parent process
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(key))
before = kib("VmRSS:")
step({n}, {rows})
print((kib("VmHWM:") - before) / 2**20)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize(("n", "rows"), [(20, 256), (24, 64), (16, 20000), (26, 4)])
def test_memory_is_bounded(n, rows):
    script = MEMORY.format(n=n, rows=rows).replace("ExactSolver()", "ExactSolver(max_spins=26)")
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stderr
    assert float(result.stdout) < 1.0, "GiB of peak memory growth"


# --- samples --------------------------------------------------------------------------------------------------


def test_samples_have_the_moments_of_the_model(way):
    """12,000 samples a row; every mean and second moment within 5 standard errors."""
    fields, couplings = random_problem(4, 5, dtype=torch.float32)
    visible = torch.tensor([[1, 1, 1, 1, 1], [1, 0, 1, 1, 0], [0, 0, 0, 1, 0], [0, 0, 0, 0, 0]]).bool()
    shots = 12_000
    ensemble = ExactSolver().solve(IsingModel(fields, couplings, visible))
    spins = ensemble.sample(shots, torch.Generator().manual_seed(0))
    assert (spins.shape, spins.dtype) == ((4, shots, 5), torch.int8)
    assert set(spins.unique().tolist()) == {-1, 1}
    assert (spins.transpose(1, 2)[~visible] == -1).all()
    s = spins.double() * visible.unsqueeze(1)
    moments = brute_force(fields, couplings, visible)
    mean_error = (s.mean(1) - moments.mean).abs()
    assert (mean_error <= 5 * ((1 - moments.mean**2).clamp_min(0) / shots).sqrt() + 1e-12).all()
    second_error = (s.mT @ s / shots - moments.second).abs()
    assert (second_error <= 5 * ((1 - moments.second**2).clamp_min(0) / shots).sqrt() + 1e-12).all()


def test_samples_of_uncoupled_and_masked_spins():
    fields = torch.tensor([[0.3, -20.0, 1.0]])
    model = IsingModel(fields, torch.zeros(3, 3), torch.tensor([True, True, False]))
    spins = ExactSolver().solve(model).sample(10_000)
    assert (spins[..., 1:] == -1).all()
    assert abs(spins[..., 0].double().mean() - math.tanh(0.3)) < 5 / 100


def test_equal_generators_give_equal_samples():
    fields, couplings = random_problem(2, 18, dtype=torch.float32)
    ensemble = ExactSolver().solve(IsingModel(fields, couplings))
    first, second = (ensemble.sample(5, torch.Generator().manual_seed(1)) for _ in range(2))
    other = ensemble.sample(5, torch.Generator().manual_seed(2))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    assert ensemble.sample(0).shape == (2, 0, 18)


# --- the solver -----------------------------------------------------------------------------------------------


def test_too_many_spins_say_what_it_would_take_and_what_to_use():
    couplings = torch.ones(30, 30).fill_diagonal_(0)
    with pytest.raises(TooManySpinsError) as error:
        ExactSolver().solve(IsingModel(torch.zeros(1, 30), couplings))
    text = str(error.value)
    assert "max_spins=24" in text
    assert "got 30" in text
    assert "4 GiB" in text
    assert "AnnealingSolver, GibbsSolver or MeanFieldSolver" in text
    assert "ExactSolver(max_spins=30)" in text


def test_spins_are_counted_where_they_are_seen():
    """Forty keys under a sliding window of three: no row sees more than three, wherever they are."""
    generator = torch.Generator().manual_seed(0)
    fields, couplings = torch.randn(40, 40, generator=generator), random_couplings((), 40, 0.5, generator).float()
    window = (torch.arange(40) <= torch.arange(40)[:, None]) & (torch.arange(40) > torch.arange(40)[:, None] - 3)
    m = ExactSolver(max_spins=12).solve(IsingModel(fields, couplings, window)).magnetization()
    for row in (0, 5, 39):
        places = window[row].nonzero().squeeze(-1)
        alone = ExactSolver().solve(IsingModel(fields[row, places], couplings[places][:, places])).magnetization()
        torch.testing.assert_close(m[row, places], alone)
    with pytest.raises(TooManySpinsError, match="got 40"):
        ExactSolver().solve(IsingModel(fields, couplings))


@pytest.mark.parametrize("bad", [0, -3, 2.5, True, None])
def test_max_spins_is_checked(bad):
    with pytest.raises(ValueError, match=r"max_spins must be a positive integer, got"):
        ExactSolver(max_spins=bad)


@pytest.mark.parametrize("bad", [-1, 2.5, True])
def test_shots_are_checked(bad):
    ensemble = ExactSolver().solve(IsingModel(torch.zeros(2, 3), torch.zeros(3, 3)))
    with pytest.raises(ValueError, match=r"shots must be a non-negative integer, got"):
        ensemble.sample(bad)


def test_solver_and_ensemble_can_be_pickled():
    fields, couplings = random_problem(3, 6)
    ensemble = ExactSolver().solve(IsingModel(fields, couplings))
    again = pickle.loads(pickle.dumps(ensemble))
    assert torch.equal(again.magnetization(), ensemble.magnetization())
    assert pickle.loads(pickle.dumps(ExactSolver(7))) == ExactSolver(7)


def test_the_cheapest_merge_of_classes():
    prefixes = [0b1, 0b11, 0b111, 0b1111]
    assert cheapest_merge(prefixes, [1, 1, 1, 1], 24) == [(0, 4)]  # small: one call is cheaper than four
    long = [(1 << k) - 1 for k in (4, 19, 20)]
    cuts = cheapest_merge(long, [1000, 1000, 1000], 24)
    assert cuts[0] == (0, 1)  # rows that see four spins do not pay for twenty
    assert cheapest_merge([], [], 24) == []
    assert cheapest_merge(prefixes, [1, 1, 1, 1], 2) == [(0, 2), (2, 3), (3, 4)]


def test_streamed_rows_are_never_called_unreliable():
    fields, couplings = random_problem(2, 4, 1e4, 1e4)
    table = tables.CouplingTable(couplings[None], 1)
    assert StreamedFactors(table, fields[None], None).reliable.all()
