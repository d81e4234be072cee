"""Jagged nested tensors: sequences of different lengths give what each gives alone."""

import copy
import pickle

import mica
import mica.nn.functional as F
import pytest
from mica import nested
from mica.fx.experimental.symbolic_shapes import is_nested_int

A, B = mica.arange(12.0).view(2, 6) / 7, mica.linspace(-1, 1, 18).view(3, 6)


def jagged(*parts, **kwargs):
    return nested.nested_tensor(list(parts) or [A, B], layout=mica.jagged, **kwargs)


def each(x, f):
    return [f(part) for part in x.unbind()]


def check(result, expected):
    parts = result.unbind() if result.is_nested else result
    assert len(parts) == len(expected)
    for ours, theirs in zip(parts, expected, strict=True):
        mica.testing.assert_close(ours, theirs)


def test_what_it_is():
    x = jagged()
    assert x.is_nested and x.layout == mica.jagged and x.dim() == x.ndim == 3 and x.numel() == 30 and len(x) == 2
    assert x.shape[0] == x.size(0) == 2 and x.size(-1) == 6 and repr(x.shape).startswith("torch.Size([2, j")
    ragged = x.shape[1]
    assert str(ragged) == f"{ragged}" == repr(ragged) and f"{ragged:>9}" == repr(ragged).rjust(9)
    assert x.shape[1] == x.shape[1] and x.shape[1] != 3 and x.shape == (x * 2).shape and x.shape != jagged().shape
    assert x.offsets().tolist() == [0, 2, 5] and x.lengths() is None and x.values().shape == (5, 6)
    assert repr(x).startswith("NestedTensor(size=(2, j") and repr(x).endswith(
        "offsets=tensor([0, 2, 5]), contiguous=True)"
    )
    assert x.dtype is mica.float32 and x.device.type == "cpu" and mica.equal(x[1], B)
    with pytest.raises(RuntimeError, match="no single value"):
        x.item()


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x * 2 + x, lambda x: x.sin(), lambda x: F.gelu(x), lambda x: F.linear(x, W, W[:, 0]), lambda x: x @ W.T,
        lambda x: F.layer_norm(x, (6,)), lambda x: x.softmax(-1), lambda x: x + mica.ones(6), lambda x: x.sum(-1),
        lambda x: x.mean(-1, keepdim=True), lambda x: x.unflatten(-1, (2, 3)), lambda x: x.unsqueeze(-1), lambda x: x > 0,
        lambda x: x.chunk(2, -1)[1], lambda x: x.clone(), lambda x: x.double(), lambda x: F.dropout(x, 0.5, False),
        lambda x: mica.zeros_like(x), lambda x: x.flip(-1), lambda x: x[..., 2], lambda x: x.clamp(0, 0.5),
    ],
)  # fmt: skip
def test_by_sequence(f):
    x = jagged()
    check(f(x), each(x, f))


W = mica.linspace(-1, 1, 30).view(5, 6)


def test_along_the_ragged_dimension():
    x = jagged()
    for name in ("sum", "mean", "amax", "amin"):
        check(getattr(x, name)(1), each(x, lambda p, name=name: getattr(p, name)(0)))
    check(x.softmax(1), each(x, lambda p: p.softmax(0)))
    mica.testing.assert_close(x.sum(), A.sum() + B.sum())
    check(x.transpose(1, 2), [A.T, B.T])
    check(x.transpose(1, 2).transpose(1, 2), [A, B])
    check(x.view(2, -1, 2, 3), [A.view(-1, 2, 3), B.view(-1, 2, 3)])
    check(x * mica.tensor([2.0, 3.0]).view(2, 1, 1), [A * 2, B * 3])
    check(mica.cat([x, x], -1), [mica.cat([A, A], -1), mica.cat([B, B], -1)])


def test_padding():
    x = jagged()
    padded = x.to_padded_tensor(-1.0)
    assert padded.shape == (2, 3, 6) and (padded[0, 2] == -1).all() and mica.equal(padded[1], B)
    assert nested.to_padded_tensor(x, 0.0, (2, 5, 7)).shape == (2, 5, 7)
    with pytest.raises(RuntimeError, match="cannot be smaller"):
        nested.to_padded_tensor(x, 0.0, (2, 2, 6))


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal):
    x = jagged(requires_grad=True)
    q = x.unflatten(-1, (2, 3)).transpose(1, 2)
    out = F.scaled_dot_product_attention(q, q * 2, q, is_causal=causal)
    expected = []
    for part in (A, B):
        heads = part.unflatten(-1, (2, 3)).transpose(0, 1).unsqueeze(0)
        expected.append(F.scaled_dot_product_attention(heads, heads * 2, heads, is_causal=causal)[0])
    check(out, expected)
    merged = out.transpose(1, 2).flatten(-2)
    check(merged, [e.transpose(0, 1).flatten(-2) for e in expected])
    merged.values().pow(2).sum().backward()
    assert x.grad.is_nested and x.grad.values().abs().sum() > 0
    with pytest.raises(RuntimeError, match="attn_mask is not supported"):
        F.scaled_dot_product_attention(q, q, q, attn_mask=mica.ones(3, 3))


