"""Causes that torch's own tests found: what torch 2.13 says, on the CPU."""

import warnings
from itertools import permutations

import mica as torch
import numpy as np
import pytest
from mica.nn import functional as F


def refused(error, words):
    return pytest.raises(error, match=words)


def test_a_resized_out_lies_as_the_result():
    for x in (torch.randn(2, 3, 4), torch.randn(2, 3, 8)[:, :, ::2], torch.randn(1, 1, 4, 12)[:, :, :, ::2]):
        for order in permutations(range(x.dim())):
            xp = x.permute(order)
            for op in (torch.add, torch.eq):
                want = op(xp, xp)
                out = torch.empty(0, dtype=want.dtype)
                assert op(xp, xp, out=out).stride() == want.stride()
                assert torch.equal(out, want)
            out = torch.empty(0)
            assert torch.exp(xp, out=out).stride() == xp.exp().stride()


def test_deterministic_mode_refuses_what_torch_refuses():
    x, index = torch.zeros(4), torch.tensor([0, 0])
    quantized = torch.quantize_per_tensor(torch.zeros(3), 0.1, 10, torch.quint8)
    planes, places = torch.randn(1, 1, 7, 7), torch.zeros(1, 1, 7, 7, dtype=torch.int64)
    calls = {
        "put_": lambda: x.put_(index, torch.ones(2)),
        "quantized_resize_cpu_": lambda: quantized.resize_((10,)),
        "max_unpooling2d_forward_out": lambda: F.max_unpool2d(planes, places, 3, 1),
    }
    try:
        for name, call in calls.items():
            torch.use_deterministic_algorithms(True)
            with refused(RuntimeError, f"{name} does not have a deterministic implementation, but you set"):
                call()
            torch.use_deterministic_algorithms(True, warn_only=True)
            with pytest.warns(UserWarning, match=f"{name} does not have a deterministic implementation"):
                call()
        torch.use_deterministic_algorithms(True)
        assert x.put_(index, torch.ones(2), accumulate=True).tolist()[0] > 1  # repeats on the CPU
    finally:
        torch.use_deterministic_algorithms(False)
    for call in calls.values():
        call()


def test_what_is_refused():
    one = torch.ones(1, 1, 1, 1)
    with refused(RuntimeError, r"output size per channel: \(-1 x 1\). Output size is too small"):
        F.conv_transpose2d(one, one, padding=(1, 0))
    with refused(RuntimeError, "Output size is too small"):
        F.conv_transpose1d(torch.ones(1, 1, 2), torch.ones(1, 1, 1), padding=1)
    truth = torch.ones(1, 1, 2, dtype=torch.bool)
    with refused(NotImplementedError, "\"replication_pad1d\" not implemented for 'Bool'"):
        torch.nn.ReplicationPad1d(1)(truth)
    with refused(NotImplementedError, "\"reflection_pad1d\" not implemented for 'Bool'"):
        F.pad(truth, (1, 1), mode="reflect")
    assert F.pad(truth, (1, 1)).tolist() == [[[False, True, True, False]]]
    assert F.pad(truth, (1, 1), mode="circular").all()
    with refused(IndexError, "Expected reduction dim -1 or 0 for scalar but got 100"):
        torch.cummax(torch.tensor(1.0), 100)
    for sample in (torch.grid_sampler, torch.grid_sampler_2d, torch.grid_sampler_3d):
        with refused(RuntimeError, "expected grid and input to have same batch size"):
            sample(torch.ones(5, 5, 5, 5), torch.ones(1, 1, 4, 4), 0, 0, True)
    with refused(RuntimeError, "expected scalar type Long but found Double"):
        torch.nn.Conv2d(1, 1, (1, 3), bias=False).double()(torch.ones(1, 1, 1, 3, dtype=torch.int64))
    with refused(TypeError, "received an invalid combination of arguments"):
        torch.LongTensor((6, 0), 1, 1, 0)
    with refused(TypeError, "type 'torch.FloatTensor' is not an acceptable base type"):
        type("Mine", (torch.FloatTensor,), {})
    for pool in (F.adaptive_avg_pool2d, F.adaptive_max_pool2d):
        x = torch.ones(1, 1, 4, 4, requires_grad=True)
        with refused(RuntimeError, "Expected grad_output to have non-zero size for non-batch dimensions"):
            pool(x, 0).sum().backward()
    nested = torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)])
    for a, b in ((nested, torch.ones(2)), (torch.ones(2), nested)):
        with refused(RuntimeError, "Expected both self and other to be nested tensors"):
            a.is_same_size(b)


