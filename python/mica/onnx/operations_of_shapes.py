"""How operations on shapes, indices and whole dimensions are written in ONNX."""

import mica
from mica.onnx._state import OnnxExporterError
from mica.onnx.graph import data_type
from mica.onnx.operations import _arguments, writes


@writes("view", "reshape", "flatten", "unflatten", "view_as", "reshape_as", "_unsafe_view")
def _reshape(writer, name, args, kwargs, out):
    writer.bind(out, writer.add("Reshape", [writer.value(args[0]), writer.shape(list(out.shape))]))


@writes("transpose", "permute", "t", "swapaxes", "swapdims", "movedim", "moveaxis")
def _transpose(writer, name, args, kwargs, out):
    x = args[0]
    order = list(range(x.dim()))
    if name == "permute":
        given = args[1] if len(args) == 2 and isinstance(args[1], (tuple, list)) else args[1:] or kwargs["dims"]
        order = [d % x.dim() for d in given]
    elif name in ("movedim", "moveaxis"):
        order = mica.empty([1] * x.dim(), device="meta").as_strided([1] * x.dim(), list(range(1, x.dim() + 1)))
        order = [step - 1 for step in order.movedim(*args[1:], **kwargs).stride()]
    else:
        a, b = (0, 1) if name == "t" else _arguments(args, kwargs, "input", "dim0", "dim1")[1:]
        order[a], order[b] = order[b], order[a]
    writer.bind(out, writer.add("Transpose", [writer.value(x)], perm=order))


@writes("unsqueeze", "squeeze")
def _squeeze(writer, name, args, kwargs, out):
    x, dim = _arguments(args, kwargs, "input", "dim")
    if name == "squeeze" and list(out.shape) == list(x.shape):
        writer.bind(out, writer.value(x))
        return
    rank = out.dim() if name == "unsqueeze" else x.dim()
    dims = (
        [i for i, n in enumerate(x.shape) if n == 1]
        if dim is None
        else [d % rank for d in (dim if isinstance(dim, (tuple, list)) else [dim])]
    )
    writer.bind(
        out, writer.add("Unsqueeze" if name == "unsqueeze" else "Squeeze", [writer.value(x), writer.ints(dims)])
    )


@writes("expand", "expand_as", "broadcast_to", "repeat", "tile")
def _expand(writer, name, args, kwargs, out):
    if name in ("repeat", "tile"):
        times = args[1] if len(args) == 2 and isinstance(args[1], (tuple, list)) else args[1:]
        value = writer.value(args[0])
        missing = len(times) - args[0].dim()
        if missing > 0:
            value = writer.add("Unsqueeze", [value, writer.ints(list(range(missing)))])
        writer.bind(out, writer.add("Tile", [value, writer.shape(list(times))]))
        return
    writer.bind(out, writer.add("Expand", [writer.value(args[0]), writer.shape(list(out.shape))]))


@writes("cat", "concat", "concatenate", "stack")
def _cat(writer, name, args, kwargs, out):
    tensors, dim = _arguments(args, kwargs, "tensors", "dim")
    dim = (dim or 0) % out.dim()
    names = [writer.value(each if each.dtype == out.dtype else each.to(out.dtype)) for each in tensors]
    if name == "stack":
        names = [writer.add("Unsqueeze", [each, writer.ints([dim])]) for each in names]
    writer.bind(out, writer.add("Concat", names, axis=dim))


@writes("split", "chunk", "unbind", "split_with_sizes", "tensor_split")
def _split(writer, name, args, kwargs, out):
    x = args[0]
    dim = kwargs.get(
        "dim", args[2] if len(args) > 2 and name != "unbind" else (args[1] if name == "unbind" and len(args) > 1 else 0)
    )
    dim %= x.dim()
    start = 0
    for part in out:
        size = 1 if name == "unbind" else part.shape[dim]
        piece = _slice(writer, writer.value(x), dim, start, start + size, 1)
        writer.bind(part, writer.add("Squeeze", [piece, writer.ints([dim])]) if name == "unbind" else piece)
        start += size


def _slice(writer, value, dim, start, stop, step):
    return writer.add(
        "Slice", [value, writer.place(start), writer.place(stop), writer.ints([dim]), writer.ints([step])]
    )


@writes("arange")
def _arange(writer, name, args, kwargs, out):
    """Numbers as many as a size that is declared dynamic; others are a constant."""
    start, end, step = (*args, *(kwargs[key] for key in ("start", "end", "step") if key in kwargs), None, None)[:3]
    if end is None:
        start = 0
    step = 1 if step is None else step
    count = writer.add("Reshape", [writer.shape([out.numel()]), writer.number()])
    value = writer.add("Range", [writer.value(0), count, writer.value(1)])
    if out.dtype != mica.int64:
        value = writer.add("Cast", [value], to=data_type(out.dtype))
    if step != 1:
        value = writer.add("Mul", [value, writer.value(step, out)])
    if isinstance(start, int) and out.dtype == mica.int64 and start:
        value = writer.add("Add", [value, writer.place(start)])
    elif start:
        value = writer.add("Add", [value, writer.value(start, out)])
    writer.bind(out, value)


