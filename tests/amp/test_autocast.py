"""Autocast: which operations are cast to which dtype, nested blocks, decorators, threads, gradients."""

import threading

import mica
import pytest
from mica.amp import autocast, custom_bwd, custom_fwd


def matrix(dtype=mica.float32):
    return mica.randn(4, 4).to(dtype)


def test_products_run_in_the_short_dtype():
    a, b = matrix(), matrix()
    with autocast("cpu"):
        assert (a @ b).dtype == mica.bfloat16
        assert mica.einsum("ij,jk->ik", a, b).dtype == mica.bfloat16
        assert mica.nn.functional.linear(a, b).dtype == mica.bfloat16
        assert (a + b).dtype == mica.float32
    assert (a @ b).dtype == mica.float32


def test_einsum_without_a_sum_is_left_as_it_is():
    positions, frequencies = mica.arange(300.0), mica.rand(4)
    with autocast("cpu"):
        angles = mica.einsum("i,j->ij", positions, frequencies)
        scaled = mica.einsum("bnd,bn->bnd", mica.randn(2, 3, 4), mica.randn(2, 3))
        assert mica.einsum("ij,kj->ik", mica.ones(3, 2), mica.ones(4, 2)).dtype == mica.bfloat16
        assert mica.einsum("ij,kj->ik", mica.ones(3, 1), mica.ones(4, 1)).dtype == mica.float32
    assert mica.equal(angles, positions[:, None] * frequencies), "rotary embeddings need their digits"
    assert scaled.dtype == mica.float32


def test_tensordot_to_one_number_is_a_dot_product():
    a = mica.randn(3, 4)
    with autocast("cpu"):
        assert mica.equal(mica.tensordot(a, a, 2), mica.dot(a.flatten(), a.flatten()))
        assert mica.tensordot(a, a.t(), 1).dtype == mica.bfloat16


def test_the_result_is_that_of_cast_inputs():
    a, b = matrix(), matrix()
    with autocast("cpu"):
        got = a @ b
    assert mica.equal(got, a.bfloat16() @ b.bfloat16())


def test_float16_and_float64():
    a = matrix()
    with autocast("cpu", dtype=mica.float16):
        assert (a @ a).dtype == mica.float16
        assert (a.double() @ a.double()).dtype == mica.float64, "float64 is left alone"


def test_losses_run_in_float32():
    a = matrix(mica.bfloat16)
    with autocast("cpu"):
        assert mica.nn.functional.mse_loss(a, a * 2).dtype == mica.float32
        assert a.prod().dtype == mica.float32


def test_joining_takes_the_widest():
    with autocast("cpu"):
        assert mica.cat([matrix(mica.bfloat16), matrix()]).dtype == mica.float32
        assert mica.stack([matrix(mica.bfloat16), matrix(mica.bfloat16)]).dtype == mica.bfloat16


def test_nesting_and_switching_off():
    a = matrix()
    with autocast("cpu"):
        with autocast("cpu", enabled=False):
            assert (a @ a).dtype == mica.float32
            assert not mica.is_autocast_enabled("cpu")
        assert (a @ a).dtype == mica.bfloat16
        with autocast("cpu", dtype=mica.float16):
            assert mica.get_autocast_dtype("cpu") == mica.float16
        assert mica.get_autocast_dtype("cpu") == mica.bfloat16


def test_arguments_by_name():
    mica.set_autocast_enabled(device_type="cpu", enabled=True)
    assert mica.is_autocast_enabled(device_type="cpu") and not mica.is_autocast_enabled()
    mica.set_autocast_enabled("cpu", False)
    mica.set_autocast_dtype(device_type="cpu", dtype=mica.float16)
    assert mica.get_autocast_dtype(device_type="cpu") == mica.float16
    mica.set_autocast_dtype("cpu", mica.bfloat16)
    with pytest.raises(TypeError, match="get_autocast_dtype\\(\\): argument 'device_type' .* must be str, not int"):
        mica.get_autocast_dtype(3)
    with pytest.raises(RuntimeError, match="Invalid device string: 'no device'"):
        mica.is_autocast_enabled("no device")


