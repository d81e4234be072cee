"""TorchDispatchMode: what a mode sees, and what its answers do."""

import contextlib
import sys
from pathlib import Path

import mica
import pytest
from mica import nn
from mica.utils._python_dispatch import (
    BaseTorchDispatchMode,
    TorchDispatchMode,
    _disable_current_modes,
    _get_current_dispatch_mode,
    _get_current_dispatch_mode_stack,
    is_in_torch_dispatch_mode,
    return_and_correct_aliasing,
)

sys.path.insert(0, str(Path(__file__).parents[1] / "ops"))
from sample_runner import Evaluator, load_samples, tensors_of

aten = mica.ops.aten


class Log(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls.append((func, args, kwargs or {}))
        return func(*args, **(kwargs or {}))

    @property
    def names(self):
        return [str(func) for func, _, _ in self.calls]


def seen(function):
    with Log() as log:
        function()
    return log.names


def test_operators_and_their_arguments():
    x, y = mica.ones(2), mica.ones(2)
    with Log() as log:
        x + y
        mica.add(x, y, alpha=2)
        x * 2.0
        x.clamp(0, 1)
    assert [func for func, _, _ in log.calls] == [
        aten.add.Tensor,
        aten.add.Tensor,
        aten.mul.Tensor,
        aten.clamp.default,
    ]
    (_, first, none), (_, _, alpha), (_, by_number, _), (_, bounds, _) = log.calls
    assert first[0] is x and first[1] is y and none == {}, "what has its default is left out"
    assert alpha == {"alpha": 2}
    assert by_number[1] == 2.0 and bounds[1:] == (0, 1)


def test_composites_are_taken_apart_as_torch_does():
    x, w, b = mica.ones(2, 3), mica.ones(4, 3), mica.ones(4)
    assert seen(lambda: nn.functional.linear(x, w, b)) == ["aten.t.default", "aten.addmm.default"]
    assert seen(lambda: x.softmax(1)) == ["aten._softmax.default"]
    assert seen(lambda: nn.functional.relu6(x)) == ["aten.hardtanh.default"]
    image, filters = mica.ones(1, 3, 4, 4), mica.ones(2, 3, 3, 3)
    assert seen(lambda: nn.functional.conv2d(image, filters)) == ["aten.convolution.default"]
    assert seen(lambda: nn.functional.max_pool2d(image, 2)) == ["aten.max_pool2d_with_indices.default"]
    assert seen(lambda: nn.functional.batch_norm(image, None, None, training=True)) == [
        "aten.native_batch_norm.default"
    ]
    target = mica.tensor([0, 1])
    assert seen(lambda: nn.functional.cross_entropy(x, target)) == [
        "aten._log_softmax.default",
        "aten.nll_loss_forward.default",
    ]


def test_factories():
    names = seen(lambda: (mica.zeros(2), mica.randn(2), mica.empty(3), mica.tensor([1.0])))
    assert names == ["aten.zeros.default", "aten.randn.default", "aten.empty.memory_format", "aten.lift_fresh.default"]
    with Log() as log:
        mica.ones(2, dtype=mica.int32)
    assert log.calls[0][2] == {"dtype": mica.int32, "device": mica.device("cpu"), "pin_memory": False}


def test_backward_is_seen():
    w = mica.randn(3, 4, requires_grad=True)
    x = mica.randn(2, 3)
    names = seen(lambda: (x @ w).sum().backward())
    assert names.count("aten.mm.default") == 2, "the product, and the gradient of the weight"
    expected = mica.autograd.grad((x @ w).sum(), w)[0]
    assert mica.equal(w.grad, expected)


def test_the_operation_keeps_its_derivative():
    class Doubles(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            assert not (isinstance(out, mica.Tensor) and out.requires_grad), "a mode is below autograd"
            return out * 2 if func is aten.sin.default else out

    x = mica.tensor([0.3], requires_grad=True)
    with Doubles():
        y = x.sin()
    assert y.item() == pytest.approx(2 * mica.sin(x).item())
    y.backward()
    assert x.grad.item() == pytest.approx(mica.cos(x).item()), "the derivative is sine's own"


def test_an_argument_as_the_answer():
    class Identity(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return args[0]

    x = mica.ones(2, requires_grad=True)
    with Identity():
        y = x.exp()
    assert y is not x and y.grad_fn.name() == "ExpBackward0" and x.grad_fn is None and x.is_leaf


def test_results_are_the_objects_that_a_mode_returned():
    w = mica.ones(2, 3, requires_grad=True)
    with Log() as log:
        turned = w.t()
        product = mica.ones(1, 2) @ w
        again = turned.t()
    assert [func for func, _, _ in log.calls][-1] is aten.t.default and log.calls[-1][1][0] is turned
    assert turned.grad_fn.name() == "TBackward0" and again.grad_fn is not None and product.requires_grad


def test_nested_modes():
    outer, inner = Log(), Log()
    with outer, inner:
        assert _get_current_dispatch_mode() is inner
        assert _get_current_dispatch_mode_stack() == [outer, inner] and is_in_torch_dispatch_mode()
        mica.ones(2)
        with _disable_current_modes():
            mica.zeros(2)
    assert outer.names == inner.names == ["aten.ones.default"]
    assert _get_current_dispatch_mode() is None


def test_a_mode_calls_other_operations():
    class Sums(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            self.total = out.sum().item()
            return out

    with Sums() as mode, Log() as log:
        mica.ones(3) + 1
    assert mode.total == 6 and log.names == ["aten.ones.default", "aten.add.Tensor"]


def test_in_place_out_and_views():
    x = mica.zeros(2, 3)
    with Log() as log:
        row = x[1]
        row.add_(1)
        mica.add(x, 1, out=x)
        x.t().mul_(2)
    assert log.names == ["aten.select.int", "aten.add_.Tensor", "aten.add.out", "aten.t.default", "aten.mul_.Tensor"]
    assert x.tolist() == [[2, 2, 2], [4, 4, 4]]
    # A view that a mode saw is a view like any other: autograd follows what is written through it.
    w = mica.ones(3, requires_grad=True)
    with Log():
        y = w * 2
        y[1:].mul_(3)
    y.sum().backward()
    assert w.grad.tolist() == [2, 6, 6]
    assert y[1:]._base is y


def test_what_goes_wrong():
    class Raises(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            raise KeyError("mine")

    class Returns(TorchDispatchMode):
        def __init__(self, value):
            self.value = value

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return self.value

    x = mica.ones(2)
    with pytest.raises(KeyError, match="mine"), Raises():
        x + 1
    assert _get_current_dispatch_mode() is None
    with pytest.raises(TypeError, match="Multiple dispatch failed for 'aten.add.Tensor'"), Returns(NotImplemented):
        x + 1
    with pytest.raises(TypeError, match="Unable to cast int to Tensor"), Returns(3):
        x + 1
    with pytest.raises(RuntimeError, match=r"aten::sort has 2 results"), Returns((x,)):
        x.sort()
    with pytest.raises(RuntimeError, match="which is no copy of it"), Returns(mica.ones(1)):
        x.clone()
    with pytest.raises(RuntimeError, match="no TorchDispatchMode is active"):
        mica._C._pop_torch_dispatch_stack()
    with pytest.raises(NotImplementedError), TorchDispatchMode():
        x + 1
    assert (x + 1).tolist() == [2, 2]


def test_autocast_comes_first():
    a = mica.ones(2, 2)
    with mica.autocast("cpu"), Log() as log:
        assert mica.mm(a, a).dtype == mica.bfloat16
    assert log.names == ["aten._to_copy.default"] * 2 + ["aten.mm.default"]
    assert log.calls[2][1][0].dtype == mica.bfloat16


def test_conversions_choices_and_indices_are_seen():
    x = mica.ones(2, 3)
    with Log() as log:
        x.double()
        x.to(mica.float32)
        mica.where(x > 0, x, 0.0)
        x[:, 1]
        x[0, None]
    assert log.names == [
        "aten._to_copy.default",
        "aten.gt.Scalar",
        "aten.where.ScalarOther",
        "aten.select.int",
        "aten.select.int",
        "aten.unsqueeze.default",
    ]


def test_modes_before_classes():
    class Wrapped(mica.Tensor):
        @staticmethod
        def __new__(cls, inner):
            return mica.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

        def __init__(self, inner):
            self.inner = inner

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            plain = [a.inner if isinstance(a, cls) else a for a in args]
            out = cls(func(*plain, **(kwargs or {})))
            return return_and_correct_aliasing(func, args, kwargs, out)

    x = Wrapped(mica.ones(2))
    with Log() as log:
        y = x + 1
    assert log.names == ["aten.add.Tensor"] and y.inner.tolist() == [2, 2]
    assert log.calls[0][1][0] is x
    assert return_and_correct_aliasing(aten.add_.Tensor, (x, 1), {}, y) is x
    assert return_and_correct_aliasing(aten.add.Tensor, (x, 1), {}, y) is y


def test_printing_is_nobodys_operation():
    assert seen(lambda: repr(mica.ones(2))) == ["aten.ones.default"]


def gradients(sample, mode):
    evaluator = Evaluator(mica, requires_grad=True)
    with mode:
        results = tensors_of(evaluator.run(sample.text))
        outputs = [t for t in results if t.requires_grad]
        grads = ()
        if outputs and evaluator.leaves:
            total = sum(t.abs().sum() for t in outputs)
            with contextlib.suppress(NotImplementedError):  # a few operations have no derivative
                grads = mica.autograd.grad(total, evaluator.leaves, allow_unused=True)
    return results, grads


RANDOM = {"rrelu", "dropout", "bernoulli", "empty", "empty_like", "empty_strided", "empty_permuted", "new_empty",
          "new_empty_strided", "set_"}  # fmt: skip


@pytest.mark.parametrize("sample", [s for s in load_samples() if s.op not in RANDOM], ids=lambda s: s.id)
def test_every_operation_under_a_mode_that_passes_on(sample):
    mica.manual_seed(3)
    plain, plain_grads = gradients(sample, contextlib.nullcontext())
    mica.manual_seed(3)
    through, through_grads = gradients(sample, BaseTorchDispatchMode())
    for a, b in zip(plain, through, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype and a.requires_grad == b.requires_grad
        mica.testing.assert_close(a, b, rtol=1e-12, atol=1e-14, equal_nan=True)
    for a, b in zip(plain_grads, through_grads, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            mica.testing.assert_close(a, b, rtol=1e-9, atol=1e-11, equal_nan=True)
