"""How pools are written in ONNX."""

import math

from mica.onnx._state import OnnxExporterError
from mica.onnx.operations import _arguments, _pair, writes

_WITH_INDICES = ("max_pool1d_with_indices", "max_pool2d_with_indices", "max_pool3d_with_indices")


@writes(*_WITH_INDICES, "max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d")
def _pool(writer, name, args, kwargs, out):
    is_max = name.startswith("max")
    names = [
        "input",
        "kernel_size",
        "stride",
        "padding",
        "dilation" if is_max else "ceil_mode",
        "ceil_mode" if is_max else "count_include_pad",
        "return_indices" if is_max else "divisor_override",
    ]
    given = dict(zip(names, _arguments(args, kwargs, *names), strict=True))
    dims = int(name.removesuffix("_with_indices")[-2])
    kernel = _pair(given["kernel_size"], dims)
    strides, pads = _pair(given["stride"] or kernel, dims), _pair(given["padding"] or 0, dims)
    options = {"kernel_shape": kernel, "strides": strides, "pads": pads * 2, "ceil_mode": int(bool(given["ceil_mode"]))}
    if is_max:
        options["dilations"] = _pair(given["dilation"] or 1, dims)
    else:
        options["count_include_pad"] = int(given["count_include_pad"] is not False)
    divisor = None if is_max else given["divisor_override"]
    if divisor is not None:
        if given["ceil_mode"]:
            raise OnnxExporterError("an average with a divisor of its own is not written with ceil_mode")
        options["count_include_pad"] = 1
    result, x = out[0] if isinstance(out, tuple) else out, given["input"]
    value, alone = writer.value(x), x.dim() == dims + 1
    value = writer.add("Unsqueeze", [value, writer.ints([0])]) if alone else value
    indices = None
    if isinstance(out, tuple):
        made, indices = writer.add("MaxPool", [value], 2, **options)
    else:
        made = writer.add("MaxPool" if is_max else "AveragePool", [value], **options)
    made = writer.add("Squeeze", [made, writer.ints([0])]) if alone else made
    if indices is not None:  # ONNX counts them from the first element of all, torch from that of the channel
        indices = writer.add("Squeeze", [indices, writer.ints([0])]) if alone else indices
        sizes = writer.shape(list(x.shape[-dims:]))
        plane = writer.add("ReduceProd", [sizes], keepdims=1)
        writer.bind(out[1], writer.add("Mod", [indices, plane]))
    if divisor is not None:
        made = writer.add("Mul", [made, writer.value(math.prod(kernel) / divisor, x)])
    writer.bind(result, made)


def _uneven_pool(writer, value, first, given, wanted, is_max):
    """Cells of unequal length: dimension by dimension, each cell is cut out and reduced."""
    node = "ReduceMax" if is_max else "ReduceMean"
    for i, (size, count) in enumerate(zip(given, wanted, strict=True)):
        dim, cells = first + i, []
        for cell in range(count):
            bounds = [cell * size // count, -(-(cell + 1) * size // count), dim, 1]
            part = writer.add("Slice", [value, *(writer.ints([each]) for each in bounds)])
            axes, more = ([writer.ints([dim])], {}) if writer.opset >= 18 else ([], {"axes": [dim]})
            cells.append(writer.add(node, [part, *axes], keepdims=1, **more))
        value = writer.add("Concat", cells, axis=dim)
    return value


@writes("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool2d")
def _adaptive_pool(writer, name, args, kwargs, out):
    x, size = _arguments(args, kwargs, "input", "output_size")
    dims = int(name[-2])
    is_max = "max" in name
    wanted, given = _pair(size, dims), list(x.shape[-dims:])
    wanted = [g if w is None else w for w, g in zip(wanted, given, strict=True)]
    if all(w == 1 for w in wanted):
        made = writer.add("GlobalMaxPool" if is_max else "GlobalAveragePool", [writer.value(x)])
    elif all(g % w == 0 for w, g in zip(wanted, given, strict=True)):
        step = [g // w for w, g in zip(wanted, given, strict=True)]
        made = writer.add("MaxPool" if is_max else "AveragePool", [writer.value(x)], kernel_shape=step, strides=step)
    else:
        made = _uneven_pool(writer, writer.value(x), x.dim() - dims, given, wanted, is_max)
    writer.bind(out[0] if isinstance(out, tuple) else out, made)
