"""How recurrent layers, sums of products, sorting and gathering are written in ONNX."""

import mica
from mica.onnx._state import OnnxExporterError
from mica.onnx.graph import data_type
from mica.onnx.operations import _arguments, writes

# torch's order of gates -> ONNX's: LSTM i f g o -> i o f g; GRU r z n -> z r n.
_GATES = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2), "rnn_tanh": (0,), "rnn_relu": (0,)}
_NODES = {"lstm": "LSTM", "gru": "GRU", "rnn_tanh": "RNN", "rnn_relu": "RNN"}


def _gates(name, weights):
    """Weights of the directions of a layer, their gates in ONNX's order, stacked."""
    rows = [weight.detach().chunk(len(_GATES[name])) for weight in weights]
    return mica.stack([mica.cat([gates[i] for i in _GATES[name]]) for gates in rows]).cpu().numpy()


def _state(writer, state, layer, directions):
    """The initial state of a layer; none if it is zero."""
    if not writer.known(state) and not state.any():
        return ""
    first = layer * directions
    rows = [writer.ints([first]), writer.ints([first + directions]), writer.ints([0]), writer.ints([1])]
    return writer.add("Slice", [writer.value(state), *rows])


@writes(*_NODES)
def _recurrent(writer, name, args, kwargs, out):
    x, states, weights, has_biases, layers, dropout, training, bidirectional, batch_first = args
    if isinstance(weights, bool) or (isinstance(states, mica.Tensor) and name == "lstm"):
        raise OnnxExporterError("packed sequences are not written: give padded ones")
    states = states if isinstance(states, (tuple, list)) else (states,)
    directions = 2 if bidirectional else 1
    each = 4 if has_biases else 2
    if len(weights) != layers * directions * each:
        raise OnnxExporterError("an LSTM with projections has no counterpart in ONNX")
    if training and dropout:
        raise OnnxExporterError("dropout between layers is not written: export in eval mode")
    value = writer.value(x)
    if batch_first:
        value = writer.add("Transpose", [value], perm=[1, 0, 2])
    finals = [[] for _ in states]
    for layer in range(layers):
        parts = weights[layer * directions * each : (layer + 1) * directions * each]
        columns = [list(parts[i::each]) for i in range(each)]
        inputs = [value, writer.constant(_gates(name, columns[0])), writer.constant(_gates(name, columns[1]))]
        bias = ""
        if has_biases:
            import numpy

            bias = writer.constant(numpy.concatenate([_gates(name, columns[2]), _gates(name, columns[3])], 1))
        inputs += [bias, "", *(_state(writer, state, layer, directions) for state in states)]
        options = {"hidden_size": states[0].shape[-1], "direction": "bidirectional" if bidirectional else "forward"}
        if name == "gru":
            options["linear_before_reset"] = 1
        elif name.startswith("rnn"):
            options["activations"] = ["Tanh" if name == "rnn_tanh" else "Relu"] * directions
        value, *last = writer.add(_NODES[name], inputs, 1 + len(states), **options)
        value = writer.add("Transpose", [value], perm=[0, 2, 1, 3])
        value = writer.add("Reshape", [value, writer.ints([0, 0, -1])])
        for final, state in zip(finals, last, strict=True):
            final.append(state)
    if batch_first:
        value = writer.add("Transpose", [value], perm=[1, 0, 2])
    writer.bind(out[0], value)
    for tensor, parts in zip(out[1:], finals, strict=True):
        writer.bind(tensor, parts[0] if len(parts) == 1 else writer.add("Concat", parts, axis=0))


@writes("einsum")
def _einsum(writer, name, args, kwargs, out):
    equation, *operands = args
    if not isinstance(equation, str):
        raise OnnxExporterError("einsum by lists of numbers is not written: give the equation as text")
    if len(operands) == 1 and isinstance(operands[0], (tuple, list)):
        operands = operands[0]
    writer.bind(
        out, writer.add("Einsum", [writer.value(each) for each in operands], equation=equation.replace(" ", ""))
    )


