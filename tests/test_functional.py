"""boltzmann_attention against a few lines of brute force, and against torch's own attention where they meet."""

import math

import pytest
import torch
from oracle import brute_force
from strategies import random_couplings
from torch.nn.functional import scaled_dot_product_attention

from qboltz import boltzmann_attention
from qboltz.functional import attention_weights
from qboltz.spins import spin_table


def inputs(batch=(2, 3), length=4, keys=5, width=6, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*batch, *shape, dtype=torch.float64, generator=generator)

    q, k, v = normal(length, width), normal(keys, width), normal(keys, 7)
    return q, k, v, random_couplings(batch[-1:], keys, 0.6, generator)


def reference(q, k, v, couplings, visible=None, bias=0.0, beta=1.0):
    scores = q @ k.mT / math.sqrt(q.shape[-1]) + bias
    seen = torch.ones_like(scores, dtype=torch.bool) if visible is None else visible.expand(scores.shape)
    alpha = (brute_force(scores, couplings.unsqueeze(-3), seen, beta).mean + 1) / 2 * seen
    total = alpha.sum(-1, keepdim=True)
    return (alpha / torch.where(total > 0, total, 1)) @ v


@pytest.mark.parametrize("masked", ["no", "bool", "causal", "causal and bool"])
def test_agrees_with_brute_force(masked):
    q, k, v, J = inputs()
    mask = torch.rand(2, 1, 4, 5) < 0.7 if "bool" in masked else None
    causal = "causal" in masked
    visible = torch.ones(4, 5, dtype=torch.bool).tril() if causal else None
    if mask is not None:
        visible = mask if visible is None else mask & visible
    out = boltzmann_attention(q, k, v, J, mask, causal)
    torch.testing.assert_close(out, reference(q, k, v, J, visible))


def test_gradients_agree_with_brute_force():
    leaves = [x.requires_grad_() for x in inputs(batch=(2,))]
    upstream = torch.randn(2, 4, 7, dtype=torch.float64)
    got = torch.autograd.grad(boltzmann_attention(*leaves, is_causal=True), leaves, upstream)
    causal = torch.ones(4, 5, dtype=torch.bool).tril()
    want = torch.autograd.grad(reference(*leaves, causal), leaves, upstream)
    for g, w in zip(got[:3], want[:3], strict=True):
        torch.testing.assert_close(g, w)
    torch.testing.assert_close(got[3], (want[3] + want[3].mT) / 2)


@pytest.mark.parametrize("beta", [0.5, 2.0])
def test_another_temperature(beta):
    q, k, v, J = inputs()
    bias = torch.randn(4, 5, dtype=torch.float64)  # a float mask belongs to the energy
    out = boltzmann_attention(q, k, v, J, bias, beta=beta)
    torch.testing.assert_close(out, reference(q, k, v, J, bias=bias, beta=beta))
    uncoupled = boltzmann_attention(q, k, v, J, variant="h-only", beta=beta)
    torch.testing.assert_close(uncoupled, reference(q, k, v, J * 0, beta=beta))
    alone = boltzmann_attention(q, k, v, None, variant="softmax", beta=beta)
    torch.testing.assert_close(alone, torch.softmax(beta * q @ k.mT / math.sqrt(q.shape[-1]), -1) @ v)


def test_couplings_change_the_output():
    q, k, v, J = inputs()
    assert (boltzmann_attention(q, k, v, J) - boltzmann_attention(q, k, v, J * 0)).abs().max() > 0.01


def test_fields_only_is_normalized_sigmoid_attention():
    q, k, v, J = inputs()
    alpha = torch.sigmoid(2 * q @ k.mT / math.sqrt(6))
    expected = alpha / alpha.sum(-1, keepdim=True) @ v
    torch.testing.assert_close(boltzmann_attention(q, k, v, J, variant="h-only"), expected)
    torch.testing.assert_close(boltzmann_attention(q, k, v, None), expected)


def test_couplings_only_is_uniform_attention_over_visible_keys():
    q, k, v, J = inputs()
    out = boltzmann_attention(q, k, v, J, is_causal=True, variant="J-only")
    expected = torch.stack([v[..., : i + 1, :].mean(-2) for i in range(4)], -2)
    torch.testing.assert_close(out, expected)


