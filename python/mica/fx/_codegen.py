"""The Python code of a graph."""

import builtins
import enum
import json
import keyword
import math
import re

import mica
from mica.fx._annotations import annotation_of
from mica.fx.node import Node, qualified_name

__all__ = ["CodeGen", "PythonCode", "is_name"]


class PythonCode:
    """Source of a function, and the names that it needs."""

    def __init__(self, src, globals, _lineno_map=None, _prologue_start=0):
        self.src, self.globals = src, globals
        self._lineno_map, self._prologue_start = _lineno_map or {}, _prologue_start


class _Namespace:
    """Names that are in use, and new ones."""

    def __init__(self):
        self._taken, self._counts = set(), {}
        self._objects = {}

    def create_name(self, candidate, obj):
        """A name like this one that nobody has."""
        if obj is not None and id(obj) in self._objects:
            return self._objects[id(obj)][0]
        candidate = re.sub(r"[^0-9a-zA-Z_]+", "_", candidate) or "_unnamed"
        if candidate[0].isdigit():
            candidate = f"_{candidate}"
        match = re.fullmatch(r"(.*?)_(\d+)", candidate)
        base, number = (match[1], int(match[2])) if match and match[1] else (candidate, None)
        name = candidate
        while name in self._taken or _is_illegal(name, obj):
            number = max(number or 0, self._counts.get(base, 0)) + 1
            name = f"{base}_{number}"
        self._counts[base] = max(number or 0, self._counts.get(base, 0))
        self._taken.add(name)
        if obj is not None:
            self._objects[id(obj)] = (name, obj)
        return name

    def associate_name_with_obj(self, name, obj):
        self._objects[id(obj)] = (name, obj)

    def _rename_object(self, obj, name):
        self._objects[id(obj)] = (name, obj)
        self._taken.add(name)


_OWN = {"torch", "device", "inf", "nan", "NoneType", "fx_pytree", "pytree"}


def _is_illegal(name, obj):
    if keyword.iskeyword(name) or name in builtins.__dict__:
        return True
    return name in _OWN and obj is not mica


_OPERATORS = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "truediv": "/", "mod": "%", "pow": "**", "lshift": "<<",
              "rshift": ">>", "and_": "&", "or_": "|", "xor": "^", "matmul": "@", "eq": "==", "ne": "!=", "lt": "<",
              "gt": ">", "le": "<=", "ge": ">="}  # fmt: skip
_UNARY = {"pos": "+", "neg": "-", "invert": "~"}
_IN_PLACE = {
    f"i{name.rstrip('_')}": f"{sign}="
    for name, sign in _OPERATORS.items()
    if name not in ("eq", "ne", "lt", "gt", "le", "ge")
}


def _attribute(base, target):
    """base.a.b, also where a part is not an identifier and needs getattr."""
    for part in target.split("."):
        base = f"{base}.{part}" if is_name(part) else f"getattr({base}, {json.dumps(part, ensure_ascii=False)})"
    return base


def is_name(text):
    """Whether a text may stand in code as a name. What may not stands in quotes, so that no text of a file is run."""
    return isinstance(text, str) and text.isidentifier() and not keyword.iskeyword(text)


