"""Views and elements of quantized tensors. Expected values are torch 2.13's."""

import mica as torch
import pytest


def example():
    x = torch.arange(24.0).reshape(2, 3, 4) / 3 - 3
    return torch.quantize_per_channel(x, torch.tensor([0.5, 0.25, 2.0]), torch.tensor([0, 3, 7]), 1, torch.qint8)


ALL = [-6, -5, -5, -4, -4, -2, -1, 0, 7, 7, 7, 7, 2, 3, 3, 4, 12, 14, 15, 16, 9, 9, 9, 9]


@pytest.mark.parametrize(
    ("view", "shape", "axis", "channels", "integers"),
    [
        (lambda q: q[1], (3, 4), 0, [0, 1, 2], [2, 3, 3, 4, 12, 14, 15, 16, 9, 9, 9, 9]),
        (lambda q: q[:, ::2], (2, 2, 4), 1, [0, 2], [-6, -5, -5, -4, 7, 7, 7, 7, 2, 3, 3, 4, 9, 9, 9, 9]),
        (lambda q: q[:, :, 1:3], (2, 3, 2), 1, [0, 1, 2], [-5, -5, -2, -1, 7, 7, 3, 3, 14, 15, 9, 9]),
        (lambda q: q.unsqueeze(0), (1, 2, 3, 4), 2, [0, 1, 2], ALL),
        (lambda q: q.unsqueeze(2).squeeze(2), (2, 3, 4), 1, [0, 1, 2], ALL),
    ],
)
def test_channels_of_views(view, shape, axis, channels, integers):
    seen = view(example())
    assert seen.shape == shape and seen.q_per_channel_axis() == axis
    assert seen.q_per_channel_scales().tolist() == [(0.5, 0.25, 2.0)[c] for c in channels]
    assert seen.q_per_channel_zero_points().tolist() == [(0, 3, 7)[c] for c in channels]
    assert seen.int_repr().flatten().tolist() == integers


def test_a_view_of_one_channel():
    one = example()[:, 2]
    assert one.qscheme() is torch.per_tensor_affine and (one.q_scale(), one.q_zero_point()) == (2.0, 7)
    assert one.int_repr().tolist() == [[7, 7, 7, 7], [9, 9, 9, 9]]
    assert example()[1][2][0].item() == 4.0


def test_views_that_mix_channels_are_refused():
    q = example()
    for view in (lambda: q.transpose(0, 1), lambda: q.flatten(), lambda: q.view(2, 12)):
        with pytest.raises(RuntimeError, match="Setting strides is possible only on uniformly quantized tensor"):
            view()
    with pytest.raises(RuntimeError, match="Squeeze is only possible on non-axis dimension for Per-Channel"):
        torch.quantize_per_channel(torch.ones(1, 2), torch.ones(1), torch.zeros(1).long(), 0, torch.qint8).squeeze(0)


def test_assignment():
    q, other = (
        example(),
        torch.quantize_per_channel(
            torch.ones(2, 3, 4), torch.tensor([0.5, 0.25, 2.0]), torch.tensor([0, 3, 7]), 1, torch.qint8
        ),
    )
    q[0] = torch.ones(3, 4)
    q[1][1][2:] = torch.ones(2)
    assert torch.equal(q[0], other[0]) and q[1][1].int_repr().tolist() == [12, 14, 7, 7]
    before = q.int_repr()
    with pytest.raises(RuntimeError, match="Quantized copy only works with contiguous and NHWC Tensors"):
        q[:, 0] = torch.ones(2, 4)
    assert torch.equal(q.int_repr(), before)


def test_elements():
    q = torch.quantize_per_tensor(torch.arange(6.0).reshape(2, 3), 0.5, 3, torch.quint8)
    assert q.masked_fill(torch.tensor([True, False, True]), -1.3).int_repr().tolist() == [[0, 5, 0], [0, 11, 0]]
    put = q.index_put((torch.tensor([1]), torch.tensor([2])), torch.tensor(1e4))
    assert put.int_repr().tolist() == [[3, 5, 7], [9, 11, 255]] and q[1, 2].item() == 5.0
    with pytest.raises(RuntimeError, match="only supported for accumulate=False"):
        q.index_put_((torch.tensor([0]),), torch.tensor(1.0), accumulate=True)
    values, places = q.sort(descending=True)
    assert values.int_repr().tolist() == [[7, 5, 3], [13, 11, 9]] and places.tolist() == [[2, 1, 0]] * 2
    assert q.topk(1).values.int_repr().tolist() == [[7], [13]]
    assert q.transpose(0, 1).reshape(6).int_repr().tolist() == [3, 9, 5, 11, 7, 13]
    like = torch.empty_like(q)
    assert like.dtype is torch.quint8 and (like.q_scale(), like.q_zero_point()) == (0.5, 3)
    assert q.resize_(4).int_repr().tolist() == [3, 5, 7, 9] and q.q_scale() == 0.5
    q.masked_fill_(torch.tensor([True, False, False, False]), torch.tensor(2.0))
    assert q.int_repr().tolist() == [7, 5, 7, 9]


def test_tensors_without_values():
    q = torch._empty_affine_quantized([2, 3], scale=0.5, zero_point=3, dtype=torch.quint8)
    assert q.shape == (2, 3) and (q.q_scale(), q.q_zero_point()) == (0.5, 3)
    packed = torch._empty_affine_quantized([5], scale=1.0, zero_point=2, dtype=torch.quint4x2)
    assert packed.int_repr().shape == (3,)
    scales, zeros = torch.tensor([0.5, 2.0]), torch.tensor([1, 2])
    q = torch._empty_per_channel_affine_quantized([2, 3], scales=scales, zero_points=zeros, axis=0, dtype=torch.qint8)
    assert q.fill_(3.0).int_repr().tolist() == [[7, 7, 7], [4, 4, 4]]
    with pytest.raises(RuntimeError, match="requires quantized dtype"):
        torch._empty_affine_quantized([2], scale=0.5)


def test_parameters():
    x = torch.tensor([0.1, 0.5, -0.7, 2.0, 1.1, 0.9, -1.5, 0.3, 0.2, -0.2])
    assert [t.item() for t in torch.choose_qparams_optimized(x, 10, 50, 0.3, 2)] == [2.0, -0.9399996399879456]
    found = [t.item() for t in torch.choose_qparams_optimized(x, 10, 200, 0.16, 4)]
    assert found == [1.9824999570846558, -1.4824999570846558]
    assert torch._choose_qparams_per_tensor(x) == (0.013725490196078431, 109)
    assert torch._saturate_weight_to_fp16(torch.tensor([7e4, 1.0, -1e9])).tolist() == [65504.0, 1.0, -65504.0]
    with pytest.raises(ValueError, match="input tensor is empty"):
        torch.choose_qparams_optimized(torch.tensor([]), 0, 200, 0.16, 8)


def test_storages_of_integers():
    storage = torch.storage.TypedStorage(4, dtype=torch.qint8)
    storage[:] = 0
    storage[1] = 3
    assert list(storage) == [0, 3, 0, 0]
