"""Gradients as functions, computed on the graph: a backward pass, or for forward derivatives a backward pass of one.

A product of a vector with a Jacobian is linear in the vector. Its own derivative, again by a backward pass, is the product
of the Jacobian with a tangent: that is how `jvp` and what stands on it are computed, for whatever can be differentiated
twice.
"""

import contextlib
import functools

from mica import _C
from mica._subclasses.dispatching import refuse_gradients_by
from mica.autograd._pushing import pushing
from mica.func._levels import transforming
from mica.utils._pytree import tree_flatten, tree_map, tree_unflatten

__all__ = ["grad", "grad_and_value", "jvp", "linearize", "vjp"]


def _example(x):
    """A tensor as an example of the vmaps that are running: its gradient is one for each example."""
    import sys

    batched = sys.modules.get("mica.func._batched_autograd")
    return batched.expanded_to_levels(x) if batched is not None and batched.active_levels() else x


def gradients(outputs, inputs, weights=None, retain_graph=None, create_graph=False):
    """autograd.grad, with None for inputs that the outputs do not depend on. It also takes examples under vmap."""
    import mica

    return mica.autograd.grad(
        outputs, inputs, weights, retain_graph=retain_graph, create_graph=create_graph, allow_unused=True
    )


def _fresh(x):
    """A new input of a graph, attached to the old one for derivatives of derivatives."""
    x = _example(x)
    return x.view_as(x) if x.requires_grad else _leaf(x)


def _leaf(x):
    # An inference tensor cannot be part of a graph; its copy can.
    return (x.clone() if x.is_inference() else x.detach()).requires_grad_()


def _overlaps(x):
    """Whether elements may share memory, as those of an expanded tensor do."""
    if x.is_contiguous():
        return False
    end = 1
    for stride, size in sorted((s, n) for s, n in zip(x.stride(), x.shape, strict=True) if n != 1):
        if stride < end:
            return True
        end = stride * size
    return False


def _handed_over(leaf):
    """An input as the function gets it: in the same memory, but no leaf, so that it can be changed in place."""
    if not isinstance(leaf, _C.Tensor) or not leaf.requires_grad:
        return leaf
    if hasattr(leaf, "_batch_value"):
        from mica.func._batched import wrap

        return wrap(_handed_over(leaf._batch_value), leaf._batch_level)
    if type(leaf) is not _C.Tensor or not leaf.is_leaf or _C._len_torch_dispatch_stack() or _overlaps(leaf):
        return leaf
    memory = leaf.data
    memory.copy_(leaf)  # nothing moves; from here on it is part of the graph
    return memory


def _as_inputs(value):
    import mica

    return tree_map(lambda t: _fresh(t) if isinstance(t, mica.Tensor) else t, value)


def _in_the_engine(x):
    """The tensor of the engine that an example under vmap stands for."""
    while hasattr(x, "_batch_value"):
        x = x._batch_value
    return x


def reaches_outside(outputs, leaves):
    """Whether outputs depend on tensors beside the leaves that require grad: derivatives then carry a graph."""
    import mica

    mica.autograd._compute_recorded()
    outputs = [_in_the_engine(y) for y in outputs if isinstance(y, _C.Tensor) and y.requires_grad]
    return bool(outputs) and _C._reaches_other_leaves(
        outputs, [_in_the_engine(x) for x in leaves if isinstance(x, _C.Tensor)]
    )


def _slice_argnums(args, argnums):
    """The arguments that are chosen, as a tuple."""
    return tuple(args[n] for n in _chosen(args, argnums))


def _chosen(args, argnums):
    if not isinstance(argnums, (int, tuple)):
        raise RuntimeError(f"argnums must be int or Tuple[int, ...], got: {type(argnums)}")
    numbers = (argnums,) if isinstance(argnums, int) else argnums
    if not numbers:
        raise RuntimeError("argnums must be non-empty: it names the arguments to differentiate by, 0 for the first")
    for n in numbers:
        if not isinstance(n, int):
            raise RuntimeError(f"argnum must be int, got: {type(n)}")
        if not -len(args) <= n < len(args):
            raise RuntimeError(f"Got argnum={n}, but only {len(args)} positional inputs")
    numbers = tuple(n % len(args) for n in numbers)
    if len(set(numbers)) != len(numbers):
        raise RuntimeError(f"argnums elements must be unique, got {numbers}")
    return numbers


