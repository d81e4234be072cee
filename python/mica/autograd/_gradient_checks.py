"""The checks that gradcheck makes, one after the other. Each compares derivatives and raises GradcheckError where they differ.

Complex numbers are pairs of real ones here: every comparison is between real Jacobians. Autograd's gradient of a complex
input holds the derivatives by its real and its imaginary part, for an output weighted by a real or an imaginary unit.
"""

import warnings

from mica import _C
from mica.autograd._jacobians import (
    _analytical_rows,
    _as_tuple,
    _difference_quotient,
    _differentiable,
    _is_checked,
    _is_number_tensor,
    _numerical_columns,
    _real_list,
)
from mica.autograd.function import Function


class GradcheckError(RuntimeError):
    """Raised by gradcheck and gradgradcheck when a check fails."""


# ---- comparing


def _close(a, b, atol, rtol):
    return a == b or abs(a - b) <= atol + rtol * abs(b)


def _table(rows):
    return str(_C.tensor(rows, dtype=_C.float64))


def _as_complex(lines):
    """Lines for the real and the imaginary part of an input, one after the other, as one line each of complex numbers."""
    return [[complex(*pair) for pair in zip(*both, strict=True)] for both in zip(lines[::2], lines[1::2], strict=True)]


def _compare_jacobians(i, j, numerical, analytical, atol, rtol, by_complex, parts=(("", 0, 1),)):
    """Compare two tables. `parts` has the columns to look at, one after the other: (what they are, first, step).

    Both derivatives by an element of a complex input are one number, whose error is its distance.
    """
    compared = (_as_complex(numerical), _as_complex(analytical)) if by_complex else (numerical, analytical)
    for text, first, step in parts:
        for line_n, line_a in zip(*compared, strict=True):
            for n, a in zip(line_n[first::step], line_a[first::step], strict=True):
                if not _close(a, n, atol, rtol):
                    raise GradcheckError(
                        f"{text}Jacobian mismatch for output {i} with respect to input {j},\n"
                        f"numerical:{_table(numerical)}\nanalytical:{_table(analytical)}\n"
                    )


_PARTS_OF_COMPLEX = (
    ("While considering the imaginary part of complex outputs only, ", 1, 2),
    ("While considering the real part of complex outputs only, ", 0, 2),
)


def _check_repeats(grads, again, nondet_tol):
    """Refuse gradients that a second pass makes otherwise."""
    for grad, repeated in zip(grads, again, strict=True):
        if grad is None or repeated is None:
            continue
        if any(abs(a - b) > nondet_tol for a, b in zip(_real_list(grad), _real_list(repeated), strict=True)):
            raise GradcheckError(
                "Backward is not reentrant, i.e., running backward with same input and grad_output multiple times gives "
                "different values, although analytical gradient matches numerical gradient. The tolerance for "
                f"nondeterminism was {nondet_tol}."
            )


def _check_grad_type(grad, x, check_dtypes):
    if grad.layout != x.layout:
        raise GradcheckError(f"grad is incorrect layout ({grad.layout} is not {x.layout})")
    if check_dtypes and grad.dtype != x.dtype:
        raise GradcheckError(f"expected grad of dtype {x.dtype}, but got {grad.dtype}")


def _check_slowly(func, inputs, outputs, checked, eps, atol, rtol, nondet_tol, check_dtypes):
    numerical = [_numerical_columns(func, inputs, x, eps) for x in checked]
    place = -1
    for i, output in enumerate(outputs):
        if not _is_number_tensor(output):
            continue
        place += 1
        if not output.requires_grad:
            if any(value for columns in numerical for column in columns for value in column[place]):
                raise GradcheckError("Numerical gradient for function expected to be zero")
            continue
        rows = _analytical_rows(output, checked)
        again = _analytical_rows(output, checked)
        for j, x in enumerate(checked):
            for row, repeated in zip(rows, again, strict=True):
                _check_grad_type(row[j], x, check_dtypes)
                _check_repeats([row[j]], [repeated[j]], nondet_tol)
            # Both have a line for each direction of the input.
            analytical = [list(line) for line in zip(*(_real_list(row[j]) for row in rows), strict=True)]
            expected = [column[place] for column in numerical[j]]
            if analytical or expected:
                analytical = analytical or [[] for _ in expected]
                parts = _PARTS_OF_COMPLEX if output.is_complex() else (("", 0, 1),)
                _compare_jacobians(i, j, expected, analytical, atol, rtol, x.is_complex(), parts)


def _random_direction(tensor, generator):
    """A random direction of unit length."""
    direction = _C.rand(tensor.shape, generator=generator, dtype=tensor.dtype).to(tensor.device) + 0.1
    return direction / max(sum(value * value for value in _real_list(direction)) ** 0.5, 1e-30)


def _check_fast(func, inputs, outputs, checked, eps, atol, rtol, nondet_tol):
    """Compares u.J.v for one random u and v of each pair: one pass each instead of one for each element."""
    numbers = [y for y in outputs if _is_number_tensor(y)]
    generator = _C.Generator()  # not the default one: the function may draw from it
    for j, x in enumerate(checked):
        direction = _random_direction(x, generator)
        data, origin = x.data, x.detach().clone()

        def change(step, data=data, origin=origin, direction=direction):
            data.copy_(origin + step * direction)

        slopes = _difference_quotient(func, inputs, change, eps)
        for i, output in enumerate(numbers):
            weight = _random_direction(output, generator)
            total = sum(_real_list(weight)) * sum(_real_list(direction))  # the weights of all single derivatives
            expected = sum(a * b for a, b in zip(_real_list(weight), slopes[i], strict=True))
            found = 0.0
            if not output.requires_grad and any(slopes[i]):
                raise GradcheckError("Numerical gradient for function expected to be zero")
            if output.requires_grad:
                (grad,), again = (_C._autograd_grad(output, [x], weight, True, False, True) for _ in range(2))
                _check_repeats([grad], again, nondet_tol)
                if grad is not None:
                    found = sum(a * b for a, b in zip(_real_list(grad), _real_list(direction), strict=True))
            if not _close(found, expected, atol * total, rtol):
                raise GradcheckError(
                    f"Jacobian mismatch for output {i} with respect to input {j} in a random direction,\n"
                    f"numerical:{expected}\nanalytical:{found}\n"
                    "Run with fast_mode=False to see the whole Jacobians."
                )


