"""Which operator of torch.ops.aten a call is, with its arguments in the operator's order."""

import mica
from mica import _C
from mica._functions.families import DTYPES_OF_TYPES, is_functional, own_name

_LAST = 2**63 - 1
_WHOLE = (int, mica.SymInt)
_DTYPES = {"float": "float32", "double": "float64", "half": "float16", "bfloat16": "bfloat16", "long": "int64",
           "int": "int32", "short": "int16", "char": "int8", "byte": "uint8", "bool": "bool"}  # fmt: skip
_OF_PYTHON = {bool: _C.bool, int: _C.int64, float: _C.float64, complex: _C.complex128}
_ATTRIBUTES = {
    "T": "numpy_T",
    "mT": "mT",
    "H": "matrix_H",
    "mH": "mH",
    "real": "real",
    "imag": "imag",
    "data": "detach",
}
_OPERATORS = {
    **{f"__{name}__": name for name in ("matmul", "rsub", "pow", "add", "sub", "mul", "eq", "ne", "lt", "le", "gt", "ge",
                                        "neg", "abs")},
    **{f"__{name}__": f"bitwise_{name}" for name in ("and", "or", "xor")},
    "__truediv__": "div", "__floordiv__": "floor_divide", "__mod__": "remainder", "__invert__": "bitwise_not",
}  # fmt: skip


def _fits(kind, value):
    """Whether a value can be an argument of a schema's type."""
    kind = str(kind)
    if kind.endswith("?"):
        return value is None or _fits(kind[:-1], value)
    if kind.endswith("]"):
        inner, _, count = kind[:-1].rpartition("[")
        if isinstance(value, (list, tuple)):
            return all(_fits(inner, each) for each in value)
        return bool(count) and _fits(inner, value)
    if kind.startswith("Tensor"):
        return isinstance(value, _C.TensorBase)
    if kind in ("int", "SymInt"):
        return isinstance(value, (int, mica.SymInt)) and not isinstance(value, bool)
    if kind in ("float", "Scalar"):
        return isinstance(value, (int, float, complex, mica.SymInt, mica.SymFloat))
    if kind == "ScalarType":
        return isinstance(value, mica.dtype)
    types = {"bool": bool, "str": str, "Device": (mica.device, str), "Layout": mica.layout,
             "MemoryFormat": mica.memory_format, "Generator": mica.Generator, "Dimname": str}  # fmt: skip
    return kind in types and isinstance(value, types[kind])


# Where a number stands for a tensor, torch names the overload of tensors for these, and that of numbers for others.
_NUMBERS_AS_TENSORS = frozenset(["add", "sub", "mul", "div", "add_", "sub_", "mul_", "div_", "copy_", "floor_divide"])


def _bound(schema, args, kwargs, takes_numbers=True, takes_rows=True, first_number=False):
    """The arguments as the schema has them; None if they are not its arguments."""
    positional = [a for a in schema.arguments if not a.kwarg_only]
    args = list(args)
    for i, declared in enumerate(positional[: len(args)] if takes_rows else ()):
        # x.view(2, 3) and x.view((2, 3)) are the same call.
        if str(declared.type) in ("SymInt[]", "int[]") and all(type(each) in _WHOLE for each in args[i:]):
            args[i:] = [args[i:]]
            break
    if len(args) > len(positional):
        return None
    given = dict(zip((a.name for a in positional), args, strict=False))
    for name, value in kwargs.items():
        name = "self" if name == "input" else name
        if name in given or all(a.name != name for a in schema.arguments):
            return None
        given[name] = value
    for a in schema.arguments:
        if isinstance(given.get(a.name), type) and str(a.type).startswith("ScalarType"):
            given[a.name] = DTYPES_OF_TYPES.get(given[a.name], given[a.name])
    for i, a in enumerate(schema.arguments):
        if a.is_out:
            return None
        if a.name not in given:
            if not a.has_default_value():
                return None
            continue
        if str(a.type) == "ScalarType?":
            given[a.name] = _OF_PYTHON.get(given[a.name], given[a.name])
        is_number = type(given[a.name]) in (int, float, bool, mica.SymInt, mica.SymFloat)
        number_for_tensor = takes_numbers and (first_number or i > 0) and str(a.type) == "Tensor" and is_number
        if not number_for_tensor and not _fits(a.type, given[a.name]):
            return None
    made, named = [], {}
    for a in positional:
        if a.name in given and not named and len(made) == positional.index(a):
            made.append(given[a.name])
        elif a.name in given:
            named[a.name] = given[a.name]
    named.update({a.name: given[a.name] for a in schema.arguments if a.kwarg_only and a.name in given})
    return tuple(made), named