def value_and_aux(output, has_aux, call):
    """(value, auxiliary result or None) of what a function returned. With has_aux it has to return both."""
    if not has_aux:
        return output, None
    if not (isinstance(output, tuple) and len(output) == 2):
        raise RuntimeError(f"{call}: output of function f should be a tuple: (output, aux) if has_aux is True")
    for x in tree_flatten(output[1])[0]:
        if not isinstance(x, _C.Tensor):
            raise RuntimeError(f"Expected tensors, got unsupported type {type(x)}")
    return output


def check_outputs(outputs, call, returning="f(*primals)"):
    """Refuse outputs that are not tensors, and a function without outputs."""
    if not outputs:
        raise RuntimeError(f"{call}: Expected f to be a function that has non-empty output (got output = {outputs})")
    if len(outputs) == 1 and outputs[0] is None:
        raise RuntimeError(f"{call}: Expected f to be a function that has non-empty output (got output = {outputs})")
    for y in outputs:
        if not isinstance(y, _C.Tensor):
            raise RuntimeError(f"{call}: expected {returning} to return only tensors, got unsupported type {type(y)}")


def with_inputs(args, argnums, changeable=False):
    """The arguments with those to differentiate made inputs of a graph; and their leaves, with the shape they came in.

    Leaves are refused where the function changes them in place, as torch does backwards; forwards it lets them be changed.
    """
    numbers = _chosen(args, argnums)
    args = list(args)
    for n in numbers:
        args[n] = _as_inputs(args[n])
    wanted = args[numbers[0]] if isinstance(argnums, int) else tuple(args[n] for n in numbers)
    leaves, spec = tree_flatten(wanted)
    for n in numbers if changeable else ():
        args[n] = tree_map(_handed_over, args[n])
    return args, leaves, spec


def filled(found, like):
    """Gradients, zeros where there is none."""
    import mica

    return [mica.zeros_like(x) if g is None else g for x, g in zip(like, found, strict=True)]


def grad_and_value(func, argnums=0, has_aux=False):
    """A function that returns the gradient of a scalar function, and its value."""
    import mica

    @functools.wraps(func)
    def differentiated(*args, **kwargs):
        outer = mica.is_grad_enabled()
        with mica.inference_mode(False), mica.enable_grad(), transforming(keeps_graph=True):
            args, leaves, spec = with_inputs(args, argnums)
            output = func(*args, **kwargs)
            value, aux = value_and_aux(output, has_aux, "grad_and_value(f)(*args)")
            expected = "grad_and_value(f)(*args): Expected f(*args) to return a"
            if not isinstance(value, mica.Tensor):
                raise RuntimeError(f"{expected} Tensor, got {type(value)}")
            if value.dim() != 0:
                raise RuntimeError(
                    f"{expected} scalar Tensor, got tensor with {value.dim()} dims. Maybe you wanted to use the vjp or "
                    "jacrev APIs instead?"
                )
            create = outer and reaches_outside((value,), leaves)
            if value.requires_grad:
                found = gradients((value,), tuple(leaves), create_graph=create)
            else:
                refuse_gradients_by(leaves)
                found = [None] * len(leaves)
        gradient = tree_unflatten(filled(found, leaves), spec)
        value = value if create else value.detach()
        if has_aux:
            aux = aux if create else tree_map(lambda t: t.detach() if isinstance(t, mica.Tensor) else t, aux)
        return (gradient, (value, aux)) if has_aux else (gradient, value)

    return differentiated


def grad(func, argnums=0, has_aux=False):
    """A function that returns the gradient of a scalar function.

    `argnums` says by which argument, or arguments, it is taken. With has_aux, `func` returns a second result, which is
    returned beside the gradient. Example: torch.func.grad(lambda x: x.sin().sum())(x) is x.cos().
    """
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def differentiated(*args, **kwargs):
        gradient, value = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return differentiated


