"""Settings of the process."""

import concurrent.futures
import warnings

import mica
import numpy as np
import pytest


@pytest.fixture
def warn_once_again():
    yield
    mica.set_warn_always(False)


def warnings_of(calls):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(calls):
            mica.ones(2, 2, 2).T  # noqa: B018 - deprecated for tensors that are no matrices
    return [str(each.message) for each in caught]


def test_set_warn_always(warn_once_again):
    assert mica.is_warn_always_enabled() is False
    assert len(warnings_of(3)) <= 1  # no warning where the process was warned before
    assert warnings_of(3) == []
    mica.set_warn_always(True)
    assert mica.is_warn_always_enabled() is True
    always = warnings_of(3)
    assert len(always) == 3 and all("The use of `x.T` on tensors of dimension other than 2" in each for each in always)
    mica.set_warn_always(False)
    assert warnings_of(3) == []
    with pytest.raises(TypeError, match="setWarnOnlyOnce expects a bool, but got int"):
        mica.set_warn_always(1)


def test_set_warn_always_for_warnings_from_python(warn_once_again):
    mica.set_warn_always(True)
    for _ in range(2):
        with pytest.warns(UserWarning, match="torch.meshgrid: in an upcoming release"):
            mica.meshgrid(mica.ones(2), mica.ones(3))
    mica.set_warn_always(False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        mica.meshgrid(mica.ones(2), mica.ones(3))
    assert caught == []


@pytest.fixture
def meta_by_default():
    mica.set_default_device("meta")
    yield
    mica.set_default_device(None)


def test_what_computes_on_the_cpu_is_not_led_astray_by_the_default_device(meta_by_default):
    state = mica.get_rng_state()
    assert state.device.type == "cpu" and state.sum().item() > 0
    assert mica.Generator().get_state().device.type == "cpu"
    x = mica.ones(6, device="cpu", requires_grad=True)
    (grad,) = mica.autograd.grad(x.as_strided((3, 3), (1, 1)).sum(), x)
    assert grad.tolist() == [1, 2, 3, 2, 1, 0]
    assert mica.bincount(mica.tensor([0, 2], dtype=mica.uint8, device="cpu")).tolist() == [1, 0, 1]
    assert mica.linspace(0, 1, 3, dtype=mica.int64, device="cpu").tolist() == [0, 0, 1]
    drawn = mica.nn.init.trunc_normal_(mica.empty(8, device="cpu"), a=-0.1, b=0.1)
    assert drawn.abs().max().item() <= 0.1
    quantized = mica.quantize_per_tensor(mica.ones(2, device="cpu"), 0.5, 0, mica.qint8)
    assert quantized.int_repr().tolist() == [2, 2]


def test_seeds_that_are_too_large():
    with pytest.raises(ValueError, match="Overflow when unpacking long long"):
        mica.manual_seed(2**70)


# Recorded from torch 2.13 under `with torch.device("meta")`.
@pytest.mark.parametrize(
    ("make", "device"),
    [
        (lambda: mica.Tensor(2, 3), "cpu"),
        (lambda: mica.Tensor([1.0]), "cpu"),
        (lambda: mica.FloatTensor(2), "cpu"),
        (lambda: mica.normal(0.0, 1.0, size=(3,)), "cpu"),
        (lambda: mica.from_numpy(np.ones(2)), "cpu"),
        (lambda: mica.frombuffer(bytearray(8), dtype=mica.int32), "cpu"),
        (lambda: mica.quasirandom.SobolEngine(2).draw(2), "cpu"),
        (lambda: mica.quasirandom.SobolEngine(2, scramble=True, seed=1).draw(2), "cpu"),
        (lambda: mica.as_tensor(np.ones(2)), "meta"),
        (lambda: mica.as_tensor(mica.ones(2, device="cpu")), "meta"),
        (lambda: mica.asarray(np.ones(2)), "meta"),
        (lambda: mica.asarray(mica.ones(2, device="cpu")), "meta"),
        (lambda: mica.tensor(mica.ones(2, device="cpu")), "meta"),
        (lambda: mica.tensor([1.0]), "meta"),
        (lambda: mica.tril_indices(3, 4, 1), "meta"),
        (lambda: mica.triu_indices(3, 4, -1), "meta"),
    ],
)
@pytest.mark.filterwarnings("ignore:To copy construct")
def test_which_makers_know_the_chosen_device(make, device):
    with mica.device("meta"):
        assert make().device.type == device
    mica.set_default_device("meta")
    try:
        assert make().device.type == device
        with mica.device("cpu"):
            assert make().device.type == "cpu"
    finally:
        mica.set_default_device(None)
    assert make().device.type == "cpu"


def test_the_device_of_a_default_tensor_type_moves_no_tensor():
    x = mica.ones(2, device="meta")
    assert mica.as_tensor(x).device.type == mica.asarray(x).device.type == "meta"
    with mica.device("cpu"), pytest.raises(NotImplementedError):  # there is nothing to copy
        mica.as_tensor(x)


@pytest.mark.parametrize("offset", range(-5, 6))
def test_indices_of_triangles_have_their_size_on_meta(offset):
    for make in (mica.tril_indices, mica.triu_indices):
        for shape in ((3, 4), (4, 3), (0, 3), (3, 0)):
            assert make(*shape, offset, device="meta").shape == make(*shape, offset).shape


def test_a_thread_chooses_a_device_for_itself_alone():
    def devices():
        return mica.ones(1).device.type, mica.get_default_device().type

    with mica.device("meta"), concurrent.futures.ThreadPoolExecutor(1) as other:
        assert devices() == ("meta", "meta")
        assert other.submit(devices).result() == ("cpu", "cpu")
        other.submit(mica.set_default_device, "meta").result()
        with mica.device("cpu"):
            assert devices() == ("cpu", "cpu") and other.submit(devices).result() == ("meta", "meta")


def test_a_backward_pass_that_goes_on_in_a_fresh_thread_keeps_the_chosen_device():
    seen = []

    class Nested(mica.autograd.Function):
        @staticmethod
        def forward(ctx, x, depth):
            ctx.depth = depth
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            seen.append(mica.ones(1).device.type)
            if ctx.depth:
                with mica.enable_grad():
                    x = mica.ones(1, device="cpu", requires_grad=True)
                    Nested.apply(x, ctx.depth - 1).sum().backward()
            return grad, None

    x = mica.ones(1, requires_grad=True)
    y = Nested.apply(x, 100).sum()
    with mica.device("meta"):
        y.backward(mica.ones((), device="cpu"))
    assert seen == ["meta"] * 101


def test_rrelu_has_a_shape_on_meta():
    assert mica.nn.functional.rrelu(mica.ones(3, device="meta"), training=True).shape == (3,)
