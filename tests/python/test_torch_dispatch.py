"""Tensors that stand for others: __torch_dispatch__ of classes made with Tensor._make_wrapper_subclass."""

import copy

import mica as torch
import pytest
from mica import nn
from mica.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass, transform_subclass
from mica.utils._pytree import tree_map_only

SEEN = []


class Scaled(torch.Tensor):
    """int8 values times a scale. Linear maps know it; every other operator sees its plain values."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, values, scale):
        return torch.Tensor._make_wrapper_subclass(cls, values.shape, dtype=scale.dtype, device=values.device)

    def __init__(self, values, scale):
        self.values, self.scale = values, scale

    def plain(self):
        return self.values * self.scale

    def __tensor_flatten__(self):
        return ["values", "scale"], None

    @staticmethod
    def __tensor_unflatten__(parts, context, size, stride):
        return Scaled(parts["values"], parts["scale"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        SEEN.append(str(func))
        if func in (torch.ops.aten.detach.default, torch.ops.aten.clone.default):
            return Scaled(args[0].values, args[0].scale)
        if func is torch.ops.aten._to_copy.default:
            return Scaled(args[0].values, args[0].scale.to(kwargs["dtype"]))
        if func == torch.ops.aten.t.default:
            return Scaled(args[0].values.T, args[0].scale.T)
        if func == torch.ops.aten.max_pool1d.default:
            return NotImplemented
        args = torch.utils._pytree.tree_map_only(Scaled, Scaled.plain, args)
        return func(*args, **(kwargs or {}))


@pytest.fixture
def scaled():
    SEEN.clear()
    return Scaled(torch.tensor([[1, -2], [3, 4], [5, 6]], dtype=torch.int8), torch.tensor([[0.5], [1.0], [2.0]]))


def test_operators_come_to_the_class(scaled):
    plain = scaled.plain()
    assert scaled.shape == (3, 2) and scaled.dtype == torch.float32 and scaled.stride() == (2, 1) and not SEEN
    assert torch.equal(scaled + 1, plain + 1) and torch.equal(2 * scaled, 2 * plain)
    assert torch.equal(torch.cat([scaled, plain]), torch.cat([plain, plain]))
    assert torch.equal(scaled.sum(0), plain.sum(0)) and torch.equal(scaled.relu(), plain.relu())
    assert torch.equal(nn.functional.linear(plain, scaled), nn.functional.linear(plain, plain))
    assert torch.equal(scaled[1:, 0], plain[1:, 0])
    assert type(scaled.T) is Scaled and torch.equal(plain @ scaled.T, plain @ plain.T)
    assert type(scaled.detach()) is Scaled and type(scaled.half()) is Scaled and scaled.float() is scaled
    assert scaled.half().dtype == torch.float16
    assert SEEN[:3] == ["aten.add.Tensor", "aten.mul.Tensor", "aten.cat.default"]
    assert "aten.linear.default" in SEEN and "aten.slice.Tensor" in SEEN


def test_as_a_weight_of_a_module(scaled):
    layer = nn.Linear(2, 3)
    layer.weight = nn.Parameter(scaled, requires_grad=False)
    assert type(layer.weight) is Scaled and layer.weight is layer._parameters["weight"]
    x = torch.randn(4, 2, requires_grad=True)
    out = layer(x)
    assert torch.allclose(out, x @ scaled.plain().T + layer.bias)
    out.sum().backward()
    assert torch.allclose(x.grad, scaled.plain().sum(0).expand(4, 2))
    assert type(layer.state_dict()["weight"]) is Scaled


def test_parts(scaled):
    assert is_traceable_wrapper_subclass(scaled) and not is_traceable_wrapper_subclass(torch.ones(1))
    double = transform_subclass(scaled, lambda name, part: part * 2 if name == "scale" else part)
    assert torch.equal(double.plain(), 2 * scaled.plain())


def test_what_a_class_does_not_answer(scaled):
    with pytest.raises(TypeError, match="all __torch_dispatch__ handlers returned NotImplemented"):
        torch.max_pool1d(scaled, 2)

    class Bare(torch.Tensor):
        pass

    with pytest.raises(RuntimeError, match="has no __torch_dispatch__"):
        torch.Tensor._make_wrapper_subclass(Bare, (2,))


def test_below_a_torch_function(scaled):
    calls = []

    class Watched(Scaled):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            calls.append(func.__name__)
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))

    watched = Watched(scaled.values, scaled.scale)
    assert torch.equal(watched.mul(3), scaled.plain() * 3)
    assert "mul" in calls and "aten.mul.Tensor" in SEEN


class Boxed(torch.Tensor):
    """Every operator runs on the tensor inside, and its results are boxed again. There is no __torch_function__."""

    @staticmethod
    def __new__(cls, inner):
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        SEEN.append(str(func))
        args = torch.utils._pytree.tree_map_only(Boxed, lambda boxed: boxed.inner, args)
        return torch.utils._pytree.tree_map_only(torch.Tensor, Boxed, func(*args, **(kwargs or {})))


def test_numbers_are_read_from_the_class():
    """The tensor has no elements of its own: what lies in its memory is nobody's."""
    for value in (2.0, 0.0):
        boxed = Boxed(torch.tensor([value, 1.0]))
        one = boxed[0]
        assert type(one) is Boxed and one.item() == value and float(one) == value and int(one) == value
        assert bool(one) is bool(value) and complex(one) == value
        assert bool((boxed == boxed).all())
    SEEN.clear()
    assert Boxed(torch.tensor(3)).__index__() == 3 and SEEN == ["aten._local_scalar_dense.default"]


