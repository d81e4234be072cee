"""Jacobians, Hessians and their products with vectors, of functions of tensors."""

from mica import _C
from mica.autograd.grad_mode import enable_grad

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]


def _as_tuple(given, what, function):
    """The tensors of `given`, and whether they came as a tuple."""
    is_tuple = isinstance(given, (tuple, list))
    tensors = tuple(given) if is_tuple else (given,)
    for i, tensor in enumerate(tensors):
        if not isinstance(tensor, _C.Tensor):
            place = f"value at index {i} in the tuple" if is_tuple else "given value"
            raise TypeError(
                f"The {what} given to {function} must be either a Tensor or a tuple of Tensors but the {place} has "
                f"type {type(tensor)}."
            )
    return tensors, is_tuple


def _construct_standard_basis_for(tensors, tensor_numels):
    """The unit vectors of the space of several tensors' elements, as a matrix for each tensor with its part of them."""
    if len(tensors) != len(tensor_numels):
        raise AssertionError(
            f"Expected tensors and tensor_numels to have the same length, but got {len(tensors)} and {len(tensor_numels)}"
        )
    if not tensors:
        raise AssertionError("Expected at least one tensor")
    total, first, parts = sum(tensor_numels), 0, []
    for tensor, count in zip(tensors, tensor_numels, strict=True):
        part = tensor.new_zeros(total, count)
        part.diagonal(-first).fill_(1)
        parts.append(part)
        first += count
    return tuple(parts)


def _unpacked(tensors, was_tuple):
    return tensors if was_tuple else tensors[0]


def _prepared(inputs, create_graph):
    """Inputs to differentiate by: part of the given graph, or leaves of their own."""
    if _C._are_functorch_transforms_active():
        raise RuntimeError(
            "You are attempting to call Tensor.requires_grad_() (or perhaps using torch.autograd.functional.* APIs) inside "
            "of a function being transformed by a functorch transform. This is unsupported, please attempt to use the "
            "functorch transforms (e.g. grad, vjp, jacrev, jacfwd, hessian) or call requires_grad_() outside of a function "
            "being transformed instead."
        )
    return tuple(x.view_as(x) if create_graph and x.requires_grad else x.detach().requires_grad_() for x in inputs)


def _finished(results, create_graph):
    """Results that carry no graph unless it was asked for."""
    return results if create_graph else tuple(each.detach() for each in results)


def _evaluate(func, inputs, function):
    outputs = func(*inputs)
    return _as_tuple(outputs, "outputs of the user-provided function", function)


def _check_outputs(outputs, strict):
    for i, output in enumerate(outputs):
        if strict and not output.requires_grad:
            raise RuntimeError(
                f"Output {i} of the user-provided function does not require gradients. The outputs must be computed "
                "in a differentiable manner from the input when running in strict mode."
            )


def _grad(outputs, inputs, weights, create_graph):
    """Gradients of those outputs that have any, None for inputs without one."""
    pairs = [(o, w) for o, w in zip(outputs, weights, strict=True) if o is not None and o.requires_grad]
    if not pairs:
        from mica._subclasses.dispatching import refuse_gradients_by

        refuse_gradients_by(inputs)
        return (None,) * len(inputs)
    used = [i for i, x in enumerate(inputs) if x.requires_grad]
    outputs, weights = zip(*pairs, strict=True)
    grads = _C._autograd_grad(outputs, [inputs[i] for i in used], list(weights), True, create_graph, True)
    result = [None] * len(inputs)
    for i, each in zip(used, grads, strict=True):
        result[i] = each
    return tuple(result)


_NOT_STRICT = "This is not allowed in strict mode"


def _or_zeros(grads, references, strict, missing, create_graph=False, what="jacobian"):
    """Zeros in place of missing gradients. In strict mode they are errors, which missing(i) words, and with create_graph
    so are gradients that are constant."""
    filled = []
    for i, (each, reference) in enumerate(zip(grads, references, strict=True)):
        if each is None:
            if strict:
                raise RuntimeError(f"{missing(i)} {_NOT_STRICT}.")
            each = _C.zeros_like(reference)
        elif strict and create_graph and not each.requires_grad:
            raise RuntimeError(
                f"The {what} of the user-provided function is independent of input {i}. {_NOT_STRICT} when "
                "create_graph=True."
            )
        filled.append(each)
    return tuple(filled)


