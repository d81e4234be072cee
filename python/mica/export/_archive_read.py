"""Reading torch's .pt2 archives. Nothing in them is run: graphs are JSON, weights raw bytes, names are looked up in torch.ops."""

import io
import json
import math
import operator
import zipfile
import zlib

import mica
from mica._higher_order_ops.operators import OPERATORS
from mica._ops import OpOverload, OpOverloadPacket
from mica._subclasses import open_sizes
from mica._subclasses.fake_tensor import FakeTensor, FakeTensorMode, _as_fake
from mica.export import exported_program as _program
from mica.export import graph_signature as _signature
from mica.export._archive import DTYPES, FORMATS, LAYOUTS, OVERLOADS
from mica.export._archive_signatures import ArchiveError, only_entry, read_call, read_input, read_output
from mica.export._nodes import placeholder
from mica.fx.experimental._expression_texts import parse
from mica.fx.experimental._expressions import Symbol
from mica.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, ValueRange
from mica.fx.graph import Graph
from mica.fx.graph_module import GraphModule

_DTYPES = {number: name for name, number in DTYPES.items()}
_FORMATS = {number: name for name, number in FORMATS.items()}
_LAYOUTS = {number: name for name, number in LAYOUTS.items()}
_OVERLOADS = {theirs: ours for ours, theirs in OVERLOADS.items()}
_DOUBLE = {f"__{i}{name}__" for name in ("and", "or", "xor", "lshift", "rshift") for i in ("", "i")}
# What reading fails with where a file is not as torch.export.save writes it.
_DAMAGE = (
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    zipfile.BadZipFile,
    zlib.error,
)
_PLAIN = ("as_int", "as_bool", "as_string", "as_ints", "as_bools", "as_strings", "as_int_lists")
_SYMBOLIC = {"sym_max", "sym_min", "sym_not", "sym_float", "sym_int", "sym_ite", "sym_sum"}
_ROUNDINGS = {"math.ceil": math.ceil, "builtins.round": round}
_OPERATORS = {"add", "sub", "mul", "floordiv", "truediv", "mod", "neg", "pow", "eq", "ne", "lt", "le", "gt", "ge", "and_",
              "or_", "getitem"}  # fmt: skip


def _float(value):
    return (
        {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}[value]
        if isinstance(value, str)
        else float(value)
    )


def found_target(name):
    """The function that a node's target names: an operator of torch.ops, or arithmetic of sizes."""
    space, operator_name = name[:10], name[10:]
    parts = (space + _OVERLOADS.get(operator_name, operator_name)).split(".")
    is_plain = not any(part.startswith("__") and part not in _DOUBLE for part in parts)
    if parts[:2] == ["torch", "ops"] and len(parts) in (4, 5) and is_plain:
        try:
            found = getattr(getattr(mica.ops, parts[2]), parts[3])
            found = getattr(found, parts[4]) if len(parts) == 5 else found
        except AttributeError:
            found = None
        if isinstance(found, (OpOverload, OpOverloadPacket)) or found in OPERATORS.values():
            return found
        raise NotImplementedError(f"the program calls {name}, which is no operator of Mica's")
    if parts[0] in ("_operator", "operator") and len(parts) == 2 and parts[1] in _OPERATORS:
        return getattr(operator, parts[1])
    if name in _ROUNDINGS:
        return _ROUNDINGS[name]
    if parts[0] == "torch" and parts[-1] in _SYMBOLIC:
        return getattr(mica, parts[-1])
    raise NotImplementedError(f"the program calls {name}, which Mica does not read from .pt2 archives")


