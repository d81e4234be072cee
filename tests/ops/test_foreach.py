"""One operation on a list of tensors: mica._foreach_*."""

import mica
import pytest


def lists():
    mica.manual_seed(0)
    return [mica.rand(2, 3) + 0.5, mica.rand(4) + 0.5], [mica.rand(2, 3) + 0.5, mica.rand(4) + 0.5]


def equal(found, wanted):
    return len(found) == len(wanted) and all(mica.equal(a, b) for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize("op", ["abs", "exp", "log", "neg", "sqrt", "reciprocal", "tanh", "sigmoid", "floor", "sign"])
def test_of_one(op):
    a, _ = lists()
    wanted = [getattr(mica, op)(x) for x in a]
    assert equal(getattr(mica, f"_foreach_{op}")(a), wanted)
    assert getattr(mica, f"_foreach_{op}_")(a) is a and equal(a, wanted)


@pytest.mark.parametrize("op", ["add", "sub", "mul", "div", "pow", "maximum", "minimum", "clamp_max", "clamp_min"])
@pytest.mark.parametrize("other", ["tensors", "scalar", "scalars", "tensor"])
def test_of_two(op, other):
    a, b = lists()
    second = {"tensors": b, "scalar": 0.75, "scalars": [0.5, 0.9], "tensor": mica.tensor(0.7)}[other]
    rows = second if isinstance(second, list) else [second] * 2
    names = {"maximum": "max", "clamp_min": "max", "minimum": "min", "clamp_max": "min"}

    def one(x, y):
        if op in names:
            return getattr(mica, f"{names[op]}imum")(x, y if isinstance(y, mica.Tensor) else mica.tensor(y))
        return getattr(mica, op)(x, y)

    wanted = [one(x, y) for x, y in zip(a, rows, strict=True)]
    assert equal(getattr(mica, f"_foreach_{op}")(a, second), wanted)
    getattr(mica, f"_foreach_{op}_")(a, second)
    assert equal(a, wanted)


def test_the_others():
    a, b = lists()
    assert equal(mica._foreach_add(a, b, alpha=2), [x + 2 * y for x, y in zip(a, b, strict=True)])
    assert equal(
        mica._foreach_addcmul(a, a, b, value=2), [mica.addcmul(x, x, y, value=2) for x, y in zip(a, b, strict=True)]
    )
    assert equal(
        mica._foreach_addcdiv(a, a, b, [1.0, 3.0]),
        [mica.addcdiv(x, x, y, value=v) for x, y, v in zip(a, b, (1, 3), strict=True)],
    )
    assert equal(mica._foreach_lerp(a, b, 0.25), [mica.lerp(x, y, 0.25) for x, y in zip(a, b, strict=True)])
    assert equal(mica._foreach_norm(a), [x.norm() for x in a]) and equal(mica._foreach_max(a), [x.max() for x in a])
    assert equal(mica._foreach_pow(2, a), [2**x for x in a])
    mica._foreach_copy_(a, b)
    assert equal(a, b) and equal(mica._foreach_clone(a), b)
    mica._foreach_zero_(a)
    assert not any(x.any() for x in a)


def test_errors():
    a, _ = lists()
    with pytest.raises(RuntimeError, match="Tensor list must have at least one tensor"):
        mica._foreach_add([], 1)
    with pytest.raises(RuntimeError, match="same number of elements as scalar list"):
        mica._foreach_mul(a, [1.0])
    with pytest.raises(RuntimeError, match="must have the same number of tensors, got 2 and 1"):
        mica._foreach_mul(a, a[:1])
    with pytest.raises(TypeError, match="must be tuple of Tensors, not Tensor"):
        mica._foreach_exp(a[0])


def test_factors_in_a_tensor_are_one_for_each():
    ones = [mica.ones(2), mica.ones(2)]
    for name in ("addcmul", "addcdiv"):
        function = getattr(mica, f"_foreach_{name}")
        assert [t.tolist() for t in function(ones, ones, ones, mica.tensor([1.0, 2.0]))] == [[2, 2], [3, 3]]
        assert [t.tolist() for t in function(ones, ones, ones, value=mica.tensor(2.0))] == [[3, 3], [3, 3]]
        for scalars, message in (
            (mica.tensor(1.0), "Expected packed scalar Tensor to be of dimension 1. Got 0 instead."),
            (mica.ones(2, 1), "Expected packed scalar Tensor to be of dimension 1. Got 2 instead."),
            (mica.ones(4)[::2], "Expected scalars to be contiguous."),
            (mica.ones(3), "Expected length of scalars to match input of length 2 but got 3 instead."),
        ):
            changed = [t.clone() for t in ones]
            with pytest.raises(RuntimeError, match=message):
                function(ones, ones, ones, scalars)
            with pytest.raises(RuntimeError, match=message):
                getattr(mica, f"_foreach_{name}_")(changed, ones, ones, scalars)
            assert [t.tolist() for t in changed] == [[1, 1], [1, 1]]


def test_the_largest_of_nothing_is_no_norm():
    with pytest.raises(RuntimeError, match="_foreach_norm cannot compute the infinity norm on an empty tensor"):
        mica._foreach_norm([mica.ones(2), mica.ones(0)], float("inf"))
    assert [t.item() for t in mica._foreach_norm([mica.ones(2), mica.ones(0)], 1)] == [2, 0]


def test_arguments_by_name():
    a, b = lists()
    assert equal(mica._foreach_pow(a, exponent=2), [x**2 for x in a])
    assert equal(mica._foreach_pow(self=2.0, exponent=a), [2.0**x for x in a])
    assert equal(mica._foreach_pow(a, exponent=b), [x**y for x, y in zip(a, b, strict=True)])
    assert equal(mica._foreach_add(self=a, other=b, alpha=2), [x + 2 * y for x, y in zip(a, b, strict=True)])
    assert equal(mica._foreach_add(a, scalar=2), [x + 2 for x in a])
    assert equal(mica._foreach_maximum(a, scalars=[0.7, 0.9]), [a[0].clamp(min=0.7), a[1].clamp(min=0.9)])
    assert equal(mica._foreach_lerp(a, b, weights=a), [x.lerp(y, x) for x, y in zip(a, b, strict=True)])
    wanted = [x / 2 for x in a]
    assert mica._foreach_div_(a, scalar=2) is a and equal(a, wanted)
    for call in (
        lambda: mica._foreach_pow(a, other=2),
        lambda: mica._foreach_pow(a),
        lambda: mica._foreach_pow(a, 2, exponent=3),
        lambda: mica._foreach_add(a, 1, 2),
        lambda: mica._foreach_lerp(a, b),
        lambda: mica._foreach_lerp(a, b, 0.5, weights=a),
    ):
        with pytest.raises(TypeError, match="_foreach_"):
            call()
