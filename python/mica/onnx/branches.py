"""torch.cond in ONNX: an If, whose branches are graphs of their own. Loops that ask an input are refused."""

import mica
from mica.onnx._state import OnnxExporterError, exporting, writers
from mica.onnx.graph import _onnx, data_type
from mica.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["check_loop", "writes_cond", "written_cond"]


def writes_cond(pred):
    """Whether a file is being written whose inputs decide a condition."""
    return exporting[0] and bool(writers) and isinstance(pred, mica.Tensor) and writers[0].known(pred)


def _branch(writer, name, function, operands):
    """(the graph of a function, its results, how they are nested)."""
    nodes, names = writer.nodes, dict(writer._names)
    writer.nodes = []
    try:
        leaves, spec = tree_flatten(function(*operands))
        if not all(isinstance(leaf, mica.Tensor) for leaf in leaves):
            raise OnnxExporterError("torch.cond: branches that return other things than tensors are not written")
        outputs = []
        for leaf in leaves:
            outputs.append(writer.fresh(name))
            writer.add_named("Identity", [writer.value(leaf)], [outputs[-1]])
        helper = _onnx().helper
        infos = [
            helper.make_tensor_value_info(output, data_type(leaf.dtype), [None] * leaf.dim())
            for output, leaf in zip(outputs, leaves, strict=True)
        ]
        return helper.make_graph(writer.nodes, name, [], infos), leaves, spec
    finally:
        # What was computed within a branch has no name outside of it.
        writer.nodes, writer._names = nodes, names


def written_cond(pred, true_fn, false_fn, operands):
    """Write both branches; the result is that of the example's."""
    writer = writers[0]
    ours, theirs = (
        _branch(writer, name, function, operands)
        for name, function in (("then_branch", true_fn), ("else_branch", false_fn))
    )
    if ours[2] != theirs[2] or [leaf.dtype for leaf in ours[1]] != [leaf.dtype for leaf in theirs[1]]:
        raise OnnxExporterError("torch.cond: both branches must return tensors of the same dtypes, nested alike")
    condition = writer.value(pred)
    if pred.dim():
        condition = writer.add("Reshape", [condition, writer.number()])
    if pred.dtype != mica.bool:
        condition = writer.add("Cast", [condition], to=data_type(mica.bool))
    names = [writer.fresh("if") for _ in ours[1]]
    writer.add_named("If", [condition], names, then_branch=ours[0], else_branch=theirs[0])
    with mica._C.DisableTorchFunction():
        made = [leaf.clone() for leaf in (ours if bool(pred) else theirs)[1]]
    for leaf, name in zip(made, names, strict=True):
        writer.bind(leaf, name)
    return tree_unflatten(made, ours[2])


def check_loop(condition):
    """Raise where inputs decide how often a loop runs."""
    if writes_cond(condition):
        raise OnnxExporterError(
            "torch.while_loop: inputs decide how often it runs, which is not written as ONNX: repeat a fixed number of times"
        )
