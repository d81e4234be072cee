"""Checks of gradients against differences of the function's values.

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
    get_analytical_jacobian,
    get_numerical_jacobian,
)
from mica.autograd.function import Function
from mica.autograd.grad_mode import enable_grad

__all__ = ["GradcheckError", "get_analytical_jacobian", "get_numerical_jacobian", "gradcheck", "gradgradcheck"]


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


# ---- the checks


def _of_strided(func, inputs, masked):
    """The function and its inputs; where an input is sparse, as a problem of strided tensors."""
    if all(not _is_checked(x) or x.layout is _C.strided for x in inputs):
        return func, inputs
    from mica.sparse._gradcheck import of_strided  # imports this file

    return of_strided(func, inputs, masked)


def _check_inputs(inputs):
    if not any(_is_checked(x) for x in inputs):
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of the them have "
            "requires_grad=True."
        )
    for i, x in enumerate(inputs):
        if not _is_checked(x):
            continue
        if x.dtype not in (_C.float64, _C.complex128):
            warnings.warn(
                f"Input #{i} requires gradient and is not a double precision floating point or complex. This check "
                "will likely fail if all the inputs are not of double precision floating point or complex. ",
                stacklevel=3,
            )
        if any(stride == 0 and size > 1 for stride, size in zip(x.stride(), x.shape, strict=True)):
            raise RuntimeError(
                f"The {i}th input has a dimension with stride 0. gradcheck only supports inputs that are "
                "non-overlapping to be able to compute the numerical gradients correctly. You should call "
                ".contiguous on the input before passing it to gradcheck."
            )


def _check_batched(outputs, checked):
    """Gradients of several weights at once (vmap) are those of one after the other."""
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
    """Tangents of several directions at once (vmap) are those of one after the other."""
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


def gradcheck(
    func,
    inputs,
    *,
    eps=1e-6,
    atol=1e-5,
    rtol=1e-3,
    raise_exception=True,
    nondet_tol=0.0,
    check_undefined_grad=True,
    check_grad_dtypes=False,
    check_batched_grad=False,
    check_batched_forward_grad=False,
    check_forward_ad=False,
    check_backward_ad=True,
    fast_mode=False,
    masked=None,
):
    """Whether autograd's gradients of func at `inputs` agree with differences of func's values.

    Every derivative must be within atol + rtol * |difference quotient|. With fast_mode one random direction is tried
    instead of all. A failure raises GradcheckError, or returns False if raise_exception is False. Of sparse inputs the
    elements that they hold are varied if `masked` is true, else all.
    """
    if not (check_forward_ad or check_backward_ad):
        raise AssertionError("Expected at least one of check_forward_ad or check_backward_ad to be True")
    if check_batched_grad and not check_backward_ad:
        raise AssertionError("Setting check_batched_grad=True requires check_backward_ad to be True")
    if check_batched_forward_grad and not check_forward_ad:
        raise AssertionError("Setting check_batched_forward_grad=True requires check_forward_ad to be True")
    inputs = _as_tuple(inputs)
    func, inputs = _of_strided(func, inputs, masked)
    try:
        _check_inputs(inputs)
        checked = [x for x in inputs if _is_checked(x)]
        with enable_grad():
            outputs = _as_tuple(func(*inputs))
            if any(isinstance(y, _C.Tensor) and y.layout is not _C.strided for y in outputs):
                raise ValueError(
                    "Sparse output is not supported at gradcheck yet. Please call to_dense(masked_grad=...) on the "
                    "output of fn for gradcheck."
                )
            if any(any(y is x for x in checked) for y in outputs):
                # An output that is an input would move with it. A view of it does so too, but is an object of its own.
                outputs = tuple(y.view_as(y) if _is_checked(y) else y for y in outputs)
            if check_backward_ad:
                if fast_mode:
                    _check_fast(func, inputs, outputs, checked, eps, atol, rtol, nondet_tol)
                else:
                    _check_slowly(func, inputs, outputs, checked, eps, atol, rtol, nondet_tol, check_grad_dtypes)
                if check_batched_grad:
                    _check_batched(outputs, checked)
                if check_undefined_grad and _differentiable(outputs):
                    _check_undefined(func, inputs, checked)
            if check_forward_ad:
                _check_forwards(func, inputs, outputs, checked, eps, atol, rtol)
            if check_batched_forward_grad:
                _check_batched_forwards(func, inputs, checked)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(
    func,
    inputs,
    grad_outputs=None,
    *,
    eps=1e-6,
    atol=1e-5,
    rtol=1e-3,
    gen_non_contig_grad_outputs=False,
    raise_exception=True,
    nondet_tol=0.0,
    check_undefined_grad=True,
    check_grad_dtypes=False,
    check_batched_grad=False,
    check_fwd_over_rev=False,
    check_rev_over_rev=True,
    fast_mode=False,
    masked=False,
):
    """gradcheck of the gradients of func, as functions of `inputs` and of `grad_outputs` (random ones if not given)."""
    if not (check_fwd_over_rev or check_rev_over_rev):
        raise AssertionError("Expected at least one of check_fwd_over_rev or check_rev_over_rev to be True")
    for wanted, name in ((check_undefined_grad, "undefined_grad"), (check_batched_grad, "batched_grad")):
        if wanted and not check_rev_over_rev:
            raise AssertionError(f"Setting check_{name}=True requires check_rev_over_rev to be True")
    func, inputs = _of_strided(func, _as_tuple(inputs), masked)
    if grad_outputs is None:
        grad_outputs = []
        for output in _differentiable(func(*inputs)):
            weight = _C.randn_like(output, memory_format=_C.contiguous_format).detach()
            if gen_non_contig_grad_outputs:
                weight = _C.stack([weight, weight], -1)[..., 0]
            grad_outputs.append(weight.requires_grad_())
        grad_outputs = tuple(grad_outputs)
    else:
        grad_outputs = _as_tuple(grad_outputs)

    def gradients(*args):
        given, weights = args[: -len(grad_outputs)], args[-len(grad_outputs) :]
        # The differences are taken without recording, but gradients need a graph at any time.
        with enable_grad():
            outputs = _differentiable(func(*given))
            sources = [x for x in given if _is_checked(x)]
            grads = _C._autograd_grad(outputs, sources, weights, True, True, True)
        return tuple(g for g in grads if g is not None)

    return gradcheck(
        gradients,
        inputs + grad_outputs,
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad,
        check_grad_dtypes=check_grad_dtypes,
        check_batched_grad=check_batched_grad,
        check_forward_ad=check_fwd_over_rev,
        check_backward_ad=check_rev_over_rev,
        fast_mode=fast_mode,
    )