def vjp(func, *primals, has_aux=False):
    """The value of a function, and a function from a vector to its product with the Jacobian."""
    import mica

    with mica.inference_mode(False), mica.enable_grad(), transforming(keeps_graph=True):
        args, leaves = [], []
        if primals:
            args, leaves, _ = with_inputs(primals, tuple(range(len(primals))))
        output = func(*args)
    value, aux = value_and_aux(output, has_aux, "vjp(f, *primals)")
    outputs, out_spec = tree_flatten(value)
    check_outputs(outputs, "vjp(f, *primals)")
    arg_spec = tree_flatten(tuple(args))[1]
    nested = reaches_outside(outputs, leaves)
    if not any(y.requires_grad for y in outputs):
        refuse_gradients_by(leaves)
    if not (nested and mica.is_grad_enabled()):
        value = tree_unflatten([y.detach() if isinstance(y, mica.Tensor) else y for y in outputs], out_spec)
        aux = tree_map(lambda t: t.detach() if isinstance(t, mica.Tensor) else t, aux)

    def product(cotangents, retain_graph=True, create_graph=None):
        vectors, spec = tree_flatten(cotangents)
        if spec != out_spec:
            raise RuntimeError(f"Expected pytree structure of cotangents to be {out_spec}, got {spec}")
        create = create_graph
        if create is None:
            # A graph of the product is needed only if somebody differentiates through its parts.
            create = mica.is_grad_enabled() and (nested or any(v.requires_grad for v in vectors))
        pairs = [(y, v) for y, v in zip(outputs, vectors, strict=True) if y.requires_grad]
        found = [None] * len(leaves)
        if pairs:
            ys, vs = zip(*pairs, strict=True)
            found = gradients(ys, tuple(leaves), vs, retain_graph=retain_graph, create_graph=create)
        result = tree_unflatten(filled(found, leaves), arg_spec)
        return result

    return (value, product, aux) if has_aux else (value, product)


# ------------------------------------------------------------------------------------------------ forwards
def _asking_for_tangents():
    """The context of the first of the two passes. Under vmap, functions are differentiated by their backward."""
    import sys

    batched = sys.modules.get("mica.func._batched_autograd")
    return contextlib.nullcontext() if batched is not None and batched.active_levels() else pushing()


def _pushed(outputs, leaves, tangents, create, keep=False):
    """The tangents of outputs for tangents of leaves: the derivative, by the vector, of vector times Jacobian."""
    import mica

    result = [mica.zeros_like(y) for y in outputs]
    places = [i for i, y in enumerate(outputs) if y.requires_grad]
    if not places:
        return result
    with mica.inference_mode(False), mica.enable_grad():
        ys = tuple(outputs[i] for i in places)
        vectors = tuple(mica.zeros_like(_example(y)).requires_grad_() for y in ys)
        with _asking_for_tangents():
            pulled = gradients(ys, tuple(leaves), vectors, retain_graph=True, create_graph=True)
        pairs = [(g, t) for g, t in zip(pulled, tangents, strict=True) if g is not None and g.requires_grad]
        if not pairs:
            return result
        gs, ts = zip(*pairs, strict=True)
        found = gradients(gs, vectors, ts, retain_graph=create or keep, create_graph=create)
    for i, g in zip(places, found, strict=True):
        if g is not None:
            result[i] = g
    return result


@contextlib.contextmanager
def _handing_tangents_on():
    """A jvp has tangents, also where a program has switched them off outside of it."""
    import mica  # imports this file

    state = mica.autograd.forward_ad._state
    before, state.enabled = state.enabled, True
    try:
        yield
    finally:
        state.enabled = before


def pushed_or_none(output, leaves, tangents, create):
    """The tangent of one output; None where it depends on no leaf."""
    import mica

    with mica.inference_mode(False), mica.enable_grad():
        vector = mica.zeros_like(output).requires_grad_()
        with _asking_for_tangents():
            pulled = gradients((output,), tuple(leaves), (vector,), retain_graph=True, create_graph=True)
        pairs = [(g, t) for g, t in zip(pulled, tangents, strict=True) if g is not None]
        if not pairs:
            return None
        gs, ts = (
            zip(*((g, t) for g, t in pairs if g.requires_grad), strict=True)
            if any(g.requires_grad for g, _ in pairs)
            else ((), ())
        )
        found = gradients(gs, (vector,), ts, retain_graph=True, create_graph=create)[0] if gs else None
    return mica.zeros_like(output) if found is None else found


