"""The Jacobians that gradcheck compares: by differences of values, and by autograd."""

import itertools

from mica import _C


def _as_tuple(given):
    return tuple(given) if isinstance(given, (tuple, list)) else (given,)


def _is_checked(x):
    return isinstance(x, _C.Tensor) and x.requires_grad


def _differentiable(outputs):
    return tuple(y for y in _as_tuple(outputs) if _is_checked(y))


def _real_list(tensor):
    """The elements as a flat list of floats, real and imaginary parts side by side."""
    flat = tensor.detach().resolve_conj().resolve_neg().reshape(-1)
    flat = (_C.view_as_real(flat).reshape(-1) if flat.is_complex() else flat).to(_C.float64)
    if hasattr(type(flat), "__torch_dispatch__"):  # whose class hands out one number at a time
        return [flat[i].item() for i in range(flat.numel())]
    return flat.tolist()


def _units(tensor):
    """The directions of change of a tensor: (index, step) for every element, and for both parts of a complex one."""
    steps = (1.0, 1j) if tensor.is_complex() else (1.0,)
    for index in itertools.product(*(range(size) for size in tensor.shape)):
        for step in steps:
            yield index, step


# ---- Jacobians: for every input a list of columns, or for every output a list of rows


def _number_outputs(func, inputs):
    return [y for y in _as_tuple(func(*inputs)) if _is_number_tensor(y)]


def _check_alike(above, below):
    """Refuse functions whose outputs change their form with the values of inputs."""
    for a, b in zip(above, below, strict=False):
        for what in ("shape", "dtype"):
            if getattr(a, what) != getattr(b, what):
                raise AssertionError(
                    f"Expected `func` to return outputs with the same {what} when inputs are perturbed by a small "
                    f"numerical step, but got {getattr(a, what)} and {getattr(b, what)}"
                )


def _is_number_tensor(y):
    return isinstance(y, _C.Tensor) and (y.is_floating_point() or y.is_complex())


def _difference_quotient(func, inputs, change, eps):
    """Central difference of all outputs while `change(step)` moves the inputs away from where they are."""
    change(eps)
    above = [y.clone() for y in _number_outputs(func, inputs)]
    change(-eps)
    below = [y.clone() for y in _number_outputs(func, inputs)]
    change(0.0)
    _check_alike(above, below)
    pairs = [(_real_list(a), _real_list(b)) for a, b in zip(above, below, strict=True)]
    return [[(a - b) / (2 * eps) for a, b in zip(*each, strict=True)] for each in pairs]


def _numerical_columns(func, inputs, x, eps):
    """For each direction of x, the derivatives of all outputs."""
    data = x.data
    columns = []
    for index, unit in _units(x):
        origin = data[index].clone()

        def change(step, index=index, unit=unit, origin=origin):
            data[index] = origin + step * unit

        columns.append(_difference_quotient(func, inputs, change, eps))
        data[index] = origin
    return columns


def _analytical_rows(output, inputs):
    """For each direction of the output, the gradients of all inputs."""
    rows = []
    for index, unit in _units(output):
        weight = _C.zeros_like(output, memory_format=_C.contiguous_format)
        weight[index] = unit
        grads = _C._autograd_grad(output, inputs, weight, True, False, True)
        rows.append([_C.zeros_like(x) if g is None else g for g, x in zip(grads, inputs, strict=True)])
    return rows
