"""Gradients by tensors of classes with a __torch_dispatch__, whose tensors require grad themselves. Numbers are torch's."""

import mica as torch
import pytest
from mica.utils._mode_utils import no_dispatch
from mica.utils._python_dispatch import TorchDispatchMode
from mica.utils._pytree import tree_map

SEEN = []


class Boxed(torch.Tensor):
    """Every operator runs on the tensor inside, and its results are boxed again."""

    @staticmethod
    def __new__(cls, inner, requires_grad=False):
        options = {"strides": inner.stride(), "dtype": inner.dtype, "requires_grad": requires_grad}
        made = torch.Tensor._make_wrapper_subclass(cls, inner.size(), **options)
        made.inner = inner.detach() if requires_grad else inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        SEEN.append(str(func))

        def opened(value):
            return value.inner if isinstance(value, Boxed) else value

        def boxed(value):
            return Boxed(value) if isinstance(value, torch.Tensor) else value

        return tree_map(boxed, func(*tree_map(opened, args), **tree_map(opened, kwargs or {})))


@pytest.fixture
def x():
    SEEN.clear()
    return Boxed(torch.arange(6.0).reshape(2, 3) + 1, requires_grad=True)


def rounded(tensor):
    inner = tensor.inner if isinstance(tensor, Boxed) else tensor
    return [[round(value, 4) for value in row] for row in inner.tolist()]


def test_a_backward_pass_is_computed_by_the_class(x):
    y = (x.exp() * x).sum()
    assert type(y) is Boxed and y.requires_grad and type(y.grad_fn).__name__ == "SumBackward0"
    y.backward()
    assert type(x.grad) is Boxed
    expected = torch.tensor([[5.4366, 22.1672, 80.3421], [272.9908, 890.4789, 2824.0015]])
    assert torch.allclose(x.grad.inner, expected)
    assert SEEN[:6] == [
        "aten.exp.default", "aten.detach.default", "aten.mul.Tensor", "aten.sum.default", "aten.ones_like.default",
        "aten.expand.default",
    ]  # fmt: skip


def test_derivatives_of_derivatives(x):
    (first,) = torch.autograd.grad((x.sin() ** 2).sum(), x, create_graph=True)
    assert type(first) is Boxed and first.requires_grad
    (second,) = torch.autograd.grad(first.sum(), x)
    assert rounded(second) == [[-0.8323, -1.3073, 1.9203], [-0.2910, -1.6781, 1.6877]]


def test_changes_in_place_through_views(x):
    y = x * 2
    y.add_(x)
    y[0] = 0
    y[1:].mul_(3)
    y.sum().backward()
    assert rounded(x.grad) == [[0, 0, 0], [9, 9, 9]]


def test_operations_that_are_made_of_others(x):
    stacked = torch.stack([x, 2 * x]).roll(1, 0)
    assert stacked.requires_grad and type(stacked) is Boxed
    (stacked * stacked).sum().backward()
    assert rounded(x.grad) == [[10, 20, 30], [40, 50, 60]]


def test_plain_tensors_beside_it(x):
    weight = torch.ones(3, 3, requires_grad=True)
    torch.nn.functional.linear(x, weight).relu().sum().backward()
    assert rounded(weight.grad) == [[5, 7, 9]] * 3 and rounded(x.grad) == [[3, 3, 3]] * 2


def test_without_gradients(x):
    with torch.no_grad():
        assert not (x * 2).requires_grad
    assert type(x.detach()) is Boxed and not x.detach().requires_grad
    assert rounded(torch.zeros_like(x)) == [[0, 0, 0]] * 2


def test_functions_of_functions(x):
    functional = torch.autograd.functional
    v = Boxed(torch.tensor([1.0, 2.0]))
    hessian = functional.hessian(lambda a: (a.exp() * a).sum(), v)
    assert rounded(hessian) == [[8.1548, 0], [0, 29.5562]]
    assert rounded(functional.jacobian(lambda a: a * a, v)) == [[2, 0], [0, 4]]
    assert torch.func.grad(lambda a: (a * a).sum())(v).inner.tolist() == [2, 4]


def test_a_mode_is_asked_before_the_class(x):
    seen = []

    class Watching(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append((str(func), bool(types)))
            return func(*args, **(kwargs or {}))

    with Watching():
        y = x * 2
    assert type(y) is Boxed and y.requires_grad and seen == [("aten.mul.Tensor", True)]


def test_training_a_module_of_such_parameters():
    layer = torch.nn.Linear(3, 2)
    with torch.no_grad():
        layer.weight = torch.nn.Parameter(Boxed(torch.ones(2, 3)))
        layer.bias.zero_()
    layer(torch.tensor([[1.0, 2.0, 3.0]])).sum().backward()
    assert type(layer.weight) is Boxed and type(layer.weight.grad) is Boxed
    assert rounded(layer.weight.grad) == [[1, 2, 3], [1, 2, 3]]


def test_a_class_that_calls_itself_without_being_asked():
    seen = []

    class Plain(torch.Tensor):
        @staticmethod
        def __new__(cls, data):
            return torch.Tensor._make_subclass(cls, data)

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            seen.append(str(func))
            with torch.overrides.enable_reentrant_dispatch():
                leaf = torch.ones(1, requires_grad=True)
                assert leaf.exp().grad_fn is not None
            with no_dispatch():
                return func(*args, **(kwargs or {}))

    x = Plain(torch.tensor([1.0, 2.0])).requires_grad_()
    y = (x * 3).sum()
    assert seen == ["aten.mul.Tensor"] and y.requires_grad  # what it returned is a plain tensor
    y.backward()
    with no_dispatch():
        assert x.grad.tolist() == [3, 3]