def _check_tangents(primals, tangents, name="jvp"):
    """The flat tangents, after torch's checks."""
    import mica

    flat_primals, primal_spec = tree_flatten(primals)
    flat_tangents, tangent_spec = tree_flatten(tangents)
    if primal_spec != tangent_spec:
        raise RuntimeError(
            f"{name}(f, primals, tangents): Expected primals and tangents to have the same python structure. For "
            f"example, if primals is a tuple of 3 tensors, tangents also must be. Got primals with structure "
            f"{primal_spec} and tangents with structure {tangent_spec}"
        )
    for kind, flat in (("primals", flat_primals), ("tangents", flat_tangents)):
        for x in flat:
            if not isinstance(x, mica.Tensor):
                raise RuntimeError(
                    f"{name}(f, primals, tangents): Expected {kind} to only contain Tensors, got {type(x)}"
                )
    for p, t in zip(flat_primals, flat_tangents, strict=True):
        if p.shape != t.shape:
            raise RuntimeError(
                f"{name}(f, primals, tangents): Expected tensor `tangent` to have the same shape as `primal`: "
                f"got {tuple(t.shape)} and {tuple(p.shape)}"
            )
    return flat_primals, flat_tangents


def jvp(func, primals, tangents, *, strict=False, has_aux=False):
    """The value of a function, and the product of its Jacobian with tangents."""
    import mica

    if not isinstance(primals, tuple):
        raise RuntimeError(f"jvp(f, primals, tangents): Expected primals to be a tuple. E.g. it should be valid to call "
                           f"f(*primals). Got {type(primals)}")  # fmt: skip
    flat_primals, flat_tangents = _check_tangents(primals, tangents)
    if not flat_primals:
        raise RuntimeError("jvp(f, primals, tangents): Expected primals to contain at least one Tensor.")
    outer = mica.is_grad_enabled()
    with mica.inference_mode(False), mica.enable_grad():
        args, leaves, _ = with_inputs(primals, tuple(range(len(primals))), changeable=True)
        with transforming(), _handing_tangents_on():
            output = func(*args)
        value, aux = value_and_aux(output, has_aux, "jvp(f, primals, tangents)")
        outputs, spec = tree_flatten(value)
        check_outputs(outputs, "jvp(f, primals, tangents)")
        create = outer and (reaches_outside(outputs, leaves) or any(t.requires_grad for t in flat_tangents))
        if strict and not all(y.requires_grad for y in outputs):
            raise RuntimeError("jvp(f, primals, tangents, strict=True): The output of f is independent of the inputs")
        if not any(y.requires_grad for y in outputs):
            refuse_gradients_by(leaves)
        pushed = _pushed(outputs, leaves, flat_tangents, create)
    if not create:
        outputs = [y.detach() for y in outputs]
        aux = tree_map(lambda t: t.detach() if isinstance(t, mica.Tensor) else t, aux)
    value, tangent = tree_unflatten(outputs, spec), tree_unflatten(pushed, spec)
    return (value, tangent, aux) if has_aux else (value, tangent)


def linearize(func, *primals):
    """The value of a function, and a function that multiplies tangents by its Jacobian there without computing it anew."""
    import mica

    with mica.inference_mode(False), mica.enable_grad():
        args, leaves, _ = with_inputs(primals, tuple(range(len(primals))))
        with transforming():
            value = func(*args)
        outputs, spec = tree_flatten(value)
    nested = reaches_outside(outputs, leaves)

    def product(*tangents):
        _flat_primals, flat_tangents = _check_tangents(primals, tangents, "linearize")
        create = mica.is_grad_enabled() and (nested or any(t.requires_grad for t in flat_tangents))
        return tree_unflatten(_pushed(outputs, leaves, flat_tangents, create, keep=True), spec)

    kept = nested and mica.is_grad_enabled()
    return tree_unflatten([y if kept else y.detach() for y in outputs], spec), product
