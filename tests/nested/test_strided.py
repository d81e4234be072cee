"""Nested tensors of the strided layout, the default: parts of any sizes in one buffer."""

import copy
import io
import pickle

import mica as torch
import pytest
from mica.nn import functional as F

PARTS = [torch.arange(6.0).reshape(2, 3), torch.arange(4.0).reshape(4, 1) - 1, torch.zeros(0, 5)]
SEQUENCES = [torch.linspace(-1, 1, n * 4).reshape(n, 4) for n in (2, 5, 1)]


def same(nested, parts):
    assert nested.is_nested and len(nested) == len(parts)
    for mine, other in zip(nested.unbind(), parts, strict=True):
        torch.testing.assert_close(mine, other)


def test_construction_and_facts():
    x = torch.nested.nested_tensor(PARTS)
    assert x.dim() == 3 and x.size(0) == 3 and x.numel() == 10 and x.layout is torch.strided and len(x) == 3
    same(x, PARTS)
    with pytest.raises(RuntimeError, match="dimension 1 is irregular"):
        x.size(1)
    with pytest.raises(RuntimeError, match="doesn't support sizes"):
        str(x.shape)
    assert x._nested_tensor_size().tolist() == [[2, 3], [4, 1], [0, 5]]
    assert "nested_tensor([" in repr(x)
    same(pickle.loads(pickle.dumps(x)), PARTS)
    same(copy.deepcopy(x), PARTS)
    with pytest.raises(RuntimeError, match="same dimension"):
        torch.nested.nested_tensor([torch.zeros(2), torch.zeros(2, 2)])


def test_elements_are_one_operation():
    x = torch.nested.nested_tensor(PARTS)
    same(x * 2 + x, [p * 3 for p in PARTS])
    same(x.sin(), [p.sin() for p in PARTS])
    same(x.double(), [p.double() for p in PARTS])
    y = x.clone()
    y.mul_(3)
    same(y, [p * 3 for p in PARTS])
    assert x.sum().item() == sum(p.sum().item() for p in PARTS)
    with pytest.raises(RuntimeError, match="match exactly"):
        x + torch.nested.nested_tensor(SEQUENCES)


def test_padding():
    padded = torch.nested.to_padded_tensor(torch.nested.nested_tensor(PARTS), -1.0)
    assert padded.shape == (3, 4, 5) and padded[1, 3].tolist() == [2, -1, -1, -1, -1]
    assert torch.nested.nested_tensor(PARTS).to_padded_tensor(0.0, (3, 6, 6)).shape == (3, 6, 6)
    with pytest.raises(RuntimeError, match="Truncation"):
        torch.nested.nested_tensor(PARTS).to_padded_tensor(0.0, (3, 1, 6))


def test_layers_and_their_gradients():
    weight = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(3, 4).requires_grad_()
    leaves = [s.double().requires_grad_() for s in SEQUENCES]
    x = torch.nested.as_nested_tensor(leaves)
    y = F.softmax(F.linear(x, weight), dim=-1)
    expected = [F.softmax(F.linear(s, weight), dim=-1) for s in leaves]
    same(y, expected)
    found = torch.autograd.grad(y.to_padded_tensor(0.0).square().sum(), [weight, *leaves])
    wanted = torch.autograd.grad(sum(e.square().sum() for e in expected), [weight, *leaves])
    for mine, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, other)


def test_a_leaf_has_a_nested_gradient():
    x = torch.nested.nested_tensor(SEQUENCES, requires_grad=True)
    (x * x).sum().backward()
    same(x.grad, [2 * s for s in SEQUENCES])


def test_backward_from_a_nested_gradient():
    a, b = torch.arange(3.0, requires_grad=True), torch.arange(5.0, requires_grad=True)
    nested = torch.nested.as_nested_tensor([a, b])
    nested.backward(torch.nested.nested_tensor([torch.ones(3), torch.full((5,), 2.0)]))
    assert a.grad.tolist() == [1] * 3 and b.grad.tolist() == [2] * 5


def test_products_and_turns():
    x = torch.nested.nested_tensor(SEQUENCES)
    same(x.transpose(1, 2), [s.t() for s in SEQUENCES])
    same(x @ x.transpose(1, 2), [s @ s.t() for s in SEQUENCES])
    _, second = x.chunk(2, -1)
    same(second, [s[:, 2:] for s in SEQUENCES])
    same(F.layer_norm(x, (4,)), [F.layer_norm(s, (4,)) for s in SEQUENCES])
    with pytest.raises(NotImplementedError, match="jagged layout has more"):
        torch.fft.fft(x)
    with pytest.raises(RuntimeError, match="first dimension"):
        x.softmax(0)


@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_files(layout, weights_only):
    x = torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(4, 3)], layout=layout, requires_grad=True)
    buffer = io.BytesIO()
    torch.save({"x": x, "y": x.detach()}, buffer)
    buffer.seek(0)
    loaded = torch.load(buffer, weights_only=weights_only)
    assert type(loaded["x"]) is type(x) and loaded["x"].requires_grad and not loaded["y"].requires_grad
    for ours, theirs in zip(loaded["x"].unbind(), x.unbind(), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_files_keep_bounds_of_lengths_as_torch_does():
    """torch marks what it finds there as a tensor; a number made it refuse the file."""
    x = torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(4, 3)], layout=torch.jagged)
    assert (x._min_seqlen, x._max_seqlen) == (2, 4)
    (parts,) = x.__reduce_ex__(2)[1][2]
    assert {key: tuple(bound.shape) for key, bound in parts["_metadata_cache"].items()} == {
        "min_seqlen": (2, 0),
        "max_seqlen": (4, 0),
    }
    loaded = pickle.loads(pickle.dumps(x))
    assert loaded._metadata_cache == {"min_seqlen": 2, "max_seqlen": 4}


