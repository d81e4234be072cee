"""torch.ops.prims, and operators of aten in the forms that graphs of torch's write."""

import mica as torch
import pytest


def test_quotients_of_whole_numbers_are_rounded_towards_zero():
    a, b = torch.tensor([7, -7, 5]), torch.tensor([2, 2, -3])
    assert torch.ops.prims.div(a, b).tolist() == [3, -3, -1]
    assert torch.equal(torch.ops.prims.div(a.float(), b.float()), a.float() / b.float())


def test_dtypes_ranges_and_places():
    made = torch.ops.prims.iota.default(
        4, start=3, step=2, dtype=torch.int32, device=torch.device("cpu"), requires_grad=False
    )
    assert made.tolist() == [3, 5, 7, 9] and made.dtype == torch.int32
    x = torch.arange(3.0)
    converted = torch.ops.prims.convert_element_type.default(x, torch.float32)
    assert torch.equal(converted, x) and converted.data_ptr() != x.data_ptr()
    wide = torch.ops.prims.broadcast_in_dim(x, [2, 3, 4], [1])
    assert wide.shape == (2, 3, 4) and torch.equal(wide[1, :, 2], x)
    assert torch.ops.prims.sum(torch.ones(2, 3, dtype=torch.int32), [0, 1]).dtype == torch.int32
    assert torch.equal(torch.ops.prims.rev(x, [0]), x.flip(0))
    assert torch.ops.prims.transpose(torch.zeros(2, 3, 4), [2, 0, 1]).shape == (4, 2, 3)
    assert torch.ops.prims.collapse_view(torch.zeros(2, 3, 4), 0, 1).shape == (6, 4)


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("dilation", [1, 2])
def test_places_within_windows_are_indices_again(dims, dilation):
    torch.manual_seed(0)
    x = torch.randn(1, 3, *[10] * dims)
    kernel, stride, padding, dilations = [3, 3, 2][:dims], [2] * dims, [1] * dims, [dilation] * dims
    values, offsets = torch.ops.prims._low_memory_max_pool_with_offsets(x, kernel, stride, padding, dilations, False)
    indices = torch.ops.prims._low_memory_max_pool_offsets_to_indices(
        offsets, kernel, x.shape[-dims:], stride, padding, dilations
    )
    pool = torch.nn.functional.max_pool2d if dims == 2 else torch.nn.functional.max_pool3d
    wanted, places = pool(x, kernel, stride, padding, dilation, return_indices=True)
    assert torch.equal(values, wanted) and torch.equal(indices, places) and offsets.dtype == torch.int8


def test_numbers_stand_for_dtypes_in_calls_by_name():
    x = torch.ones(2)
    assert torch.ops.aten.new_ones(x, [], dtype=7, layout=0).dtype == torch.float64
    assert torch.ops.aten._to_copy(x, dtype=3).dtype == torch.int32
    with pytest.raises(RuntimeError, match="99 is the number of no dtype"):
        torch.ops.aten.new_ones(x, [], dtype=99)


def test_elu_has_the_scales_of_the_operator():
    x = torch.tensor([-1.0, 0.0, 2.0], requires_grad=True)
    y = torch.ops.aten.elu.default(x, 2, 3, 4)
    assert torch.allclose(y, torch.tensor([6 * (torch.exp(torch.tensor(-4.0)).item() - 1), 0.0, 6.0]))
    y.sum().backward()
    assert torch.allclose(x.grad, torch.tensor([24 * torch.exp(torch.tensor(-4.0)).item(), 24.0, 3.0]))
    assert torch.equal(torch.ops.aten.elu(x), torch.nn.functional.elu(x))


def test_resize_copies_elements_in_their_order():
    x = torch.arange(6.0).view(2, 3)
    assert torch.ops.aten.resize(x, (4,)).tolist() == [0, 1, 2, 3]
    assert torch.ops.aten.resize(x, (8,)).tolist()[:6] == [0, 1, 2, 3, 4, 5]
    assert torch.ops.aten.resize(torch.as_strided(x, (100,), (0,)), (50,)).tolist() == [0.0] * 50
    assert torch.ops.aten.resize(x, (1, 3, 2, 1), memory_format=torch.channels_last).stride() == (6, 1, 3, 3)
    assert torch.ops.aten.resize_as(x, torch.zeros(2, 2)).tolist() == [[0, 1], [2, 3]]
    assert x.shape == (2, 3)


def test_generated_code_can_check_its_tensors():
    from mica._C._dynamo.guards import assert_alignment, assert_size_stride, copy_misaligned

    x = torch.empty(16, 32)
    assert assert_size_stride(x, (16, 32), (32, 1), "an.op") and assert_alignment(x, 16, "an.op")
    with pytest.raises(AssertionError, match=r"Error in op: an\.op\n.*expected size 16==32"):
        assert_size_stride(x, (32, 64), (32, 1), "an.op")
    with pytest.raises(AssertionError, match="alignment cannot be 0 in op: an.op"):
        assert_alignment(x, 0, "an.op")
    moved = torch.randn(17)[1:].view(4, 4)
    assert copy_misaligned(x) is x and copy_misaligned(moved).data_ptr() % 16 == 0
    assert torch.equal(copy_misaligned(moved), moved)


def test_a_row_target_has_one_class_in_the_gradient_of_nll_loss():
    backward = torch.ops.aten.nll_loss_backward
    one, x, weight = torch.ones(1), torch.zeros(3), torch.tensor(1.0)
    assert backward(one, x, torch.tensor([2, 0, 1]), None, 0, 10, weight).tolist() == [0, 0, -1]
    assert backward(one, x, torch.tensor(2), None, 0, 10, weight).tolist() == [0, 0, -1]
    with pytest.raises(RuntimeError, match=r"size mismatch \(got input: \[3\], target: \[2\]\)"):
        backward(one, x, torch.tensor([1, 2]), None, 0, 10, weight)


def test_nothing_is_written_to_an_empty_plane():
    for dims, module in ((1, torch.nn.MaxUnpool1d), (2, torch.nn.MaxUnpool2d), (3, torch.nn.MaxUnpool3d)):
        x = torch.randn(1, *[1] * (dims + 1))
        assert module(2, 2, padding=1)(x, x.long()).shape == (1, 1, *[0] * dims)


def test_how_often_an_index_stands_is_known_from_the_size_of_the_result():
    made = torch.repeat_interleave(torch.empty(3, dtype=torch.int64, device="meta"), output_size=12)
    assert made.shape == (12,) and made.device.type == "meta"
