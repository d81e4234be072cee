"""Custom functions forwards: their `jvp` is what pushes tangents, with torch 2.13's checks."""

import mica as torch
import pytest
from mica.autograd import Function, forward_ad, gradcheck


class Triple(Function):
    """Its jvp is not the derivative of its forward, so that it is seen which of the two was asked."""

    @staticmethod
    def forward(ctx, number, x, other):
        ctx.save_for_forward(x)
        return x * 2

    @staticmethod
    def vjp(ctx, grad):
        return None, grad * 2, None

    @staticmethod
    def jvp(ctx, number, tangent, other):
        assert number is None
        assert ctx.saved_tensors[0].shape == tangent.shape
        return tangent * 3


def pushed(function, x, t):
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(function(forward_ad.make_dual(x, t))).tangent


def test_jvp_is_asked():
    x, t = torch.ones(2), torch.tensor([1.0, 2.0])
    assert pushed(lambda x: Triple.apply(1, x, None).sin() + x, x, t).tolist() == (
        (3 * t * torch.full((2,), 2.0).cos() + t).tolist()
    )
    assert torch.autograd.functional.jvp(lambda x: x * 2, x, t)[1].tolist() == [2.0, 4.0]


def test_jvp_without_backward():
    class Forwards(Function):
        @staticmethod
        def forward(x, y):
            return x * 2 + y * 3

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def jvp(ctx, x, y):
            return (0 if x is None else x * 2) + (0 if y is None else y * 3)

    x = torch.ones(2, dtype=torch.double)
    value, tangent = torch.func.jvp(Forwards.apply, (x, x), (x, x))
    assert value.tolist() == tangent.tolist() == [5.0, 5.0]
    inputs = (x.clone().requires_grad_(), x.clone().requires_grad_())
    assert gradcheck(Forwards.apply, inputs, check_forward_ad=True, check_backward_ad=False, check_batched_grad=False)


@pytest.mark.parametrize(
    "way, words",
    [
        ("ok", None),
        ("copy", "jvp is not returning a view"),
        ("other", "jvp is not returning a view of the given grad input"),
    ],
)
def test_tangents_of_views(way, words):
    class Part(Function):
        @staticmethod
        def forward(ctx, x):
            return x.narrow(0, 0, 2)

        @staticmethod
        def jvp(ctx, tangent):
            part = tangent.narrow(0, 0, 2)
            return part if way == "ok" else part.clone() if way == "copy" else part.clone().view(2)

    x, t = torch.ones(3), torch.tensor([1.0, 2.0, 3.0])
    if words is None:
        assert pushed(Part.apply, x, t).tolist() == [1.0, 2.0]
        return
    with pytest.raises(RuntimeError, match=words):
        pushed(Part.apply, x, t)


@pytest.mark.parametrize("in_place", [True, False])
def test_tangents_of_what_is_changed(in_place):
    class Double(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def jvp(ctx, tangent):
            return tangent.mul_(2) if in_place else tangent * 2

    t = torch.ones(2)
    if in_place:
        assert pushed(lambda x: Double.apply(x.clone()), torch.ones(2), t).tolist() == [2.0, 2.0]
        return
    with pytest.raises(RuntimeError, match="not modifying the forward mode gradients inplace"):
        pushed(lambda x: Double.apply(x.clone()), torch.ones(2), t)


def test_a_tangent_where_there_is_none():
    class Two(Function):
        @staticmethod
        def forward(ctx, x):
            second = x.clone()
            ctx.mark_non_differentiable(second)
            return x.clone(), second

        @staticmethod
        def jvp(ctx, tangent):
            return tangent, tangent.clone()

    with pytest.raises(RuntimeError, match="You should return None at that position instead"):
        pushed(lambda x: Two.apply(x)[0], torch.ones(2), torch.ones(2))


def test_tensors_without_a_tangent_have_zeros():
    class Sum(Function):
        @staticmethod
        def forward(ctx, x, y, numbers):
            ctx.save_for_backward(x)
            return x + y

        @staticmethod
        def jvp(ctx, x, y, numbers):
            assert ctx.saved_tensors == ()
            assert numbers is None
            seen.append(y.tolist())
            return x + y

    seen = []
    x = torch.ones(2)
    assert pushed(lambda x: Sum.apply(x, torch.ones(2), torch.tensor([1])), x, x * 3).tolist() == [3.0, 3.0]
    assert seen == [[0.0, 0.0]]
