"""The layer: MultiheadAttention's conventions, heads, masks, persistence, refusals."""

import copy
import io
import pickle

import pytest
import torch
from strategies import random_couplings
from torch import nn

from qboltz import BoltzmannAttention, ExactSolver, boltzmann_attention

VARIANTS = ["softmax", "h+J", "h-only", "J-only"]


def layer(variant="h+J", **options):
    start = random_couplings((2,), 6, 0.7, torch.Generator().manual_seed(0))
    return BoltzmannAttention(8, 2, 6, variant=variant, coupling_init=start, dtype=torch.float64, **options)


def twin(attention):
    """torch's own layer with the same projections."""
    other = nn.MultiheadAttention(8, 2, batch_first=attention.batch_first, dtype=torch.float64)
    other.load_state_dict(attention.state_dict())
    return other


X = torch.randn(3, 6, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
Y = torch.randn(3, 4, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
PADDING = torch.tensor([[False] * 6, [False, False, True, True, True, True], [True, False, False, False, True, False]])
CAUSAL = torch.ones(6, 6, dtype=torch.bool).triu(1)


@pytest.mark.parametrize("average", [True, False])
@pytest.mark.parametrize(
    "masks",
    [
        {},
        {"key_padding_mask": PADDING},
        {"attn_mask": CAUSAL},
        {"attn_mask": CAUSAL, "key_padding_mask": PADDING & ~torch.eye(3, 6, dtype=torch.bool)},
        {"attn_mask": torch.randn(6, 6, dtype=torch.float64)},
        {"attn_mask": torch.rand(6, 6, 6) < 0.3},
    ],
    ids=["none", "padding", "causal", "causal and padding", "float", "per head"],
)
def test_softmax_variant_is_multihead_attention(masks, average):
    attention = layer("softmax")
    if "attn_mask" in masks and masks["attn_mask"].dim() == 3:
        masks["attn_mask"][..., 0] = False
    if "key_padding_mask" in masks and "attn_mask" in masks:
        masks["key_padding_mask"] = masks["key_padding_mask"].clone()
        masks["key_padding_mask"][:, 0] = False  # torch gives NaN for a query that sees nothing
    out, weights = attention(X, X, X, average_attn_weights=average, **masks)
    expected, expected_weights = twin(attention)(X, X, X, average_attn_weights=average, **masks)
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(weights, expected_weights)


@pytest.mark.parametrize("beta", [1.0, 0.5, 2.0])
def test_layer_is_the_function_with_projections(beta):
    attention = layer(beta=beta)
    out, weights = attention(Y, X, X, key_padding_mask=PADDING, average_attn_weights=False)
    q, k, v = (
        (x @ w.T + b).unflatten(-1, (2, 4)).transpose(1, 2)
        for x, w, b in zip((Y, X, X), attention.in_proj_weight.chunk(3), attention.in_proj_bias.chunk(3), strict=True)
    )
    heads = boltzmann_attention(q, k, v, attention.couplings, ~PADDING[:, None, None, :], beta=attention.beta)
    torch.testing.assert_close(out, attention.out_proj(heads.transpose(1, 2).flatten(2)))
    assert weights.shape == (3, 2, 4, 6)
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 2, 4, dtype=torch.float64))
    assert weights[1, :, :, 2:].abs().max() == 0


def test_couplings_are_symmetric_per_head_and_learned():
    attention = layer()
    J = attention.couplings
    assert J.shape == (2, 6, 6)
    assert torch.equal(J, J.mT)
    assert J.diagonal(dim1=-2, dim2=-1).abs().max() == 0
    assert not torch.equal(J[0], J[1])
    attention(X, X, X)[0].square().sum().backward()
    assert (attention.coupling_weights.grad != 0).all()


def test_shorter_sequences_use_the_leading_couplings():
    attention = layer()
    short = attention(X[:, :3], X[:, :3], X[:, :3])[0]
    padded = attention(X[:, :3], X, X, key_padding_mask=torch.arange(6).expand(3, 6) >= 3)[0]
    torch.testing.assert_close(short, padded)


def test_causal_flag_equals_causal_mask_and_combines_with_padding():
    attention = layer()
    torch.testing.assert_close(attention(X, X, X, is_causal=True)[0], attention(X, X, X, attn_mask=CAUSAL)[0])
    both = attention(X, X, X, PADDING, is_causal=True)[0]
    masks = (CAUSAL | PADDING[:, None, :]).repeat_interleave(2, 0)
    torch.testing.assert_close(both, attention(X, X, X, attn_mask=masks)[0])


