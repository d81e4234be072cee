"""Calls on tensors that stand for others: what __torch_function__ leaves goes to the class's __torch_dispatch__.

Such a tensor (Tensor._make_wrapper_subclass) has sizes, strides and a dtype, and no elements of its own. A call on it is
handed to its class as an operator of torch.ops.aten with the operator's arguments. Where such a tensor requires grad, that
happens below autograd (recorded.py). Elsewhere the class computes with plain tensors, whose gradients are recorded as usual.
"""

import contextlib

import mica
from mica import _C
from mica._functions.families import DTYPES_OF_TYPES, is_functional, own_name
from mica._subclasses import recorded
from mica._subclasses.outer_tensors import answer_of
from mica._subclasses.recorded import has_torch_dispatch
from mica.utils._dispatch_calls import answer_of_class

# Questions about sizes and marks alone are answered by the tensor itself.
_METADATA = frozenset([
    "size", "stride", "dim", "ndimension", "numel", "nelement", "is_contiguous", "storage_offset", "element_size",
    "is_floating_point", "is_complex", "is_signed", "get_device", "data_ptr", "requires_grad_", "register_hook",
    "retain_grad", "is_pinned", "is_shared", "is_inference", "has_names", "__len__", "is_same_size", "is_conj", "is_neg",
    "backward", "type", "is_set_to", "untyped_storage", "as_subclass", "register_post_accumulate_grad_hook",
    "__set__", "__delete__",
])  # fmt: skip


# Methods that read the one element, and the conversion of that element.
_READING = {"item": lambda number: number, "__bool__": bool, "__int__": int, "__float__": float, "__index__": int,
            "__complex__": complex}  # fmt: skip


@contextlib.contextmanager
def aside():
    """A block in which the classes' __torch_dispatch__ is not called. Their tensors are plain ones, with elements that
    mean nothing."""
    before = _C._set_dispatch_aside(True)
    try:
        yield
    finally:
        _C._set_dispatch_aside(before)


def _converted(tensor, args, kwargs):
    """The arguments of x.to(...) as those of aten._to_copy, or None if nothing changes."""
    wanted = {key: value for key, value in kwargs.items() if key in ("dtype", "device", "memory_format")}
    for each in args:
        if isinstance(each, mica.dtype) or (isinstance(each, type) and each in DTYPES_OF_TYPES):
            wanted["dtype"] = each
        elif isinstance(each, (str, mica.device)):
            wanted["device"] = mica.device(each)
        elif isinstance(each, _C.TensorBase):
            wanted |= {"dtype": each.dtype, "device": each.device}
    if "dtype" in wanted:
        wanted["dtype"] = DTYPES_OF_TYPES.get(wanted["dtype"], wanted["dtype"])
    copy = kwargs.get("copy", False) or (len(args) > 2 and args[-1] is True)
    wanted = {key: value for key, value in wanted.items() if value is not None}
    same = wanted.get("dtype", tensor.dtype) == tensor.dtype and wanted.get("device", tensor.device) == tensor.device
    if wanted.get("memory_format") is mica.preserve_format:
        wanted.pop("memory_format")
    same = same and ("memory_format" not in wanted or tensor.is_contiguous(memory_format=wanted["memory_format"]))
    return None if same and not copy else wanted


def _operator(name, function, args, kwargs):
    from mica.export import _targets

    if name == "__get__" and function.__self__.__name__ == "T" and args[0].dim() == 2:
        return _targets.overload("t", args[:1], {})
    if name in ("contiguous",):
        return None
    return _targets.find(function, args, kwargs) or _more_targets(function, args, kwargs)


_REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}
_LOSSES = {
    "cross_entropy": ("cross_entropy_loss", "weight", "reduction", "ignore_index", "label_smoothing"),
    "nll_loss": ("nll_loss", "weight", "reduction", "ignore_index"),
    "mse_loss": ("mse_loss", "reduction"), "l1_loss": ("l1_loss", "reduction"),
    "smooth_l1_loss": ("smooth_l1_loss", "reduction", "beta"), "huber_loss": ("huber_loss", "reduction", "delta"),
    "binary_cross_entropy": ("binary_cross_entropy", "weight", "reduction"),
    "binary_cross_entropy_with_logits": ("binary_cross_entropy_with_logits", "weight", "pos_weight", "reduction"),
    "kl_div": ("kl_div", "reduction", "log_target"),
}  # fmt: skip
_ORDER = {
    "cross_entropy": ("weight", "size_average", "ignore_index", "reduce", "reduction", "label_smoothing"),
    "nll_loss": ("weight", "size_average", "ignore_index", "reduce", "reduction"),
    "smooth_l1_loss": ("size_average", "reduce", "reduction", "beta"), "huber_loss": ("reduction", "delta", "weight"),
    "binary_cross_entropy": ("weight", "size_average", "reduce", "reduction"),
    "binary_cross_entropy_with_logits": ("weight", "size_average", "reduce", "reduction", "pos_weight"),
    "kl_div": ("size_average", "reduce", "reduction", "log_target"),
}  # fmt: skip


