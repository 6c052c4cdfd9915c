"""The model as data: energy, decoupling, the canonical grouping, and refusals."""

import math

import pytest
import torch
from hypothesis import given
from strategies import problems, random_couplings

from qboltz import IsingModel
from qboltz.spins import spin_table


def test_energy_of_two_spins_in_closed_form():
    model = IsingModel(torch.tensor([0.3, -0.5]), torch.tensor([[0.0, 0.7], [0.7, 0.0]]))
    table = spin_table(2)
    assert table.tolist() == [[1, 1], [-1, 1], [1, -1], [-1, -1]]
    expected = [-(0.3 - 0.5) - 0.7, -(-0.3 - 0.5) + 0.7, -(0.3 + 0.5) + 0.7, -(-0.3 + 0.5) - 0.7]
    torch.testing.assert_close(model.energy(table), torch.tensor(expected))


@given(problems())
def test_energy_counts_visible_spins_only(problem):
    fields, couplings, visible = problem
    model = IsingModel(fields, couplings, visible)
    n = fields.shape[-1]
    spins = spin_table(n, dtype=torch.float64).reshape(2**n, *(1,) * (fields.dim() - 1), n)
    expected = torch.zeros(2**n, *fields.shape[:-1], dtype=torch.float64)
    seen = torch.ones_like(fields) if visible is None else visible.double()
    for k in range(n):
        expected -= seen[..., k] * fields[..., k] * spins[..., k]
        for j in range(k):
            expected -= seen[..., k] * seen[..., j] * couplings[..., j, k] * spins[..., j] * spins[..., k]
    torch.testing.assert_close(model.energy(spins), expected)


@given(problems())
def test_decoupled_model_has_the_same_visible_energy(problem):
    fields, couplings, visible = problem
    model = IsingModel(fields, couplings, visible)
    free = model.decoupled()
    assert free.visible is None
    n = fields.shape[-1]
    spins = spin_table(n, dtype=torch.float64).reshape(2**n, *(1,) * (fields.dim() - 1), n)
    torch.testing.assert_close(free.energy(spins), model.energy(spins))


@given(problems())
def test_groups_pair_every_row_with_its_couplings_and_fold_back(problem):
    fields, couplings, visible = problem
    model = IsingModel(fields, couplings, visible)
    groups = model.groups
    marks = torch.arange(fields.numel(), dtype=torch.float64).reshape(fields.shape)
    torch.testing.assert_close(groups.unfold(groups.fold(marks)), marks)
    # each row's own couplings, found by broadcasting, against those of its group
    broadcast = couplings.expand(*fields.shape[:-1], *couplings.shape[-2:])
    column = broadcast[..., 0]  # the couplings of spin 0: a tensor shaped like the fields
    own = groups.couplings[..., 0].unsqueeze(1).expand(groups.fields.shape)
    torch.testing.assert_close(groups.fold(column), own)
    assert groups.unfold_couplings(groups.couplings).shape == couplings.shape


def test_an_empty_batch_is_a_model():
    model = IsingModel(torch.zeros(0, 3), torch.zeros(3, 3))
    assert model.groups.fields.shape == (1, 0, 3)
    assert model.energy(torch.ones(3)).shape == (0,)


def test_computation_is_at_least_float32():
    half = IsingModel(torch.zeros(2, 3, dtype=torch.float16), torch.zeros(3, 3, dtype=torch.bfloat16))
    assert half.dtype == torch.float32
    assert IsingModel(torch.zeros(3), torch.zeros(3, 3, dtype=torch.float64)).dtype == torch.float64


GOOD_H, GOOD_J = torch.zeros(4, 3), torch.zeros(3, 3)


@pytest.mark.parametrize(
    ("fields", "couplings", "visible", "error", "words"),
    [
        ([0.0], GOOD_J, None, TypeError, "fields must be a torch.Tensor, got list"),
        (GOOD_H.long(), GOOD_J, None, TypeError, "fields must be a floating point tensor, got torch.int64"),
        (torch.zeros(()), GOOD_J, None, ValueError, r"fields must be \(\.\.\., spins\)"),
        (torch.zeros(2, 0), torch.zeros(0, 0), None, ValueError, "at least one spin"),
        (
            torch.tensor([[0, 0, math.nan]]),
            GOOD_J,
            None,
            ValueError,
            r"fields must be finite, got nan at index \(0, 2\)",
        ),
        (torch.tensor([math.inf, 0, 0]), GOOD_J, None, ValueError, r"fields must be finite, got inf at index \(0,\)"),
        (GOOD_H, GOOD_J.int(), None, TypeError, "couplings must be a floating point tensor"),
        (GOOD_H, torch.zeros(4, 4), None, ValueError, r"couplings must be \(\.\.\., 3, 3\).*got \(4, 4\)"),
        (GOOD_H, torch.zeros(3), None, ValueError, r"couplings must be \(\.\.\., 3, 3\)"),
        (GOOD_H, torch.zeros(2, 3, 3), None, ValueError, r"couplings must broadcast to \(4,\), got \(2,\)"),
        (GOOD_H, torch.zeros(1, 1, 3, 3), None, ValueError, "couplings must broadcast"),
        (GOOD_H, torch.full((3, 3), math.nan), None, ValueError, "couplings must be finite"),
        (GOOD_H, torch.eye(3), None, ValueError, "zero diagonal, got an entry of size 1"),
        (GOOD_H, torch.ones(3, 3).triu(1), None, ValueError, r"symmetric, got \|J - J\^T\| up to 1"),
        (GOOD_H, GOOD_J, torch.ones(4, 3), TypeError, "visible must be a boolean tensor"),
        (GOOD_H, GOOD_J, torch.ones(2, 3, dtype=torch.bool), ValueError, r"visible must broadcast to \(4, 3\)"),
    ],
)
def test_bad_models_are_refused(fields, couplings, visible, error, words):
    with pytest.raises(error, match=words):
        IsingModel(fields, couplings, visible)


def test_rounding_in_couplings_is_not_asymmetry():
    J = random_couplings((), 4, 1.0, torch.Generator().manual_seed(1)).float()
    J[0, 1] *= 1 + 1e-7
    IsingModel(torch.zeros(4), J)


def test_energy_refuses_spins_of_another_number():
    with pytest.raises(ValueError, match=r"spins must be \(\.\.\., 3\), got \(2,\)"):
        IsingModel(GOOD_H, GOOD_J).energy(torch.ones(2))