@writes("index_select", "gather", "take_along_dim")
def _gather(writer, name, args, kwargs, out):
    x, dim, index = _arguments(args, kwargs, "input", "dim", "index")
    if name == "take_along_dim":
        index, dim = dim, index
    node = "Gather" if name == "index_select" else "GatherElements"
    writer.bind(out, writer.add(node, [writer.value(x), writer.value(index)], axis=dim))


@writes("scatter", "scatter_add")
def _scatter(writer, name, args, kwargs, out):
    x, dim, index, source = _arguments(args, kwargs, "input", "dim", "index", "src")
    source = kwargs.get("value", source)
    reduce = kwargs.get("reduce", args[4] if len(args) > 4 else None)
    if isinstance(source, mica.Tensor):
        value = writer.value(source)
        if source.shape != index.shape:  # torch reads as much of it as there are indices
            sizes, dims = writer.shape(list(index.shape)), list(range(index.dim()))
            value = writer.add("Slice", [value, writer.ints([0] * index.dim()), sizes, writer.ints(dims)])
    else:
        value = writer.add("Expand", [writer.value(source, x), writer.shape(list(index.shape))])
    how = {"reduction": "add"} if name == "scatter_add" else {}
    if reduce is not None:
        how = {"reduction": {"add": "add", "multiply": "mul"}[reduce]}
    inputs = [writer.value(x), writer.value(index), value]
    writer.bind(out, writer.add("ScatterElements", inputs, axis=dim, **how))


@writes("topk", "sort", "argsort")
def _topk(writer, name, args, kwargs, out):
    x = args[0]
    if name == "topk":
        _, count, dim, largest = _arguments(args, kwargs, "input", "k", "dim", "largest")
        dim, largest = -1 if dim is None else dim, largest is not False
    else:
        _, dim, descending = _arguments(args, kwargs, "input", "dim", "descending")
        dim = -1 if dim is None else dim
        count, largest = x.shape[dim], bool(descending)
    size = writer.shape([count]) if name != "topk" else writer.ints([count])
    values, indices = writer.add("TopK", [writer.value(x), size], 2, axis=dim, largest=int(largest))
    if name == "argsort":
        writer.bind(out, indices)
        return
    writer.bind(out[0], values)
    writer.bind(out[1], indices)


@writes("max_dim", "min_dim")
def _extreme(writer, name, args, kwargs, out):
    x, dim, keepdim = _arguments(args, kwargs, "input", "dim", "keepdim")
    value, keep = writer.value(x), int(bool(keepdim))
    kind = name[:3].capitalize()
    axes = [writer.ints([dim])] if writer.opset >= 18 else []
    more = {} if axes else {"axes": [dim]}
    writer.bind(out[0], writer.add(f"Reduce{kind}", [value, *axes], keepdims=keep, **more))
    writer.bind(out[1], writer.add(f"Arg{kind}", [value], axis=dim, keepdims=keep))


@writes("cumsum")
def _cumsum(writer, name, args, kwargs, out):
    x, dim = _arguments(args, kwargs, "input", "dim")
    value = writer.value(x)
    if x.dtype != out.dtype:
        value = writer.add("Cast", [value], to=data_type(out.dtype))
    writer.bind(out, writer.add("CumSum", [value, writer.constant(mica.tensor(dim).numpy())]))


@writes("tril", "triu")
def _triangle(writer, name, args, kwargs, out):
    x, diagonal = _arguments(args, kwargs, "input", "diagonal")
    place = writer.constant(mica.tensor(diagonal or 0).numpy())
    writer.bind(out, writer.add("Trilu", [writer.value(x), place], upper=int(name == "triu")))


@writes("zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full", "empty_like", "new_empty", "zeros",
        "ones", "full")  # fmt: skip