def _more_targets(function, args, kwargs):
    """Losses by the operators that compute them, and functions of torch.linalg and torch.special."""
    from mica.export import _targets

    name = own_name(function)
    if is_functional(function) and name in _LOSSES:
        operator, *wanted = _LOSSES[name]
        given = dict(
            zip(("input", "target", *_ORDER.get(name, ("size_average", "reduce", "reduction"))), args, strict=False)
        )
        given |= kwargs
        if any(given.get(old) is not None for old in ("size_average", "reduce")):
            return None
        given["reduction"] = _REDUCTIONS.get(given.get("reduction", "mean"))
        named = {key: given[key] for key in wanted if given.get(key) is not None}
        if given["reduction"] is None or set(given) - {"input", "target", "size_average", "reduce", *wanted}:
            return None
        return _targets.overload(operator, (given["input"], given["target"]), named)
    for space in ("linalg", "special"):
        if getattr(getattr(_C, f"_{space}"), name, None) is function:
            return _targets.overload(f"{space}_{name}", args, kwargs)
    return None


def call(tensor, function, types, args, kwargs):
    """The result of a call in which `tensor` is the one that is asked."""
    kwargs, name = kwargs or {}, own_name(function)
    if name == "tolist":
        raise RuntimeError(f".tolist() is not supported for tensor subclasses, got {type(tensor).__name__}")
    if name in ("numpy", "__array__"):
        raise RuntimeError(".numpy() is not supported for tensor subclasses.")
    if name == "backward":
        return _backward(*args, **kwargs)
    if name == "__get__" and function.__self__.__name__ == "data" and recorded.is_recorded_class(type(tensor)):
        with aside():
            return function(*args, **kwargs)  # the engine asks for another tensor of the class, and counts apart
    if name not in _METADATA and name not in _READING and recorded.is_to_be_recorded(name, args, kwargs):
        answer = recorded.run(function, args, kwargs)
        if answer is not NotImplemented:
            return answer
    with aside():
        if name in _METADATA:
            return function(*args, **kwargs)
        if name in ("__repr__", "__str__", "__format__"):
            return f"{type(tensor).__name__}(..., size={tuple(tensor.shape)}, dtype={tensor.dtype})"
        if name in ("to", "float", "half", "double", "bfloat16", "cpu", "cuda") and args and args[0] is tensor:
            more = {"cpu": ("cpu",), "cuda": ("cuda",), "to": args[1:]}.get(name) or (getattr(mica, name, None),)
            wanted = _converted(tensor, more, kwargs)
            if wanted is None:
                return tensor
            found = (mica.ops.aten._to_copy.default, (tensor,), wanted)
        elif name == "contiguous" and tensor.is_contiguous():
            return tensor
        elif name in ("__getitem__", "__setitem__", *_READING):
            found = None
        else:
            found = _operator(name, function, args, kwargs)
    own_way = getattr(type(tensor), "_call_without_operator", None)
    if name in _READING and own_way is None:
        return _READING[name](_asked(tensor, mica.ops.aten._local_scalar_dense.default, types, (tensor,), {}))
    if name == "__getitem__" and args[0] is tensor:
        return _stepped(tensor, args[1], types)
    if name == "__setitem__" and own_way is None:
        return _set(*args, types)
    if found is None:
        answer = recorded.run(function, args, kwargs) if own_way is None else own_way(function, args, kwargs)
        if answer is not NotImplemented:
            return answer
        raise NotImplementedError(
            f"{type(tensor).__name__}: Mica knows no operator for the call of {name}, which its __torch_dispatch__ could answer"
        )
    return _asked(tensor, found[0], types, found[1], _without_defaults(found[0], found[2]))


def _without_defaults(operator, kwargs):
    """Leave out keyword arguments that have the schema's default."""
    if not kwargs:
        return kwargs
    defaults = {a.name: a.default_value for a in operator._schema.arguments if a.kwarg_only and a.has_default_value()}

    def is_default(name, value):
        default = defaults.get(name, NotImplemented)
        is_number = isinstance(value, (bool, int, float, str)) and type(value) is type(default)
        return value is default or (is_number and value == default)

    return {name: value for name, value in kwargs.items() if not is_default(name, value)}


def _backward(tensor, gradient=None, retain_graph=None, create_graph=False, inputs=None):
    mica.autograd.backward(tensor, gradient, retain_graph, create_graph, inputs=inputs)


