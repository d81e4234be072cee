"""Operators that a program says itself how to write: register_custom_op_symbolic's functions, as torch calls them.

Such a function is called with a context `g` and the operator's arguments by its schema: tensors are values of the graph,
everything else is as it was given. g.op("Name", *inputs, attribute_i=...) adds a node, and gives its value.
"""

import mica
from mica.onnx._state import OnnxExporterError, symbolics

# The endings of attributes' names say what they hold; a capital or an s more means several.
_SUFFIXES = ("_i", "_f", "_s", "_t", "_g")


class Value(str):
    """The name of a value of the graph; `tensor` is what it was in the run, if it was one."""

    tensor = None

    def type(self):
        return self.tensor.dtype if self.tensor is not None else None


def symbolic_of(func, opset):
    """The function that was registered for an operator, for the latest version up to the opset; None if there is none."""
    if not symbolics:
        return None
    name = getattr(func, "_qualified_op_name", None) or getattr(func, "qualified_name", None)
    versions = symbolics.get(name.partition(".")[0] if name else f"aten::{getattr(func, '__name__', '')}", {})
    return versions.get(max((version for version in versions if version <= opset), default=None))


def _attribute(key, value):
    base = key.removesuffix("s") if key[-3:-1] in ("_i", "_f", "_s", "_t") else key
    if not base.endswith(_SUFFIXES):
        raise OnnxExporterError(f"the attribute '{key}' must end by its type, as in '{key}_i'")
    if base.endswith("_t") and isinstance(value, mica.Tensor):
        import onnx

        value = onnx.numpy_helper.from_array(value.detach().cpu().contiguous().numpy())
    if isinstance(value, mica.Tensor):
        value = value.tolist()
    return base[:-2], int(value) if base.endswith("_i") and not isinstance(value, (list, tuple)) else value


class GraphContext:
    """The context with which a program's own function adds nodes."""

    def __init__(self, writer):
        self._writer, self.opset = writer, writer.opset

    def op(self, opname, *args, outputs=1, **attributes):
        """Add a node of ONNX's, or of another domain ("domain::Name")."""
        inputs = [each if isinstance(each, str) else "" if each is None else self._writer.value(each) for each in args]
        domain, _, name = opname.rpartition("::")
        extra = dict(_attribute(key, value) for key, value in attributes.items() if value is not None)
        made = self._writer.add(name, inputs, outputs, **({"domain": domain} if domain else {}), **extra)
        return Value(made) if outputs == 1 else tuple(map(Value, made))


def _arguments(func, args, kwargs):
    """All arguments of the operator, in the order of its schema."""
    schema = getattr(func, "_schema", None) or getattr(func, "schema", None)
    if schema is None and hasattr(func, "overloads"):
        schema = getattr(func, func.overloads()[0])._schema
    if schema is None:
        return [*args, *kwargs.values()]
    given = list(args)
    for argument in schema.arguments[len(args) :]:
        default = argument.default_value if argument.has_default_value() else None
        given.append(kwargs.get(argument.name, default))
    return given


def write_symbolic(writer, symbolic, func, args, kwargs, out):
    """Write a call by the function that was registered for its operator."""

    def value(each):
        if isinstance(each, mica.Tensor):
            made = Value(writer.value(each))
            made.tensor = each
            return made
        return [value(item) for item in each] if isinstance(each, (list, tuple)) else each

    made = symbolic(GraphContext(writer), *map(value, _arguments(func, args, kwargs)))
    outs = out if isinstance(out, (tuple, list)) else (out,)
    for tensor, name in zip(outs, made if isinstance(made, (tuple, list)) else (made,), strict=True):
        writer.bind(tensor, str(name))


def custom_domains(writer):
    """The domains of nodes that are not ONNX's own, each in its first version unless an operator names a later one."""
    domains = dict.fromkeys((node.domain for node in writer.nodes if node.domain), 1)
    return {**domains, **{domain: version for domain, version in writer.versions.items() if domain}}
