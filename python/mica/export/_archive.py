"""Writing exported programs as torch's .pt2 archives: a zip of the graph as JSON (torch's public schema) and raw weights."""

import io
import json
import math
import os
import re
import zipfile

import mica
from mica import _C
from mica._generated.archive_names import OVERLOADS
from mica.export._archive_signatures import written_call, written_input, written_output
from mica.fx.node import Node
from mica.utils._python_dispatch import is_traceable_wrapper_subclass
from mica.utils._pytree import treespec_dumps

SCHEMA = {"major": 8, "minor": 20}
DTYPES = {"uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "float16": 6, "float32": 7, "float64": 8,
          "complex32": 9, "complex64": 10, "complex128": 11, "bool": 12, "bfloat16": 13, "uint16": 28,
          "float8_e4m3fn": 29, "float8_e5m2": 30, "float8_e4m3fnuz": 31, "float8_e5m2fnuz": 32, "float8_e8m0fnu": 33,
          "uint32": 34, "uint64": 35}  # fmt: skip
FORMATS = {"contiguous_format": 1, "channels_last": 2, "channels_last_3d": 3, "preserve_format": 4}
LAYOUTS = {"sparse_coo": 1, "sparse_csr": 2, "sparse_csc": 3, "sparse_bsr": 4, "sparse_bsc": 5, "strided": 7}
# Arguments that have another name in torch than in Mica's table.
_NAMES = {
    f"aten::{name}": {"self": "input"}
    for name in ("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout")
}
_NAMES["aten::hardshrink_backward"] = {"grad_output": "grad_out"}
_OPERATORS = ("add", "sub", "mul", "floordiv", "truediv", "mod", "neg", "pow", "eq", "ne", "lt", "le", "gt", "ge", "and_",
              "or_", "getitem")  # fmt: skip


def name_of(value):
    return str(value).removeprefix("torch.")


def device_of(device):
    return {"type": device.type, "index": device.index}


def sym_int(value):
    """A size: a number, or an expression with its value in the example."""
    if not isinstance(value, mica.SymInt):
        return {"as_int": int(value)}
    hint = value.node.hint
    return {
        "as_expr": {
            "expr_str": value.node.expr.in_sympys_words(),
            "hint": None if hint is None else {"as_int": int(hint)},
        }
    }


def tensor_meta(value, requires_grad=None):
    """The schema's TensorMeta of a tensor."""
    offset = value.storage_offset()
    is_open = isinstance(offset, mica.SymInt) or any(isinstance(size, mica.SymInt) for size in value.shape)
    return {
        "dtype": DTYPES[name_of(value.dtype)],
        "sizes": [sym_int(size) for size in value.shape],
        "requires_grad": bool(value.requires_grad if requires_grad is None else requires_grad),
        "device": device_of(value.device),
        "strides": [sym_int(stride) for stride in value.stride()],
        "storage_offset": {"as_int": 0 if is_open else int(offset)},
        "layout": LAYOUTS[name_of(value.layout)],
    }


def _is_higher_order(target):
    """Whether a node calls an operator of torch.ops.higher_order."""
    return getattr(target, "__module__", "") == "torch._ops.higher_order"