def test_modules_and_gradients():
    x = jagged(requires_grad=True)
    model = mica.nn.Sequential(mica.nn.Linear(6, 4), mica.nn.ReLU(), mica.nn.LayerNorm(4))
    out = model(x)
    check(out, [model(A), model(B)])
    out.sum(-1).values().sum().backward()
    plain = [A.clone().requires_grad_(), B.clone().requires_grad_()]
    sum(model(p).sum() for p in plain).backward()
    check(x.grad, [p.grad for p in plain])
    parts = [A.clone().requires_grad_(), B.clone().requires_grad_()]
    (nested.as_nested_tensor(parts, layout=mica.jagged) * 3).values().sum().backward()
    assert (parts[1].grad == 3).all()
    tokens = jagged(mica.tensor([1, 2]), mica.tensor([0]))
    check(F.embedding(tokens, W), [W[[1, 2]], W[[0]]])


def test_ways_to_make_one():
    values = mica.arange(10.0).view(5, 2)
    x = nested.nested_tensor_from_jagged(values, mica.tensor([0, 2, 5]))
    assert x.values().data_ptr() == values.data_ptr()
    check(x, [values[:2], values[2:]])
    check(nested.nested_tensor_from_jagged(values, lengths=mica.tensor([1, 4])), [values[:1], values[1:]])
    check(nested.as_nested_tensor(mica.ones(2, 3, 4), layout=mica.jagged), [mica.ones(3, 4)] * 2)
    rows = mica.arange(12.0).view(2, 6)
    check(
        nested.narrow(rows, 1, mica.tensor([1, 0]), mica.tensor([2, 3]), layout=mica.jagged),
        [rows[0, 1:3], rows[1, :3]],
    )
    picked = nested.masked_select(rows, rows % 3 == 0)
    check(picked, [rows[0][rows[0] % 3 == 0], rows[1][rows[1] % 3 == 0]])
    check(jagged(mica.ones(2, 3), mica.ones(2, 5)).transpose(1, 2), [mica.ones(3, 2), mica.ones(5, 2)])
    for other in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        check(other, x.unbind())


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda x: x + jagged(B, A), RuntimeError, "cannot call binary pointwise function"),
        (lambda x: x + mica.ones(3, 6), RuntimeError, "cannot call binary pointwise function"),
        (lambda x: x.transpose(0, 1), ValueError, "Transpose is not supported on the batch dimension for jagged NT"),
        (lambda x: x.cumsum(1), NotImplementedError, "cumsum is not implemented"),
        (lambda x: x.sum(0), RuntimeError, "reducing along the batch dimension but not the ragged"),
        (lambda x: x.view(10, 3), RuntimeError, "cannot view shape"),
        (lambda x: F.layer_norm(x, (5, 6)), RuntimeError, "over the ragged dimension"),
        (lambda x: nested.narrow(A, 1, 0, 1), RuntimeError, "pass layout=torch.jagged"),
        (lambda x: jagged(mica.ones(2, 3), mica.ones(3, 4)), RuntimeError, "only allows for a single ragged dimension"),
        (lambda x: jagged(mica.ones(2), mica.ones(2, 2)), RuntimeError, "must have the same dim"),
        (lambda x: nested.as_nested_tensor(3), TypeError, "Expected first argument to be a tensor or a list"),
        (lambda x: nested.nested_tensor_from_jagged(A), RuntimeError, "At least one of offsets or lengths"),
    ],
)
def test_refusals(call, error, words):
    with pytest.raises(error, match=words):
        call(jagged())


def two_sequences():
    parts = [mica.arange(6.0).view(2, 3), mica.arange(3.0).view(1, 3)]
    return mica.nested.nested_tensor(parts, layout=mica.jagged), parts


@pytest.mark.parametrize("name", ["max", "min"])
def test_extremes(name):
    x, parts = two_sequences()
    assert getattr(x, name)() == getattr(mica.cat(parts), name)()
    for dim in (-1, 2):
        values, indices = getattr(x, name)(dim)
        expected = getattr(mica.cat(parts), name)(-1)
        assert values.values().equal(expected.values) and indices.values().equal(expected.indices)
        assert getattr(x, "arg" + name)(dim).values().equal(expected.indices)
    found = getattr(x, name)(1)
    assert found.values.tolist() == [getattr(p, name)(0).values.tolist() for p in parts]
    assert getattr(x, "arg" + name)(1).tolist() == found.indices.tolist()
    assert getattr(mica, name)(x, x * 2).values().equal(getattr(mica, name)(x.values(), x.values() * 2))
    with pytest.raises(RuntimeError, match="reducing along the batch dimension but not the ragged"):
        getattr(x, name)(0)


def test_sums_over_the_batch_and_the_sequences():
    x, parts = two_sequences()
    assert x.sum(dim=(0, 1)).equal(mica.cat(parts).sum(0))
    assert x.mean(dim=(0, 1), keepdim=True).shape == (1, 1, 3)
    with pytest.raises(RuntimeError, match="reducing along the batch dimension but not the ragged"):
        x.sum(dim=0)