def _check_forwards(func, inputs, outputs, checked, eps, atol, rtol):
    """Compares J.v, computed forwards, for one random v of each input."""
    from mica.autograd import forward_ad

    generator = _C.Generator()
    for j, x in enumerate(checked):
        direction = _random_direction(x, generator)
        data, origin = x.data, x.detach().clone()

        def change(step, data=data, origin=origin, direction=direction):
            data.copy_(origin + step * direction)

        slopes = _difference_quotient(func, inputs, change, eps)
        with forward_ad.dual_level():
            duals = [
                forward_ad.make_dual(y, direction if y is x else _C.zeros_like(y)) if _is_checked(y) else y
                for y in inputs
            ]
            numbers = [y for y in _as_tuple(func(*duals)) if _is_number_tensor(y)]
            tangents = [forward_ad.unpack_dual(y).tangent for y in numbers]
        for i, (tangent, expected) in enumerate(zip(tangents, slopes, strict=True)):
            found = [0.0] * len(expected) if tangent is None else _real_list(tangent)
            if not all(_close(a, b, atol, rtol) for a, b in zip(found, expected, strict=True)):
                raise GradcheckError(
                    f"Jacobian computed with forward mode mismatch for output {i} with respect to input {j},\n"
                    f"numerical:{expected}\nanalytical:{found}\n"
                )


# ---- missing gradients


class _NoGradient(Function):
    """Passes its arguments on, and no gradient back."""

    @staticmethod
    def forward(ctx, *tensors):
        ctx.set_materialize_grads(False)
        return tuple(x.view_as(x) for x in tensors)

    @staticmethod
    def backward(ctx, *grads):
        return (None,) * len(grads)


def _check_undefined(func, inputs, checked):
    def check(which):
        outputs = _differentiable(func(*inputs))
        blocked = _NoGradient.apply(*(outputs[i] for i in which))
        chosen = list(outputs)
        for i, output in zip(which, blocked, strict=True):
            chosen[i] = output
        weights = [_C.zeros_like(y, memory_format=_C.contiguous_format) for y in chosen]
        try:
            grads = _C._autograd_grad(chosen, checked, weights, True, False, True)
        except Exception as error:
            warnings.warn(
                "Backwards compatibility: New undefined gradient support checking feature is enabled by default, but it "
                "may break existing callers of this function. If this is true for you, you can call this function with "
                '"check_undefined_grad=False" to disable the feature',
                stacklevel=2,
            )
            raise GradcheckError(
                "Expected backward function to handle undefined output grads: a gradient that is None counts as zero"
            ) from error
        if any(g is not None and any(_real_list(g)) for g in grads):
            raise GradcheckError(
                "Expected all input grads to be undefined or zero when all output grads are undefined or zero."
            )

    count = len(_differentiable(func(*inputs)))
    check(range(count))
    if count > 1:
        for i in range(count):
            check([i])


# ---- many at once


def _check_batched(outputs, checked):
    """Check that gradients for several weights at once (vmap) are the same as one after the other."""
    import mica  # imports this file

    for i, output in enumerate(_differentiable(outputs)):
        weights = [_C.randn_like(output) for _ in range(2)]
        options = {"retain_graph": True, "allow_unused": True}
        single = [mica.autograd.grad(output, checked, weight, **options) for weight in weights]
        batched = mica.autograd.grad(output, checked, _C.stack(weights), is_grads_batched=True, **options)
        for j, (got, *expected) in enumerate(zip(batched, *single, strict=True)):
            if got is None and all(each is None for each in expected):
                continue
            expected = [_C.zeros_like(checked[j]) if each is None else each for each in expected]
            if got is None or not _C.allclose(got, _C.stack(expected)):
                raise GradcheckError(
                    f"For output {i} and input {j}:\n\ngradcheck or gradgradcheck failed while testing batched gradient "
                    f"computation.\n\nGot:\n{got}\n\nExpected:\n{_C.stack(expected)}"
                )


def _check_batched_forwards(func, inputs, checked):
    """Check that tangents for several directions at once (vmap) are the same as one after the other."""
    import mica  # imports this file

    for j, x in enumerate(checked):

        def pushed(tangent, x=x):
            def of_one(value):
                return tuple(
                    y for y in _as_tuple(func(*(value if z is x else z for z in inputs))) if _is_number_tensor(y)
                )

            return mica.func.jvp(of_one, (x.detach(),), (tangent,))[1]

        directions = [_C.randn_like(x) for _ in range(2)]
        single = [pushed(direction) for direction in directions]
        batched = mica.func.vmap(pushed)(_C.stack(directions))
        for i, (got, *expected) in enumerate(zip(batched, *single, strict=True)):
            if not _C.allclose(got, _C.stack(expected)):
                raise GradcheckError(
                    f"For output {i} and input {j}:\n\ngradcheck or gradgradcheck failed while testing batched forward-mode "
                    f"gradient computation.\n\nGot:\n{got}\n\nExpected:\n{_C.stack(expected)}"
                )
