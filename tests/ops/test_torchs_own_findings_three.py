"""More causes that torch's own tests found: what torch 2.13 says, on the CPU."""

import datetime
import io
import math
import pickle
import zoneinfo

import mica as torch
import pytest
from mica.utils._device import set_device
from mica.utils.data import DataLoader


def refused(error, words):
    return pytest.raises(error, match=words)


def test_counted_distances_say_where_there_is_no_number():
    inf, nan = math.inf, math.nan
    for dtype in (torch.float32, torch.float64):
        for rows in ([[inf, inf], [inf, inf]], [[nan, 1.0, 3.0], [1.0, 1.0, 3.0]]):
            x = torch.tensor(rows, dtype=dtype)
            assert torch.pdist(x, 0.0).isnan().all()
            assert torch.cdist(x, x, 0.0)[0, 1].isnan()
        assert torch.pdist(torch.tensor([[inf, 1.0], [1.0, 1.0]], dtype=dtype), 0.0).tolist() == [1.0]


def test_cells_name_the_weight_that_does_not_fit():
    x, h = torch.randn(4, 8), torch.randn(4, 16)
    for gates, cell in ((1, torch.rnn_tanh_cell), (1, torch.rnn_relu_cell), (3, torch.gru_cell), (4, torch.lstm_cell)):
        state, rows = ((h, h) if gates == 4 else h), gates * 16
        w, u, b = torch.randn(rows, 8), torch.randn(rows, 16), torch.randn(rows)
        for name, weights in (
            ("weight_ih", (torch.randn(rows + 1, 8), u, b, b)),
            ("weight_hh", (w, torch.randn(rows + 1, 16), b, b)),
        ):
            words = rf"{name} first dim must be {gates} \* hidden_size = {rows}, but got {rows + 1}"
            with refused(RuntimeError, words):
                cell(x, state, *weights)


def test_pivots_that_name_no_row():
    with refused(RuntimeError, r"pivots passed to lu_unpack must be between 1 and LU.size\(-2\) inclusive"):
        torch.lu_unpack(torch.randn(2, 2), torch.tensor([0, 2], dtype=torch.int32))


def test_tensordot_into_a_tensor_that_requires_grad():
    a, b = torch.randn(4, 2, requires_grad=True), torch.randn(2, 4, requires_grad=True)
    out = torch.zeros(2, 2, requires_grad=True)
    with refused(RuntimeError, "the 'out' tensor was specified and requires gradients"):
        torch.tensordot(a, b, dims=([1], [0]), out=out)
    assert out.shape == (2, 2)
    with torch.no_grad():
        assert torch.tensordot(a, b, dims=([1], [0]), out=out) is out
    assert torch.equal(out, a @ b)
    with pytest.warns(UserWarning, match="An output with one or more elements was resized"):
        torch.tensordot(a.detach(), b.detach(), dims=([1], [0]), out=torch.zeros(2, 2))
    assert torch.ones(2, 3).is_contiguous(memory_format=torch.preserve_format)
    assert not torch.ones(2, 3).t().is_contiguous(memory_format=torch.preserve_format)


LAYOUTS = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


def sparse(x, layout):
    return x.to_sparse(layout=layout, blocksize=(2, 2) if layout in LAYOUTS[3:] else None)


def test_sparse_tensors_come_from_the_loader_s_processes():
    x = torch.zeros(64, 64)
    x[1, 2], x[5, 7] = 3, 8
    data = [sparse(x, layout) for layout in LAYOUTS]
    data.append(torch.quantize_per_tensor(x, 0.1, 3, torch.quint8))
    data += [torch.nested.nested_tensor([x[:2], x[:5]], layout=layout) for layout in (torch.strided, torch.jagged)]
    for want, got in zip(data, DataLoader(data, batch_size=None, num_workers=1), strict=True):
        assert got.layout is want.layout
        if want.is_nested:
            assert all(torch.equal(a, b) for a, b in zip(want.unbind(), got.unbind(), strict=True))
        else:
            whole = torch.Tensor.dequantize if want.is_quantized else torch.Tensor.to_dense
            assert torch.equal(whole(want), whole(got))


