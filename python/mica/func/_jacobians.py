"""Jacobians and Hessians: many products of a vector with a Jacobian at once, by vmap."""

import functools

from mica import _C
from mica._subclasses.dispatching import refuse_gradients_by
from mica.func._levels import transforming
from mica.func._transforms import check_outputs, filled, gradients, reaches_outside, value_and_aux, with_inputs
from mica.utils._pytree import tree_flatten, tree_map, tree_unflatten

__all__ = ["hessian", "jacfwd", "jacrev"]


def jacrev(func, argnums=0, *, has_aux=False, chunk_size=None, _preallocate_and_copy=False):
    """A function that returns the Jacobian of a function, all rows at once, backwards."""
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError("jacrev: `chunk_size` should be greater than 0.")
    return _jacobian("jacrev", func, argnums, has_aux, chunk_size)


def jacfwd(func, argnums=0, has_aux=False, *, randomness="error"):
    """A function that returns the Jacobian of a function. It is found backwards, as jacrev's is.

    `randomness` says what becomes of random numbers that the function draws: they are an error, the same for all columns
    of the Jacobian, or different for each, and then the columns are found one beside the other, forwards.
    """
    if randomness not in ("error", "different", "same"):
        raise RuntimeError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")
    if randomness == "different":
        return _by_columns(func, argnums, has_aux)
    found = _jacobian("jacfwd", func, argnums, has_aux, None)
    return found if randomness == "same" else _without_randomness(found)


def _without_randomness(func):
    import mica

    @functools.wraps(func)
    def checked(*args, **kwargs):
        before = mica.get_rng_state()
        result = func(*args, **kwargs)
        if not mica.equal(before, mica.get_rng_state()):
            from mica.func._batch_rules_random import _ERROR

            mica.set_rng_state(before)
            raise RuntimeError(_ERROR)
        return result

    return checked


def _by_columns(func, argnums, has_aux):
    """The Jacobian from one derivative for each element of the inputs, each with its own random numbers."""
    import mica
    from mica.func._transforms import jvp
    from mica.func._vmap import vmap

    @functools.wraps(func)
    def jacobian(*args, **kwargs):
        chosen = args[argnums] if isinstance(argnums, int) else tuple(args[n] for n in argnums)
        leaves, spec = tree_flatten(chosen)

        def of_leaves(*values):
            given, new = list(args), tree_unflatten(list(values), spec)
            for n, value in [(argnums, new)] if isinstance(argnums, int) else zip(argnums, new, strict=True):
                given[n] = value
            return func(*given, **kwargs)

        def column(number):
            directions, at = [], 0
            for x in leaves:
                place = mica.arange(at, at + x.numel(), device=x.device).reshape(x.shape)
                directions.append((place == number).to(x.dtype))
                at += x.numel()
            found = jvp(of_leaves, tuple(leaves), tuple(directions), has_aux=has_aux)
            return (found[1], found[2]) if has_aux else found[1]

        total = sum(x.numel() for x in leaves)
        columns = vmap(column, randomness="different")(mica.arange(total, device=leaves[0].device))
        columns, aux = columns if has_aux else (columns, None)
        outputs, out_spec = tree_flatten(columns)
        blocks = [
            tree_unflatten(
                [
                    part.movedim(0, -1).reshape(y.shape[1:] + x.shape)
                    for part, x in zip(_split(y, leaves), leaves, strict=True)
                ],
                spec,
            )
            for y in outputs
        ]
        result = tree_unflatten(blocks, out_spec)
        if not has_aux:
            return result
        keeps_graph = any(block.requires_grad for block in tree_flatten(result)[0])
        return result, tree_map(lambda t: t[0] if keeps_graph else t[0].detach(), aux)

    return jacobian


def _split(columns, leaves):
    return columns.split([x.numel() for x in leaves])


def hessian(func, argnums=0):
    """A function that returns the second derivatives of a scalar function."""
    return jacfwd(jacrev(func, argnums), argnums)


def _check_real(name, kind, tensors):
    for i, x in enumerate(tensors):
        if not hasattr(x, "is_complex"):
            raise ValueError(f"Thing passed to transform API must be Tensor, got {type(x)}")
        if x.is_complex():
            raise RuntimeError(
                f"{name}: Expected all {kind} to be real but received complex tensor at flattened input idx: {i}"
            )


