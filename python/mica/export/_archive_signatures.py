"""What an archive says of a program's inputs and outputs, and of calls of its modules: written and read."""

from mica.export import exported_program as _program
from mica.export import graph_signature as _signature
from mica.utils._pytree import treespec_dumps, treespec_loads

__all__ = [
    "ArchiveError",
    "only_entry",
    "read_call",
    "read_input",
    "read_output",
    "written_call",
    "written_input",
    "written_output",
]


class ArchiveError(RuntimeError):
    """A file that is no .pt2 archive, or a damaged one."""


def only_entry(union):
    """The kind and the value of one of the schema's unions."""
    if not isinstance(union, dict) or len(union) != 1:
        raise ArchiveError(f"a .pt2 archive's union has one entry, but this is {union!r}")
    return next(iter(union.items()))


def written_input(spec, writer):
    kinds, name = _signature.InputKind, spec.arg.name
    if spec.kind is kinds.PARAMETER:
        return {"parameter": {"arg": {"name": name}, "parameter_name": spec.target}}
    if spec.kind is kinds.BUFFER:
        return {
            "buffer": {"arg": {"name": name}, "buffer_name": spec.target, "persistent": spec.persistent is not False}
        }
    if spec.kind is kinds.CONSTANT_TENSOR:
        return {"tensor_constant": {"arg": {"name": name}, "tensor_constant_name": spec.target}}
    if isinstance(spec.arg, _signature.ConstantArgument):
        return {"constant_input": {"name": name, "value": writer.argument(spec.arg.value)}}
    if type(spec.arg) in _NUMBERS:
        return {"user_input": {"arg": {_NUMBERS[type(spec.arg)]: {"as_name": name}}}}
    return {"user_input": {"arg": {"as_tensor": {"name": name}}}}


_NUMBERS = {_signature.SymIntArgument: "as_sym_int", _signature.SymFloatArgument: "as_sym_float",
            _signature.SymBoolArgument: "as_sym_bool"}  # fmt: skip


def written_output(spec, writer):
    kinds, name = _signature.OutputKind, spec.arg.name
    if spec.kind is kinds.BUFFER_MUTATION:
        return {"buffer_mutation": {"arg": {"name": name}, "buffer_name": spec.target}}
    if spec.kind is kinds.USER_INPUT_MUTATION:
        return {"user_input_mutation": {"arg": {"name": name}, "user_input_name": spec.target}}
    if isinstance(spec.arg, _signature.ConstantArgument):
        return {"user_output": {"arg": writer.argument(spec.arg.value)}}
    if type(spec.arg) in _NUMBERS:
        return {"user_output": {"arg": {_NUMBERS[type(spec.arg)]: {"as_name": name}}}}
    return {"user_output": {"arg": {"as_tensor": {"name": name}}}}


def written_call(entry, writer):
    """The arguments and results of a module's call, if they were kept."""
    if entry.signature is None:
        return None

    def argument(each):
        if isinstance(each, _signature.ConstantArgument):
            return writer.argument(each.value)
        if type(each) in _NUMBERS:
            return {_NUMBERS[type(each)]: {"as_name": each.name}}
        return {"as_tensor": {"name": each.name}}

    kept = entry.signature
    return {
        "inputs": [argument(each) for each in kept.inputs], "outputs": [argument(each) for each in kept.outputs],
        "in_spec": treespec_dumps(kept.in_spec), "out_spec": treespec_dumps(kept.out_spec),
        "forward_arg_names": kept.forward_arg_names,
    }  # fmt: skip


def read_input(union, reader):
    kinds = _signature.InputKind
    kind, value = only_entry(union)
    name = reader.name_of((value.get("arg") or {}).get("name"))
    if kind == "parameter":
        return _signature.InputSpec(kinds.PARAMETER, _signature.TensorArgument(name), value["parameter_name"])
    if kind == "buffer":
        argument = _signature.TensorArgument(name)
        return _signature.InputSpec(kinds.BUFFER, argument, value["buffer_name"], value["persistent"])
    if kind == "tensor_constant":
        return _signature.InputSpec(
            kinds.CONSTANT_TENSOR, _signature.TensorArgument(name), value["tensor_constant_name"]
        )
    if kind == "constant_input":
        constant = reader.argument(value["value"])
        return _signature.InputSpec(
            kinds.USER_INPUT, _signature.ConstantArgument(reader.name_of(value["name"]), constant), None
        )
    if kind == "user_input":
        return _signature.InputSpec(kinds.USER_INPUT, read_argument(value["arg"], reader), None)
    raise NotImplementedError(f"Mica reads no inputs of the kind {kind} from .pt2 archives")


def read_argument(union, reader):
    kind, value = only_entry(union)
    if kind == "as_tensor":
        return _signature.TensorArgument(reader.name_of(value["name"]))
    for argument, known in _NUMBERS.items():
        if kind == known and "as_name" in value:
            return argument(reader.name_of(value["as_name"]))
    return _signature.ConstantArgument("", reader.argument(union))


_MUTATIONS = {"buffer_mutation": ("BUFFER_MUTATION", "buffer_name"),
              "parameter_mutation": ("PARAMETER_MUTATION", "parameter_name"),
              "user_input_mutation": ("USER_INPUT_MUTATION", "user_input_name")}  # fmt: skip


def read_output(union, reader):
    kind, value = only_entry(union)
    if kind == "user_output":
        return _signature.OutputSpec(_signature.OutputKind.USER_OUTPUT, read_argument(value["arg"], reader), None)
    if kind in _MUTATIONS:
        name, target = _MUTATIONS[kind]
        argument = _signature.TensorArgument(reader.name_of(value["arg"]["name"]))
        changed = reader.name_of(value[target]) if kind == "user_input_mutation" else value[target]
        return _signature.OutputSpec(_signature.OutputKind[name], argument, changed)
    raise NotImplementedError(f"Mica reads no outputs of the kind {kind} from .pt2 archives")


def read_call(entry, reader):
    signature = entry.get("signature")
    if signature is not None:
        specs = (treespec_loads(signature["in_spec"]), treespec_loads(signature["out_spec"]))
        given = ([read_argument(each, reader) for each in signature.get(side) or ()] for side in ("inputs", "outputs"))
        signature = _program.ModuleCallSignature(*given, *specs, signature.get("forward_arg_names"))
    return _program.ModuleCallEntry(entry["fqn"], signature)
