"""Numbers that torch's own tests found wrong; what is expected was recorded from torch 2.13."""

import math

import mica as torch
import pytest

NAN = math.nan
LARGEST, LEAST = 2**63 - 1, -(2**63)


@pytest.mark.parametrize("name, kept", [("triu", LEAST), ("tril", LARGEST), ("triu", LEAST + 1), ("tril", LARGEST - 1)])
def test_a_triangle_that_is_all(name, kept):
    x = torch.ones(2, 3)
    assert torch.equal(getattr(x, name)(kept), x)
    assert torch.equal(getattr(torch.ones(1, 1).expand(2, 3), name)(kept), x)
    assert getattr(x, name)(-kept - 1 if kept < 0 else -kept).sum() == 0


def test_index_reduce_rounds_sixteen_bits_after_each_value():
    source = (torch.arange(24.0).reshape(6, 4) * 0.37 - 4).to(torch.bfloat16)
    index, self = torch.tensor([0, 1, 1, 2, 0, 1]), torch.full((3, 4), 1.1).to(torch.bfloat16)
    got = self.index_reduce(0, index, source, "mean", include_self=True)
    assert got[0].tolist() == [-0.328125, -0.078125, 0.1669921875, 0.4140625]
    got = self.index_reduce(0, index, source, "prod", include_self=False)
    assert got[1].tolist() == [8.875, 5.4375, 2.203125, -0.44140625]


def test_addmm_activation_has_the_exact_gelu():
    m1, m2 = torch.eye(2) * 0.7, torch.tensor([[1.0, 2.0], [-1.0, 0.5]])
    got = torch._addmm_activation(torch.tensor([0.1, -0.3]), m1, m2, use_gelu=True)
    torch.testing.assert_close(got, torch.nn.functional.gelu(torch.tensor([[0.8, 1.1], [-0.6, 0.05]])))


def test_numbers_beyond_a_dtype_are_infinite_in_tensor():
    assert torch.tensor(1e39).item() == math.inf
    assert torch.tensor(-1e39, dtype=torch.bfloat16).item() == -math.inf
    assert torch.tensor([1e6], dtype=torch.float16).tolist() == [math.inf]
    assert torch.tensor(-501 - 4988429.2j, dtype=torch.complex32).item() == complex(-501, -math.inf)
    assert torch.tensor(1e6, dtype=torch.float8_e4m3fn).item() == 448
    assert torch.full((2,), 1e39, dtype=torch.bfloat16).tolist() == [math.inf] * 2
    assert torch.full((2,), 1e6, dtype=torch.complex32).tolist() == [complex(math.inf, 0)] * 2
    with pytest.raises(RuntimeError, match="without overflow"):
        torch.full((2,), 1e6, dtype=torch.float16)
    with pytest.raises(RuntimeError, match="without overflow"):
        torch.tensor(300, dtype=torch.int8)
    with pytest.raises(TypeError, match="must be real number, not complex"):
        torch.tensor(1j, dtype=torch.float32)


def test_unique_rows_with_nan_lie_as_torch_leaves_them():
    x = torch.tensor([[1.0, NAN], [1.0, NAN], [0.0, 2.0], [NAN, 1.0], [NAN, 1.0]])
    values, inverse, counts = torch.unique(x, dim=0, return_inverse=True, return_counts=True)
    assert inverse.tolist() == [2, 3, 1, 0, 4] and counts.tolist() == [1] * 5
    torch.testing.assert_close(values, x[[3, 2, 0, 1, 4]], equal_nan=True)
    values, inverse = torch.unique(torch.tensor([NAN, 1.0, NAN, 0.0]), dim=0, return_inverse=True)
    assert inverse.tolist() == [0, 1, 2, 3]
    many = torch.full((100, 2), NAN)
    assert torch.unique(many, dim=0).shape == (100, 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int16, torch.uint8, torch.bool])