def _filled(writer, name, args, kwargs, out):
    number = (
        args[-1] if "full" in name and "fill_value" not in kwargs else kwargs.get("fill_value", int("ones" in name))
    )
    if isinstance(number, mica.Tensor):
        raise OnnxExporterError(f"{name} with a tensor as its value is not written")
    value = writer.constant(mica.tensor(number, dtype=out.dtype).numpy())
    writer.bind(out, writer.add("Expand", [value, writer.shape(list(out.shape))]) if out.dim() else value)


@writes("prelu")
def _prelu(writer, name, args, kwargs, out):
    x, weight = _arguments(args, kwargs, "input", "weight")
    slope = weight.detach().reshape([-1] + [1] * (x.dim() - 2)) if weight.numel() > 1 else weight
    writer.bind(out, writer.add("PRelu", [writer.value(x), writer.value(slope)]))


@writes("pixel_shuffle")
def _pixel_shuffle(writer, name, args, kwargs, out):
    writer.bind(out, writer.add("DepthToSpace", [writer.value(args[0])], blocksize=args[1], mode="CRD"))


@writes("pixel_unshuffle")
def _pixel_unshuffle(writer, name, args, kwargs, out):
    x, factor = args
    batch, channels, height, width = x.shape
    parts = [batch, channels, height // factor, factor, width // factor, factor]
    value = writer.add("Reshape", [writer.value(x), writer.shape(parts)])
    value = writer.add("Transpose", [value], perm=[0, 1, 3, 5, 2, 4])
    writer.bind(out, writer.add("Reshape", [value, writer.shape(list(out.shape))]))


@writes("grid_sample", "grid_sampler")
def _grid_sample(writer, name, args, kwargs, out):
    x, grid, mode, padding, corners = _arguments(args, kwargs, "input", "grid", "mode", "padding_mode", "align_corners")
    options = {"mode": mode or "bilinear", "padding_mode": padding or "zeros", "align_corners": int(bool(corners))}
    if writer.opset >= 20:
        options["mode"] = {"bilinear": "linear", "bicubic": "cubic"}.get(options["mode"], options["mode"])
    writer.bind(out, writer.add("GridSample", [writer.value(x), writer.value(grid)], **options))


@writes("flip")
def _flip(writer, name, args, kwargs, out):
    x = args[0]
    dims = kwargs.get("dims") or (args[1] if isinstance(args[1], (tuple, list)) else args[1:])
    count = len(dims)
    places = [writer.ints([-1] * count), writer.ints([-(1 << 62)] * count), writer.ints([d % x.dim() for d in dims])]
    writer.bind(out, writer.add("Slice", [writer.value(x), *places, writer.ints([-1] * count)]))


@writes("setitem")
def _setitem(writer, name, args, kwargs, out):
    """An assignment to a part: the tensor's name then stands for what it holds afterwards."""
    x, index, value = args
    if writer.dynamic:
        raise OnnxExporterError("an assignment to a part of a tensor is not written where axes are dynamic")
    places = mica.arange(x.numel()).reshape(x.shape)[index]
    if not isinstance(value, mica.Tensor):
        value = mica.tensor(value, dtype=x.dtype)
    source = writer.add("Expand", [writer.value(value), writer.ints(list(places.shape) or [1])])
    source = writer.add("Reshape", [source, writer.ints([-1])])
    flat = writer.add("Reshape", [writer.value(x), writer.ints([-1])])
    flat = writer.add("ScatterElements", [flat, writer.constant(places.reshape(-1).numpy()), source], axis=0)
    writer.bind(x, writer.add("Reshape", [flat, writer.ints(list(x.shape))]))


@writes("_canonical_mask")
def _mask(writer, name, args, kwargs, out):
    """A mask of bools as one that is added to scores."""
    mask = args[0]
    if mask.dtype == mica.bool:
        values = [writer.value(float("-inf"), out), writer.value(0.0, out)]
        writer.bind(out, writer.add("Where", [writer.value(mask), *values]))
    else:
        writer.bind(out, writer.add("Cast", [writer.value(mask)], to=data_type(out.dtype)))
