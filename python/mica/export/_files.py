"""Exported programs in files: one archive of torch.save, of plain values and tensors, which are read without running code."""

import mica
from mica import _C
from mica.export import exported_program as _program
from mica.export import graph_signature as _signature
from mica.fx.graph import Graph
from mica.fx.node import Node, qualified_name
from mica.utils._pytree import treespec_dumps, treespec_loads

_FORMAT = "mica.export"
_VERSION = 1


def _encoded(value):
    """A value as one that needs no class: a pair whose first entry says what it is."""
    if isinstance(value, Node):
        return ("node", value.name)
    if isinstance(value, (list, tuple)):
        return ("list" if isinstance(value, list) else "tuple", [_encoded(each) for each in value])
    if isinstance(value, dict):
        return ("dict", [(_encoded(key), _encoded(each)) for key, each in value.items()])
    if isinstance(value, slice):
        return ("slice", [_encoded(each) for each in (value.start, value.stop, value.step)])
    if isinstance(value, (mica.dtype, mica.memory_format, mica.layout)):
        return ("name", str(value).removeprefix("torch."))
    if isinstance(value, mica.device):
        return ("device", str(value))
    if isinstance(value, _C.TensorBase):
        return ("meta", (list(value.shape), list(value.stride()), str(value.dtype).removeprefix("torch.")))
    if value is ...:
        return ("ellipsis", None)
    if value is None or isinstance(value, (bool, int, float, complex, str)):
        return ("value", value)
    raise NotImplementedError(f"torch.export.save cannot write an argument of type {type(value).__name__}")


def _decoded(pair, nodes):
    kind, value = pair
    if kind == "node":
        return nodes[value]
    if kind in ("list", "tuple"):
        items = [_decoded(each, nodes) for each in value]
        return items if kind == "list" else tuple(items)
    if kind == "dict":
        return {_decoded(key, nodes): _decoded(each, nodes) for key, each in value}
    if kind == "slice":
        return slice(*(_decoded(each, nodes) for each in value))
    if kind == "name":
        return getattr(mica, value)
    if kind == "device":
        return mica.device(value)
    if kind == "meta":
        shape, stride, dtype = value
        return mica.empty_strided(shape, stride, dtype=getattr(mica, dtype), device="meta")
    return ... if kind == "ellipsis" else value


def _target(node):
    if node.op != "call_function":
        return ("name", node.target)
    if hasattr(node.target, "_schema"):
        packet = node.target._overloadpacket._qualified_op_name
        return ("operator", (*packet.split("::"), node.target._overloadname))
    name = qualified_name(node.target).replace("mica.", "torch.", 1)
    for path in (name, f"torch._C.{node.target.__name__}"):
        try:
            if _found(("function", path)) is node.target:
                return ("function", path)
        except (AttributeError, ValueError):
            continue
    raise NotImplementedError(f"torch.export.save cannot write a call of {name}, which is no function of torch's")


def _found(pair):
    kind, value = pair
    if kind == "name":
        return value
    if kind == "operator":
        namespace, name, overload = value
        return getattr(getattr(getattr(mica.ops, namespace), name), overload)
    if value == "getattr":
        return getattr
    import operator

    root, *path = value.split(".")
    if root in ("_operator", "operator") and len(path) == 1 and path[0] in ("getitem", "setitem", "mul"):
        return getattr(operator, path[0])
    if root != "torch" or any(part.startswith("__") for part in path):
        raise ValueError(f"an exported program names {value}, which is no function of torch's")
    found = mica
    for part in path:
        found = getattr(found, part)
    return found


def save(program, f, extra_files=None):
    signature = program.graph_signature
    nodes = [
        (node.op, node.name, _target(node), _encoded(tuple(node.args)), _encoded(dict(node.kwargs)),
         _encoded(node.meta["val"]) if "val" in node.meta else None)
        for node in program.graph.nodes
    ]  # fmt: skip
    spec = program.call_spec
    mica.save(
        {
            "format": _FORMAT,
            "version": _VERSION,
            "nodes": nodes,
            "inputs": [
                (each.kind.name, each.arg.name, each.target, each.persistent,
                 _encoded(each.arg.value) if isinstance(each.arg, _signature.ConstantArgument) else None)
                for each in signature.input_specs
            ],
            "outputs": [
                (each.kind.name, each.arg.name,
                 _encoded(each.arg.value) if isinstance(each.arg, _signature.ConstantArgument) else None)
                for each in signature.output_specs
            ],
            "in_spec": treespec_dumps(spec.in_spec),
            "out_spec": treespec_dumps(spec.out_spec),
            "parameters": list(signature.parameters),
            "state_dict": {name: value.detach() for name, value in program.state_dict.items()},
            "constants": dict(program.constants),
            "free": program._free,
            "training": program._training,
            "extra_files": dict(extra_files or {}),
        },
        f,
    )  # fmt: skip


def _argument(name, encoded):
    if encoded is None:
        return _signature.TensorArgument(name)
    return _signature.ConstantArgument(name, _decoded(encoded, {}))


def load(f, extra_files=None):
    try:
        saved = mica.load(f, weights_only=True)
    except Exception as error:
        raise RuntimeError(
            f"torch.export.load reads programs that Mica's torch.export.save has written; this is none: {error}"
        ) from error
    if not isinstance(saved, dict) or saved.get("format") != _FORMAT:
        raise RuntimeError("torch.export.load reads programs that Mica's torch.export.save has written; this is none")
    graph, nodes = Graph(), {}
    for op, name, target, args, kwargs, val in saved["nodes"]:
        node = graph.create_node(op, _found(target), _decoded(args, nodes), _decoded(kwargs, nodes), name)
        if val is not None:
            node.meta["val"] = _decoded(val, nodes)
        nodes[name] = node
    inputs = [
        _signature.InputSpec(_signature.InputKind[kind], _argument(name, value), target, persistent)
        for kind, name, target, persistent, value in saved["inputs"]
    ]
    outputs = [
        _signature.OutputSpec(_signature.OutputKind[kind], _argument(name, value), None)
        for kind, name, value in saved["outputs"]
    ]
    parameters = set(saved["parameters"])
    state = {
        name: mica.nn.Parameter(value, requires_grad=value.is_floating_point() or value.is_complex())
        if name in parameters
        else value
        for name, value in saved["state_dict"].items()
    }
    if extra_files is not None:
        extra_files.update(saved["extra_files"])
    top = _program.ModuleCallEntry(
        "",
        _program.ModuleCallSignature([], [], treespec_loads(saved["in_spec"]), treespec_loads(saved["out_spec"])),
    )
    return _program.ExportedProgram(
        mica.nn.Module(), graph, _signature.ExportGraphSignature(inputs, outputs), state, {}, [top],
        None, saved["constants"], free=saved["free"], training=saved["training"],
    )  # fmt: skip