class CodeGen:
    """Writes the function of a graph."""

    _body_transformer = None  # of Graph.on_generate_code

    def gen_fn_def(self, free_vars, maybe_return_annotation="", *, expanded_def=False):
        arguments = free_vars if not free_vars or free_vars[0] == "self" else ["self", *free_vars]
        arguments = arguments or ["self"]
        if expanded_def:
            lines = "".join(f"\n    {each}," for each in arguments)
            return f"def forward({lines}\n){maybe_return_annotation}:"
        return f"def forward({', '.join(arguments)}){maybe_return_annotation}:"

    def generate_output(self, output_args):
        return f"return {output_args}"

    generate_output.takes_text = True

    def process_inputs(self, *args):
        return args

    def process_outputs(self, outputs):
        return outputs

    def additional_globals(self):
        return []

    def generate(self, nodes, root_module, namespace, notes=None):
        """The source and its globals."""
        writer = _Writer(namespace, root_module, notes)
        lines, numbers = [], []  # and the number of the node that each is from
        nodes = list(nodes)
        last_use = {}
        for node in reversed(nodes):
            for used in node.all_input_nodes:
                last_use.setdefault(used, node)
        free_vars, returned = [], ""
        for number, node in enumerate(nodes):
            if node.op == "placeholder":
                free_vars.append(writer.placeholder(node, lines))
            elif node.op == "output":
                # A program's own class is handed nodes, as by torch.
                takes_text = getattr(type(self).generate_output, "takes_text", False)
                lines.append(self.generate_output(writer.text(node.args[0]) if takes_text else node.args[0]))
                returned = "" if node.type is None else f" -> {annotation_of(node.type, writer.name_of)}"
            else:
                if notes is not None:
                    lines += notes.comment(node, bool(lines))
                kind = writer.type_of(node)
                lines.append(
                    f"{node.name}{kind} = {writer.call(node)}"
                    if not writer.is_statement(node)
                    else writer.statement(node)
                )
                # A value is deleted after its last use, so that its memory can be used again.
                dead = [used for used in node.all_input_nodes if last_use[used] is node]
                dead = dead if node.users else [*dead, node]
                if dead:
                    let_go = " = ".join([*(each.name for each in dead), "None"])
                    lines[-1] += ";  " + (let_go if notes is None else notes.dim(let_go))
            numbers += [number] * (len(lines) - len(numbers))
        options = {"expanded_def": True} if notes is not None and notes.expanded_def else {}
        head = self.gen_fn_def(free_vars, returned, **options)
        for name, value in self.additional_globals():
            writer.globals[name] = value
        body, line_numbers = self._body(lines, numbers, head.count("\n") + 1)
        return PythonCode(f"\n\n\n{head}\n{body}\n    ", writer.globals, line_numbers, 4)

    def _body(self, lines, numbers, first):
        """The text of the function's body, and the node of each of its lines, which are counted from the head on."""
        if self._body_transformer is not None:
            marked = [
                each for line, i in zip(lines, numbers, strict=True) for each in (f"# COUNTER: {i}\n", f"{line}\n")
            ]
            lines, numbers, current = [], [], None
            for line in "".join(self._body_transformer(marked)).rstrip("\n").split("\n"):
                if counter := re.match(r"# COUNTER: (\d+)$", line):
                    current = int(counter[1])
                else:
                    lines.append(line)
                    numbers.append(current)
        found, at = {}, first
        for line, number in zip(lines, numbers, strict=True):
            for _ in range(line.count("\n") + 1):
                found[at] = number
                at += 1
        return "\n".join(f"    {line}" for line in lines) or "    pass", found


def _always_known():
    """Names that the code of every graph may use."""
    from mica.fx import _pytree as fx_pytree
    from mica.utils import _pytree as pytree

    return {"inf": math.inf, "nan": math.nan, "NoneType": type(None), "torch": mica, "device": mica.device,
            "fx_pytree": fx_pytree, "pytree": pytree}  # fmt: skip


