"""How torch's operations are written in ONNX: one function for each, by name."""

import mica
from mica._functions.families import own_name
from mica.onnx._state import OnnxExporterError, UnsupportedOperatorError
from mica.onnx.graph import data_type

_WRITERS = {}
# Calls that return no tensor, or only look at one, are not written.
_SILENT = {"size", "dim", "stride", "numel", "is_floating_point", "__get__", "__set__", "__len__", "__bool__", "__index__",
           "__int__", "__float__", "item", "tolist", "requires_grad_", "storage_offset", "is_contiguous", "data_ptr",
           "element_size", "get_device", "is_complex", "__format__", "__repr__", "__hash__", "register_hook",
           "_assert", "is_tensor"}  # fmt: skip
_SAME = {"contiguous", "detach", "clone", "alias", "cpu", "identity", "positive"}
# Changes in place of a tensor's shape: when they are seen, the tensor has its new one.
_RESHAPED = {"squeeze_", "unsqueeze_"}
_TURNED = {"t_", "transpose_", "swapaxes_", "swapdims_", "resize_", "resize_as_", "as_strided_", "set_"}


def writes(*names):
    def register(function):
        for name in names:
            _WRITERS[name] = function
        return function

    return register


def write(writer, func, args, kwargs, out):
    """Write a call whose result is `out`."""
    name = own_name(func) or str(func)
    if name in _SILENT:
        if name == "__get__" and isinstance(out, mica.Tensor):
            _attribute(writer, func, args, out)
        return
    results = out if isinstance(out, (tuple, list)) else (out,)
    is_assignment = name == "__setitem__"
    if not is_assignment and not any(isinstance(each, mica.Tensor) for each in results):
        return
    tensors = [each for each in (*args, *kwargs.values()) if isinstance(each, mica.Tensor)]
    tensors += [
        each
        for value in (*args, *kwargs.values())
        if isinstance(value, (tuple, list))
        for each in value
        if isinstance(each, mica.Tensor)
    ]
    if not any(writer.known(each) for each in tensors) and not _follows_a_size(writer, name, out):
        return  # constants only: the result is a constant too
    if name in _TURNED:
        raise OnnxExporterError(f"'{name}', which changes a shape in place, is not written: call the one without '_'")
    if args and out is args[0] and not writer.is_parameter(out):
        writer.forget_sharers(out)
    if name in _RESHAPED:
        writer.bind(out, writer.add("Reshape", [writer.value(out), writer.shape(list(out.shape))]))
        return
    if name in ("max", "min") and isinstance(out, tuple):
        name = f"{name}_dim"
    elif name in ("max", "min") and ((isinstance(args[-1], mica.Tensor) and len(args) > 1) or "other" in kwargs):
        name += "imum"
    elif name == "rsub":
        args = (kwargs.get("other", args[-1]), args[0])
    base = name.strip("_") if name.startswith("__") else name.rstrip("_") if name not in _WRITERS else name
    if base in _SAME:
        writer.bind(results[0], writer.value(tensors[0]))
        return
    if base not in _WRITERS:
        raise UnsupportedOperatorError(name, writer.opset)
    if name.startswith("__r") and base[1:] in _REFLECTED:
        args = (args[1], args[0])
    _WRITERS[base](writer, base, args, kwargs, out)


# Constants that a program makes as long as an input: a class token for every picture, a mask for every sequence.
_BY_SIZE = {"expand", "expand_as", "broadcast_to", "repeat", "tile", "zeros", "ones", "full", "new_zeros", "new_ones",
            "new_full", "arange", "__getitem__", "narrow"}  # fmt: skip


def _follows_a_size(writer, name, out):
    """Whether a result of constants has a size that is declared dynamic."""
    return name in _BY_SIZE and any(size and size % unit == 0 for size in out.shape for unit in writer.dynamic)


def _attribute(writer, func, args, out):
    """Write an attribute that is a tensor, such as x.T."""
    source, name = args[0], func.__self__.__name__
    if not writer.known(source):
        return
    order = list(range(source.dim()))
    if name in ("T", "H"):
        order.reverse()
    elif name in ("mT", "mH"):
        order[-2:] = order[:-3:-1]
    elif name not in ("data", "real"):
        raise OnnxExporterError(f"Exporting the attribute '{name}' to ONNX is not supported by Mica yet")
    value = writer.value(source)
    same = order == list(range(source.dim()))
    writer.bind(out, value if same else writer.add("Transpose", [value], perm=order))


