"""FakeTensorMode: tensors with a device and without data."""

import mica
import pytest
from mica import nn
from mica._subclasses import FakeTensor, FakeTensorMode
from mica._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorDeviceMismatchError,
    is_fake,
    maybe_get_fake_mode,
)
from mica.fx.experimental.proxy_tensor import make_fx


def test_a_model_without_memory():
    with FakeTensorMode() as mode:
        model = nn.Sequential(nn.Linear(100_000, 100_000), nn.ReLU(), nn.Linear(100_000, 10))
        x = mica.randn(4, 100_000)
        y = model(x)
        y.sum().backward()
    assert isinstance(y, FakeTensor) and y.shape == (4, 10) and y.device == mica.device("cpu")
    weight = model[0].weight
    assert isinstance(weight, FakeTensor) and isinstance(weight, nn.Parameter) and weight.requires_grad
    assert weight.grad.shape == (100_000, 100_000)
    assert maybe_get_fake_mode(y) is mode and is_fake(y) and not is_fake(mica.ones(1))
    assert repr(x) == "FakeTensor(..., size=(4, 100000))"
    assert "grad_fn=<AddmmBackward0>" in repr(y)


def test_devices_are_remembered():
    with FakeTensorMode():
        x = mica.empty(2, 3, device="cuda")
        assert x.device == mica.device("cuda", 0) and x.is_cuda and not x.is_meta
        y = (x + 1).sum(0)
        assert y.device == x.device and mica.zeros_like(x).device == x.device
        assert x.to("cpu").device == mica.device("cpu") and x.cpu().double().dtype == mica.float64
        assert mica.ones(3).cuda().device == x.device
        with pytest.raises(FakeTensorDeviceMismatchError, match="found at least two devices, cuda:0 and cpu!"):
            x + mica.ones(3)
        assert (x * mica.tensor(2.0)).device == x.device, "a number may be anywhere"


def test_tensors_of_the_program():
    real = mica.ones(2, 3, requires_grad=True)
    mode = FakeTensorMode()
    fake = mode.from_tensor(real)
    assert fake is mode.from_tensor(real) and fake.shape == real.shape and fake.requires_grad
    # Outside of the block too, what is made of a fake tensor is one.
    assert isinstance(fake * 2, FakeTensor) and isinstance(fake.detach(), FakeTensor)
    assert isinstance(mica.cat([fake, fake]), FakeTensor) and (fake @ fake.T).shape == (2, 2)
    with mode, pytest.raises(AssertionError, match="Please convert all Tensors to FakeTensors first"):
        real + 1
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert isinstance(real + 1, FakeTensor)


def test_numbers_are_refused():
    with FakeTensorMode():
        x = mica.ones(3)
        with pytest.raises(DataDependentOutputException, match="aten._local_scalar_dense.default"):
            x[0].item()
        with pytest.raises(DataDependentOutputException):
            bool(x[0] > 0)
        with pytest.raises(DataDependentOutputException):
            x.tolist()
        with pytest.raises(DynamicOutputShapeException, match="aten.nonzero.default"):
            x.nonzero()
        assert isinstance(mica.tensor([1.0, 2.0]), FakeTensor)
    assert mica.ones(2).tolist() == [1, 1]


FORMATS = [
    lambda x: x.to(memory_format=mica.channels_last),
    lambda x: x.to(memory_format=mica.contiguous_format),
    lambda x: x.to(mica.float64, memory_format=mica.channels_last),
    lambda x: x.to(mica.float64, memory_format=mica.contiguous_format),
    lambda x: x.to(mica.float64, memory_format=mica.preserve_format),
    lambda x: x.to(mica.float64),
]


@pytest.mark.parametrize("function", FORMATS)
def test_conversions_keep_to_memory_formats(function):
    plain = mica.randn(2, 3, 4, 4)
    for real in (plain, plain.to(memory_format=mica.channels_last)):
        mode = FakeTensorMode()
        fake = mode.from_tensor(real)
        made = function(fake)
        assert made.stride() == function(real).stride() and (made is fake) == (function(real) is real)
        with mode:
            assert function(fake).stride() == made.stride()