@pytest.mark.parametrize("variant", VARIANTS)
def test_causal_outputs_do_not_depend_on_later_tokens(variant):
    attention = layer(variant)
    changed = X.clone()
    changed[:, 4:] = 5.0
    before, after = attention(X, X, X, is_causal=True)[0], attention(changed, changed, changed, is_causal=True)[0]
    torch.testing.assert_close(before[:, :4], after[:, :4], rtol=0, atol=1e-13)
    assert not torch.allclose(before[:, 4:], after[:, 4:])


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_parameter_gets_a_gradient_and_none_is_idle(variant):
    attention = layer(variant, qk_norm=True)
    attention(X, X, X)[0].square().sum().backward()
    assert all(parameter.grad is not None for parameter in attention.parameters())
    assert (attention.coupling_weights is not None) == (variant in ("h+J", "J-only"))


def test_layouts_agree():
    first = layer()
    second = layer(batch_first=False)
    second.load_state_dict(first.state_dict())
    out, weights = first(X, X, X)
    turned, same = second(X.transpose(0, 1), X.transpose(0, 1), X.transpose(0, 1))
    torch.testing.assert_close(turned.transpose(0, 1), out)
    torch.testing.assert_close(same, weights)
    single, single_weights = first(X[1], X[1], X[1])
    torch.testing.assert_close(single, out[1])
    torch.testing.assert_close(single_weights, weights[1])


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize(
    "mask", [torch.tensor([False, True, False, False, True, False]), torch.randn(6, dtype=torch.float64)]
)
def test_unbatched_input_takes_an_unbatched_padding_mask(batch_first, mask):
    attention = layer("softmax", batch_first=batch_first)
    out, weights = attention(Y[0], X[0], X[0], key_padding_mask=mask)
    expected, expected_weights = twin(attention)(Y[0], X[0], X[0], key_padding_mask=mask)
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(weights, expected_weights)


def test_it_replaces_the_attention_of_torchs_transformer_layers():
    block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, dtype=torch.float64)
    block.self_attn = layer()
    expected = block(X, src_key_padding_mask=PADDING)
    torch.testing.assert_close(block.eval()(X, src_key_padding_mask=PADDING), expected)
    stack = nn.TransformerEncoder(block, 2, enable_nested_tensor=False).eval()
    assert stack(X).shape == X.shape


def test_weights_can_be_left_out():
    assert layer()(X, X, X, need_weights=False)[1] is None


def test_qk_norm_bounds_the_fields():
    attention = layer(qk_norm=True)
    fields = []

    class Spy:
        def solve(self, model):
            fields.append(model.fields)
            return ExactSolver().solve(model)

    attention.solver = Spy()
    attention(100 * X, X, X)
    assert fields[0].abs().max() <= attention.logit_scale.exp().max()
    torch.testing.assert_close(attention.logit_scale.exp(), torch.full((2,), 3.0, dtype=torch.float64))


def test_dropout_acts_in_training_only_and_not_on_returned_weights():
    attention = layer(dropout=0.5)
    assert not torch.equal(attention(X, X, X)[0], attention(X, X, X)[0])
    torch.testing.assert_close(attention(X, X, X)[1].sum(-1), torch.ones(3, 6, dtype=torch.float64))
    attention.eval()
    assert torch.equal(attention(X, X, X)[0], attention(X, X, X)[0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("variant", VARIANTS)
def test_dtype_in_is_dtype_out(dtype, variant):
    attention = layer(variant).to(dtype)
    out, weights = attention(X.to(dtype), X.to(dtype), X.to(dtype))
    assert out.dtype == weights.dtype == dtype
    out.sum().backward()
    assert all(p.grad.dtype == dtype for p in attention.parameters())


def test_autocast_works():
    attention = layer().float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out, _ = attention(X.float(), X.float(), X.float())
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), attention(X.float(), X.float(), X.float())[0], rtol=0.05, atol=0.02)


@pytest.mark.parametrize("length", [1, 2])
def test_short_ragged_and_empty_batches(length):
    attention = layer()
    for batch in (0, 1, 3):
        x = X[:batch, :length]
        assert attention(x, x, x)[0].shape == (batch, length, 8)