def _arguments(args, kwargs, *names):
    """Arguments by position or name; what is not given is None."""
    found = dict(zip(names, args, strict=False))
    return [found.get(name, kwargs.get(name)) for name in names]


def _pair(value, count):
    return [value] * count if isinstance(value, int) else list(value)


_BINARY = {"add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "truediv": "Div", "pow": "Pow", "maximum": "Max",
           "minimum": "Min", "eq": "Equal", "lt": "Less", "gt": "Greater", "le": "LessOrEqual", "ge": "GreaterOrEqual",
           "logical_and": "And", "logical_or": "Or", "logical_xor": "Xor", "xor": "Xor", "and": "And", "or": "Or",
           "bitwise_and": "And", "bitwise_or": "Or", "bitwise_xor": "Xor",
           "radd": "Add", "rsub": "Sub", "rmul": "Mul", "rtruediv": "Div", "rpow": "Pow", "iadd": "Add", "isub": "Sub",
           "imul": "Mul", "itruediv": "Div", "multiply": "Mul", "divide": "Div", "true_divide": "Div", "subtract": "Sub"}  # fmt: skip
_REFLECTED = {"add", "sub", "mul", "truediv", "pow"}


@writes(*_BINARY, "ne")
def _binary(writer, name, args, kwargs, out):
    a, b = args[0], args[1] if len(args) > 1 else kwargs["other"]
    rounding = kwargs.get("rounding_mode")
    like = a if isinstance(a, mica.Tensor) else b
    common = mica.result_type(a, b)
    if name in ("div", "truediv", "rtruediv", "itruediv", "divide", "true_divide") and not common.is_floating_point:
        common = mica.get_default_dtype() if rounding is None else mica.float64
    names = []
    for each in (a, b):
        if isinstance(each, mica.Tensor):
            given = writer.value(each)
            names.append(given if each.dtype == common else writer.add("Cast", [given], to=data_type(common)))
        else:
            names.append(writer.size(each, common) or writer.constant(mica.tensor(each, dtype=common).numpy()))
    alpha = kwargs.get("alpha", 1)
    if alpha != 1:
        names[1] = writer.add("Mul", [names[1], writer.value(alpha, like)])
    if name == "ne":
        writer.bind(out, writer.add("Not", [writer.add("Equal", names)]))
        return
    made = writer.add(_operator_of(writer, _BINARY[name], name, common), names)
    if rounding is not None:
        made = _rounded_quotient(writer, made, rounding)
        made = made if common == out.dtype else writer.add("Cast", [made], to=data_type(out.dtype))
    writer.bind(out, made)


def _operator_of(writer, op, name, dtype):
    """ONNX has other operators for the bits of integers than for truths."""
    if op not in ("And", "Or", "Xor", "Not") or name.startswith("logical") or dtype == mica.bool:
        return op
    if writer.opset < 18:
        raise OnnxExporterError(f"'{name}' of integers is written from opset 18 on")
    return f"Bitwise{op}"


def _rounded_quotient(writer, value, rounding):
    if rounding == "floor":
        return writer.add("Floor", [value])
    return writer.add("Mul", [writer.add("Sign", [value]), writer.add("Floor", [writer.add("Abs", [value])])])


_UNARY = {"relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "neg": "Neg",
          "abs": "Abs", "erf": "Erf", "sin": "Sin", "cos": "Cos", "floor": "Floor", "ceil": "Ceil", "reciprocal": "Reciprocal",
          "hardswish": "HardSwish", "sign": "Sign", "round": "Round", "logical_not": "Not",
          "invert": "Not", "bitwise_not": "Not", "softsign": "Softsign", "selu": "Selu", "isnan": "IsNaN",
          "isinf": "IsInf", "tan": "Tan", "asin": "Asin", "acos": "Acos", "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh",
          "asinh": "Asinh", "acosh": "Acosh", "atanh": "Atanh", "negative": "Neg", "absolute": "Abs"}  # fmt: skip