class _GraphReader:
    def __init__(self, document):
        self.data, self.graph, self.nodes, self.modules = document["graph_module"]["graph"], Graph(), {}, {}
        self.ranges = {
            Symbol(name): ValueRange(ends["min_val"], ends["max_val"])
            for name, ends in document.get("range_constraints", {}).items()
            if name.isidentifier()
        }
        self.env = ShapeEnv(duck_shape=False)
        self.mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=self.env)
        self.mode.static_shapes = True

    def all_ranges(self):
        """The ranges of symbols, and of sizes of the inputs that follow from them."""
        found = dict(self.ranges)
        for node in self.graph.nodes:
            if node.op == "placeholder":
                for size in getattr(node.meta.get("val"), "__dict__", {}).get("_sizes", ()):
                    if not isinstance(size, int) and not size.is_simple() and size.free_symbols <= self.ranges.keys():
                        found[size] = ValueRange(*size.bounds(self.ranges))
        return found

    # ---- values

    def size(self, union):
        kind, value = only_entry(union)
        if kind == "as_int":
            return int(value)
        expr, hint = parse(value["expr_str"]), value.get("hint")
        for name in expr.free_symbols:
            if name not in self.env._ranges:
                low, high = self.ranges.get(name, (0, None))
                number = int(only_entry(hint)[1]) if hint and expr.is_symbol else self._some_value(low, high)
                self.env.create_symbol(number, name, DimDynamic.DYNAMIC, least=low, greatest=high, name=str(name))
        return expr.number if expr.is_number else expr

    @staticmethod
    def _some_value(low, high):
        return max(low or 0, 2) if high is None else min(max(low or 0, 2), high)

    def value(self, meta):
        """A fake tensor that is like the schema's TensorMeta."""
        sizes, strides = [self.size(each) for each in meta["sizes"]], [self.size(each) for each in meta["strides"]]
        dtype, device = getattr(mica, _DTYPES[meta["dtype"]]), _device(meta["device"])
        worlds = self.env.worlds
        is_open = any(not isinstance(size, int) for size in sizes)
        made = []
        for world in range(len(worlds) if is_open else 1):
            numbers = [[worlds.number(each, world) for each in values] for values in (sizes, strides)]
            made.append(mica.empty_strided(*numbers, dtype=dtype, device="meta"))
        if not is_open:
            return FakeTensor(self.mode, made[0], device)
        return open_sizes.attach(_as_fake(made[0], self.mode, device), tuple(sizes), made[1:])

    def subgraph(self, name, data):
        """A node that stands for the graph of a branch or a loop."""
        inner = object.__new__(_GraphReader)
        inner.data, inner.graph, inner.nodes, inner.modules = data, Graph(), {}, {}
        inner.ranges, inner.env, inner.mode = self.ranges, self.env, self.mode
        graph = inner.read([f"arg{i}" for i in range(len(data["inputs"]))])
        self.modules[name] = GraphModule(inner.root(), graph)
        return self.graph.create_node("get_attr", name, (), {}, name)

    def root(self):
        module = mica.nn.Module()
        for name, each in self.modules.items():
            module.add_module(name, each)
        return module

    def argument(self, union):
        kind, value = only_entry(union)
        if kind == "as_graph":
            return self.subgraph(value["name"], value["graph"])
        if kind in _PLAIN:
            return value
        if kind == "as_none":
            return None
        if kind in ("as_float", "as_floats"):
            return _float(value) if kind == "as_float" else [_float(each) for each in value]
        if kind == "as_tensor":
            return self.nodes[value["name"]]
        if kind == "as_tensors":
            return [self.nodes[each["name"]] for each in value]
        if kind in ("as_sym_int", "as_sym_float", "as_sym_bool", "as_optional_tensor"):
            return self.member(value)
        if kind in ("as_sym_ints", "as_sym_floats", "as_sym_bools", "as_optional_tensors"):
            return [self.member(each) for each in value]
        if kind == "as_scalar_type":
            return getattr(mica, _DTYPES[value])
        if kind == "as_device":
            return _device(value)
        if kind == "as_memory_format":
            return getattr(mica, _FORMATS[value])
        if kind == "as_layout":
            return getattr(mica, _LAYOUTS[value])
        if kind == "as_operator":
            return found_target(value)
        if kind == "as_complex":
            return complex(value["real"], value["imag"])
        raise NotImplementedError(f"Mica reads no arguments of the kind {kind} from .pt2 archives")

    def member(self, union):
        kind, value = only_entry(union)
        if kind == "as_name":
            return self.nodes[value]
        return None if kind == "as_none" else self.nodes[value["name"]] if kind == "as_tensor" else value

    # ---- nodes

    def name_of(self, name):
        """The name that a node has here: names that Python keeps for itself are not taken."""
        return self.nodes[name].name if name in self.nodes else name

    def add(self, name, node):
        self.nodes[name] = node
        if name in self.data["tensor_values"]:
            node.meta["val"] = self.value(self.data["tensor_values"][name])
        elif name in self.data["sym_int_values"]:
            size = self.size(self.data["sym_int_values"][name])
            node.meta["val"] = size if isinstance(size, int) else self.env.create_symintnode(size)

    def read(self, names):
        for i, union in enumerate(self.data["inputs"]):
            kind, value = only_entry(union)
            name = value["name"] if kind == "as_tensor" else value["as_name"] if kind == "as_sym_int" else names[i]
            node = placeholder(self.graph, name)
            self.add(name, node)
            if kind not in ("as_tensor", "as_sym_int"):
                node.meta["val"] = self.argument(union)
            elif kind == "as_tensor" and self.data["tensor_values"][name]["requires_grad"]:
                node.meta["val"].requires_grad_()
        for row in self.data["nodes"]:
            self.call(row)
        outputs = tuple(self.argument(each) for each in self.data["outputs"])
        if self.data.get("is_single_tensor_return"):
            (outputs,) = outputs
        self.graph.create_node("output", "output", (outputs,), {}, "output")
        return self.graph

    def call(self, row):
        target, args, kwargs = found_target(row["target"]), [], {}
        schema = getattr(target, "_schema", None)
        named = {a.name for a in schema.arguments if a.kwarg_only} if schema is not None else set()
        for each in row["inputs"]:
            value = self.argument(each["arg"])
            is_keyword = each.get("kind") == 2 or (each.get("kind") is None and each["name"] in named)
            if is_keyword or kwargs:
                kwargs[each["name"]] = value
            else:
                args.append(value)
        outputs, base = row["outputs"], getattr(getattr(target, "_overloadpacket", target), "__name__", "call")
        single = (
            len(outputs) == 1 and "as_tensors" not in outputs[0] and row.get("is_hop_single_tensor_return") is not False
        )
        own = _output_name(outputs[0]) if single else row.get("name") or base
        node = self.graph.create_node("call_function", target, tuple(args), kwargs, own or row.get("name") or base)
        if row.get("metadata", {}).get("stack_trace"):
            node.meta["stack_trace"] = row["metadata"]["stack_trace"]
        if stack := row.get("metadata", {}).get("nn_module_stack"):
            node.meta["nn_module_stack"] = _module_stack(stack)
        if single:
            if own is not None:
                self.add(own, node)
            return
        listed = outputs[0].get("as_tensors") if len(outputs) == 1 else None
        names = [_output_name(e) for e in outputs] if listed is None else [e["name"] for e in listed]
        values = []
        for i, name in enumerate(names):
            item = None
            if name is not None:
                item = self.graph.create_node("call_function", operator.getitem, (node, i), {}, name)
                self.add(name, item)
                item.meta["nn_module_stack"] = node.meta.get("nn_module_stack", {})
            values.append(None if item is None else item.meta.get("val"))
        node.meta["val"] = values