@writes("getitem")
def _getitem(writer, name, args, kwargs, out):
    x, index = args
    index = index if isinstance(index, tuple) else (index,)
    value, dim, squeezed, added = writer.value(x), 0, [], []
    if ... in [each for each in index if each is ...]:
        at = next(i for i, each in enumerate(index) if each is ...)
        taken = sum(each is not None for each in index) - 1
        index = (*index[:at], *[slice(None)] * (x.dim() - taken), *index[at + 1 :])
    place = 0
    several = sum(isinstance(each, mica.Tensor) for each in index) > 1
    for each in index:
        if each is None:
            added.append(place)
            place += 1
        elif isinstance(each, slice):
            if each != slice(None):
                start, stop, step = each.indices(x.shape[dim])
                if step > 0:  # ends that count from the back do so for any size
                    start = each.start if each.start is not None and each.start < 0 else start
                    stop = 1 << 62 if each.stop is None else each.stop if each.stop < 0 else stop
                value = _slice(writer, value, dim, start, stop, step)
            dim += 1
            place += 1
        elif isinstance(each, int):
            value = _slice(writer, value, dim, each, each + 1 if each != -1 else 1 << 62, 1)
            squeezed.append(dim)
            dim += 1
        elif isinstance(each, mica.Tensor) and not several and each.dtype != mica.bool:
            value = writer.add("Gather", [value, writer.value(each)], axis=dim)
            # The index's dimensions replace one dimension, and count as one until sizes are squeezed and added.
            if each.dim() != 1 and (squeezed or added or dim != len(index) - 1):
                raise OnnxExporterError("an index of several dimensions among others is not written yet")
            dim += 1
            place += each.dim()
        elif isinstance(each, mica.Tensor) and several and each.dtype != mica.bool:
            writer.bind(out, _gather_all(writer, x, index))
            return
        else:
            raise OnnxExporterError(f"indexing with {type(each).__name__} among others is not written yet")
    if squeezed:
        value = writer.add("Squeeze", [value, writer.ints(squeezed)])
    if added:
        value = writer.add("Unsqueeze", [value, writer.ints(added)])
    writer.bind(out, value)


def _gather_all(writer, x, index):
    """x[a, b, ...] with tensors for the leading dimensions and nothing else."""
    tensors = [each for each in index if isinstance(each, mica.Tensor)]
    if len(tensors) != len(index) or any(each.dtype == mica.bool for each in tensors):
        raise OnnxExporterError("tensors among other indices are not written yet: index by one after the other")
    shape = mica.broadcast_shapes(*(each.shape for each in tensors))
    parts = []
    for each, size in zip(tensors, x.shape, strict=False):
        name = writer.add("Expand", [writer.value(each), writer.shape(list(shape) or [1])])
        name = writer.add(
            "Where",
            [writer.add("Less", [name, writer.ints([0])]), writer.add("Add", [name, writer.ints([size])]), name],
        )
        parts.append(writer.add("Unsqueeze", [name, writer.ints([len(shape)])]))
    return writer.add("GatherND", [writer.value(x), writer.add("Concat", parts, axis=-1)])


@writes("select", "narrow")
def _select(writer, name, args, kwargs, out):
    x, dim, start = args[0], args[1] % args[0].dim(), args[2]
    if name == "narrow":
        end = 1 << 62 if start < 0 and start + args[3] == 0 else start + args[3]
        writer.bind(out, _slice(writer, writer.value(x), dim, start, end, 1))
        return
    writer.bind(out, writer.add("Gather", [writer.value(x), writer.constant(mica.tensor(start).numpy())], axis=dim))


@writes("embedding")
def _embedding(writer, name, args, kwargs, out):
    index, weight = _arguments(args, kwargs, "input", "weight")
    if index.is_floating_point():
        index, weight = weight, index
    writer.bind(out, writer.add("Gather", [writer.value(weight), writer.value(index)], axis=0))


_REDUCTIONS = {"mean": "ReduceMean", "sum": "ReduceSum", "amax": "ReduceMax", "amin": "ReduceMin", "max": "ReduceMax",
               "min": "ReduceMin", "prod": "ReduceProd"}  # fmt: skip


