"""__torch_function__: who is asked, in which order, with what."""

import pickle
from typing import ClassVar

import mica as torch
import numpy as np
import pytest


class Recorder:
    """Not a tensor; answers every call with what it was asked."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func, types, args, kwargs


class Sub(torch.Tensor):
    pass


class Logged(torch.Tensor):
    calls: ClassVar[list] = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.calls.append(func)
        return super().__torch_function__(func, types, args, kwargs or {})


class Disabled(torch.Tensor):
    __torch_function__ = torch._C._disabled_torch_function_impl


def test_functions_hand_over_the_call():
    r = Recorder()
    func, types, args, kwargs = torch.sum(r, dim=0)
    assert func is torch.sum and types == (Recorder,) and args == (r,) and kwargs == {"dim": 0}
    x = torch.ones(2)
    assert torch.add(x, r)[0] is torch.add
    assert torch.add(x, r)[3] is None
    assert torch.cat([x, r])[0] is torch.cat
    assert x.add(r)[0] == torch.Tensor.add
    assert x.view(r)[0] == torch.Tensor.view
    assert torch.zeros(r)[0] is torch.zeros


def test_operators_hand_over_the_call():
    x, r = torch.ones(2), Recorder()
    assert (x + r)[0] == torch.Tensor.add
    assert (r + x)[0] == torch.Tensor.add and (r + x)[2] == (x, r)
    assert (x == r)[0] == torch.Tensor.__eq__ and (x < r)[0] == torch.Tensor.lt
    assert x[r][0] == torch.Tensor.__getitem__


def test_a_subclass_gets_its_own_kind_back():
    s = torch.ones(2, 3).as_subclass(Sub)
    for result in (
        s + 1,
        1 - s,
        s + torch.ones(3),
        torch.ones(3) * s,
        s.sum(),
        s[0],
        s.view(3, 2),
        torch.add(s, s),
        -s,
    ):
        assert type(result) is Sub
    assert all(type(row) is Sub for row in s)
    assert type(s.shape) is torch.Size and type(s.sum().item()) is float
    assert type(s.detach()) is Sub


def test_a_subclass_may_watch():
    s = torch.ones(2).as_subclass(Logged)
    Logged.calls.clear()
    result = s.add(1)
    assert type(result) is Logged and torch.Tensor.add in Logged.calls


def test_a_disabled_class_is_plain():
    d = torch.ones(2).as_subclass(Disabled)
    assert type(d + 1) is torch.Tensor and type(d.sum()) is torch.Tensor


def test_not_implemented_by_all_is_an_error():
    class No:
        @classmethod
        def __torch_function__(cls, *args, **kwargs):
            return NotImplemented

    with pytest.raises(TypeError, match="all __torch_function__ handlers returned NotImplemented"):
        torch.add(torch.ones(1), No())


def test_subclasses_are_asked_before_their_bases():
    order = []

    class Base:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            order.append(cls)
            return NotImplemented

    class Derived(Base):
        pass

    with pytest.raises(TypeError):
        torch.add(Base(), Derived())
    assert order == [Derived, Base]


def test_a_mode_sees_every_call():
    seen: ClassVar = []

    class Mode:
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    x = torch.ones(2)
    torch._C._push_on_torch_function_stack(Mode())
    try:
        torch.add(x, x)
        x + x
    finally:
        torch._C._pop_torch_function_stack()
    assert seen == [torch.add, torch.Tensor.add]
    torch.add(x, x)
    assert len(seen) == 2


def test_modes_see_every_call_and_stack():
    from mica.overrides import BaseTorchFunctionMode, TorchFunctionMode

    seen: ClassVar = []

    class Seeing(TorchFunctionMode):
        def __init__(self, name):
            self.name = name

        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append((self.name, torch.overrides.resolve_name(func)))
            return func(*args, **(kwargs or {}))

    x = torch.ones(2)
    with Seeing("outer"), BaseTorchFunctionMode(), Seeing("inner"):
        torch.exp(x)
        x.sum()
    assert seen == [(mode, name) for name in ("torch.exp", "torch.Tensor.sum") for mode in ("inner", "outer")]
    torch.exp(x)
    assert len(seen) == 4


def test_functions_written_in_python():
    from mica import overrides

    @overrides.wrap_torch_function(lambda x, y: (x, y))
    def twice(x, y):
        return x + y

    r, x = Recorder(), torch.ones(2)
    assert twice(x, x).tolist() == [2, 2]
    func, types, args, _ = twice(x, r)
    assert func is twice and types == (Recorder,) and args == (x, r)
    assert overrides.is_tensor_like(r) and overrides.is_tensor_like(x) and not overrides.is_tensor_like(1)
    assert overrides.has_torch_function_unary(r) and not overrides.has_torch_function_variadic(x, 1)
    assert overrides.is_tensor_method_or_property(torch.Tensor.add)
    assert not overrides.is_tensor_method_or_property(torch.add)


def test_a_mode_sees_what_tensor_is_given():
    from mica.overrides import TorchFunctionMode

    seen: ClassVar = []

    class Watch(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append((func.__name__, args, kwargs))
            return func(*args, **(kwargs or {}))

    with Watch():
        made = torch.tensor([0, 2], dtype=torch.int32)
    assert made.tolist() == [0, 2] and made.dtype == torch.int32
    assert seen == [("tensor", ([0, 2],), {"dtype": torch.int32})]


def test_a_mode_sees_attributes_and_values():
    from mica.overrides import TorchFunctionMode

    seen: ClassVar = []

    class Watch(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func.__self__.__name__ if func.__name__ == "__get__" else func.__name__)
            return func(*args, **(kwargs or {}))

    x = torch.ones(1)
    with Watch():
        assert x.shape == (1,) and x.real is not None
        assert bool(x) and int(x) == 1 and float(x) == 1.0 and complex(x) == 1 and x.item() == 1 and x.tolist() == [1.0]
        x.data = torch.zeros(1)
    assert seen == [
        "shape",
        "real",
        "__bool__",
        "__int__",
        "__float__",
        "__complex__",
        "item",
        "tolist",
        "zeros",
        "__set__",
    ]
    with Watch(), torch._C.DisableTorchFunction():
        seen.clear()
        assert not bool(x) and x.shape == (1,)
    assert not seen


class Watched(torch.Tensor):
    """Notes the names of the functions that it is asked about."""

    seen: ClassVar = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.seen.append(torch.overrides.resolve_name(func))
        return super().__torch_function__(func, types, args, kwargs or {})


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (len, "__len__"),
        (lambda x: bool(x[0]), "__bool__"),
        (lambda x: int(x[0]), "__int__"),
        (lambda x: float(x[0]), "__float__"),
        (lambda x: complex(x[0]), "__complex__"),
        (lambda x: x[0].item(), "item"),
        (lambda x: x.tolist(), "tolist"),
        (lambda x: x.numpy(), "numpy"),
        (lambda x: np.asarray(x), "__array__"),
        (lambda x: x.dim(), "dim"),
        (lambda x: x.nelement(), "numel"),
        (lambda x: x.data_ptr(), "data_ptr"),
        (lambda x: x.is_floating_point(), "is_floating_point"),
        (lambda x: x.untyped_storage(), "untyped_storage"),
        (lambda x: x.is_shared(), "is_shared"),
        (lambda x: x.new_tensor([1]), "new_tensor"),
        (lambda x: 1.0 in x, "__contains__"),
        (lambda x: reversed(x), "__reversed__"),
        (lambda x: f"{x}", "__format__"),
        (lambda x: x.type(torch.float64), "type"),
        (lambda x: pickle.dumps(x.detach()), "__reduce_ex__"),
        (lambda x: x // 2, "__floordiv__"),
        (lambda x: x**2, "__pow__"),
        (lambda x: x == 1, "__eq__"),
        (lambda x: x @ x, "matmul"),
        (lambda x: (x > 0) & True, "__and__"),
        (lambda x: True & (x > 0), "bitwise_and"),
    ],
)
def test_a_class_is_asked_about_values_and_operators(call, name):
    x = torch.ones(3).as_subclass(Watched)
    Watched.seen.clear()
    plain, answer = call(torch.ones(3)), call(x)
    assert f"torch.Tensor.{name}" in Watched.seen
    if isinstance(plain, (bool, int, float, complex, list)) and name != "data_ptr":
        assert answer == plain


def test_functions_of_namespaces_have_names():
    assert torch.overrides.resolve_name(torch.linalg.inv) == "torch.linalg.inv"
    assert torch.overrides.resolve_name(torch.fft.fft) == "torch.fft.fft"


def test_tensor_makes_a_plain_tensor_of_a_subclass():
    with pytest.warns(UserWarning, match="To copy construct from a tensor"):
        copy = torch.tensor(torch.ones(2).as_subclass(Watched))
    assert type(copy) is torch.Tensor and copy.tolist() == [1, 1]
    assert type(torch.ones(2).as_subclass(Sub).type(torch.float64)) is Sub


def test_the_other_operand_is_asked_where_nobody_has_implemented_the_operator():
    class Unit:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return NotImplemented

        def __radd__(self, other):
            return "added"

    assert torch.ones(2) + Unit() == "added"
    with pytest.raises(TypeError, match="unsupported operand type"):
        torch.ones(2) - Unit()
    with pytest.raises(TypeError, match="Multiple dispatch failed for 'torch.Tensor.sub'"):
        torch.ones(2).sub(Unit())


def test_redispatch_asks_nobody_for_one_call():
    """What torch 2.13 sees: the function itself is not asked for again, what it calls is."""

    class Logged(torch.Tensor):
        seen: ClassVar = []

        @classmethod
        def __torch_function__(cls, func, types, args, kwargs=None):
            cls.seen.append(func.__name__)
            return torch.overrides.redispatch_function(func, types, args, kwargs)

    class LoggingMode(torch.overrides.TorchFunctionMode):
        seen: ClassVar = []

        def __torch_function__(self, func, types, args, kwargs=None):
            self.seen.append(func.__name__)
            with self:
                return torch.overrides.redispatch_function(func, types, args, kwargs)

    def scaled(a, b):
        if torch.overrides.has_torch_function((a, b)):
            return torch.overrides.handle_torch_function(scaled, (a, b), a, b)
        return a * b + 1

    three, four = torch.tensor([3.0]), torch.tensor([4.0])
    result = scaled(three.as_subclass(Logged), four.as_subclass(Logged))
    assert type(result) is torch.Tensor and result.tolist() == [13] and Logged.seen == ["scaled", "mul"]
    with LoggingMode():
        assert scaled(three, four).tolist() == [13]
    assert LoggingMode.seen == ["scaled", "mul", "add", "tolist"]
    Logged.seen.clear()
    with pytest.raises(TypeError, match="kwargs must be a dict"):
        torch.overrides.redispatch_function(torch.add, (), (three, four), 1)
    with pytest.raises(TypeError):
        torch.overrides.redispatch_function(torch.add, (), (three,), {})
    assert torch.add(three.as_subclass(Logged), four).tolist() == [7] and Logged.seen == ["add"]


def test_private_methods_of_tensors_are_methods():
    assert torch.overrides.is_tensor_method_or_property(torch.Tensor._is_view)
    assert not torch.overrides.is_tensor_method_or_property(torch.add)