def test_products_with_a_matrix_for_each_sequence():
    x, parts = two_sequences()
    matrices = mica.randn(2, 3, 4)
    for product in (x @ matrices, mica.bmm(x, matrices)):
        for ours, a, b in zip(product.unbind(), parts, matrices, strict=True):
            mica.testing.assert_close(ours, a @ b)


def test_dimensions_in_another_order_and_larger():
    x, parts = two_sequences()
    turned = x.permute(0, 2, 1)
    assert [p.tolist() for p in turned.unbind()] == [p.t().tolist() for p in parts]
    with pytest.raises(ValueError, match="batch dimension"):
        x.permute(1, 0, 2)
    wide = x.unsqueeze(-1).expand(-1, -1, -1, 2)
    assert wide.values().shape == (3, 3, 2) and wide.values().stride()[-1] == 0
    first, rest = x.split([1, 2], -1)
    assert first.values().tolist() == [[0], [3], [0]] and rest.values().shape == (3, 2)
    words = mica.nested.nested_tensor([mica.tensor([1, 2]), mica.tensor([3])], layout=mica.jagged)
    assert mica.nn.functional.one_hot(words, 5).values().argmax(-1).tolist() == [1, 2, 3]


def test_the_gradient_of_a_nested_tensor_is_nested():
    parts = [mica.tensor([[1.0, 2.0], [0.5, -0.3]]), mica.tensor([[0.7, 0.2]])]
    nested = mica.nested.nested_tensor(parts, layout=mica.jagged, requires_grad=True)
    (grad,) = mica.autograd.grad(mica.sin(nested), nested, grad_outputs=[mica.ones_like(nested)])
    assert grad.is_nested and all(mica.equal(g, p.cos()) for g, p in zip(grad.unbind(), parts, strict=True))


def test_a_plain_tensor_with_one_place_for_each_sequence():
    parts = [mica.arange(12.0).reshape(3, 4), mica.arange(8.0).reshape(2, 4)]
    turned = nested.nested_tensor(parts, layout=mica.jagged).transpose(1, 2)
    plain = mica.arange(8.0).reshape(2, 4, 1)
    for got, part, one in zip((turned + plain).unbind(), parts, plain, strict=True):
        assert mica.equal(got, part.t() + one)
    gaps = nested.nested_tensor_from_jagged(
        mica.arange(10.0).reshape(10, 1), mica.tensor([0, 4, 10]), lengths=mica.tensor([2, 3])
    )
    with pytest.raises(RuntimeError, match="cannot call binary pointwise function add with inputs of shapes"):
        gaps + mica.tensor([[[0.0]], [[1.0]]])
    assert [x.flatten().tolist() for x in (gaps + mica.ones(1, 1, 1)).unbind()] == [[1.0, 2.0], [5.0, 6.0, 7.0]]


def test_the_parts_by_torchs_names():
    made = nested.nested_tensor([mica.ones(3, 2), mica.ones(1, 2)], layout=mica.jagged)
    assert made._values.shape == (4, 2) and made._ragged_idx == 1
    assert (made._min_seqlen, made._max_seqlen) == (1, 3)


def test_a_ragged_size_is_an_open_number():
    ragged = jagged().shape[1]
    assert is_nested_int(ragged) and not is_nested_int(3)
    check(mica.fill(jagged(), 2.5), [mica.full_like(A, 2.5), mica.full_like(B, 2.5)])
    assert isinstance(ragged, mica.SymInt) and ragged != 3 and (ragged == 3) is False
    assert ragged > 1 and ragged >= 2 and (ragged < 2) is False and {ragged: 1}[ragged] == 1
    for call in (lambda: ragged + 1, lambda: int(ragged), lambda: ragged < 5):
        with pytest.raises((RuntimeError, TypeError)):
            call()


def test_sums_and_means_of_what_is_a_number():
    nan = float("nan")
    x = nested.nested_tensor([mica.tensor([[1.0, nan], [3.0, 4.0]]), mica.tensor([[5.0, 6.0]])], layout=mica.jagged)
    assert mica.nansum(x).item() == 19 and round(mica.nanmean(x).item(), 5) == 3.8
    assert mica.nanmean(x, -1).values().tolist() == [1.0, 3.5, 5.5]
    assert mica.nanmean(x, 1).tolist() == [[2.0, 4.0], [5.0, 6.0]] and mica.nansum(x, 1).tolist() == [
        [4.0, 4.0],
        [5.0, 6.0],
    ]


def test_a_list_of_sequences_with_offsets_has_the_length_that_they_stand_for():
    from mica.nested._internal.nested_tensor import jagged_from_list

    first, offsets = jagged_from_list([mica.ones(2, 3), mica.ones(4, 3)], None)
    second, same = jagged_from_list([mica.zeros(2, 3), mica.zeros(4, 3)], offsets, dtype=mica.float64)
    assert same is offsets and offsets.tolist() == [0, 2, 6]
    assert second.dtype == mica.float64 and first.shape == second.shape
    assert (first + second).values().sum() == 18