def _jacobian(name, func, argnums, has_aux, chunk):
    import mica

    @functools.wraps(func)
    def jacobian(*args, **kwargs):
        before = mica.get_rng_state()
        outer = mica.is_grad_enabled()
        with mica.inference_mode(False), mica.enable_grad(), transforming(keeps_graph=name == "jacrev"):
            given, leaves, spec = with_inputs(args, argnums)
            _check_real(name, "inputs", leaves)
            versions = _versions((given, kwargs))
            output = func(*given, **kwargs)
            call = "vjp(f, *primals)" if name == "jacrev" else "jvp(f, primals, tangents)"
            value, aux = value_and_aux(output, has_aux, call)
            outputs, out_spec = tree_flatten(value)
            check_outputs(outputs, call)
            _check_real(name, "outputs", outputs)
            create = outer and reaches_outside(outputs, leaves)
            rows = sum(y.numel() for y in outputs)
            again = _Again(func, argnums, has_aux, kwargs, before)
            changed = versions != _versions(
                (given, kwargs)
            )  # a function that changes its inputs cannot be called again
            if not any(y.requires_grad for y in outputs):
                refuse_gradients_by(leaves)
            if rows <= 1 or changed or not any(y.requires_grad for y in outputs):
                blocks = [_row_by_row(y, leaves, create) for y in outputs]
            else:
                blocks = again.rows(args, outputs, leaves, create, chunk)
        result = tree_unflatten([tree_unflatten(row, spec) for row in blocks], out_spec)
        if has_aux:
            aux = aux if create else tree_map(lambda t: t.detach() if isinstance(t, mica.Tensor) else t, aux)
        return (result, aux) if has_aux else result

    return jacobian


def _versions(tree):
    """How often each tensor was changed in place."""
    return [x._version for x in tree_flatten(tree)[0] if isinstance(x, _C.Tensor) and not x.is_inference()]


class _Again:
    """A function called again for many rows of its Jacobian: equal inputs as examples, a row's vector for each."""

    _ELEMENTS = 1 << 22  # elements of the inputs' copies at a time

    def __init__(self, func, argnums, has_aux, kwargs, state):
        self.func, self.argnums, self.has_aux, self.kwargs, self.state = func, argnums, has_aux, kwargs, state

    def rows(self, args, outputs, leaves, create, chunk):
        import mica

        now = mica.get_rng_state()
        total = sum(y.numel() for y in outputs)
        if chunk is None:
            widest = max(max(x.numel() for x in leaves), max(y.numel() for y in outputs), 1)
            chunk = max(1, min(total, self._ELEMENTS // widest))
        if chunk == 1:
            return [_row_by_row(y, leaves, create) for y in outputs]
        try:
            parts = [
                self._some(args, outputs, start, min(chunk, total - start), create) for start in range(0, total, chunk)
            ]
        except RuntimeError:  # the function asked for values, or changed something in place that all rows share
            return [_row_by_row(y, leaves, create) for y in outputs]
        finally:
            mica.set_rng_state(now)
        columns = [mica.cat(c) if len(c) > 1 else c[0] for c in zip(*parts, strict=True)]
        blocks, start = [], 0
        for y in outputs:
            blocks.append([c[start : start + y.numel()].reshape(y.shape + c.shape[1:]) for c in columns])
            start += y.numel()
        return blocks

    def _some(self, args, outputs, start, count, create):
        """Rows start ... start + count of the Jacobian of all outputs, one after the other."""
        import mica
        from mica.func._vmap import vmap

        mica.set_rng_state(self.state)  # the numbers that the function drew before
        numbers = mica.arange(start, start + count, device=outputs[0].device)

        def one_row(number):
            given, leaves, _ = with_inputs(args, self.argnums)
            output = self.func(*given, **self.kwargs)
            flat, _ = tree_flatten(output[0] if self.has_aux else output)
            ys, vectors, at = [], [], 0
            for y in flat:
                if y.requires_grad:
                    place = mica.arange(at, at + y.numel(), device=number.device).reshape(y.shape)
                    ys.append(y)
                    vectors.append((place == number).to(y.dtype))
                at += y.numel()
            found = gradients(tuple(ys), tuple(leaves), tuple(vectors), create_graph=create)
            return tuple(filled(found, leaves))

        return vmap(one_row, randomness="same")(numbers)


def _row_by_row(output, inputs, create):
    """The derivative of every element of one output with respect to every input."""
    import mica

    parts = [[] for _ in inputs]
    for element in output.reshape(-1).unbind(0):
        found = (
            gradients((element,), tuple(inputs), retain_graph=True, create_graph=create)
            if element.requires_grad
            else [None] * len(inputs)
        )
        for part, g in zip(parts, filled(found, inputs), strict=True):
            part.append(g)
    return [
        mica.stack(part).reshape(output.shape + x.shape) if part else x.new_zeros(output.shape + x.shape)
        for part, x in zip(parts, inputs, strict=True)
    ]