def test_an_exception_restores_the_mode():
    with pytest.raises(KeyError), autocast("cpu"):
        raise KeyError
    assert not mica.is_autocast_enabled("cpu")


def test_decorator_and_threads():
    a = matrix()

    @autocast("cpu")
    def product():
        return a @ a

    assert product().dtype == mica.bfloat16
    seen = []
    with autocast("cpu"):
        thread = threading.Thread(target=lambda: seen.append((a @ a).dtype))
        thread.start()
        thread.join()
    assert seen == [mica.float32], "the mode belongs to a thread"


def test_gradients_come_in_the_parameters_dtype_and_casts_are_kept():
    weight = matrix().requires_grad_()
    x = matrix()
    with autocast("cpu"):
        y = (x @ weight) @ weight
        first = y.grad_fn.next_functions[1][0]
        second = y.grad_fn.next_functions[0][0].next_functions[1][0]
    assert first is second, "one cast of the weight serves both products"
    y.float().sum().backward()
    assert weight.grad.dtype == mica.float32
    short = weight.detach().bfloat16().requires_grad_()
    ((x.bfloat16() @ short) @ short).float().sum().backward()
    mica.testing.assert_close(weight.grad, short.grad.float())


def test_a_cast_without_gradient_is_not_kept():
    weight = matrix().requires_grad_()
    x = matrix()
    with autocast("cpu"):
        with mica.no_grad():
            x @ weight
        y = x @ weight
    assert y.requires_grad


def test_cache_can_be_switched_off():
    weight = matrix().requires_grad_()
    with autocast("cpu", cache_enabled=False):
        assert not mica.is_autocast_cache_enabled()
        y = (weight @ weight.detach()) @ weight
    assert y.requires_grad
    assert mica.is_autocast_cache_enabled()


class Scaled(mica.autograd.Function):
    @staticmethod
    @custom_fwd(device_type="cpu", cast_inputs=mica.float32)
    def forward(ctx, x):
        ctx.seen = (x.dtype, mica.is_autocast_enabled("cpu"))
        return x * 2

    @staticmethod
    @custom_bwd(device_type="cpu")
    def backward(ctx, grad):
        assert not mica.is_autocast_enabled("cpu")
        return grad * 2


class Product(mica.autograd.Function):
    @staticmethod
    @custom_fwd(device_type="cpu")
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x @ x

    @staticmethod
    @custom_bwd(device_type="cpu")
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        product = grad @ x.t()
        assert product.dtype == mica.bfloat16, "the backward runs under the forward's autocast"
        return product.float()


def test_custom_functions():
    x = matrix(mica.bfloat16).requires_grad_()
    with autocast("cpu"):
        y = Scaled.apply(x)
    assert y.dtype == mica.float32
    assert y.grad_fn.seen == (mica.float32, False)
    y.sum().backward()
    assert mica.equal(x.grad, mica.full_like(x, 2))
    z = matrix().requires_grad_()
    with autocast("cpu"):
        out = Product.apply(z)
    out.float().sum().backward()
    assert z.grad.dtype == mica.float32


def test_bad_arguments():
    with pytest.raises(ValueError, match="Expected `device_type` of type `str`"):
        autocast(mica.device("cpu"))
    with pytest.raises(RuntimeError, match="unsupported autocast device_type 'meta'"):
        autocast("meta")
    with pytest.warns(UserWarning, match="In CPU autocast, but the target dtype is not supported"):
        assert not autocast("cpu", dtype=mica.float32)._enabled


def test_older_names():
    assert not mica.is_autocast_cpu_enabled()
    with pytest.warns(FutureWarning, match="deprecated"), mica.cpu.amp.autocast():
        assert mica.is_autocast_cpu_enabled()
        assert mica.get_autocast_cpu_dtype() == mica.bfloat16