class _GraphWriter:
    """The schema's Graph of a graph."""

    def __init__(self, graph):
        self.graph, self.module = graph, graph.owning_module
        self.tensors, self.ints, self.floats, self.bools, self.nodes = {}, {}, {}, {}, []

    def note(self, node, value=None):
        value = node.meta.get("val") if value is None else value
        name = node if isinstance(node, str) else node.name
        if isinstance(value, _C.TensorBase):
            self.tensors[name] = tensor_meta(value)
        elif isinstance(value, (int, mica.SymInt)) and not isinstance(value, bool):
            self.ints[name] = sym_int(value)
        elif isinstance(value, (mica.SymFloat, mica.SymBool)):
            held = self.floats if isinstance(value, mica.SymFloat) else self.bools
            held[name] = {"as_expr": {"expr_str": value.node._expr.in_sympys_words(), "hint": None}}

    def argument(self, value, kind=""):
        """The schema's Argument of a value whose declared type is `kind`."""
        inner = kind.removesuffix("?")
        if value is None:
            return {"as_none": True}
        if isinstance(value, Node):
            return self.node_argument(value)
        if hasattr(value, "_schema"):
            return {"as_operator": f"torch.ops.{OVERLOADS.get(str(value), str(value))}"}
        if isinstance(value, bool):
            return {"as_bool": value}
        if isinstance(value, int):
            if (count := re.fullmatch(r"(?:Sym)?[Ii]nt\[(\d+)\]", inner)) is not None:
                return {"as_ints": [value] * int(count[1])}  # one number stands for equal ones
            return {"as_float": float(value)} if inner == "float" else {"as_int": value}
        if isinstance(value, float):
            return {"as_float": _number(value)}
        if isinstance(value, complex):
            return {"as_complex": {"real": value.real, "imag": value.imag}}
        if isinstance(value, str):
            return {"as_device": device_of(mica.device(value))} if inner == "Device" else {"as_string": value}
        if isinstance(value, mica.dtype):
            return {"as_scalar_type": DTYPES[name_of(value)]}
        if isinstance(value, mica.device):
            return {"as_device": device_of(value)}
        if isinstance(value, mica.memory_format):
            return {"as_memory_format": FORMATS[name_of(value)]}
        if isinstance(value, mica.layout):
            return {"as_layout": LAYOUTS[name_of(value)]}
        if isinstance(value, (list, tuple)):
            return self.list_argument(list(value), inner)
        raise NotImplementedError(f"a .pt2 archive holds no argument of type {type(value).__name__}")

    def node_argument(self, node):
        if node.op == "get_attr":  # a graph of a branch or a loop
            inner = getattr(self.module, node.target)
            is_single = "cond_graph" in node.target
            return {"as_graph": {"name": node.name, "graph": _GraphWriter(inner.graph).write(is_single)}}
        value = node.meta.get("val")
        if isinstance(value, (int, mica.SymInt)) and not isinstance(value, bool):
            return {"as_sym_int": {"as_name": node.name}}
        if isinstance(value, (bool, mica.SymBool)):
            return {"as_sym_bool": {"as_name": node.name}}
        if isinstance(value, mica.SymFloat):
            return {"as_sym_float": {"as_name": node.name}}
        return {"as_tensor": {"name": node.name}}

    def list_argument(self, values, kind):
        if not values:
            return (
                {"as_tensors": []}
                if kind.startswith("Tensor")
                else {"as_floats": []}
                if "float" in kind
                else {"as_ints": []}
            )
        nodes = [value for value in values if isinstance(value, Node)]
        if any(value is None for value in values) or kind.startswith("Tensor?"):
            return {"as_optional_tensors": [
                {"as_none": True} if value is None else {"as_tensor": {"name": value.name}} for value in values
            ]}  # fmt: skip
        if nodes and all("as_tensor" in self.node_argument(node) for node in nodes):
            return {"as_tensors": [{"name": node.name} for node in nodes]}
        if nodes:
            return {"as_sym_ints": [{"as_name": v.name} if isinstance(v, Node) else {"as_int": v} for v in values]}
        if all(isinstance(value, bool) for value in values):
            return {"as_bools": values}
        if all(isinstance(value, int) for value in values) and "float" not in kind:
            return {"as_ints": values}
        if all(isinstance(value, (int, float)) for value in values):
            return {"as_floats": [_number(float(value)) for value in values]}
        if all(isinstance(value, str) for value in values):
            return {"as_strings": values}
        if all(isinstance(value, (list, tuple)) for value in values):
            return {"as_int_lists": [list(value) for value in values]}
        raise NotImplementedError(f"a .pt2 archive holds no argument {values}")

    def inputs(self, node, schema):
        if _is_higher_order(node.target):
            made = [{"name": "", "arg": self.argument(value, "Tensor[]"), "kind": 1} for value in node.args]
            named = [
                {"name": k, "arg": self.argument(value, "Tensor[]"), "kind": 2} for k, value in node.kwargs.items()
            ]
            return made + named
        if schema is None:
            return [{"name": "ab"[i] if i < 2 else f"arg{i}", "arg": self.argument(value), "kind": 1}
                    for i, value in enumerate(node.args)]  # fmt: skip
        declared = {a.name: str(a.type) for a in schema.arguments}
        positional = [a for a in schema.arguments if not a.kwarg_only]
        names = _NAMES.get(schema.name, {})
        made = [
            {"name": names.get(a.name, a.name), "arg": self.argument(value, str(a.type)), "kind": 1}
            for a, value in zip(positional, node.args, strict=False)
        ]
        return made + [
            {"name": names.get(key, key), "arg": self.argument(value, declared.get(key, "")), "kind": 2}
            for key, value in node.kwargs.items()
        ]

    def outputs(self, node, schema):
        value = node.meta.get("val")
        if not isinstance(value, (list, tuple)):
            self.note(node)
            return [] if schema is not None and not schema.returns else [self.node_argument(node)]
        items = {user.args[1]: user for user in node.users if getattr(user.target, "__name__", "") == "getitem"}
        names = []
        for i, each in enumerate(value):
            name = items[i].name if i in items else f"{node.name}_unused_{i}"
            names.append(name)
            if each is not None:
                self.note(name, each)
        if schema is not None and len(schema.returns) == 1:
            return [{"as_tensors": [{"name": name} for name in names]}]
        return [_result(name, each) for name, each in zip(names, value, strict=True)]

    def call(self, node):
        target, schema = node.target, getattr(node.target, "_schema", None)
        if schema is not None:
            name = f"torch.ops.{OVERLOADS.get(str(target), str(target))}"
        elif _is_higher_order(target):
            name = f"torch.ops.higher_order.{target._name}"
        elif getattr(target, "__module__", "") == "_operator" and target.__name__ in _OPERATORS:
            name = f"_operator.{target.__name__}"
        elif target in (mica.sym_max, mica.sym_min, mica.sym_not, mica.sym_float, mica.sym_int):
            name = f"torch.{target.__name__}"
        elif target in (math.ceil, round):  # torch saves no program that rounds sizes
            name = f"{target.__module__}.{target.__name__}"
        else:
            raise NotImplementedError(
                f"torch.export.save cannot write a call of {getattr(target, '__name__', target)}: .pt2 archives hold operators of torch.ops"
            )
        made = {"target": name, "inputs": self.inputs(node, schema), "outputs": self.outputs(node, schema)}
        trace = {"stack_trace": node.stack_trace} if node.stack_trace else {}
        if node.stack_trace:
            trace["stack_trace"] = node.stack_trace
        if stack := node.meta.get("nn_module_stack"):
            trace["nn_module_stack"] = ";".join(f"{key},{fqn},{kind}" for key, (fqn, kind) in stack.items())
        single = False if _is_higher_order(target) else None
        self.nodes.append(made | {"metadata": trace, "is_hop_single_tensor_return": single, "name": node.name})

    def write(self, is_single=False):
        inputs, outputs = [], []
        for node in self.graph.nodes:
            if node.op == "placeholder":
                self.note(node)
                value = node.meta.get("val")
                is_named = isinstance(value, (_C.TensorBase, mica.SymInt))
                inputs.append(self.node_argument(node) if is_named else self.argument(value))
            elif node.op == "output":
                outputs = [self.argument(each) for each in node.args[0]]
            elif node.op == "get_attr" and hasattr(getattr(self.module, node.target, None), "graph"):
                continue  # written where it is an argument
            elif node.op != "call_function":
                raise NotImplementedError(
                    f"torch.export.save cannot write the node {node.format_node()}: .pt2 archives hold operators of torch.ops"
                )
            elif node.target is _C._set_grad_enabled or (
                getattr(node.target, "__name__", "") == "getitem" and _is_item_of_list(node)
            ):
                continue
            else:
                self.call(node)
        return {"inputs": inputs, "outputs": outputs, "nodes": self.nodes, "tensor_values": self.tensors,
                "sym_int_values": self.ints, "sym_bool_values": self.bools, "is_single_tensor_return": is_single,
                "custom_obj_values": {}, "sym_float_values": self.floats}  # fmt: skip