@pytest.mark.parametrize("round_trip", ["deepcopy", "pickle", "state_dict", "weights_only"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_copies_compute_the_same(round_trip, variant):
    attention = layer(variant, qk_norm=True)
    if round_trip == "deepcopy":
        other = copy.deepcopy(attention)
    elif round_trip == "pickle":
        other = pickle.loads(pickle.dumps(attention))
    else:
        state = attention.state_dict()
        if round_trip == "weights_only":
            buffer = io.BytesIO()
            torch.save(state, buffer)
            buffer.seek(0)
            state = torch.load(buffer, weights_only=True)
        other = BoltzmannAttention(8, 2, 6, variant=variant, qk_norm=True, dtype=torch.float64)
        other.load_state_dict(state)
    assert torch.equal(other(X, X, X)[0], attention(X, X, X)[0])
    assert other.in_proj_weight.data_ptr() != attention.in_proj_weight.data_ptr()


def test_solver_can_be_swapped_after_training():
    attention = layer()
    exact = attention(X, X, X)[0]
    attention.solver = "statevector"
    near = attention(X, X, X)[0]
    assert 0 < (near - exact).abs().max() < 0.5
    attention.solver = ExactSolver()
    assert torch.equal(attention(X, X, X)[0], exact)
    with pytest.raises(ValueError, match="solver must be one of"):
        attention.solver = "quantum"
    with pytest.raises(TypeError, match="solver must be a name or have a method solve"):
        attention.solver = 3


def test_neighbor_start():
    J = BoltzmannAttention(4, 1, 4, coupling_init="neighbor").couplings
    assert torch.equal(J[0], 1.5 * (torch.ones(4, 4).triu(1).tril(1) + torch.ones(4, 4).tril(-1).triu(-1)))


# Dynamo looks at .grad of intermediate tensors where it breaks the graph.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_compiled_layer_agrees():
    attention = layer()
    compiled = torch.compile(attention, backend="eager")
    torch.testing.assert_close(compiled(X, X, X)[0], attention(X, X, X)[0])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"embed_dim": 0}, "embed_dim must be a positive integer, got 0"),
        ({"num_heads": 3}, "embed_dim must be divisible by num_heads, got 8 and 3"),
        ({"max_len": 2.5}, "max_len must be a positive integer, got 2.5"),
        ({"variant": "sigmoid"}, "variant must be one of .*got 'sigmoid'"),
        ({"solver": "exat"}, "solver must be one of .*got 'exat'.*Did you mean 'exact'"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\), got 1.0"),
        ({"coupling_init": "ones"}, "coupling_init must be one of 'neighbor', 'zeros', got 'ones'"),
        ({"coupling_init": torch.zeros(3, 3)}, r"coupling_init must be \(6, 6\) or \(2, 6, 6\), got \(3, 3\)"),
        ({"coupling_init": torch.ones(6, 6)}, "coupling_init must be symmetric with a zero diagonal"),
        ({"coupling_init": torch.full((6, 6), float("nan"))}, "coupling_init must be finite"),
    ],
)
def test_bad_settings_are_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        BoltzmannAttention(**({"embed_dim": 8, "num_heads": 2, "max_len": 6} | arguments))


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((X[..., :7], X, X), ValueError, r"query must be \(batch, length, 8\)"),
        ((X, X[0], X), ValueError, r"key must be .* like query"),
        ((X, X[:2], X), ValueError, "must agree in batch size"),
        ((X, X, X[:, :4]), ValueError, "key and value in length"),
        ((X.int(), X, X), TypeError, "query must be a floating point tensor, got torch.int32"),
        (
            (X, torch.zeros(3, 7, 8).double(), torch.zeros(3, 7, 8).double()),
            ValueError,
            "at most max_len = 6 positions, got 7",
        ),
        ((X, X, X, PADDING[:, :5]), ValueError, r"key_padding_mask must be \(3, 6\), got \(3, 5\)"),
        ((X, X, X, PADDING.int()), TypeError, "key_padding_mask must be a boolean or floating point tensor"),
        ((X, X, X, PADDING.double() * float("nan")), ValueError, "key_padding_mask must be finite or -inf"),
        (
            (X, X, X, PADDING.tolist()),
            TypeError,
            "key_padding_mask must be a boolean or floating point tensor, got list",
        ),
        ((X, X, X, None, True, CAUSAL[:5]), ValueError, r"attn_mask must broadcast to \(3, 2, 6, 6\), got \(5, 6\)"),
        ((X, X, X, None, True, CAUSAL.expand(3, 6, 6)), ValueError, r"attn_mask must be \(6, 6\), \(6, 6, 6\)"),
        ((X, X, X, None, True, CAUSAL.int()), TypeError, "attn_mask must be a boolean or floating point tensor"),
    ],
)
def test_bad_calls_are_refused(arguments, error, words):
    with pytest.raises(error, match=words):
        layer()(*arguments)