def overload(name, args, kwargs):
    """(overload, args, kwargs) of the operator of a name that takes the arguments; None if there is none."""
    packet = None if name.startswith("__") and name.endswith("__") else getattr(mica.ops.aten, name, None)
    # Numbers are taken by the overload of tensors too, and torch names that one.
    first = "default" if name == "copy_" else "Tensor"
    first = "start" if name == "arange" else first
    order = sorted(packet.overloads(), key=lambda each: each != first) if packet is not None else ()
    for takes_numbers in (True,) if name in _NUMBERS_AS_TENSORS else (False, True):
        for takes_rows in (False, True):  # in x.tensor_split(2, 0) the numbers are not a list of places
            for each in order:
                found = getattr(packet, each)
                bound = _bound(found._schema, args, kwargs, takes_numbers, takes_rows)
                if bound is not None:
                    return found, *bound
    for each in order:  # torch.div(7, 2)
        bound = _bound(getattr(packet, each)._schema, args, kwargs, first_number=True)
        if bound is not None:
            return getattr(packet, each), *bound
    return None


# ---- functions of torch.nn.functional whose arguments are not the operator's


def _activation(name):
    count = {"elu": 1, "leaky_relu": 1, "celu": 1, "hardtanh": 2}.get(name, 0)  # of arguments before `inplace`

    def adapt(input, *args, inplace=False, **kwargs):
        inplace = args[count] if len(args) > count else inplace
        return (f"{name}_" if inplace else name), (input, *args[:count]), kwargs

    return adapt


def _softmax(name):
    def adapt(input, dim=None, _stacklevel=3, dtype=None):
        return None if dim is None else (name, (input, dim, dtype), {})

    return adapt


def _dropout(input, p=0.5, training=True, inplace=False):
    return ("dropout_" if inplace else "dropout"), (input, float(p), training), {}


def _embedding(input, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False):
    if max_norm is not None:
        return None
    padding = -1 if padding_idx is None else padding_idx % len(weight)
    return "embedding", (weight, input, padding, scale_grad_by_freq, sparse), {}


def _layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    return "layer_norm", (input, list(normalized_shape), weight, bias, eps), {}


