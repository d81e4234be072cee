"""Checks of gradients against differences of the function's values: gradcheck and gradgradcheck."""

import warnings

from mica import _C
from mica.autograd._gradient_checks import (
    GradcheckError,
    _check_batched,
    _check_batched_forwards,
    _check_fast,
    _check_forwards,
    _check_slowly,
    _check_undefined,
)
from mica.autograd._jacobians import (
    _as_tuple,
    _differentiable,
    _is_checked,
    get_analytical_jacobian,
    get_numerical_jacobian,
)
from mica.autograd.grad_mode import enable_grad

__all__ = ["GradcheckError", "get_analytical_jacobian", "get_numerical_jacobian", "gradcheck", "gradgradcheck"]
GradcheckError.__module__ = __name__  # where programs import it from


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
    instead of all. A failure raises GradcheckError, or returns False if raise_exception is False. For sparse inputs, only the
    elements that they hold are varied if `masked` is true, otherwise all elements.
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