@pytest.mark.parametrize("mask", [None, "bool", "float", "causal"])
def test_softmax_variant_is_torch_attention(mask):
    q, k, v, _ = inputs()
    allowed = torch.rand(4, 5) < 0.7
    allowed[:, 0] = True
    attn_mask = {None: None, "bool": allowed, "float": torch.randn(4, 5, dtype=torch.float64), "causal": None}[mask]
    causal = mask == "causal"
    torch.testing.assert_close(
        boltzmann_attention(q, k, v, None, attn_mask, causal, variant="softmax"),
        scaled_dot_product_attention(q, k, v, attn_mask, is_causal=causal),
    )


def test_float_masks_are_added_and_minus_infinity_removes():
    q, k, v, J = inputs()
    bias = torch.randn(4, 5, dtype=torch.float64)
    removed = torch.tensor([False, False, True, False, True])
    out = boltzmann_attention(q, k, v, J, bias.masked_fill(removed, -math.inf))
    torch.testing.assert_close(out, reference(q, k, v, J, ~removed, bias))


@pytest.mark.parametrize("variant", ["softmax", "h+J", "h-only", "J-only"])
def test_a_query_without_keys_gets_zeros_and_zero_gradient(variant):
    q, k, v, J = (x.requires_grad_() for x in inputs())
    mask = torch.ones(4, 5, dtype=torch.bool)
    mask[1] = False
    out = boltzmann_attention(q, k, v, J, mask, variant=variant)
    assert torch.equal(out[..., 1, :], torch.zeros(2, 3, 7, dtype=torch.float64))
    assert out[..., 0, :].abs().min() > 0
    out[..., 1, :].sum().backward()
    for leaf in (q, k, v):
        assert leaf.grad is None or leaf.grad.abs().max() == 0


@pytest.mark.parametrize("variant", ["softmax", "h+J"])
def test_masked_keys_change_nothing(variant):
    q, k, v, J = inputs()
    mask = torch.tensor([True, True, False, True, True])
    k2, v2, J2 = k.clone(), v.clone(), J.clone()
    k2[..., 2, :], v2[..., 2, :] = 9.0, -9.0
    J2[..., 2, :] = J2[..., :, 2] = torch.tensor([2.0, -1, 0, 1, 3], dtype=torch.float64)
    out = boltzmann_attention(q, k, v, J, mask, variant=variant)
    torch.testing.assert_close(boltzmann_attention(q, k2, v2, J2, mask, variant=variant), out, rtol=0, atol=1e-13)


def test_saturated_spins_give_finite_results_and_gradients():
    q, k, v, J = (x.requires_grad_() for x in inputs())
    for scale in (40.0, -40.0):
        out = boltzmann_attention(q * scale, q.detach().abs()[..., :1, :].expand_as(k) * 1.0, v, J)
        grads = torch.autograd.grad(out.sum(), (q, v, J))
        assert all(bool(torch.isfinite(g).all()) for g in (out, *grads))


@pytest.mark.parametrize("level", [-3.5, -6.0, -9.0, -12.0])
@pytest.mark.parametrize("variant", ["h+J", "h-only"])
def test_weights_of_queries_that_ignore_everything_keep_their_digits(level, variant):
    generator = torch.Generator().manual_seed(0)
    scores = level + 0.5 * torch.randn(50, 6, generator=generator)
    J = random_couplings((), 6, 0.3, generator).float()
    h, K = scores.clone().requires_grad_(), J.clone().requires_grad_()
    weights = attention_weights(h, K, variant=variant)
    spins = spin_table(6, dtype=torch.float64)
    energy = scores.double() @ spins.mT + (0 if variant == "h-only" else 0.5 * ((spins @ J.double()) * spins).sum(-1))
    # P(s_j = +1) by summing positive terms only: nothing cancels
    up = torch.softmax(energy, -1) @ (spins + 1) / 2
    torch.testing.assert_close(weights.double(), up / up.sum(-1, keepdim=True), rtol=1e-4, atol=1e-6)
    assert weights.dtype == torch.float32
    assert weights.min() >= 0
    weights.square().sum().backward()
    assert torch.isfinite(h.grad).all()


def test_queries_whose_every_spin_is_down_attend_to_nothing():
    scores = torch.full((2, 4), -60.0, requires_grad=True)
    weights = attention_weights(scores, torch.zeros(4, 4))
    assert torch.equal(weights, torch.zeros(2, 4))
    weights.sum().backward()
    assert torch.equal(scores.grad, torch.zeros(2, 4))