def _result(name, value):
    """One of the results of a node that has several."""
    if isinstance(value, mica.SymInt):
        return {"as_sym_int": {"as_name": name}}
    return {"as_tensor": {"name": name}} if isinstance(value, _C.TensorBase) else {"as_none": True}


def _is_item_of_list(node):
    return isinstance(node.args[0].meta.get("val"), (list, tuple))


def _number(value):
    if math.isnan(value):
        return "NaN"
    return value if math.isfinite(value) else "Infinity" if value > 0 else "-Infinity"


def model_json(program):
    """The schema's ExportedProgram of a program."""
    writer = _GraphWriter(program.graph)
    graph, signature = writer.write(), program.graph_signature
    spec = program.call_spec
    calls = [
        {"fqn": "", "signature": {"inputs": [], "outputs": [], "in_spec": treespec_dumps(spec.in_spec),
                                  "out_spec": treespec_dumps(spec.out_spec), "forward_arg_names": program._argument_names()}}
    ]  # fmt: skip
    calls += [{"fqn": each.fqn, "signature": written_call(each, writer)} for each in program.module_call_graph[1:]]
    return {
        "graph_module": {
            "graph": graph,
            "signature": {
                "input_specs": [written_input(each, writer) for each in signature.input_specs],
                "output_specs": [written_output(each, writer) for each in signature.output_specs],
            },
            "module_call_graph": calls,
            "metadata": {},
            "treespec_namedtuple_fields": {},
        },
        "opset_version": {"aten": 10},
        "range_constraints": {
            str(name): {"min_val": ends[0], "max_val": ends[1]}
            for name, ends in program.range_constraints.items()
            if isinstance(name, str)  # what follows from symbols has no range of its own there
        },
        "schema_version": SCHEMA,
        "verifiers": [program.dialect],
        "torch_version": mica.__version__ if "+" in mica.__version__ else f"2.13.0+mica.{mica.__version__}",
        "guards_code": [],
    }


