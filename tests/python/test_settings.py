"""Settings of the process."""

import warnings

import mica
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
    assert len(warnings_of(3)) <= 1  # none where somebody has been warned before
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