def refuse_gradients_by(inputs):
    """Refuse derivatives by a tensor whose class records operations on its parts: they would silently be zero."""
    for each in inputs:
        if _is_dispatched(each) and not recorded.is_recorded_class(type(each)):
            name = type(each).__name__
            raise NotImplementedError(
                f"a derivative by a {name}: its __torch_dispatch__ computes with plain tensors, and Mica records those. "
                f"Differentiate by the tensors that the {name} is made of"
            )


def item_of(tensor):
    """The number that a tensor of a class has, for the engine."""
    if not has_torch_dispatch(type(tensor)):
        raise NotImplementedError(
            "the element of a tensor is asked for that lies in one of a class with a __torch_dispatch__, which has it"
        )
    before = _C._set_dispatch_aside(False)
    try:
        asked = mica.ops.aten._local_scalar_dense.default
        return answer_of_class(type(tensor), asked, (type(tensor),), (tensor,), {})
    finally:
        _C._set_dispatch_aside(before)


_C._set_item_of_class(item_of)


def _is_dispatched(value):
    return isinstance(value, _C.TensorBase) and has_torch_dispatch(type(value))


def _step(tensor, name, rest, types):
    """One operator on a tensor that may have become a plain one."""
    from mica.export._targets import overload

    with aside():
        target, inner, named = overload(name, (tensor, *rest), {})
    asked = next((each for each in (tensor, *rest) if _is_dispatched(each)), None)
    return target(*inner, **named) if asked is None else _asked(asked, target, types, inner, named)


def _steps(tensor, index):
    from mica.export._targets import index_steps

    with aside():
        if isinstance(index, _C.TensorBase):
            return [("index", ([index],))]
        steps = index_steps(tensor, index)
    if steps is None:
        raise NotImplementedError(
            f"Mica knows no operators for the index {index!r}, which a __torch_dispatch__ could answer"
        )
    return steps


def _stepped(tensor, index, types):
    """tensor[index]: the operators that the index stands for, one after the other."""
    for name, rest in _steps(tensor, index):
        tensor = _step(tensor, name, rest, types)
    return tensor


def _set(tensor, index, value, types):
    """tensor[index] = value: elements of a mask or of a list are put, those of a view are copied."""
    steps = list(_steps(tensor, index))
    last = steps.pop() if steps and steps[-1][0] == "index" else None
    for name, rest in steps:
        tensor = _step(tensor, name, rest, types)
    if not isinstance(value, _C.TensorBase) and last is None:
        _step(tensor, "fill_", (value,), types)
    elif last is None:
        _step(tensor, "copy_", (value,), types)
    else:
        if not isinstance(value, _C.TensorBase):
            value = mica.tensor(value, dtype=tensor.dtype, device=tensor.device)
        _step(tensor, "index_put_", (*last[1], value), types)


def _asked(tensor, operator, types, args, kwargs):
    if _C._len_torch_dispatch_stack():
        # A mode is asked first, and what it calls comes here again.
        from mica.utils._dispatch_calls import ask_innermost

        return ask_innermost(operator, types, args, kwargs)
    return answer_of(
        operator, args, kwargs, lambda: _answer(tensor, operator, types, args, kwargs), recorded.is_recorded_class, True
    )


def _answer(tensor, operator, types, args, kwargs):
    answer = answer_of_class(type(tensor), operator, types, args, kwargs)
    if answer is NotImplemented:
        raise TypeError(
            f"Multiple dispatch failed for '{operator}'; all __torch_dispatch__ handlers returned NotImplemented:\n\n"
            f"  - tensor subclass {type(tensor)}"
        )
    return answer


def _unseen():
    """A block whose operations no mode sees: making a tensor of a class is not an operation of the program."""
    if not _C._len_torch_dispatch_stack():
        return contextlib.nullcontext()
    from mica.utils._python_dispatch import _disable_current_modes

    return _disable_current_modes()


def make(cls, size, strides=None, dtype=None, device=None, requires_grad=False, storage_offset=0):
    """A tensor of the class with sizes and strides, whose elements are in no memory that is used."""
    if not has_torch_dispatch(cls):
        raise RuntimeError(
            f"{cls.__name__} has no __torch_dispatch__, which Tensor._make_wrapper_subclass is for: as_subclass keeps elements"
        )
    size = tuple(size)
    options = {"dtype": dtype or mica.get_default_dtype(), "device": device or "cpu"}
    with mica.no_grad(), _unseen():
        plain = _C._absent_tensor(mica.empty(0, **options), size, strides, storage_offset)
        with aside():
            return mica.Tensor._make_subclass(cls, plain, requires_grad)