def _batch_norm(input, mean, var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
    return "batch_norm", (input, weight, bias, mean, var, training, momentum, eps, False), {}


def _instance_norm(input, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True,
                   momentum=0.1, eps=1e-5):  # fmt: skip
    of_all = weight, bias, running_mean, running_var
    return "instance_norm", (input, *of_all, use_input_stats, momentum, eps, False), {}


def _group_norm(input, num_groups, weight=None, bias=None, eps=1e-5):
    return "group_norm", (input, num_groups, weight, bias, eps), {}


def _max_pool(name):
    def adapt(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
        if return_indices:
            return None
        return name, (input, kernel_size, [] if stride is None else stride, padding, dilation, ceil_mode), {}

    return adapt


def _interpolate(input, size=None, scale_factor=None, mode="nearest", align_corners=None,
                 recompute_scale_factor=None, antialias=False):  # fmt: skip
    spatial = input.dim() - 2
    name = {"nearest": "nearest", "nearest-exact": "nearest_exact", "bicubic": "bicubic",
            ("bilinear" if spatial == 2 else "trilinear" if spatial == 3 else "linear"): mode}.get(mode)  # fmt: skip
    if name is None or recompute_scale_factor or antialias:
        return None
    name = f"{'_' if name == 'nearest_exact' else ''}upsample_{name}{spatial}d"
    size = [size] * spatial if isinstance(size, _WHOLE) else size
    scales = [float(scale_factor)] * spatial if isinstance(scale_factor, (int, float)) else scale_factor
    corners = () if "nearest" in name else (bool(align_corners),)
    packet = getattr(mica.ops.aten, name, None)
    if packet is None or "vec" not in packet.overloads():
        return None
    return packet.vec, (input, size, *corners, scales), {}


_FUNCTIONAL = {
    **{name: _activation(name) for name in ("relu", "silu", "elu", "leaky_relu", "hardswish", "hardsigmoid", "relu6",
                                            "mish", "selu", "celu", "hardtanh")},
    **{name: _max_pool(name) for name in ("max_pool1d", "max_pool2d", "max_pool3d")},
    "softmax": _softmax("softmax"), "log_softmax": _softmax("log_softmax"), "dropout": _dropout,
    "logsigmoid": lambda input: ("log_sigmoid", (input,), {}), "interpolate": _interpolate,
    "embedding": _embedding, "layer_norm": _layer_norm, "batch_norm": _batch_norm, "group_norm": _group_norm,
    "instance_norm": _instance_norm,
    **{name: (lambda *args, _name=name, **kwargs: (_name, args, kwargs))
       for name in ("linear", "gelu", "sigmoid", "tanh", "scaled_dot_product_attention", "conv1d", "conv2d", "conv3d",
                    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "avg_pool1d", "avg_pool2d",
                    "avg_pool3d", "softplus", "pixel_shuffle", "one_hot", "pad", "glu", "rms_norm")},
}  # fmt: skip


# ---- conversions


def _conversion(name, args, kwargs):
    """(overload, args, kwargs) of x.to(...), x.cpu() and their like: which overload it is depends on what is said."""
    x, *rest = args
    if not isinstance(x, _C.TensorBase):
        return None
    said = dict(kwargs)
    if name in ("cpu", "cuda"):
        where = rest.pop(0) if name == "cuda" and rest else said.pop("device", None)
        index = where if isinstance(where, int) else None
        said["device"] = mica.device(name, index) if where is None or isinstance(where, int) else where
        rest = [said.pop("device"), None, *rest] if rest else rest
        if name == "cpu" and rest:
            return None
    if (rest and isinstance(rest[0], _C.TensorBase)) or "other" in said:
        other = rest.pop(0) if rest else said.pop("other")
        said |= {"device": other.device, "dtype": other.dtype}
    elif rest and isinstance(rest[0], (str, mica.device, int)) and not isinstance(rest[0], bool):
        said["device"] = rest.pop(0)
        if rest and not isinstance(rest[0], bool):
            said["dtype"] = rest.pop(0)
    elif rest and not isinstance(rest[0], bool):
        said["dtype"] = rest.pop(0)
    said |= dict(zip(("non_blocking", "copy", "memory_format"), rest, strict=False))
    unknown = said.keys() - {"device", "dtype", "non_blocking", "copy", "memory_format"}
    device, dtype = said.pop("device", None), said.pop("dtype", None)
    dtype = _OF_PYTHON.get(dtype, dtype)
    if unknown or not isinstance(dtype, (mica.dtype, type(None))):
        return None
    flags = [said.pop("non_blocking", False), said.pop("copy", False)]
    if device is None:
        if dtype is None:
            return None
        return mica.ops.aten.to.dtype, (x, dtype, *(flags if any(flags) else ())), said
    device = mica.device(device)
    if dtype is not None:
        return mica.ops.aten.to.device, (x, device, dtype, *(flags if any(flags) else ())), said
    named = {"dtype": x.dtype, "layout": x.layout, "device": device}
    named |= {key: True for key, flag in zip(("non_blocking", "copy"), flags, strict=True) if flag}
    return mica.ops.aten.to.dtype_layout, (x,), {**named, **said}


_MAKERS = frozenset(
    ["ones", "zeros", "full", "empty", "rand", "randn", "randint", "randperm", "arange", "linspace", "logspace", "eye",
     "scalar_tensor", "empty_strided", "ones_like", "zeros_like", "full_like", "empty_like", "rand_like", "randn_like",
     "randint_like", "new_zeros", "new_ones", "new_full", "new_empty"]
)  # fmt: skip


def find(func, args, kwargs):
    """(operator, args, kwargs) of a call; None if it is left as the function that it is."""
    name = own_name(func)
    if hasattr(func, "_schema"):
        return func, args, kwargs
    if hasattr(func, "_public"):  # an operator of the program's own
        return func._public(), args, kwargs
    if name == "__get__":
        attribute = _ATTRIBUTES.get(func.__self__.__name__)
        return overload(attribute, args[:1], {}) if attribute else None
    if is_functional(func):
        adapt = _FUNCTIONAL.get(name)
        adapted = adapt(*args, **kwargs) if adapt else None
        if adapted is None or hasattr(adapted[0], "_schema"):
            return adapted
        return overload(*adapted)
    if name == "where" and func is mica.Tensor.where and len(args) == 3:
        return overload("where", (args[1], args[0], args[2]), kwargs)
    if name in _DTYPES and len(args) == 1:
        return _conversion("to", (args[0], getattr(mica, _DTYPES[name])), kwargs)
    if name == "type" and len(args) == 2 and isinstance(args[1], mica.dtype) and not kwargs:
        return _conversion("to", args, kwargs)
    if name in ("to", "cpu", "cuda") and args:
        return _conversion(name, args, kwargs)
    if name == "split" and len(args) > 1 and isinstance(args[1], (list, tuple)):
        return overload("split_with_sizes", args, kwargs)
    if name in ("einsum",) and len(args) > 1:
        operands = args[1] if isinstance(args[1], (list, tuple)) else args[1:]
        return overload("einsum", (args[0], list(operands)), kwargs)
    if kwargs.get("requires_grad") is not None and name in _MAKERS:
        kwargs = {key: value for key, value in kwargs.items() if key != "requires_grad"}
    family = getattr(func, "__name__", name)  # linalg_cross, whose defaults are not those of cross
    if family != name and getattr(mica.ops.aten, family, None) is not None:
        return overload(family, args, kwargs)
    return overload(_OPERATORS.get(name, name), args, kwargs)


# ---- x[...] as operators


def index_steps(x, index):
    """The operators of x[index] as (name, arguments after the tensor); None if they are not all of them known."""
    index = index if isinstance(index, tuple) else (index,)
    taken = sum(1 if not isinstance(i, _C.TensorBase) or i.dtype not in (mica.bool, mica.uint8) else i.dim()
                for i in index if i is not None and i is not ...)  # fmt: skip
    steps, dim, tensors, covered = [], 0, [], 0  # `covered`: the dimensions that the list of tensors stands for
    for i in index:
        if i is ...:
            dim += x.dim() - taken
        elif i is None:
            steps.append(("unsqueeze", (dim,)))
            dim += 1
        elif type(i) in _WHOLE:
            steps.append(("select", (dim, i)))
        elif isinstance(i, slice) and all(v is None or type(v) in _WHOLE for v in (i.start, i.stop, i.step)):
            if not i.start is i.stop is i.step is None:
                start, stop, step = 0 if i.start is None else i.start, _LAST if i.stop is None else i.stop, i.step or 1
                steps.append(("slice", (dim, start, stop) if step == 1 else (dim, start, stop, step)))
            dim += 1
        elif isinstance(i, _C.TensorBase):
            is_mask = i.dtype in (mica.bool, mica.uint8)
            if is_mask and i.dim() == 0:
                return None
            tensors += [None] * (dim - covered) + [i]
            dim += i.dim() if is_mask else 1
            covered = dim
        else:
            return None
    return [*steps, ("index", (tensors,))] if tensors else steps