def test_a_sparse_copy_has_the_gradient_of_its_source():
    target = torch.sparse_coo_tensor([[0, 1], [1, 2]], [1.0, 2.0], (3, 3))
    source = torch.sparse_coo_tensor([[0, 2], [1, 2]], [1.0, 5.0], (3, 3)).requires_grad_()
    target.copy_(source)
    (target * 2).backward(source.detach().clone())
    assert source.grad.to_dense().tolist() == [[0, 2, 0], [0, 0, 0], [0, 0, 10]]
    with refused(RuntimeError, r"conversion from Sparse to Sparse with sparse_dim argument !=self.sparse_dim\(\)"):
        torch.eye(3).to_sparse(1).to_sparse(2)


def test_lists_are_changed_in_place_where_the_result_fits():
    whole, truth = [torch.ones(2, dtype=torch.int32)], [torch.ones(2, dtype=torch.bool)]
    for name in ("minimum", "maximum", "clamp_min", "clamp_max"):
        change = getattr(torch, f"_foreach_{name}_")
        for tensors, bound in ((whole, 1.5), (whole, [1.5]), (truth, 1), (truth, [torch.ones(2, dtype=torch.int64)])):
            with refused(RuntimeError, "result type .* can't be cast to the desired output type"):
                change(tensors, bound)
        want = [1, 2] if name in ("minimum", "clamp_max") else [2, 3]
        assert change([torch.tensor([1.0, 3.0])], 2)[0].tolist() == want
    assert whole[0].tolist() == [1, 1]
    a, b = torch.arange(4.0).view(2, 2), torch.ones(2, 3)
    assert [x.tolist() for x in torch._foreach_mm([a, a], [b, a])] == [(a @ b).tolist(), (a @ a).tolist()]


def test_arguments_of_another_kind():
    for wrong in (torch.float32, 1, None, int):
        with refused(TypeError, "only floating-point types are supported as the default type"):
            torch.set_default_tensor_type(wrong)
    assert torch.get_default_dtype() is torch.float32
    numpy = pytest.importorskip("numpy")
    with refused(RuntimeError, "can't alias NumPy scalars"):
        torch.asarray(numpy.float64(0.5), copy=False)
    assert torch.asarray(numpy.float64(0.5)).item() == 0.5
    for name in ("hann_window", "hamming_window", "bartlett_window", "blackman_window", "kaiser_window"):
        with refused(RuntimeError, f"{name} is not implemented for sparse types"):
            getattr(torch, name)(3, layout=torch.sparse_coo)


def test_names_of_the_engine_that_copies_of_torchs_functions_import():
    from mica._C import _add_docstr, _infer_size

    assert _infer_size(torch.Size([2, 1]), torch.Size([3])) == torch.Size([2, 3])
    with refused(RuntimeError, "broadcast"):
        _infer_size(torch.Size([2]), torch.Size([3]))
    assert _add_docstr(torch.add, "text") is torch.add
    assert torch.functional.F is torch.nn.functional


def test_words_of_what_is_refused():
    x = torch.arange(3.0)
    for out in (torch.zeros(6, dtype=torch.uint8), torch.zeros(6, dtype=torch.int64)):
        with refused(TypeError, r"torch.cat\(\): input types can't be cast to the desired output type"):
            torch.cat([x, x], out=out)
    with refused(BufferError, "types are not supported by dlpack"):
        torch.from_dlpack(torch.quantize_per_tensor(x, 0.1, 10, torch.qint8))
    with refused(IndexError, "at least one index must be provided"):
        torch.ops.aten.index.Tensor(x, [])
    for dims in (1, 2, 3):
        with refused(RuntimeError, "expects a tensor with <= 2 sparse and 0 dense dimensions"):
            torch.rand(2, 2, 2).to_sparse(dims).t()


