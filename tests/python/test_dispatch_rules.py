"""Rules of an operator for a mode or for a class of tensors (register_torch_dispatch), below autograd; how a class is asked."""

import mica as torch
import pytest
from mica import nn
from mica.utils._python_dispatch import TorchDispatchMode


class Pair(torch.Tensor):
    """A tensor that stands for two."""

    @staticmethod
    def __new__(cls, a, b):
        return torch.Tensor._make_wrapper_subclass(
            cls, a.shape, dtype=a.dtype, device=a.device, requires_grad=a.requires_grad
        )

    def __init__(self, a, b):
        self.a, self.b = a, b

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        from mica.utils._pytree import tree_map_only

        a, b = (tree_map_only(Pair, lambda x, part=part: getattr(x, part), args) for part in "ab")
        return Pair(func(*a, **(kwargs or {})), func(*b, **(kwargs or {})))


class Pairing(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@pytest.fixture(scope="module")
def pairs():
    """Operators without kernels: one has a rule for a mode, the other for a class, and both have derivatives."""
    library = torch.library.Library("dispatch_rules", "FRAGMENT")
    library.define("pair(Tensor a, Tensor b, float by=1.0) -> Tensor")
    library.define("parts(Tensor c) -> (Tensor, Tensor)")
    ops, calls = torch.ops.dispatch_rules, []

    @torch.library.register_torch_dispatch("dispatch_rules::pair", Pairing, lib=library)
    def _(mode, func, types, args, kwargs):
        calls.append((type(mode), func, len(args), kwargs))
        return Pair(args[0].clone(), args[1].clone())

    @torch.library.register_torch_dispatch("dispatch_rules::parts", Pair, lib=library)
    def _(cls, func, types, args, kwargs):
        calls.append((cls, func, len(args), kwargs))
        return args[0].a.clone(), args[0].b.clone()

    torch.library.register_autograd("dispatch_rules::pair", lambda ctx, g: (*ops.parts(g), None), lib=library)
    torch.library.register_autograd("dispatch_rules::parts", lambda ctx, a, b: ops.pair(a, b), lib=library)
    yield ops, calls  # torch forgets what a library has defined with the library


@pytest.mark.parametrize("compiled", [False, True])
def test_autograd_is_above_the_rules(pairs, compiled):
    ops, calls = pairs
    a, b = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    calls.clear()
    with Pairing():
        x = ops.pair(a, b)
    assert type(x) is Pair and x.grad_fn is not None
    function = lambda x: x * x + 2  # noqa: E731
    if compiled:
        function = torch.compile(function, backend="aot_eager", fullgraph=True)
    function(x).sum().backward()
    assert torch.equal(a.grad, 2 * a) and torch.equal(b.grad, 2 * b)
    assert calls == [(Pairing, ops.pair.default, 2, {}), (Pair, ops.parts.default, 1, {})]


def test_rules_without_gradients(pairs):
    ops, _ = pairs
    x = Pair(torch.ones(2), torch.zeros(2))
    first, second = ops.parts(x)
    assert first.tolist() == [1, 1] and second.tolist() == [0, 0]


def of_class(kind):
    """A class of tensors that stand for others. Its __torch_dispatch__ is a method of the class, of its tensors, or of nobody."""

    class Own(torch.Tensor):
        @staticmethod
        def __new__(cls, inner):
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)

        def __init__(self, inner):
            self.inner = inner

        def __tensor_flatten__(self):
            return ["inner"], None

        @staticmethod
        def __tensor_unflatten__(inner, context, size, stride):
            return Own(inner["inner"])

        if kind == "static":

            @staticmethod
            def __torch_dispatch__(func, types, args, kwargs):
                return _computed(Own, func, args, kwargs)

        elif kind == "class":

            @classmethod
            def __torch_dispatch__(cls, func, types, args, kwargs):
                assert cls is Own
                return _computed(Own, func, args, kwargs)

        else:

            def __torch_dispatch__(self, func, types, args, kwargs):
                assert type(self) is Own
                return _computed(Own, func, args, kwargs)

    return Own


def _computed(kind, func, args, kwargs):
    result = func(*[each.inner if type(each) is kind else each for each in args], **kwargs)
    return kind(result) if isinstance(result, torch.Tensor) else result


@pytest.mark.parametrize("kind", ["static", "class", "tensor"])
def test_a_class_is_asked_as_its_method_is_written(kind):
    Own = of_class(kind)
    x = Own(torch.tensor([4.0]))
    y = (x * 2).neg()
    assert type(y) is Own and y.inner.tolist() == [-8] and y.item() == -8
    z = x.clone().requires_grad_()
    (z * z).backward(Own(torch.ones(1)))
    assert type(z.grad) is Own and z.grad.inner.tolist() == [8]


@pytest.mark.parametrize("kind", ["static", "class", "tensor"])
def test_weights_of_a_class_are_converted(kind):
    Own = of_class(kind)
    layer = nn.Linear(2, 2)
    layer.weight = nn.Parameter(Own(layer.weight.detach()))
    weight = layer.weight
    for convert, dtype in [(layer.cpu, torch.float32), (layer.double, torch.float64)]:
        convert()
        assert layer.weight is weight and type(weight) is Own and isinstance(weight, nn.Parameter)
        assert weight.inner.dtype is dtype
    other = nn.Parameter(weight, requires_grad=False)
    assert other is not weight and type(other) is Own and isinstance(other, nn.Parameter) and not other.requires_grad