def test_linear_algebra_says_torchs_words():
    with refused(torch.linalg.LinAlgError, "cholesky_inverse: The diagonal element 2 is zero"):
        torch.cholesky_inverse(torch.tensor([[1.0, 0, 0], [1, 0, 0], [1, 1, 1]]))
    with refused(RuntimeError, "Input dtypes must be the same"):
        torch.baddbmm(torch.ones(1, 2, 2).int(), torch.ones(1, 2, 2), torch.ones(1, 2, 2))
    with refused(RuntimeError, "but got result with dtype Bool"):
        torch.linalg.matrix_rank(torch.eye(2), out=torch.empty(0, dtype=torch.bool))
    with refused(RuntimeError, "rcond tensor of complex type is not supported"):
        torch.linalg.pinv(torch.eye(2), rcond=torch.tensor(1j))
    with refused(RuntimeError, r"input.size\(-2\) should match other.size\(-2\)"):
        torch.linalg.lstsq(torch.randn(1, 1, 1), torch.randn(3, 1))
    a, b = torch.randn(2, 3, 3), torch.randn(2, 3)
    assert torch.linalg.lstsq(a, b).solution.shape == (2, 3)


def test_a_list_of_arrays_is_not_warned_of():
    """It is not slow here (docs/differences.md)."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = torch.tensor([np.array([1.0, 2.0]), np.array([3.0, 4.0])])
    assert made.tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_type_of_the_class_of_tensors():
    assert torch.ones(2).double().int().type(torch.Tensor).dtype == torch.float32
    assert torch.FloatTensor in torch._tensor_classes and torch.FloatStorage in torch._storage_classes


def test_gradients_of_pools_by_their_names():
    aten = torch.ops.aten
    x = torch.arange(16.0).reshape(1, 1, 4, 4)
    grad = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
    assert aten._adaptive_avg_pool2d_backward(grad, x)[0, 0, 0].tolist() == [0.25, 0.25, 0.5, 0.5]
    _, at = F.adaptive_max_pool2d(x, 2, return_indices=True)
    assert aten.adaptive_max_pool2d_backward(grad, x, at).flatten().nonzero().flatten().tolist() == [5, 7, 13, 15]
    with refused(RuntimeError, "Expected dimensions"):
        aten._adaptive_avg_pool2d_backward(torch.ones(1, 2, 7), torch.ones(1, 2, 3, 3))
    with refused(RuntimeError, "expected sizes"):
        aten.adaptive_max_pool2d_backward(torch.ones(1, 2, 7, 7), torch.ones(1, 2, 7, 7), at.expand(1, 2, 2, 2))
    with refused(RuntimeError, "Expected a tensor of dimension"):
        aten.max_pool2d_with_indices_backward(
            torch.ones(1, 1, 7, 7), torch.ones(1, 1, 7, 7), [3, 3], [1, 1], [1, 1], [1, 1], False, at
        )
    assert aten.unfold_backward(torch.ones(4, 3), [6], 0, 3, 1).tolist() == [1.0, 2.0, 3.0, 3.0, 2.0, 1.0]
    with refused(ValueError, "step is 0 but must be > 0"):
        aten.unfold_backward(torch.ones(4, 3), [6], 0, 3, 0)


def test_compressed_tensors_by_their_dimensions():
    for layout, blocks in ((torch.sparse_csr, ()), (torch.sparse_csc, ()), (torch.sparse_bsr, (2, 1))):
        made = torch.ops.aten._sparse_compressed_tensor_with_dims(
            3, 0, (2, 4, 3), blocks, torch.int32, dtype=torch.float64, layout=layout, device="cpu"
        )
        assert made.layout == layout and made.shape == (2, 4, 3) and made.dtype == torch.float64
        assert made.values().shape == (2, 3, *blocks) and not made.to_dense().any()
    with refused(RuntimeError, "do not fit"):
        torch.ops.aten._sparse_compressed_tensor_with_dims(7, 0, (2, 3), (), torch.int64, layout=torch.sparse_csr)
    pointers, columns = torch.tensor([0, 1, 2]), torch.tensor([0, 2])
    torch._validate_compressed_sparse_indices(True, pointers, columns, 2, 3, 2)
    with refused(RuntimeError, "col_indices < ncols"):
        torch._validate_compressed_sparse_indices(True, pointers, columns, 2, 2, 2)
    with refused(RuntimeError, "crow_indices"):
        torch._validate_compressed_sparse_indices(True, torch.tensor([0, 2, 1]), columns, 2, 3, 2)


def test_csr_tensors_grow():
    x = torch.tensor([[1.0, 0, 2], [0, 3, 0]]).to_sparse_csr()
    x.resize_((4, 5))
    assert x.shape == (4, 5) and x._nnz() == 3
    assert x.to_dense().tolist() == [[1, 0, 2, 0, 0], [0, 3, 0, 0, 0], [0] * 5, [0] * 5]
    with refused(RuntimeError, "Only batched sparse CSR matrices are supported"):
        x.resize_((4,))
    with refused(RuntimeError, "Resizing columns of sparse CSR tensors to a smaller value is not supported"):
        x.resize_((4, 2))
    with refused(RuntimeError, "have no place for the elements"):
        x.resize_((1, 5))
    assert x.shape == (4, 5)


def test_sparse_numbers_promote_as_numbers():
    small, large = torch.tensor(2, dtype=torch.uint8), torch.tensor(3)
    products = (small.to_sparse() * large.to_sparse(), large.to_sparse() * small.to_sparse())
    assert [p.dtype for p in products] == [torch.int64] * 2 and [int(p.to_dense()) for p in products] == [6, 6]
    many = torch.tensor([0, 1, 2], dtype=torch.uint8).to_sparse()
    assert (many * large.to_sparse()).dtype == (large.to_sparse() * many).dtype == torch.uint8


def test_more_of_layers():
    x = torch.arange(24.0).reshape(2, 3, 4)
    mean, var = torch.zeros(3), torch.ones(3)
    of_batch = torch.batch_norm_update_stats(x, mean, var, 0.5)
    assert [t.tolist() for t in of_batch] == [[7.5, 11.5, 15.5], [37.25] * 3]
    assert mean.tolist() == [3.75, 5.75, 7.75] and var.tolist() == pytest.approx([21.785715] * 3)
    with refused(RuntimeError, r"at least one element, but got input_sizes = \[0, 1\]"):
        torch.batch_norm_update_stats(torch.rand(0, 1), None, None, 0.0)
    assert torch._add_relu(torch.tensor([1.0, -3.0]), torch.ones(2), alpha=2).tolist() == [3.0, 0.0]
    half = torch.ones(3, dtype=torch.float16)
    assert F.cosine_similarity(half, half, dim=0, eps=9.7e23).item() == 0.0
    with refused(RuntimeError, "rrelu: upper bound must be finite, got inf"):
        F.rrelu(x, 0.1, float("inf"))
    with refused(RuntimeError, "expected grid to have size 1 in last dimension"):
        F.grid_sample(torch.ones(1, 2, 2), torch.ones(1, 1, 1, 2), align_corners=False)


def test_sums_of_float16_are_kept_as_asked():
    assert torch._C._get_cpu_allow_fp16_reduced_precision_reduction() is False
    torch._C._set_cpu_allow_fp16_reduced_precision_reduction(True)
    try:
        assert torch._C._get_cpu_allow_fp16_reduced_precision_reduction() is True
        assert (torch.ones(4, 5000).half() @ torch.ones(5000).half()).tolist() == [5000.0] * 4
    finally:
        torch._C._set_cpu_allow_fp16_reduced_precision_reduction(False)


def test_frequencies_warn_of_another_length_as_arange():
    for frequencies, count in ((torch.fft.fftfreq, 4), (torch.fft.rfftfreq, 3)):
        out = torch.empty(())
        with pytest.warns(UserWarning, match="The out tensor will be resized to a tensor of shape"):
            frequencies(4, 0.5, out=out)
        assert out.shape == (count,) and torch.equal(out, frequencies(4, 0.5))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert frequencies(4, out=torch.empty(0)).shape == frequencies(4, out=torch.empty(count)).shape == (count,)


def test_quantized_pools_refuse_dilations_below_one():
    x = torch.quantize_per_tensor(torch.randn(1, 1, 4, 4), 0.1, 10, torch.quint8)
    with refused(RuntimeError, "Expected dilation >= 1"):
        torch.quantized_max_pool2d(x, (2, 2), (1, 1), (0, 0), (-3, 1))
    with refused(RuntimeError, "Expected dilation >= 1"):
        torch.quantized_max_pool3d(x[None], (1, 2, 2), (1, 1, 1), (0, 0, 0), (0, 1, 1))
    assert torch.quantized_max_pool2d(x, (2, 2)).shape == (1, 1, 2, 2)


def test_sizes_whose_strides_overflow():
    for make in (lambda size: torch.empty(size), lambda size: torch.zeros(()).resize_(size), torch.empty(0).view):
        with refused(RuntimeError, "Stride calculation overflowed"):
            make([0, 4, 2**61])
    for size in ((0, 2**62, 2), (0, 2**62, 2, 2)):
        with refused(RuntimeError, "Stride calculation overflowed"):
            torch.zeros(size)
    with refused(RuntimeError, "Stride calculation overflowed"):
        torch.empty(0, 4, 2**31, 2**31, memory_format=torch.channels_last)
    assert torch.empty(4, 2**61, 0, dtype=torch.float64).shape == (4, 2**61, 0)
    for offset in (2**63 - 1, 2**61 - 1):
        with refused(RuntimeError, r"Storage size calculation overflowed with sizes=\[1\] and strides=\[1\]"):
            torch.as_strided(torch.ones(2, 3), [1], [1], offset)


def test_unique_of_several_empty_dimensions():
    for unique in (torch.unique, torch.unique_consecutive):
        for dim in (1, 2):
            with refused(RuntimeError, "Number of zero sized dimensions is more than one"):
                unique(torch.empty(5, 0, 0), dim=dim)
        with refused(RuntimeError, "0 sized dimensions, and they aren't selected"):
            unique(torch.empty(5, 0, 5), dim=2)
        assert unique(torch.empty(5, 0, 5), dim=1).shape == (5, 0, 5)


def test_shapes_are_integers():
    for wrong in (1.1, "text", {2}):
        with refused(RuntimeError, "Input shapes should be of type ints, a tuple of ints, or a list of ints, got"):
            torch.broadcast_shapes((1, 2), wrong)
    assert torch.broadcast_shapes(3, [2, 1], torch.Size((1, 1, 3))) == (1, 2, 3)


def test_histograms_are_not_converted_into_out():
    x, other = torch.tensor([1.0, 2.0]), torch.empty(0, dtype=torch.float64)
    with refused(RuntimeError, "input tensor and hist tensor should have the same dtype"):
        torch.histogram(x, 2, out=(other, torch.empty(0)))
    with refused(RuntimeError, "input tensor and bin_edges tensor should have the same dtype"):
        torch.histogram(x, 2, out=(torch.empty(0), other))
    assert torch.histogram(x, 2, out=(torch.empty(0), torch.empty(0)))[0].tolist() == [1, 1]


def test_transposes_of_sparse_tensors_name_their_dimensions():
    words = "expects a tensor with <= 2 sparse and 0 dense dimensions, but got {} sparse and {} dense dimensions"
    with refused(RuntimeError, words.format(3, 0)):
        torch.ones(2, 2, 2).to_sparse().t()
    with refused(RuntimeError, words.format(1, 1)):
        torch.ones(2, 2).to_sparse(1).t()
    assert torch.ones(2, 3).to_sparse().t().shape == (3, 2)


@pytest.mark.parametrize("name", ["Adam", "AdamW", "SGD", "Adagrad"])
def test_fused_steps_want_numbers(name):
    p = torch.nn.Parameter(torch.ones(2, device="meta"))
    p.grad = torch.ones(2, device="meta")
    with refused(
        RuntimeError, "`fused=True` requires all the params to be floating point Tensors of supported devices"
    ):
        getattr(torch.optim, name)([p], lr=0.1, fused=True).step()


def test_one_cycle_schedulers_of_old_keep_their_function():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1, momentum=0.9)
    new, old = (torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=25, total_steps=10) for _ in range(2))
    del old._anneal_func_type
    old.anneal_func = type(old)._annealing_cos
    assert old._anneal_func(1.0, 3.0, 0.25) == new._anneal_func(1.0, 3.0, 0.25)