class _Writer:
    def __init__(self, namespace, root_module, notes=None):
        self._namespace, self._root, self._notes = namespace, root_module, notes
        self.globals = _always_known()

    def name_of(self, value, hint):
        """The name of a global that the code may use for a value."""
        if hint.startswith("torch.") or hint == "torch":
            self.globals.setdefault("torch", mica)
            found = mica
            for part in hint.split(".")[1:]:
                found = getattr(found, part, None)
            if found is value:
                return hint
        if getattr(builtins, hint, None) is value:
            return hint
        name = hint.replace(".", "_")
        number = 0
        while name in self.globals and self.globals[name] is not value:
            number += 1
            name = f"{hint.replace('.', '_')}_{number}"
        self.globals[name] = value
        return name

    def text(self, value):
        """A value as an expression."""
        if isinstance(value, Node):
            return value.name
        if isinstance(value, enum.Enum):  # members of an IntEnum are numbers, too
            kind = self.name_of(type(value), type(value).__name__)
            is_member = value.name in type(value).__members__
            return f"{kind}.{value.name}" if is_member else f"{kind}({value.value!r})"
        if isinstance(value, tuple):
            if hasattr(value, "_fields"):
                return f"{self.name_of(type(value), type(value).__name__)}({', '.join(map(self.text, value))})"
            inner = ", ".join(map(self.text, value))
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        if isinstance(value, list):
            return f"[{', '.join(map(self.text, value))}]"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{self.key(key)}: {self.text(each)}" for key, each in value.items()) + "}"
        if isinstance(value, slice):
            return f"slice({self.text(value.start)}, {self.text(value.stop)}, {self.text(value.step)})"
        if isinstance(value, mica.dtype | mica.memory_format | mica.layout):
            self.globals.setdefault("torch", mica)
            return str(value)
        if isinstance(value, mica.device):
            self.globals.setdefault("device", mica.device)
            return repr(value)
        if isinstance(value, (float, complex)) and type(value).__module__ == "numpy":
            value = value.item()  # NumPy writes np.float64(2.0), and the code does not know np
        if isinstance(value, float) and not math.isfinite(value):
            return f"float('{value}')"
        if isinstance(value, (int, float, complex, str, bytes, bool)) or value is None or value is ...:
            text = "..." if value is ... else repr(value)
            return text if self._notes is None else self._notes.constant(text)
        if isinstance(value, type):
            return self.name_of(
                value, value.__name__ if value.__module__ == "builtins" else f"{value.__module__}.{value.__name__}"
            )
        return self.name_of(value, getattr(value, "__name__", type(value).__name__))

    def key(self, value):
        """A key of a dict as an expression."""
        return self.text(value) if isinstance(value, enum.Enum) else repr(value)

    def placeholder(self, node, lines):
        name = node.target
        stars = len(name) - len(name.lstrip("*"))
        default = f" = {self.text(node.args[0])}" if node.args else ""
        raw = name.lstrip("*")
        if raw != node.name:
            lines.append(f"{node.name} = {raw}")
        return f"{'*' * stars}{raw}{self.type_of(node)}{default}"

    def type_of(self, node):
        """The annotation behind a node's name: what is known of its value, or the type that it was given."""
        if self._notes is not None and (known := self._notes.type_of(node)):
            return known
        starred = node.op == "placeholder" and node.target.startswith("*")
        return "" if node.type is None or starred else f" : {annotation_of(node.type, self.name_of)}"

    def arguments(self, node, skip=0):
        parts = [self.text(each) for each in node.args[skip:]]
        for key, value in node.kwargs.items():
            parts.append(f"{key} = {self.text(value)}" if is_name(key) else f"**{{{key!r}: {self.text(value)}}}")
        return ", ".join(parts)

    def is_statement(self, node):
        return (
            node.op == "call_function"
            and getattr(node.target, "__module__", "") == "_operator"
            and node.target.__name__ in _IN_PLACE
        )

    def statement(self, node):
        left, right = map(self.text, node.args)
        return f"{left} {_IN_PLACE[node.target.__name__]} {right};  {node.name} = {left}"

    def call(self, node):
        if node.op == "get_attr":
            return _attribute(self._root, node.target)
        if node.op == "call_module":
            return f"{_attribute(self._root, node.target)}({self.arguments(node)})"
        if node.op == "call_method":
            return f"{_attribute(self.text(node.args[0]), node.target)}({self.arguments(node, 1)})"
        target = node.target
        name = getattr(target, "__name__", "")
        if getattr(target, "__module__", "") == "_operator" and not node.kwargs:
            if name in _OPERATORS and len(node.args) == 2:
                return f"{self.text(node.args[0])} {_OPERATORS[name]} {self.text(node.args[1])}"
            if name in _UNARY:
                return f"{_UNARY[name]}{self.text(node.args[0])}"
            if name == "getitem":
                return f"{self.text(node.args[0])}[{self.text(node.args[1])}]"
        if target is getattr and len(node.args) == 2 and isinstance(node.args[1], str) and node.args[1].isidentifier():
            return f"{self.text(node.args[0])}.{node.args[1]}"
        return f"{self.name_of(target, _called(target))}({self.arguments(node)})"


def _called(target):
    if not hasattr(target, "__name__"):
        return type(target).__name__
    if hasattr(target, "_schema"):
        return f"torch.ops.{target}"
    return qualified_name(target)