@pytest.mark.parametrize(("rows", "columns"), [(10, 3), (10, 12), (50, 12)])
def test_unique_rows_of_few_and_many_columns(dtype, rows, columns):
    numbers = [[r * (c + 3) // 4 % 2 for c in range(columns)] for r in range(rows)]
    values, inverse, counts = torch.unique(
        torch.tensor(numbers, dtype=dtype), dim=0, return_inverse=True, return_counts=True
    )
    distinct = sorted({tuple(row) for row in numbers})
    assert [tuple(row) for row in values.tolist()] == distinct
    assert inverse.tolist() == [distinct.index(tuple(row)) for row in numbers]
    assert counts.tolist() == [sum(tuple(row) == each for row in numbers) for each in distinct]


@pytest.mark.parametrize("columns", [2, 12])
def test_unique_rows_of_complex_numbers_are_refused(columns):
    with pytest.raises(RuntimeError, match="complex"):
        torch.unique(torch.zeros(3, columns, dtype=torch.complex64), dim=0)


def test_the_old_constructors_take_names():
    x = torch.ones(1, dtype=torch.float64)
    assert x.new(size=(3, 4)).shape == (3, 4) and x.new(size=torch.Size((3, 4)), device="cpu").dtype == torch.float64
    assert x.new(data=[1, 2]).tolist() == [1, 2] and x.new(other=x).tolist() == [1]
    assert torch.Tensor(size=[2, 3]).shape == (2, 3)
    with pytest.raises(TypeError, match="invalid combination"):
        x.new(size=(3, 4), dtype=torch.int)
    with pytest.raises(TypeError, match="must be tuple of ints"):
        x.new(size=3)


@pytest.fixture
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def test_deterministic_mode_fills_memory_without_a_value(deterministic):
    x = torch.ones(2)
    made = [torch.empty(3), torch.empty_like(x), torch.empty_strided((2, 2), (1, 2)), x.new_empty(2), torch.Tensor(2)]
    assert all(each.isnan().all() for each in made)
    assert torch.empty(3, dtype=torch.complex64).isnan().all()
    assert torch.empty(2, dtype=torch.int16).tolist() == [32767] * 2
    assert torch.empty(2, dtype=torch.uint64).tolist() == [2**64 - 1] * 2
    assert torch.empty(2, dtype=torch.bool).tolist() == [True] * 2
    grown = torch.ones(2).resize_(4)
    assert grown[:2].tolist() == [1, 1] and grown[2:].isnan().all()
    torch.utils.deterministic.fill_uninitialized_memory = False
    try:
        assert not torch.zeros(8).resize_(8).isnan().any()
    finally:
        torch.utils.deterministic.fill_uninitialized_memory = True


def test_strides_of_dimensions_of_size_one():
    for fmt in (torch.channels_last, torch.contiguous_format):
        x = torch.rand(10, 3, 1, 1).to(memory_format=fmt)
        for result in (x + torch.rand(3, 1, 1), torch.rand(3, 1, 1) + x, x * 5):
            assert result.stride() == x.stride()
    x = torch.empty_strided((4, 3, 1), (1, 4, 77)).fill_(1)
    assert (x * x).stride() == x.sqrt().stride() == (1, 4, 77) and (x * 2).stride() == (1, 4, 12)
    y = torch.empty_strided((3, 1, 4), (4, 9, 1)).fill_(1)
    assert (y * y).stride() == (4, 4, 1) and (y * 2).stride() == (4, 12, 1)
    assert torch.equal(y * 2, torch.full((3, 1, 4), 2.0))


def test_bytes_read_as_another_dtype_have_no_history():
    x = torch.ones(2, requires_grad=True)
    for dtype in (torch.int32, torch.float32, torch.complex64):
        seen = x.view(dtype)
        assert not seen.requires_grad and seen.grad_fn is None and seen._base is None
    y = torch.ones(4)
    y.view(torch.int32).zero_()
    assert y.tolist() == [0] * 4 and y._version == 1


def test_copy_takes_a_number():
    assert torch.ones(2).copy_(math.inf).tolist() == [math.inf] * 2
    assert torch.ones(2, dtype=torch.int64).copy_(3).tolist() == [3, 3]
    with pytest.raises(TypeError, match="must be Tensor, not list"):
        torch.ones(2).copy_([1, 2])


@pytest.mark.parametrize("name", ["neg", "floor", "ceil", "trunc", "round", "sign", "sgn", "abs"])
def test_results_are_not_converted_into_out(name):
    op, x = getattr(torch, name), torch.ones(2)
    with pytest.raises(RuntimeError, match="Found dtype Double but expected Float"):
        op(x, out=torch.empty(2, dtype=torch.float64))
    assert op(x, out=torch.empty(2)).shape == (2,)


def test_strides_that_a_new_tensor_cannot_have():
    for make in (torch.empty_strided, torch.ones(2).new_empty_strided):
        with pytest.raises(RuntimeError, match=r"sizes \(2\) must match dimensionality of strides \(1\)"):
            make((2, 3), (3,))
        with pytest.raises(RuntimeError, match=r"overflowed with sizes=\[2, 3\] and strides=\[-3, 1\]"):
            make((2, 3), (-3, 1))


def test_other_outs_that_torch_refuses():
    x = torch.ones(2)
    with pytest.raises(RuntimeError, match="does not support non-boolean outputs"):
        torch.signbit(x, out=torch.empty(2))
    with pytest.raises(RuntimeError, match="should be same as input"):
        torch.nan_to_num(x, out=torch.empty(2, dtype=torch.float64))
    for op in (torch.complex, torch.polar):
        with pytest.raises(RuntimeError, match="but got scalar type ComplexDouble for argument 'out'"):
            op(x, x, out=torch.empty(2, dtype=torch.complex128))
        with pytest.raises(RuntimeError, match="but got scalar type Float for argument 'out'"):
            op(x, x, out=torch.empty(2))
    with pytest.raises(RuntimeError, match="operation's result requires dtype Double"):
        torch.float_power(x, 2, out=torch.empty(2))
    with pytest.raises(RuntimeError, match="base given to float_power_ has dtype Half"):
        x.half().float_power_(2)
    with pytest.raises(RuntimeError, match="scalar type Long"):
        torch.nonzero(x, out=torch.empty(0))
    with pytest.raises(RuntimeError, match="does not support the out kwarg when as_tuple"):
        torch.nonzero(x, as_tuple=True, out=torch.empty(0, dtype=torch.long))
    assert torch.abs(torch.tensor([3 + 4j]), out=torch.empty(1)).tolist() == [5]


def test_outs_that_torch_takes():
    assert torch.bernoulli(torch.tensor([1.0, 0.0]), out=torch.empty(2, dtype=torch.int32)).tolist() == [1, 0]
    assert torch.fft.fftfreq(4, 0.5, out=torch.empty(4)).tolist() == [0, 0.5, -1, -0.5]
    assert torch.fft.rfftfreq(n=4, d=0.5, out=torch.empty(0)).tolist() == [0, 0.5, 1]
    a, b = torch.ones(17, 8, dtype=torch.int8), torch.ones(8, 8, dtype=torch.int8)
    out = torch.empty(17, 8, dtype=torch.int32)
    assert torch._int_mm(a, b, out=out) is out and out.sum() == 1088


def test_memory_that_is_read_and_written():
    x = torch.arange(6)
    for call in (lambda: x.put_(x[:2], torch.tensor([1, 2])), lambda: x.index_fill_(0, x[1:2], 1)):
        with pytest.raises(RuntimeError, match="refer to a single memory location"):
            call()
    assert x.tolist() == list(range(6))
    with pytest.warns(UserWarning, match="masked_fill_ on expanded tensors"):
        assert torch.zeros(1).expand(3).masked_fill_(torch.tensor([True, False, True]), 1.0).tolist() == [1] * 3


def test_small_refusals():
    with pytest.raises(NotImplementedError, match="\"histogramdd\" not implemented for 'Long'"):
        torch.histogram(torch.tensor([1, 2]), 2)
    with pytest.raises(RuntimeError, match="Only Tensors of floating point and complex dtype can require gradients"):
        torch.zeros(1, dtype=torch.int32, requires_grad=True)
    with pytest.raises(RuntimeError, match="map2_"):
        torch.ones(2).map2_(torch.ones(2, requires_grad=True), torch.ones(2), lambda a, b, c: a)


def test_what_is_refused_as_in_torch():
    one_hot, integers, numbers = torch.nn.functional.one_hot, torch.tensor([1, 2]), torch.tensor([0.5, 0.5])
    for classes in (-2, 0):
        with pytest.raises(RuntimeError, match="Class values must be smaller than num_classes"):
            one_hot(integers, classes)
    with pytest.raises(ValueError, match="binomial only supports floating-point dtypes for count, got: Long"):
        torch.binomial(integers, numbers)
    with pytest.raises(ValueError, match="binomial only supports floating-point dtypes for prob, got: Long"):
        torch.binomial(numbers, integers)
    for named in ({"alpha": 1j}, {"beta": 1j}):
        with pytest.raises(RuntimeError, match="value cannot be converted to type float without overflow"):
            torch.addr(torch.ones(2, 2), numbers, numbers, **named)
    assert torch.addr(torch.ones(2, 2, dtype=torch.complex64), numbers, numbers, beta=1j)[0, 0].item() == 0.25 + 1j
    with pytest.raises(RuntimeError, match="linalg.vector_norm: Expected a non-complex scalar as the order of norm"):
        torch.linalg.vector_norm(numbers, 1 + 2j)
    with pytest.raises(TypeError, match="must be real number, not str"):
        torch.zeros(2).apply_(lambda x: "text")
    with pytest.raises(TypeError, match=r"can only concatenate tuple \(not list\) to torch.Size"):
        torch.Size([1]) + [2]
    assert torch.Size([1]) + (2,) == (2,)[:0] + torch.Size([1, 2])


def test_switches_are_bools():
    for call in (
        lambda: torch.use_deterministic_algorithms(1),
        lambda: torch.use_deterministic_algorithms(True, warn_only=1),
    ):
        with pytest.raises(TypeError, match="must be bool, not int"):
            call()
    assert not torch.are_deterministic_algorithms_enabled()
    with pytest.raises(RuntimeError, match="expected a bool, but got int"):
        torch.utils.deterministic.fill_uninitialized_memory = 1
    with pytest.raises(ValueError, match="Overflow"):
        torch.set_num_interop_threads(2**65)


def test_a_batch_of_nothing_is_normalized_in_any_dtype():
    nothing = torch.zeros(0, 3, 2, 2, dtype=torch.float64)
    layer = torch.nn.BatchNorm2d(3)
    assert layer(nothing).dtype == torch.float64 and layer.eval()(nothing).shape == nothing.shape


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_storages_of_numpys_integers_and_on_meta():
    numpy = pytest.importorskip("numpy")
    assert torch.FloatStorage(numpy.int64(3)).size() == 3 and torch.FloatStorage(3).size() == 3
    with pytest.raises(TypeError, match="expected a number of elements or a sequence"):
        torch.FloatStorage(numpy.float32(3))
    assert torch.UntypedStorage([1, 2, 3], device="meta").device.type == "meta"
    assert len(torch.UntypedStorage([1, 2, 3], device="meta")) == 3
    assert torch.UntypedStorage([1, 2, 3]).tolist() == [1, 2, 3]


def test_unpooling_wants_a_window_for_each_dimension():
    for unpool, x in (
        (torch.nn.MaxUnpool2d(()), torch.ones(1, 1, 1)),
        (torch.nn.MaxUnpool3d((1, 1)), torch.ones(1, 1, 1, 1, 1)),
    ):
        with pytest.raises(RuntimeError, match="There should be exactly"):
            unpool(x, torch.zeros(x.shape, dtype=torch.int64))


def test_instances_are_normalized_beside_statistics_of_another_dtype():
    x = torch.linspace(-1, 2, 24, dtype=torch.float64).view(2, 3, 2, 2)
    layer = torch.nn.InstanceNorm2d(3, track_running_stats=True)
    got = layer(x)
    assert got.dtype == torch.float64 and layer.running_mean.dtype == torch.float32
    assert got.flatten()[:2].tolist() == pytest.approx([-1.3413254630435638, -0.44710848768118777])
    assert layer.running_mean.tolist() == pytest.approx([-0.0021739129, 0.05, 0.1021739095])
    assert layer.running_var.tolist() == pytest.approx([0.9028355479] * 3)
    with pytest.raises(RuntimeError, match="expected scalar type Double but found Float"):
        torch.nn.functional.instance_norm(x, torch.zeros(3, dtype=torch.float64), torch.ones(3))