@writes(*_REDUCTIONS)
def _reduce(writer, name, args, kwargs, out):
    x, dim, keepdim = _arguments(args, kwargs, "input", "dim", "keepdim")
    if not isinstance(out, mica.Tensor):
        raise OnnxExporterError(f"{name} with indices is not written yet: use amax, amin, argmax or argmin")
    dims = None if dim is None else [d % x.dim() for d in (dim if isinstance(dim, (tuple, list)) else [dim])]
    value = writer.value(x)
    if x.dtype != out.dtype:
        value = writer.add("Cast", [value], to=data_type(out.dtype))
    keep = int(bool(keepdim))
    if dims is None:
        made = writer.add(_REDUCTIONS[name], [value], keepdims=keep)
    elif name == "sum" or writer.opset >= 18:
        made = writer.add(_REDUCTIONS[name], [value, writer.ints(dims)], keepdims=keep)
    else:  # before opset 18 the axes of all but sums are an attribute
        made = writer.add(_REDUCTIONS[name], [value], axes=dims, keepdims=keep)
    writer.bind(out, made)


@writes("argmax", "argmin")
def _arg(writer, name, args, kwargs, out):
    x, dim, keepdim = _arguments(args, kwargs, "input", "dim", "keepdim")
    value = writer.value(x)
    if dim is None:
        value, dim = writer.add("Reshape", [value, writer.ints([-1])]), 0
    writer.bind(
        out, writer.add("ArgMax" if name == "argmax" else "ArgMin", [value], axis=dim, keepdims=int(bool(keepdim)))
    )


@writes("to", "float", "double", "half", "long", "int", "bool", "type", "type_as")
def _cast(writer, name, args, kwargs, out):
    x = args[0]
    writer.bind(
        out, writer.value(x) if x.dtype == out.dtype else writer.add("Cast", [writer.value(x)], to=data_type(out.dtype))
    )


@writes("where", "masked_fill")
def _where(writer, name, args, kwargs, out):
    if name == "where":
        if len(args) == 1 and not kwargs:
            raise OnnxExporterError(
                "torch.where(condition) has a size that values decide, which is not written: use a mask"
            )
        condition, a, b = _arguments(args, kwargs, "condition", "input", "other")
    else:
        b, condition, a = args
    names = [writer.value(each, out) if not isinstance(each, mica.Tensor) else writer.value(each) for each in (a, b)]
    writer.bind(out, writer.add("Where", [writer.value(condition), *names]))


@writes("pad")
def _pad(writer, name, args, kwargs, out):
    x, pad, mode, value = _arguments(args, kwargs, "input", "pad", "mode", "value")
    rank = x.dim()
    begins, ends = [0] * rank, [0] * rank
    for i in range(len(pad) // 2):
        begins[rank - 1 - i], ends[rank - 1 - i] = pad[2 * i], pad[2 * i + 1]
    kinds = {None: "constant", "constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    if mode not in kinds or (mode == "circular" and writer.opset < 19):
        raise OnnxExporterError(f"padding of mode {mode!r} is not written yet")
    writer.bind(
        out,
        writer.add(
            "Pad", [writer.value(x), writer.ints([*begins, *ends]), writer.value(value or 0.0, x)], mode=kinds[mode]
        ),
    )


@writes("interpolate", "upsample")
def _interpolate(writer, name, args, kwargs, out):
    x, size, scale, mode, align, again, antialias = _arguments(
        args, kwargs, "input", "size", "scale_factor", "mode", "align_corners", "recompute_scale_factor", "antialias"
    )
    kinds = {
        None: "nearest",
        "nearest": "nearest",
        "nearest-exact": "nearest",
        "bilinear": "linear",
        "linear": "linear",
        "trilinear": "linear",
        "bicubic": "cubic",
    }
    if mode not in kinds:
        raise OnnxExporterError(f"interpolation of mode {mode!r} is not written")
    if antialias and (writer.opset < 18 or kinds[mode] != "linear"):
        raise OnnxExporterError("interpolation with antialias is written of mode 'bilinear', from opset 18 on")
    exact = mode == "nearest-exact"
    place = "asymmetric" if kinds[mode] == "nearest" else "align_corners" if align else "pytorch_half_pixel"
    options = {
        "mode": kinds[mode],
        "coordinate_transformation_mode": "half_pixel" if exact else place,
        "nearest_mode": "round_prefer_ceil" if exact else "floor",
        "cubic_coeff_a": -0.75,
        "antialias": 1 if antialias else None,
        "exclude_outside": 1 if antialias else None,
    }
    by_size = size is not None or again or align
    if by_size:
        target = ["", writer.shape(list(out.shape))]
    else:  # places are found by the factor that was given, not by the quotient of the sizes
        factors = [float(scale)] * (x.dim() - 2) if isinstance(scale, (int, float)) else list(map(float, scale))
        target = [writer.constant(mica.tensor([1.0, 1.0, *factors], dtype=mica.float32).numpy())]
    writer.bind(out, writer.add("Resize", [writer.value(x), "", *target], **options))
