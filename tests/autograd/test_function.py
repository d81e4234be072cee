"""torch.autograd.Function: forward and backward written in Python."""

import gc
import weakref

import mica as torch
import pytest
from mica.autograd import Function
from mica.autograd.function import once_differentiable


class Square(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * x * grad


class Scale(Function):
    """With setup_context, an argument that is no tensor, and a default."""

    @staticmethod
    def forward(x, factor=3.0):
        return x * factor

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, ctx.factor = inputs

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.factor, None


def test_gradient_and_double_backward():
    x = torch.tensor([2.0, -3.0], requires_grad=True)
    (g,) = torch.autograd.grad(Square.apply(x).sum(), x, create_graph=True)
    assert g.tolist() == [4, -6]
    (gg,) = torch.autograd.grad(g.sum(), x)
    assert gg.tolist() == [2, 2]


def test_setup_context_defaults_and_keywords():
    x = torch.ones(2, requires_grad=True)
    Scale.apply(x).sum().backward()
    assert x.grad.tolist() == [3, 3]
    Scale.apply(x, 5.0).sum().backward()
    assert x.grad.tolist() == [8, 8]
    Scale.apply(x, factor=2.0).sum().backward()
    assert x.grad.tolist() == [10, 10]


def test_the_context_is_the_node():
    x = torch.ones(2, requires_grad=True)
    y = Square.apply(x)
    assert type(y.grad_fn).__name__ == y.grad_fn.name() == "SquareBackward"
    assert repr(y) == "tensor([1., 1.], grad_fn=<SquareBackward>)"
    assert y.grad_fn is y.grad_fn
    assert y.grad_fn.saved_tensors[0] is x
    assert y.grad_fn.next_functions[0][0].variable is x
    assert isinstance(y.grad_fn, torch.autograd.graph.Node)


def test_nothing_is_recorded_without_need():
    assert Square.apply(torch.ones(2)).grad_fn is None
    with torch.no_grad():
        assert Square.apply(torch.ones(2, requires_grad=True)).grad_fn is None


def test_forward_does_not_record_and_backward_records_only_for_a_graph():
    seen = []

    class Watch(Function):
        @staticmethod
        def forward(ctx, x):
            seen.append(torch.is_grad_enabled())
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            seen.append(torch.is_grad_enabled())
            return grad

    x = torch.ones(1, requires_grad=True)
    Watch.apply(x).backward()
    torch.autograd.grad(Watch.apply(x), x, create_graph=True)
    assert seen == [False, False, False, True]


def test_several_outputs_missing_gradients_and_needs_input_grad():
    class Split(Function):
        @staticmethod
        def forward(ctx, a, b, note):
            ctx.seen = ctx.needs_input_grad
            return a + b, a - b, note

        @staticmethod
        def backward(ctx, up, down, nothing):
            assert ctx.needs_input_grad == ctx.seen == (True, False, False)
            assert nothing is None
            assert down.tolist() == [0, 0]
            return up + down, None, None

    a, b = torch.ones(2, requires_grad=True), torch.ones(2)
    up, down, note = Split.apply(a, b, "note")
    assert note == "note"
    assert down.requires_grad
    up.sum().backward()
    assert a.grad.tolist() == [1, 1]
    assert b.grad is None


def test_gradients_are_not_materialized_on_request():
    seen = []

    class Pair(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 1, x * 2

        @staticmethod
        def backward(ctx, first, second):
            seen.append((first, second))
            return first

    x = torch.ones(1, requires_grad=True)
    Pair.apply(x)[0].backward()
    assert seen[0][1] is None
    assert x.grad.tolist() == [1]


def test_mark_dirty_and_non_differentiable():
    class AddOne(Function):
        @staticmethod
        def forward(ctx, x):
            x.add_(1)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, grad):
            return grad * 10

    class WithSign(Function):
        @staticmethod
        def forward(ctx, x):
            sign = x.sign()
            ctx.mark_non_differentiable(sign)
            return x * 2, sign

        @staticmethod
        def backward(ctx, grad, _):
            return grad * 2

    x = torch.ones(2, requires_grad=True)
    y = x * 1
    z = AddOne.apply(y)
    assert z is y
    z.sum().backward()
    assert x.grad.tolist() == [10, 10]
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        AddOne.apply(x)
    double, sign = WithSign.apply(x)
    assert double.requires_grad
    assert not sign.requires_grad


def test_a_view_of_what_forward_made_may_have_been_changed_there():
    class Part(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            part = x.clone()[:2]
            part += 2
            return part

        @staticmethod
        def backward(ctx, grad):
            return torch.cat((grad, torch.zeros(1)))

    x = torch.ones(3, requires_grad=True)
    y = Part.apply(x)
    assert y.grad_fn.name() == "PartBackward"
    y.sum().backward()
    assert x.grad.tolist() == [1, 1, 0]
    with pytest.raises(RuntimeError, match="This view was created inside a custom Function"):
        y.mul_(2)


def test_an_input_returned_as_it_is():
    class Same(Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, grad):
            return grad * 3

    x = torch.ones(2, requires_grad=True)
    y = Same.apply(x)
    assert y is not x
    y.sum().backward()
    assert x.grad.tolist() == [3, 3]


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ((None, None), None),  # more gradients than needed are taken if they are None
        ((torch.ones(2), torch.ones(2)), "returned an incorrect number of gradients \\(expected 1, got 2\\)"),
        (
            torch.ones(3),
            "returned an invalid gradient at index 0 - got \\[3\\] but expected shape compatible with \\[2\\]",
        ),
        (1.0, "expected Variable or None"),
    ],
)
def test_what_backward_returns_is_checked(returned, message):
    class Returns(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            return returned

    x = torch.ones(2, requires_grad=True)
    y = Returns.apply(x).sum()
    if message is None:
        y.backward()
        assert x.grad is None
    else:
        with pytest.raises((RuntimeError, TypeError), match=message):
            y.backward()


def test_saved_outputs_make_no_cycle():
    class Exp(Function):
        @staticmethod
        def forward(ctx, x):
            y = x.exp()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.saved_tensors[0]

    x = torch.zeros(2, requires_grad=True)
    y = Exp.apply(x)
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    assert torch.autograd.grad(g.sum(), x)[0].tolist() == [1, 1]
    gone = weakref.ref(y)
    del y, g
    gc.collect()
    assert gone() is None


def test_saved_tensors_are_checked_and_freed():
    x = torch.ones(2, requires_grad=True)
    middle = x * 1
    y = Square.apply(middle)
    middle.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    y = Square.apply(x).sum()
    y.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.backward()


def test_save_for_backward_takes_tensors_only():
    class Wrong(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x, 3)
            return x * 1

    with pytest.raises(TypeError, match="can only save variables, but argument 1 is of type int"):
        Wrong.apply(torch.ones(1, requires_grad=True))


def test_exceptions_pass_unchanged_with_a_note():
    class Problem(Exception):
        pass

    class Fails(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            raise Problem("here")

    with pytest.raises(Problem, match="here") as caught:
        Fails.apply(torch.ones(1, requires_grad=True)).backward()
    assert any("FailsBackward" in note for note in caught.value.__notes__)


def test_missing_methods_are_named():
    class Forward(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

    with pytest.raises(NotImplementedError, match="either the backward or vjp method"):
        Forward.apply(torch.ones(1, requires_grad=True)).backward()
    with pytest.raises(NotImplementedError, match="must implement the forward"):
        Function.apply(torch.ones(1))
    with pytest.warns(DeprecationWarning, match="should not be instantiated"):
        square = Square()
    with pytest.raises(RuntimeError, match="Legacy autograd function with non-static forward"):
        square(torch.ones(1))


def test_keywords_have_the_positions_of_their_names():
    class Scaled(Function):
        @staticmethod
        def forward(ctx, x, by=1, plus=0):
            ctx.by = by
            return x * by + plus

        @staticmethod
        def backward(ctx, grad):
            assert len(ctx.needs_input_grad) == 3
            return grad * ctx.by, None, None

    x = torch.ones(2, requires_grad=True)
    y = Scaled.apply(x, plus=1, by=3)
    y.sum().backward()
    assert y.tolist() == [4, 4] and x.grad.tolist() == [3, 3]
    with pytest.raises(TypeError, match="missing required argument: 'by' \\(position 1\\)"):
        Scaled.apply(x, plus=1)
    with pytest.raises(TypeError, match="unexpected keyword argument 'other'"):
        Scaled.apply(x, other=1)
    with pytest.raises(TypeError, match="multiple values for argument 'x'"):
        Scaled.apply(x, x=x)


def test_keywords_without_a_position_are_refused():
    class Scaled(Function):
        @staticmethod
        def forward(x, *, by=1):
            return x * by

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

    assert Scaled.apply(torch.ones(2)).tolist() == [1, 1]
    with pytest.raises(TypeError, match="unexpected keyword argument 'by'"):
        Scaled.apply(torch.ones(2), by=2)


def test_an_instance_applies_as_its_class_does():
    with pytest.warns(DeprecationWarning, match="should not be instantiated"):
        made = Square()
    x = torch.ones(2, requires_grad=True)
    made.apply(x).sum().backward()
    assert x.grad.tolist() == [2, 2]
    with pytest.raises(RuntimeError, match="Legacy autograd function with non-static forward method is deprecated"):
        made(x)


def test_vjp_is_another_name():
    class Twice(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def vjp(ctx, grad):
            return grad * 2

    x = torch.ones(1, requires_grad=True)
    Twice.apply(x).backward()
    assert x.grad.item() == 2


def test_once_differentiable():
    class Once(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @once_differentiable
        def backward(ctx, grad):
            return grad * 2 * ctx.saved_tensors[0]

    x = torch.ones(1, requires_grad=True)
    Once.apply(x).backward()
    assert x.grad.item() == 2
    (g,) = torch.autograd.grad(Once.apply(x * 1) * x, x, create_graph=True)
    with pytest.raises(RuntimeError, match="marked with @once_differentiable"):
        g.backward()


def test_a_backward_within_a_backward():
    class Nested(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad):
            x = ctx.saved_tensors[0].detach().requires_grad_()
            with torch.enable_grad():
                y = x * x
            return torch.autograd.grad(y, x, grad)[0]

    x = torch.tensor(3.0, requires_grad=True)
    y = x
    for _ in range(3):
        y = Nested.apply(y)
    y.backward()
    assert x.grad.item() == 8 * 3.0**7