def test_lists_of_numbers_are_refused():
    """What lies in the tensor's memory is nobody's, and must not be handed out."""
    boxed = Boxed(torch.tensor([1.0, 2.0]))
    with pytest.raises(RuntimeError, match=".tolist.. is not supported for tensor subclasses, got Boxed"):
        boxed.tolist()
    with pytest.raises(RuntimeError, match=".numpy.. is not supported for tensor subclasses"):
        boxed.numpy()


def test_elements_are_set_through_the_class():
    boxed = Boxed(torch.zeros(2, 3))
    boxed[0] = 1.0
    boxed[1, 1:] = torch.tensor([2.0, 3.0])
    assert boxed.inner.tolist() == [[1, 1, 1], [0, 2, 3]]
    boxed[boxed.inner > 1] = 9.0
    boxed[torch.tensor([0])] = Boxed(torch.tensor([[4.0, 5.0, 6.0]]))
    assert boxed.inner.tolist() == [[4, 5, 6], [0, 9, 9]]
    assert boxed[boxed.inner > 5].inner.tolist() == [6, 9, 9]
    with pytest.raises(NotImplementedError, match="knows no operators for the index"):
        boxed["a"]


def test_a_class_with_a_dispatch_and_no_function_of_its_own():
    """torch gives it the disabled __torch_function__, so that results are as the class returns them."""

    class Plain(Scaled):
        pass

    assert Boxed.__torch_function__ is torch._C._disabled_torch_function_impl
    assert Plain.__torch_function__ is torch._C._disabled_torch_function_impl
    copied = copy.deepcopy(Boxed(torch.ones(2)))
    assert type(copied) is Boxed and copied.inner.tolist() == [1, 1]


def test_derivatives_by_such_a_tensor():
    """The class answers for the operators of the derivative too; what it returns as plain tensors stays plain."""
    x = Scaled(torch.tensor([[1, 2]], dtype=torch.int8), torch.tensor([[0.5]]))
    functional, func = torch.autograd.functional, torch.func
    assert functional.jacobian(lambda x: x * x, x).tolist() == [[[[1, 0]], [[0, 2]]]]
    assert functional.vjp(lambda x: (x * x).sum(), x)[1].tolist() == [[1, 2]]
    assert func.grad(lambda x: (x * x).sum())(x).tolist() == [[1, 2]]
    assert func.vjp(lambda x: x * x, x)[1](torch.ones(1, 2))[0].tolist() == [[1, 2]]