@writes(*_UNARY)
def _unary(writer, name, args, kwargs, out):
    x = args[0] if args else kwargs["input"]
    value, decimals = writer.value(x), kwargs.get("decimals", 0)
    if decimals:
        unit = writer.value(float(10**decimals), x)
        writer.bind(out, writer.add("Div", [writer.add("Round", [writer.add("Mul", [value, unit])]), unit]))
        return
    writer.bind(out, writer.add(_operator_of(writer, _UNARY[name], name, x.dtype), [value]))


@writes("rsqrt")
def _rsqrt(writer, name, args, kwargs, out):
    writer.bind(out, writer.add("Reciprocal", [writer.add("Sqrt", [writer.value(args[0])])]))


@writes("gelu")
def _gelu(writer, name, args, kwargs, out):
    x, approximate = _arguments(args, kwargs, "input", "approximate")
    value = writer.value(x)
    if approximate == "tanh":
        cube = writer.add("Mul", [writer.add("Mul", [value, value]), value])
        inner = writer.add("Add", [value, writer.add("Mul", [cube, writer.value(0.044715, x)])])
        curve = writer.add("Tanh", [writer.add("Mul", [inner, writer.value(0.7978845608028654, x)])])
    else:
        curve = writer.add("Erf", [writer.add("Mul", [value, writer.value(0.7071067811865476, x)])])
    half = writer.add("Mul", [value, writer.value(0.5, x)])
    writer.bind(out, writer.add("Mul", [half, writer.add("Add", [curve, writer.value(1.0, x)])]))


@writes("silu")
def _silu(writer, name, args, kwargs, out):
    value = writer.value(args[0])
    writer.bind(out, writer.add("Mul", [value, writer.add("Sigmoid", [value])]))


@writes("leaky_relu", "elu", "hardsigmoid", "relu6", "hardtanh", "clamp", "clip")
def _activation(writer, name, args, kwargs, out):
    x = args[0]
    value = writer.value(x)
    if name == "leaky_relu":
        slope = _arguments(args, kwargs, "input", "negative_slope")[1]
        made = writer.add("LeakyRelu", [value], alpha=0.01 if slope is None else float(slope))
    elif name == "elu":
        alpha = _arguments(args, kwargs, "input", "alpha")[1]
        made = writer.add("Elu", [value], alpha=1.0 if alpha is None else float(alpha))
    elif name == "hardsigmoid":
        made = writer.add("HardSigmoid", [value], alpha=1 / 6, beta=0.5)
    else:
        low, high = (0, 6) if name == "relu6" else _arguments(args, kwargs, "input", "min", "max")[1:]
        if name == "hardtanh":
            low, high = _arguments(args, kwargs, "input", "min_val", "max_val")[1:]
            low, high = (-1.0 if low is None else low), (1.0 if high is None else high)
        made = _clipped(writer, x, value, low, high, out)
    writer.bind(out, made)


def _clipped(writer, x, value, low, high, out):
    """The value within bounds, in the dtype that it has with them; bounds that are tensors are one for each element."""
    if out.dtype != x.dtype:
        value = writer.add("Cast", [value], to=data_type(out.dtype))
    if not isinstance(low, mica.Tensor) and not isinstance(high, mica.Tensor):
        return writer.add("Clip", [value, *("" if each is None else writer.value(each, out) for each in (low, high))])
    for op, bound in (("Max", low), ("Min", high)):
        if bound is not None:
            bound = bound if isinstance(bound, mica.Tensor) else mica.tensor(bound, dtype=out.dtype)
            given = writer.value(bound)
            given = given if bound.dtype == out.dtype else writer.add("Cast", [given], to=data_type(out.dtype))
            value = writer.add(op, [value, given])
    return value


@writes("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_dropout", "feature_alpha_dropout")
def _dropout(writer, name, args, kwargs, out):
    x, p, training = _arguments(args, kwargs, "input", "p", "training")
    training = kwargs.get("train", training)
    drops = "alpha" not in name if training is None else training
    p = 0.5 if p is None else p
    if not drops or p == 0:
        writer.bind(out, writer.value(x))
        return
    if name != "dropout":
        raise OnnxExporterError(f"'{name}' is not written where it draws: export in eval mode")
    ratio, on = writer.value(float(p), x), writer.constant(mica.tensor(True).numpy())
    writer.bind(out, writer.add("Dropout", [writer.value(x), ratio, on]))