@pytest.mark.parametrize("value", [-1e9, torch.finfo(torch.float64).min])
def test_masks_written_with_large_numbers_remove_the_key(value):
    q, k, v, J = inputs()
    removed = torch.tensor([False, False, True, False, True])
    mask = torch.zeros(4, 5, dtype=torch.float64).masked_fill(removed, value)
    torch.testing.assert_close(boltzmann_attention(q, k, v, J, mask), boltzmann_attention(q, k, v, J, ~removed))


def test_scale_replaces_the_default():
    q, k, v, J = inputs()
    torch.testing.assert_close(
        boltzmann_attention(q, k, v, J, scale=0.5), boltzmann_attention(q * 0.5 * math.sqrt(6), k, v, J)
    )


# In half precision the rounding of the result alone: computing in it would lose more.
@pytest.mark.parametrize(
    ("dtype", "error"), [(torch.float16, 1e-3), (torch.bfloat16, 8e-3), (torch.float32, 2e-6), (torch.float64, 1e-14)]
)
def test_dtype_in_is_dtype_out(dtype, error):
    q, k, v, J = inputs()
    out = boltzmann_attention(*(x.to(dtype) for x in (q, k, v, J)))
    assert out.dtype == dtype
    exact = reference(*(x.to(dtype).double() for x in (q, k, v, J)))
    assert (out.double() - exact).abs().max() < error


def test_one_key_is_attended():
    q, k, v, J = inputs(keys=1, length=1)
    torch.testing.assert_close(boltzmann_attention(q, k, v, J), v)


@pytest.mark.parametrize("batch", [(0, 3), (2, 0)])
def test_empty_batches_work(batch):
    q, k, v, _ = inputs(batch=batch)
    out = boltzmann_attention(q, k, v, torch.zeros(5, 5, dtype=torch.float64))
    assert out.shape == (*batch, 4, 7)


Q, K, V, J5 = inputs()


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"query": Q.long()}, TypeError, "query must be a floating point tensor, got torch.int64"),
        ({"query": Q[0, 0, 0]}, ValueError, r"query must be \(\.\.\., length, features\)"),
        ({"key": K.float()}, TypeError, "key must have the dtype of query"),
        ({"key": K[..., :3]}, ValueError, r"key must be \(\.\.\., S, 6\) like query"),
        ({"value": V[..., :2, :]}, ValueError, r"value must be \(\.\.\., 5, d_v\) like key"),
        ({"couplings": J5[..., :4, :4]}, ValueError, r"couplings must be \(\.\.\., 5, 5\) for 5 keys, got \(3, 4, 4\)"),
        ({"couplings": J5.triu()}, ValueError, "couplings must be symmetric"),
        ({"couplings": J5 + torch.eye(5)}, ValueError, "couplings must have a zero diagonal"),
        ({"query": Q * math.nan}, ValueError, "fields must be finite"),
        (
            {"attn_mask": torch.ones(4, 5)[:, :3]},
            ValueError,
            r"attn_mask must broadcast to \(2, 3, 4, 5\), got \(4, 3\)",
        ),
        ({"attn_mask": torch.ones(4, 5, dtype=torch.int64)}, TypeError, "attn_mask must be a boolean or floating"),
        ({"attn_mask": torch.full((4, 5), math.nan)}, ValueError, "attn_mask must be finite or -inf"),
        ({"couplings": [[0.0]]}, TypeError, "couplings must be a torch.Tensor or None, got list"),
        (
            {"couplings": J5[:1].expand(7, 5, 5)},
            ValueError,
            r"couplings must broadcast to \(2, 3, 5, 5\).*got \(7, 5, 5\)",
        ),
        ({"key": K[:, :2]}, ValueError, r"batch dimensions that broadcast, got \(2, 3\), \(2, 2\) and \(2, 3\)"),
        ({"variant": "h-J"}, ValueError, "variant must be one of .*got 'h-J'"),
    ],
)
def test_bad_input_is_refused(change, error, words):
    arguments = {"query": Q, "key": K, "value": V, "couplings": J5} | change
    with pytest.raises(error, match=words):
        boltzmann_attention(**arguments)