def test_a_mode_does_not_see_that_a_tensor_of_a_class_is_made():
    seen = []

    class Held(torch.Tensor):
        @staticmethod
        def __new__(cls, inner):
            return torch.Tensor._make_wrapper_subclass(cls, inner.size(), inner.stride(), dtype=inner.dtype)

        def __init__(self, inner):
            self.inner = inner

        @classmethod
        def __torch_dispatch__(cls, func, types, args, kwargs=None):
            args = tree_map_only(cls, lambda x: x.inner, args)
            return tree_map_only(torch.Tensor, cls, func(*args, **(kwargs or {})))

    class Watching(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    x = Held(torch.ones(3))
    with Watching():
        assert type(x.sin()) is Held
    assert seen == ["aten.sin.default"]


def test_a_class_may_leave_an_operator_to_plain_tensors():
    called = []

    class Counted(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            called.append(str(func))
            return super().__torch_dispatch__(func, types, args, kwargs)

    class Silent(torch.Tensor):
        __torch_dispatch__ = torch._C._disabled_torch_dispatch_impl

    x, y = torch.randn(2), torch.randn(2)
    one, two = torch.Tensor._make_subclass(Counted, x), torch.Tensor._make_subclass(Counted, y)
    assert torch.equal(one + two, x + y) and called == ["aten.add.Tensor"]
    assert torch.equal(torch.stack([one, two]), torch.stack([x, y])) and called[1:] == ["aten.stack.default"]
    assert torch.equal(torch.Tensor._make_subclass(Silent, x) * 2, x * 2)
    one.data, count = torch.ones(2), len(called)
    assert type(one) is Counted and torch.equal(one + 0, torch.ones(2)) and len(called) == count + 1


def test_a_mode_may_leave_an_operator_to_the_class_of_a_tensor():
    class Polite(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.asked = self.answered = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.asked += 1
            if any(kind is not torch.Tensor for kind in types):
                return NotImplemented
            self.answered += 1
            return func(*args, **(kwargs or {}))

    class Wrapped(torch.Tensor):
        @staticmethod
        def __new__(cls, inner):
            made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
            made.inner = inner
            return made

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            return cls(func(*(each.inner if isinstance(each, cls) else each for each in args), **(kwargs or {})))

    x = torch.randn(3)
    with Polite() as mode:
        made = Wrapped(x).abs()
    assert isinstance(made, Wrapped) and torch.equal(made.inner, x.abs())
    assert (mode.asked, mode.answered) == (2, 1)


def test_a_mode_whose_method_is_of_the_class_is_refused():
    class Wrong(TorchDispatchMode):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    with pytest.raises(RuntimeError, match="classmethod is not supported, please make it a plain method"), Wrong():
        torch.ones(2) + 1


def test_defaults_are_not_handed_over_by_name():
    seen = []

    class Noted(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            seen.append(dict(kwargs or {}))
            return super().__torch_dispatch__(func, types, args, kwargs)

    x = torch.Tensor._make_subclass(Noted, torch.ones(2))
    torch.addmv(x, torch.ones(2, 2), torch.ones(2), beta=1, alpha=2)
    assert seen == [{"alpha": 2}]


def _holder(dispatch):
    """A class whose tensors hold another one, with this __torch_dispatch__."""

    class Holder(torch.Tensor):
        @staticmethod
        def __new__(cls, held, requires_grad=False):
            return torch.Tensor._make_wrapper_subclass(cls, held.shape, dtype=held.dtype, requires_grad=requires_grad)

        def __init__(self, held, requires_grad=False):
            self.held = held

        __torch_dispatch__ = dispatch

    return Holder


@pytest.mark.parametrize("kind", ["plain", "static"])
def test_a_dispatch_that_is_no_class_method(kind):
    asked = []

    def answer(func, args, kwargs):
        def opened(x):
            return x.held if isinstance(x, Holder) else x

        out = func(*tree_map_only(Holder, opened, args), **(kwargs or {}))
        return tree_map_only(torch.Tensor, Holder, out)

    def plain(self, func, types, args=(), kwargs=None):
        asked.append((self, func))
        return answer(func, args, kwargs)

    def static(func, types, args=(), kwargs=None):
        asked.append((None, func))
        return answer(func, args, kwargs)

    class Below(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    Holder = _holder(plain if kind == "plain" else staticmethod(static))
    a, w = Holder(torch.ones(2)), Holder(torch.full((2,), 3.0), requires_grad=True)
    assert torch.equal((a + 1).held, torch.full((2,), 2.0))
    assert asked == [(a if kind == "plain" else None, torch.ops.aten.add.Tensor)]
    assert a.sum().item() == 2 and float(a[0]) == 1 and type(a.detach()) is Holder
    (w * w * a).sum().backward()
    assert type(w.grad) is Holder and torch.equal(w.grad.held, torch.full((2,), 6.0))
    with Below():
        assert torch.equal((a * 2).held, torch.full((2,), 2.0))
    assert torch.equal(torch.cat([torch.zeros(1), a]).held, torch.tensor([0.0, 1.0, 1.0]))
    assert all((asker is None) == (kind == "static") for asker, _ in asked)