def _independent(i):
    return f"The output of the user-provided function is independent of input {i}."


def _check_varies(gradients, strict):
    """In strict mode, what is differentiated once more must depend on the inputs."""
    for i, each in enumerate(gradients):
        if strict and not (each is not None and each.requires_grad):
            raise RuntimeError(
                f"The jacobian of the user-provided function with respect to input {i} is independent of the input. "
                f"{_NOT_STRICT} when create_graph=True."
            )


def _vector(v, references, in_tuple, what, function):
    """The vector of a product; ones may be left out for a single number."""
    if v is None:
        if len(references) != 1 or references[0].numel() != 1:
            raise RuntimeError(f"The vector v can only be None if {what} a single Tensor with a single element.")
        return (_C.ones_like(references[0]),)
    v, _ = _as_tuple(v, "v", function)
    if len(v) != len(references):
        if not in_tuple:
            raise RuntimeError("The given v should contain a single Tensor.")
        raise RuntimeError(f"v is a tuple of invalid length: should be {len(references)} but got {len(v)}.")
    for i, (each, reference) in enumerate(zip(v, references, strict=True)):
        if each.shape != reference.shape:
            entry = f"Entry {i} in " if in_tuple else ""
            raise RuntimeError(f"{entry}v has invalid size: should be {reference.size()} but got {each.size()}.")
    return v


_INPUT_IS = "the input to the user-provided function is"


def vjp(func, inputs, v=None, create_graph=False, strict=False):
    """func(*inputs), and the product of the vector v with func's Jacobian."""
    with enable_grad():
        inputs, was_tuple = _as_tuple(inputs, "inputs", "vjp")
        inputs = _prepared(inputs, create_graph)
        outputs, outputs_tuple = _evaluate(func, inputs, "vjp")
        _check_outputs(outputs, strict)
        v = _vector(v, outputs, outputs_tuple, "the user-provided function returns", "vjp")
    with enable_grad() if create_graph else _same_mode():
        products = _grad(outputs, inputs, v, create_graph)
        products = _or_zeros(products, inputs, strict, _independent, create_graph)
    return (
        _unpacked(_finished(outputs, create_graph), outputs_tuple),
        _unpacked(_finished(products, create_graph), was_tuple),
    )


def jvp(func, inputs, v=None, create_graph=False, strict=False):
    """func(*inputs), and the product of func's Jacobian with the vector v, by differentiating a vjp once more."""
    with enable_grad():
        inputs, was_tuple = _as_tuple(inputs, "inputs", "jvp")
        v = _vector(v, inputs, was_tuple, _INPUT_IS, "jvp")
        inputs = _prepared(inputs, create_graph)
        outputs, outputs_tuple = _evaluate(func, inputs, "jvp")
        _check_outputs(outputs, strict)
        # The vjp is linear in its weights, so differentiating it by them gives the product with the Jacobian from the
        # other side.
        weights = tuple(_C.zeros_like(output, requires_grad=True) for output in outputs)
        products = _or_zeros(_grad(outputs, inputs, weights, True), inputs, strict, _independent)
    with enable_grad() if create_graph else _same_mode():
        results = _grad(products, weights, v, create_graph)
        results = _or_zeros(
            results,
            outputs,
            strict,
            lambda i: f"Output {i} of the user-provided function is independent of the inputs.",
            create_graph,
        )
    return (
        _unpacked(_finished(outputs, create_graph), outputs_tuple),
        _unpacked(_finished(results, create_graph), outputs_tuple),
    )


class _same_mode:
    def __enter__(self):
        pass

    def __exit__(self, *exception):
        pass


