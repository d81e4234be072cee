"""How calls of torch.onnx.ops are written: as the one node that each of them is."""

import mica
from mica.onnx._state import OnnxExporterError
from mica.onnx.ops.attributes import decoded

# The first opset that has ONNX's operators of torch.onnx.ops. For an earlier one, their parts are written.
_OPSET = 23


def own_operator(func):
    """The name of one of torch.onnx.ops' operators, without its overload; None for all others."""
    name = getattr(func, "_qualified_op_name", None) or getattr(func, "qualified_name", None) or ""
    namespace, _, operator = name.partition("::")
    return operator.partition(".")[0] if namespace in ("onnx", "onnx_symbolic") else None


def decomposition(operator, opset):
    """The decomposition of an operator that the opset lacks; None where the operator itself is written."""
    from mica.onnx.ops import implementations

    if opset >= _OPSET:
        return None
    return {
        "Attention": implementations.attention, "RotaryEmbedding": implementations.rotary_embedding
    }.get(operator)  # fmt: skip


def _names(writer, tensors):
    names = ["" if each is None else writer.value(each) for each in tensors]
    while names and not names[-1]:
        names.pop()
    return names


def _bind(writer, results, names):
    for tensor, name in zip(results, names, strict=True):
        writer.bind(tensor, name)


def write_own(writer, operator, args, kwargs, out):
    """Write a call of an operator. Attributes that are not given keep ONNX's own defaults."""
    if operator in ("Attention", "RotaryEmbedding"):
        attributes = {key: int(value) if isinstance(value, bool) else value for key, value in kwargs.items()}
        inputs = _names(writer, args)
        results = out if isinstance(out, tuple) else (out,)
        made = writer.add(operator, inputs, len(results), **attributes)
        _bind(writer, results, made if len(results) > 1 else [made])
        return
    _write_symbolic_operator(writer, args, kwargs, out)


def _write_symbolic_operator(writer, args, kwargs, out):
    inputs, op_type = args[:2]
    keys = ("keys", "types", "pos", "ints", "floats", "strs")
    attributes = decoded(*(kwargs[f"attr_{key}"] for key in keys))
    domain, version = kwargs.get("domain", ""), kwargs.get("version")
    if "domain" in attributes:
        raise OnnxExporterError(
            f"{op_type}: an attribute cannot be named 'domain'; name the operator 'domain::{op_type}'"
        )
    results = [out] if isinstance(out, mica.Tensor) else list(out)
    names = [writer.fresh(op_type.lower()) for _ in results]
    writer.add_named(op_type, _names(writer, inputs), names, **({"domain": domain} if domain else {}), **attributes)
    for key, value in zip(kwargs["metadata_props_keys"], kwargs["metadata_props_values"], strict=True):
        writer.nodes[-1].metadata_props.add(key=key, value=value)
    if version is not None:
        writer.versions[domain] = max(version, writer.versions.get(domain, 0))
    _bind(writer, results, names)