def test_methods_of_classes_are_safe_globals():
    data = {"a": datetime.datetime(2025, 1, 1, 12, tzinfo=zoneinfo.ZoneInfo("UTC"))}
    file = io.BytesIO()
    torch.save(data, file)
    safe = [datetime.datetime, getattr, zoneinfo.ZoneInfo]
    file.seek(0)
    with torch.serialization.safe_globals(safe), refused(pickle.UnpicklingError, "_unpickle.*zoneinfo.ZoneInfo"):
        torch.load(file)
    file.seek(0)
    with torch.serialization.safe_globals([*safe, zoneinfo.ZoneInfo._unpickle]):
        assert torch.load(file) == data


def test_a_number_may_be_one_of_those_that_it_replaces():
    for where, which in ((1, (1, 0)), (slice(None), (0, 0)), (1, (1, slice(0, 1)))):
        x = torch.arange(12).view(3, 4)
        expected = x.clone()
        expected[where] = x[which].item()
        x[where] = x[which]
        assert torch.equal(x, expected)
    with refused(RuntimeError, "refer to a single memory location"):
        x[0, 1:] = x[0, :-1]


def test_autocast_decorates_functions():
    with refused(TypeError, r"autocast\(\)\(func\) requires a callable, but got Tensor"):
        torch.autocast("cpu")(torch.ones(1))


def test_a_generator_keeps_its_device():
    @set_device("meta")
    def made():
        yield torch.empty(3)
        yield torch.empty(3)

    assert [x.device.type for x in made()] == ["meta", "meta"]
    assert torch.empty(1).device.type == "cpu"


def test_tensors_of_a_class_with_a_dispatch():
    class Wrapper(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            return NotImplemented

    made = torch.Tensor._make_wrapper_subclass(Wrapper, (2, 3), strides=(1, 2), storage_offset=12)
    assert (made.storage_offset(), made.stride(), made.shape) == (12, (1, 2), (2, 3))
    like = torch._C._dispatch_isTensorSubclassLike
    assert like(made) and not like(torch.ones(1))
    keys = [torch._C.DispatchKeySet(torch._C.DispatchKey.AutogradCPU) for _ in range(2)]
    assert keys[0] == keys[1] and len(set(keys)) == 1 and keys[0] != keys[0].add(torch._C.DispatchKey.CPU)
    assert pickle.loads(pickle.dumps(keys[0])) == keys[0]


def test_numbers_that_sixteen_bits_cannot_hold():
    inf = math.inf
    for dtype, number in ((torch.float16, -1e9), (torch.float16, 65520), (torch.bfloat16, 1e39)):
        expected = math.copysign(inf, number)
        x = torch.ones(3, dtype=dtype)
        x[1:] = number
        assert x.tolist() == [1, expected, expected]
        x[torch.tensor([True, False, False])] = number
        x[torch.tensor([1])] = number
        assert x.tolist() == [expected] * 3
        assert (
            torch.scalar_tensor(number, dtype=dtype).item() == torch.full((1,), number, dtype=dtype).item() == expected
        )
        picked = torch.where(torch.tensor([True, False]), number, torch.ones(2, dtype=dtype))
        assert picked.tolist() == [expected, 1] and picked.dtype is dtype
        if dtype is torch.float16:
            with refused(RuntimeError, "value cannot be converted to type"):
                x.fill_(number)
    for dtype in (torch.float16, torch.bfloat16):
        with refused(RuntimeError, "value cannot be converted to type"):
            torch.full((1,), 1j, dtype=dtype)
        with refused(RuntimeError, "value cannot be converted to type"):
            torch.ones(3, dtype=dtype).fill_(1j)
    x = torch.ones(2, dtype=torch.float32)
    with refused(RuntimeError, "value cannot be converted to type"):
        x[0] = 1e39