def test_conversions_of_open_sizes_are_open():
    from mica.fx.experimental.symbolic_shapes import ShapeEnv

    fake = FakeTensorMode(shape_env=ShapeEnv()).from_tensor(mica.randn(2, 3, 4, 5))
    for made in (fake.to(mica.float64), fake.cpu(), fake.to("cuda"), fake.to(memory_format=mica.channels_last)):
        assert made.shape == fake.shape
    assert str(fake.to(memory_format=mica.channels_last).stride(3)) == "s1"


def test_open_sizes_by_operators():
    from mica.fx.experimental.symbolic_shapes import ShapeEnv

    mode, real = FakeTensorMode(shape_env=ShapeEnv()), mica.randn(6, 4)
    fake = mode.from_tensor(real)
    aten = mica.ops.aten
    for _ in range(2):
        assert str(aten.sym_size.int(fake, 0)) == "s0" and str(aten.sym_stride.int(fake, 0)) == "s1"
        assert str(aten.sym_numel.default(fake)) == str(mica.numel(fake)) == "s0*s1"
        mode.__enter__()
    mode.__exit__(None, None, None)
    mode.__exit__(None, None, None)
    assert (
        aten.sym_size.int(real, 1) == 4
        and aten.sym_stride.default(real) == (4, 1)
        and aten.sym_size.default(real) == (6, 4)
    )


def test_constants_keep_their_number():
    """Each answer is torch 2.13's."""
    with FakeTensorMode():
        x = mica.tensor(4.0)
        assert (x.item(), float(x), int(x), bool(x), (x * 2 + 1).item()) == (4.0, 4.0, 4, True, 9.0)
        y = x.add_(1)
        assert x.item() == y.item() == 5.0 and mica.tensor(3) > 2
        x = mica.tensor([4.0])
        x[:].mul_(3)
        assert x.item() == 12.0
        assert mica.tensor([1, 2]).constant is None and x.expand(4).constant is None


def test_what_is_written_over_constants_is_not_known():
    def numbers(*tensors):
        return [tensor.constant for tensor in tensors]

    with FakeTensorMode():
        x, unknown = mica.tensor([1.0]), mica.rand(1)
        y = x[:]
        y.add_(unknown)
        assert numbers(x, y, mica.tensor(1.0) + unknown) == [None] * 3
        with pytest.raises(DataDependentOutputException):
            x.item()
        x = mica.tensor([1])
        x.expand(4)[0] = 1
        assert x.constant is None
        x = mica.tensor([1])
        x.resize_(2)
        assert x.constant is None and x.shape == (2,)
        x = mica.tensor(1.0)
        x.uniform_()
        assert x.constant is None


@pytest.mark.parametrize("tracing_mode", ["fake", "symbolic"])
def test_constants_in_graphs_of_aten(tracing_mode):
    """A tensor that the function makes is a constant of the graph, and its number is known; as in torch 2.13."""

    def f(x):
        scale, three = mica.tensor(2.0), mica.tensor([1.0, 2.0, 3.0])
        scale += 1
        three += 1
        return x * scale.item() + three * scale

    graph = make_fx(f, tracing_mode=tracing_mode)(mica.ones(3))
    assert "lift_fresh_copy" in graph.code and "_local_scalar_dense" not in graph.code
    for _ in range(2):
        assert graph(mica.ones(3)).tolist() == f(mica.ones(3)).tolist() == [9, 12, 15]


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[5:15],
        lambda x: x[:3],
        lambda x: x.view(4, 5)[1:3, 2:4],
        lambda x: x.view(4, 5)[1:3, 2:4].t(),
    ],
)
def test_views_lie_where_they_do_in_all_of_their_memory(view):
    x = view(mica.arange(20.0))
    fake = FakeTensorMode().from_tensor(x)
    assert fake.stride() == x.stride() and fake.storage_offset() == x.storage_offset()
    assert fake.untyped_storage().nbytes() == 80
    function = lambda x: x.as_strided((2, 2), (1, 2), 10) + 1  # noqa: E731
    for compiled in (
        make_fx(function, tracing_mode="fake")(x),
        mica.compile(function, backend=lambda graph, inputs: graph, fullgraph=True),
    ):
        assert mica.equal(compiled(x), function(x))
