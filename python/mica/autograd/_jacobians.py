"""The Jacobians that gradcheck compares: by differences of values, and by autograd."""

import functools
import itertools
import warnings

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
    if (
        type(flat).__torch_dispatch__ is not _C._disabled_torch_dispatch_impl
    ):  # its class hands out one number at a time
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


# ---- under their old public names


def _of_real_outputs(function):
    """Warn as torch does of this old function, and refuse a grad_out, which it no longer takes."""

    @functools.wraps(function)
    def called(*args, grad_out=1.0, **kwargs):
        warnings.warn(
            f"`{function.__name__}` was part of PyTorch's private API and not meant to be exposed. It is deprecated, and "
            "will go in a future version of PyTorch; gradcheck and torch.func.jacrev stay.",
            FutureWarning,
            stacklevel=2,
        )
        if grad_out != 1.0:
            raise ValueError(
                f"Expected grad_out to be 1.0. {function.__name__} no longer supports values of grad_out != 1.0."
            )
        return function(*args, **kwargs)

    return called


def _refuse_complex(output, name):
    if output.is_complex():
        raise ValueError(
            f"Expected output to be non-complex. {name} no longer supports functions that return complex outputs."
        )


def _checked_tensors(given):
    return [x for x in _as_tuple(given) if _is_checked(x)]


def _as_table(lines, x, count):
    """A tensor with a line for each element of x, from lines of floats for each of its directions."""
    table = _C.tensor(lines, dtype=_C.float64).reshape(-1, count)
    if x.is_complex():
        table = _C.complex(table[::2], table[1::2])
    return table.to(x.dtype)


@_of_real_outputs
def get_numerical_jacobian(fn, inputs, target=None, eps=1e-3):
    """For each tensor of `target` or `inputs` that requires grad, the derivatives of fn(inputs)'s first output by differences.

    `fn` takes all inputs as one tuple. A table has a line for each element of the tensor, a column for each of the output.
    """
    outputs = _number_outputs(lambda *given: fn(given), inputs)
    for output in outputs:
        _refuse_complex(output, "get_numerical_jacobian")
    tables = []
    for x in _checked_tensors(inputs if target is None else target):
        columns = _numerical_columns(lambda *given: fn(given), inputs, x, eps)
        tables.append(_as_table([column[0] for column in columns], x, outputs[0].numel()))
    return tuple(tables)


@_of_real_outputs
def get_analytical_jacobian(inputs, output, nondet_tol=0.0):
    """The derivatives of `output` by autograd, and whether they repeat, have the inputs' sizes and their dtypes.

    Returns (tables, they repeat, sizes agree, dtypes agree); tables are those of get_numerical_jacobian.
    """
    _refuse_complex(output, "get_analytical_jacobian")
    checked = _checked_tensors(inputs)
    rows, again = _analytical_rows(output, checked), _analytical_rows(output, checked)
    tables, repeat, sizes, dtypes = [], True, True, True
    for j, x in enumerate(checked):
        both = [
            [list(line) for line in zip(*(_real_list(row[j]) for row in each), strict=True)] for each in (rows, again)
        ]
        pairs = zip(*(itertools.chain.from_iterable(each) for each in both), strict=True)
        repeat = repeat and all(abs(a - b) <= nondet_tol for a, b in pairs)
        sizes = sizes and all(row[j].shape == x.shape for row in rows)
        dtypes = dtypes and all(row[j].dtype == x.dtype for row in rows)
        tables.append(_as_table(both[0], x, output.numel()))
    return tuple(tables), repeat, sizes, dtypes