@writes("softmax", "log_softmax")
def _softmax(writer, name, args, kwargs, out):
    x, dim = _arguments(args, kwargs, "input", "dim")
    value = writer.value(x)
    value = value if out.dtype == x.dtype else writer.add("Cast", [value], to=data_type(out.dtype))
    writer.bind(out, writer.add("Softmax" if name == "softmax" else "LogSoftmax", [value], axis=dim))


@writes("linear")
def _linear(writer, name, args, kwargs, out):
    x, weight, bias = _arguments(args, kwargs, "input", "weight", "bias")
    made = writer.add("MatMul", [writer.value(x), writer.add("Transpose", [writer.value(weight)], perm=[1, 0])])
    writer.bind(out, made if bias is None else writer.add("Add", [made, writer.value(bias)]))


@writes("matmul", "mm", "bmm", "rmatmul")
def _matmul(writer, name, args, kwargs, out):
    writer.bind(out, writer.add("MatMul", [writer.value(args[0]), writer.value(args[1])]))


@writes("addmm", "baddbmm")
def _addmm(writer, name, args, kwargs, out):
    product = writer.add("MatMul", [writer.value(args[1]), writer.value(args[2])])
    bias = writer.value(args[0])
    if kwargs.get("alpha", 1) != 1:
        product = writer.add("Mul", [product, writer.value(float(kwargs["alpha"]), out)])
    if kwargs.get("beta", 1) != 1:
        bias = writer.add("Mul", [bias, writer.value(float(kwargs["beta"]), out)])
    writer.bind(out, writer.add("Add", [product, bias]))


@writes("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def _convolution(writer, name, args, kwargs, out):
    transposed = "transpose" in name
    names = ["input", "weight", "bias", "stride", "padding"]
    names += ["output_padding", "groups", "dilation"] if transposed else ["dilation", "groups"]
    given = dict(zip(names, _arguments(args, kwargs, *names), strict=True))
    dims = given["weight"].dim() - 2
    strides = _pair(given["stride"] or 1, dims)
    dilations, groups = _pair(given["dilation"] or 1, dims), given["groups"] or 1
    kernel = list(given["weight"].shape[2:])
    if isinstance(given["padding"], str):
        total = (
            [0] * dims if given["padding"] == "valid" else [d * (k - 1) for d, k in zip(dilations, kernel, strict=True)]
        )
        begins, ends = [t // 2 for t in total], [t - t // 2 for t in total]
    else:
        begins = ends = _pair(given["padding"] or 0, dims)
    alone = given["input"].dim() == dims + 1  # one example, without a batch
    value = writer.value(given["input"])
    inputs = [writer.add("Unsqueeze", [value, writer.ints([0])]) if alone else value, writer.value(given["weight"])]
    if given["bias"] is not None:
        inputs.append(writer.value(given["bias"]))
    extra = {"output_padding": _pair(given["output_padding"] or 0, dims)} if transposed else {}
    options = {
        "kernel_shape": kernel,
        "strides": strides,
        "pads": [*begins, *ends],
        "dilations": dilations,
        "group": groups,
        **extra,
    }
    made = writer.add("ConvTranspose" if transposed else "Conv", inputs, **options)
    writer.bind(out, writer.add("Squeeze", [made, writer.ints([0])]) if alone else made)


@writes("batch_norm")
def _batch_norm(writer, name, args, kwargs, out):
    x, mean, var, weight, bias, training, _, eps = _arguments(
        args, kwargs, "input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")  # fmt: skip
    if training:
        raise OnnxExporterError("a normalisation by the batch's own statistics is not written: export in eval mode")
    weight = mica.ones_like(mean) if weight is None else weight
    bias = mica.zeros_like(mean) if bias is None else bias
    inputs = [writer.value(each) for each in (x, weight, bias, mean, var)]
    writer.bind(out, writer.add("BatchNormalization", inputs, epsilon=float(1e-5 if eps is None else eps)))


@writes("layer_norm")
def _layer_norm(writer, name, args, kwargs, out):
    x, shape, weight, bias, eps = _arguments(args, kwargs, "input", "normalized_shape", "weight", "bias", "eps")
    weight = mica.ones(tuple(shape), dtype=x.dtype) if weight is None else weight
    inputs = [writer.value(x), writer.value(weight)] + ([writer.value(bias)] if bias is not None else [])
    writer.bind(
        out, writer.add("LayerNormalization", inputs, axis=-len(shape), epsilon=float(1e-5 if eps is None else eps))
    )