def _module_stack(text):
    """The calls of modules that a node was made in: key -> (name of the module, its class)."""
    rows = [row.split(",", 2) for row in text.split(";")]
    return {row[0]: (row[1], row[2]) for row in rows if len(row) == 3}


def _output_name(union):
    kind, value = only_entry(union)
    if kind == "as_tensor":
        return value["name"]
    if kind in ("as_sym_int", "as_sym_float", "as_sym_bool"):
        return value["as_name"]
    if kind == "as_none":
        return None
    raise NotImplementedError(f"Mica reads no results of the kind {kind} from .pt2 archives")


def _device(data):
    return mica.device(data["type"]) if data.get("index") is None else mica.device(data["type"], data["index"])


def _tensors(archive, root, folder, config):
    """The tensors of a folder, by name."""
    path, made, storages = f"{root}data/{folder}/{config}", {}, {}
    if path not in archive.namelist():
        return made
    for name, entry in json.loads(archive.read(path))["config"].items():
        if entry.get("use_pickle") or entry.get("tensor_meta") is None:
            raise NotImplementedError(f"{name} is pickled in the archive, and Mica runs no code of files")
        meta, file = entry["tensor_meta"], entry["path_name"]
        dtype = getattr(mica, _DTYPES[meta["dtype"]])
        if file not in storages:
            data = archive.read(f"{root}data/{folder}/{file}")
            storages[file] = (
                mica.frombuffer(bytearray(data), dtype=mica.uint8) if data else mica.empty(0, dtype=mica.uint8)
            )
        sizes, strides = ([only_entry(each)[1] for each in meta[key]] for key in ("sizes", "strides"))
        offset = only_entry(meta["storage_offset"])[1]
        needed = offset + (1 + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True)) if math.prod(sizes) else 0)
        if any(n < 0 or s < 0 for n, s in zip(sizes, strides, strict=True)) or offset < 0 or (
            needed * dtype.itemsize > storages[file].numel()
        ):  # fmt: skip
            raise ArchiveError(f"the archive holds too few bytes for {name}")
        flat = storages[file][: storages[file].numel() // dtype.itemsize * dtype.itemsize].view(dtype)
        value = flat.as_strided(sizes, strides, offset) if math.prod(sizes) else mica.empty(sizes, dtype=dtype)
        device = _device(meta["device"])
        value = value.to(device) if device.type != "cpu" and device.type != "cuda" else value
        made[name] = mica.nn.Parameter(value, meta["requires_grad"]) if entry.get("is_param") else value
    return made


def is_archive(f):
    """The name of the folder that a .pt2 archive's files are in, with a slash; None of another file."""
    try:
        with zipfile.ZipFile(f) as archive:
            return next(
                (n.removesuffix("archive_format") for n in archive.namelist() if n.endswith("archive_format")), None
            )
    except (zipfile.BadZipFile, OSError):
        return None


def load(f, extra_files=None):
    """The program of a .pt2 archive."""
    with zipfile.ZipFile(f) as archive:
        root = next(n.removesuffix("archive_format") for n in archive.namelist() if n.endswith("archive_format"))
        models = [n for n in archive.namelist() if n.startswith(f"{root}models/") and n.endswith(".json")]
        if not models:
            raise ArchiveError(
                "the archive holds no graph: it is a package of machine code for torch (AOTInductor), which Mica does not run"
            )
        path = next((n for n in models if n.endswith("/model.json")), models[0])
        model = path.rpartition("/")[2].removesuffix(".json")
        try:
            document = json.loads(archive.read(path))
            if document["schema_version"]["major"] != 8:
                raise ArchiveError(f"the archive's schema is {document['schema_version']}, and Mica reads 8")
            state = _tensors(archive, root, "weights", f"{model}_weights_config.json")
            constants = _tensors(archive, root, "constants", f"{model}_constants_config.json")
            program = _program_of(document, state, constants)
        except _DAMAGE as error:
            raise ArchiveError(f"the archive is damaged: {type(error).__name__} {error}") from error
        sample = f"{root}data/sample_inputs/{model}.pt"
        if sample in archive.namelist():
            try:
                program._example_inputs = mica.load(io.BytesIO(archive.read(sample)), weights_only=True)
            except Exception:  # values of classes; the program does not need them
                program._example_inputs = None
        if extra_files is not None:
            for name in archive.namelist():
                if name.startswith(f"{root}extra/"):
                    data = archive.read(name)
                    extra_files[name.removeprefix(f"{root}extra/")] = data.decode("utf-8", "replace")
    return program


def _program_of(document, state, constants):
    module = document["graph_module"]
    reader = _GraphReader(document)
    names = [_spec_name(each) for each in module["signature"]["input_specs"]]
    graph = reader.read(names)
    inputs = [read_input(each, reader) for each in module["signature"]["input_specs"]]
    outputs = [read_output(each, reader) for each in module["signature"]["output_specs"]]
    calls = [read_call(each, reader) for each in module["module_call_graph"]]
    return _program.ExportedProgram(
        reader.root(), graph, _signature.ExportGraphSignature(inputs, outputs), state, reader.all_ranges(), calls, None,
        constants, verifiers=document.get("verifiers"),
    )  # fmt: skip


def _spec_name(union):
    _, value = only_entry(union)
    return value.get("name") or (value.get("arg") or {}).get("name") or ""