def _payloads(values, parameters, prefix):
    """(config, {file: bytes}) of tensors by name; tensors that are one are written once."""
    config, files, known = {}, {}, {}
    for name, value in values.items():
        if is_traceable_wrapper_subclass(value):
            kind = type(value).__name__
            raise NotImplementedError(
                f"a .pt2 archive holds plain tensors, and {name!r} is a {kind}, which is made of others"
            )
        plain = value.detach().contiguous()
        if id(value) not in known:
            known[id(value)] = f"{prefix}{len(known)}"
            files[known[id(value)]] = _bytes(plain)
        is_parameter = name in parameters
        config[name] = {
            "path_name": known[id(value)],
            "is_param": is_parameter,
            "use_pickle": False,
            "tensor_meta": tensor_meta(plain, is_parameter and value.requires_grad),
        }
    return {"config": config}, files


def _bytes(tensor):
    tensor = tensor.cpu()
    return bytes(tensor.reshape(-1).view(mica.uint8).untyped_storage()) if tensor.numel() else b""


def save(program, f, extra_files=None):
    """Write a program as a .pt2 archive: to a path or a file."""
    stem = os.path.splitext(os.path.basename(os.fspath(f)))[0] if isinstance(f, (str, os.PathLike)) else "archive"
    model = json.dumps(model_json(program))
    parameters = set(program.graph_signature.parameters)
    weights, files = _payloads(program.state_dict, parameters, "weight_")
    constants, more = _payloads(program.constants, (), "tensor_")
    records = {f"data/weights/{name}": data for name, data in files.items()}
    records["data/weights/model_weights_config.json"] = json.dumps(weights)
    records |= {f"data/constants/{name}": data for name, data in more.items()}
    records["data/constants/model_constants_config.json"] = json.dumps(constants)
    records["models/model.json"] = model
    if program.example_inputs is not None:
        sample = io.BytesIO()
        try:
            mica.save(program.example_inputs, sample)
            records["data/sample_inputs/model.pt"] = sample.getvalue()
        except Exception:  # inputs of classes that cannot be saved: the program does not need them
            sample.close()
    records |= {f"extra/{name}": data for name, data in (extra_files or {}).items()}
    records |= {"archive_format": "pt2", "archive_version": "0", ".data/version": "6\n", "byteorder": "little"}
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for name, data in records.items():
            _write_aligned(archive, f"{stem}/{name}", data.encode() if isinstance(data, str) else data)
    if hasattr(f, "write"):
        f.write(target.getvalue())
        return
    temporary = f"{os.fspath(f)}.{os.getpid()}.part"
    try:
        with open(temporary, "wb") as file:
            file.write(target.getbuffer())
        os.replace(temporary, f)
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)


def _write_aligned(archive, name, data):
    """A record whose bytes begin at a multiple of 64 in the file, as torch's do: it may be mapped."""
    info = zipfile.ZipInfo(name)
    start = archive.fp.tell() + zipfile.sizeFileHeader + len(name.encode())
    padding = -(start + 4) % 64
    info.extra = b"FB" + padding.to_bytes(2, "little") + b"Z" * padding
    archive.writestr(info, data)
