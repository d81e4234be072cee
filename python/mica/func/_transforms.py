"""Gradients as functions."""

import functools

from mica.utils._pytree import tree_flatten, tree_map, tree_unflatten

__all__ = ["grad", "grad_and_value", "hessian", "jacrev", "vjp"]


def _as_inputs(value):
    """The tensors of a nest as new inputs of a graph, attached to the old ones for derivatives of derivatives."""
    return tree_map(lambda t: t.view_as(t) if t.requires_grad else t.detach().requires_grad_(), value)


def _chosen(args, argnums):
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    for n in numbers:
        if not -len(args) <= n < len(args):
            raise RuntimeError(f"Got argnum={n}, but only {len(args)} positional inputs")
    return numbers


def _with_inputs(args, argnums):
    """The arguments with those to differentiate made inputs of a graph; and their leaves, with the shape they came in."""
    numbers = _chosen(args, argnums)
    args = list(args)
    for n in numbers:
        args[n] = _as_inputs(args[n])
    wanted = args[argnums] if isinstance(argnums, int) else tuple(args[n] for n in numbers)
    leaves, spec = tree_flatten(wanted)
    return args, leaves, spec


def grad_and_value(func, argnums=0, has_aux=False):
    """A function that returns the gradient of a scalar function, and its value."""
    import mica

    @functools.wraps(func)
    def differentiated(*args, **kwargs):
        outer = mica.is_grad_enabled()
        with mica.enable_grad():
            args, leaves, spec = _with_inputs(args, argnums)
            output = func(*args, **kwargs)
            value, aux = output if has_aux else (output, None)
            if not isinstance(value, mica.Tensor) or value.dim() != 0:
                raise RuntimeError(
                    "Expected the function given to grad to return a scalar tensor (of 0 dimensions), got "
                    f"{tuple(value.shape) if isinstance(value, mica.Tensor) else type(value)}"
                )
            create = outer and any(leaf.grad_fn is not None for leaf in leaves)
            found = mica.autograd.grad(value, leaves, create_graph=create, allow_unused=True)
        zeros = [mica.zeros_like(x) if g is None else g for x, g in zip(leaves, found, strict=True)]
        gradient = tree_unflatten(zeros, spec)
        value = value if create else value.detach()
        return (gradient, (value, aux)) if has_aux else (gradient, value)

    return differentiated


def grad(func, argnums=0, has_aux=False):
    """A function that returns the gradient of a scalar function."""
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def differentiated(*args, **kwargs):
        gradient, value = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return differentiated


def vjp(func, *primals, has_aux=False):
    """The value of a function, and a function from a vector to its product with the Jacobian."""
    import mica

    with mica.enable_grad():
        args, leaves, _ = _with_inputs(primals, tuple(range(len(primals))))
        output = func(*args)
    value, aux = output if has_aux else (output, None)
    outputs, out_spec = tree_flatten(value)

    def product(cotangents, retain_graph=True, create_graph=None):
        vectors, spec = tree_flatten(cotangents)
        if spec != out_spec:
            raise RuntimeError(f"Expected pytree structure of cotangents to be {out_spec}, got {spec}")
        create = create_graph
        if create is None:
            # A graph of the product is of use only to who differentiates through what it is made of.
            attached = any(leaf.grad_fn is not None for leaf in leaves) or any(v.requires_grad for v in vectors)
            create = mica.is_grad_enabled() and attached
        found = mica.autograd.grad(
            outputs, leaves, vectors, retain_graph=retain_graph, create_graph=create, allow_unused=True
        )
        zeros = [mica.zeros_like(x) if g is None else g for x, g in zip(leaves, found, strict=True)]
        return tree_unflatten(zeros, tree_flatten(tuple(args))[1])

    return (value, product, aux) if has_aux else (value, product)


def jacrev(func, argnums=0, *, has_aux=False, chunk_size=None):
    """A function that returns the Jacobian of a function, computed row by row backwards."""
    import mica

    @functools.wraps(func)
    def jacobian(*args, **kwargs):
        with mica.enable_grad():
            args, leaves, spec = _with_inputs(args, argnums)
            output = func(*args, **kwargs)
            value, aux = output if has_aux else (output, None)
            outputs, out_spec = tree_flatten(value)
            rows = [_jacobian(out, leaves) for out in outputs]
        result = tree_unflatten([tree_unflatten(row, spec) for row in rows], out_spec)
        return (result, aux) if has_aux else result

    return jacobian


def _jacobian(output, inputs):
    """The derivative of every element of one output with respect to every input."""
    import mica

    parts = [[] for _ in inputs]
    create = any(x.grad_fn is not None for x in inputs)
    for element in output.reshape(-1):
        found = mica.autograd.grad(element, inputs, retain_graph=True, create_graph=create, allow_unused=True)
        for part, x, g in zip(parts, inputs, found, strict=True):
            part.append(mica.zeros_like(x) if g is None else g)
    return [
        mica.stack(part).reshape(output.shape + x.shape) if part else x.new_zeros(output.shape + x.shape)
        for part, x in zip(parts, inputs, strict=True)
    ]


def hessian(func, argnums=0):
    """A function that returns the second derivatives of a scalar function."""
    return jacrev(jacrev(func, argnums), argnums)