def test_an_index_begins_with_the_part():
    nested = torch.nested.nested_tensor(SEQUENCES)
    assert torch.equal(nested[1, 2, :], SEQUENCES[1][2]) and nested[0, 0, 1] == SEQUENCES[0][0, 1]
    assert torch.equal(nested[2, ...], SEQUENCES[2])
    same(nested[...], SEQUENCES)
    nested[0].fill_(7.0)
    assert nested[0, 1].tolist() == [7.0] * 4
    for index in (slice(None), (slice(None), 1, 1)):
        with pytest.raises(NotImplementedError):
            nested[index]
    for index in (3, -4, (1, 5, 0)):
        with pytest.raises(IndexError):
            nested[index]


def test_along_the_parts_nothing_is_computed():
    nested = torch.nested.nested_tensor(SEQUENCES)
    with pytest.raises(RuntimeError, match="Cannot apply softmax across nested dimension 0"):
        torch.softmax(nested, 0)
    with pytest.raises(RuntimeError, match="Nested tensor dimension 0 cannot be transposed"):
        nested.transpose(0, 1)
    with pytest.raises(IndexError, match="Dimension out of range"):
        nested.transpose(1, 3)
    same(torch.bmm(nested, nested.transpose(1, 2)), [part @ part.t() for part in SEQUENCES])


def test_what_is_nested_already_is_itself():
    nested = torch.nested.nested_tensor(SEQUENCES)
    assert torch.nested.as_nested_tensor(nested) is nested
    for given, layout in (
        (nested, torch.jagged),
        (torch.nested.nested_tensor(SEQUENCES, layout=torch.jagged), torch.strided),
    ):
        assert torch.nested.as_nested_tensor(given, layout=given.layout) is given
        with pytest.raises(RuntimeError, match="Converting between nested tensor layouts is not supported"):
            torch.nested.as_nested_tensor(given, layout=layout)
    assert torch.nested.as_nested_tensor(nested, dtype=torch.float64).dtype == torch.float64


def test_shapes_of_parts():
    """Words and sizes as torch 2.13 has them."""
    parts = [torch.randn(2, 20), torch.randn(3, 20)]
    x = torch.nested.nested_tensor(parts, layout=torch.strided, requires_grad=True)
    for method in ("view", "reshape"):
        seen = getattr(x, method)(2, -1, 5, 4)
        assert [tuple(part.shape) for part in seen.unbind()] == [(2, 5, 4), (3, 5, 4)]
        assert all(a.equal(b.reshape(-1, 5, 4)) for a, b in zip(seen.unbind(), parts, strict=True))
        for size, words in (
            ((), r"shape '\[\]' is invalid for a nested tensor"),
            ((-1, 5), f"{method}: For now nested {method} cannot change or infer the implicit batch dimension"),
            ((2, -1, -1, 4), "only one dimension can be inferred"),
            ((2, 7, 5), r"shape '\[7, 5\]' is invalid for input of size 40"),
        ):
            with pytest.raises(RuntimeError, match=words):
                getattr(x, method)(size)
    last = x.narrow(0, 1, 1)
    assert len(last) == 1 and last.unbind()[0].equal(parts[1])
    last.sum().backward()
    assert [part.sum().item() for part in x.grad.unbind()] == [0, 60]
    _, second = x.split_with_sizes([5, 15], dim=-1)
    assert [tuple(part.shape) for part in second.unbind()] == [(2, 15), (3, 15)]
    with pytest.raises(RuntimeError, match="only dim=0 supported for nested tensors"):
        x.narrow(1, 0, 1)
    with pytest.raises(RuntimeError, match="exceeds dimension size"):
        x.narrow(0, 1, 2)


def test_plain_tensors_beside_nested_ones():
    x = torch.nested.nested_tensor([torch.randn(2), torch.randn(3)], layout=torch.strided)
    with pytest.raises(RuntimeError, match="Expected both to be nested, but got a nested self and non-nested other"):
        torch.matmul(x, torch.randn(4))
    with pytest.raises(RuntimeError, match="Expected both to be nested, but got a non-nested self and nested other"):
        torch.matmul(torch.randn(4), x)
    with pytest.raises(RuntimeError, match="but got a non-nested self and nested other"):
        torch.ones(1).mul_(x)
    with pytest.raises(RuntimeError, match="memory formats, called clone with memory format: ChannelsLast"):
        x.clone(memory_format=torch.channels_last)
    empty = torch.nested.nested_tensor([torch.ones(1, 0), torch.ones(0, 0)], layout=torch.strided)
    with pytest.raises(RuntimeError, match="at least one constituent tensor should have non-zero numel"):
        torch.nested.to_padded_tensor(empty, 0.0)


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_attention_layers_say_what_to_do_instead(layout):
    x = torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)], layout=layout)
    for layer in (
        torch.nn.MultiheadAttention(4, 2, batch_first=True),
        torch.nn.TransformerEncoderLayer(4, 2, batch_first=True),
    ):
        with pytest.raises(AssertionError, match="does not support NestedTensor outside of its fast path"):
            layer(x, x, x) if isinstance(layer, torch.nn.MultiheadAttention) else layer(x)