def jacobian(func, inputs, create_graph=False, strict=False, vectorize=False, strategy="reverse-mode"):
    """The Jacobian of func at `inputs`: of size output.shape + input.shape, in tuples where there are several.

    One backward pass is made for each element of the output. `vectorize` and `strategy`, by which torch chooses another
    way, change nothing.
    """
    if strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError(f'Expected strategy to be either "forward-mode" or "reverse-mode", got {strategy!r}')
    if strategy == "forward-mode" and create_graph:
        raise NotImplementedError('create_graph=True is not supported with strategy="forward-mode"')
    if strict and vectorize:
        raise RuntimeError(
            "torch.autograd.functional.jacobian: `strict=True` and `vectorized=True` are not supported together. "
            "Please either set `strict=False` or `vectorize=False`."
        )
    with enable_grad():
        inputs, was_tuple = _as_tuple(inputs, "inputs", "jacobian")
        inputs = _prepared(inputs, create_graph)
        outputs, outputs_tuple = _evaluate(func, inputs, "jacobian")
        _check_outputs(outputs, strict)
        result = []
        for i, output in enumerate(outputs):
            rows = []
            for element in output.reshape(-1):
                grads = _grad([element], inputs, [None], create_graph)

                def independent(j, i=i):
                    return f"Output {i} of the user-provided function is independent of input {j}."

                rows.append(_or_zeros(grads, inputs, strict, independent, create_graph))
            blocks = []
            for j, x in enumerate(inputs):
                size = tuple(output.shape) + tuple(x.shape)
                block = _C.stack([row[j] for row in rows]).view(size) if rows else x.new_zeros(size)
                blocks.append(block)
            result.append(_unpacked(_finished(tuple(blocks), create_graph), was_tuple))
    return _unpacked(tuple(result), outputs_tuple)


def _check_scalar(outputs, was_tuple):
    if was_tuple or not isinstance(outputs[0], _C.Tensor):
        raise RuntimeError("The function given to hessian should return a single Tensor")
    if outputs[0].numel() != 1:
        raise RuntimeError("The Tensor returned by the function given to hessian should contain a single element")


def hessian(func, inputs, create_graph=False, strict=False, vectorize=False, outer_jacobian_strategy="reverse-mode"):
    """The Hessian of a func that returns a single number, at `inputs`."""
    inputs, was_tuple = _as_tuple(inputs, "inputs", "hessian")

    def checked(*given):
        outputs, outputs_tuple = _evaluate(func, given, "hessian")
        _check_outputs(outputs, strict)
        _check_scalar(outputs, outputs_tuple)
        return outputs[0].squeeze()

    def gradient(*given):
        gradients = jacobian(checked, given, create_graph=True)
        _check_varies(gradients, strict)
        return gradients

    result = jacobian(gradient, inputs, create_graph, strict, vectorize, outer_jacobian_strategy)
    return result if was_tuple else result[0][0]


def _hessian_product(function, func, inputs, v, create_graph, strict):
    with enable_grad():
        inputs, was_tuple = _as_tuple(inputs, "inputs", function)
        v = _vector(v, inputs, was_tuple, _INPUT_IS, function)
        inputs = _prepared(inputs, create_graph)
        outputs, outputs_tuple = _evaluate(func, inputs, function)
        _check_outputs(outputs, strict)
        if outputs_tuple or outputs[0].numel() != 1:
            raise RuntimeError(
                f"The Tensor returned by the function given to {function} should contain a single element"
            )
        gradients = _or_zeros(_grad(outputs, inputs, [None], True), inputs, strict, _independent)
        _check_varies(gradients, strict)
    with enable_grad() if create_graph else _same_mode():
        products = _grad(gradients, inputs, v, create_graph)
        products = _or_zeros(products, inputs, strict, _independent, create_graph, "hessian")
    return outputs[0] if create_graph else outputs[0].detach(), _unpacked(_finished(products, create_graph), was_tuple)


def vhp(func, inputs, v=None, create_graph=False, strict=False):
    """func(*inputs), a single number, and the product of the vector v with func's Hessian."""
    return _hessian_product("vhp", func, inputs, v, create_graph, strict)


def hvp(func, inputs, v=None, create_graph=False, strict=False):
    """func(*inputs), a single number, and the product of func's Hessian with the vector v.

    The same as vhp, for a Hessian is symmetric.
    """
    return _hessian_product("hvp", func, inputs, v, create_graph, strict)
