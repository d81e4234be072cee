"""What print_readable adds to the code of a graph: types of values, where nodes come from, colours."""

import re

import mica

__all__ = ["Notes", "readable"]

_COLOURS = {"red": "31", "green": "32", "blue": "34"}
_DIM, _END = "\033[2m", "\033[0m"
_KINDS = {"float": "f", "bfloat": "bf", "complex": "c", "int": "i", "uint": "u", "bool": "b", "bits": "b"}


def short_dtype(dtype):
    """float32 as f32, int64 as i64, float8_e5m2 as f8e5m2."""
    name = str(dtype).removeprefix("torch.")
    match = re.fullmatch(r"([a-z]+)(\d*)((?:_\w+)?)", name)
    if match is None or match[1] not in _KINDS:
        return name
    return "b8" if dtype is mica.bool else _KINDS[match[1]] + match[2] + match[3].replace("_", "")


class Notes:
    """Which notes a graph's code is written with."""

    def __init__(self, include_stride=False, include_device=False, colored=False, expanded_def=False, meta=None):
        self._stride, self._device, self._colored = include_stride, include_device, colored
        self.expanded_def, self._meta = expanded_def, meta or ()
        self._last = None

    def _paint(self, text, colour=None, dim=False):
        if not self._colored:
            return text
        return (_DIM if dim else "") + (f"\033[{_COLOURS[colour]}m" if colour else "") + text + _END

    def constant(self, text):
        """A number or a string among the arguments."""
        return self._paint(text, "blue")

    def dim(self, text):
        """What a reader passes over."""
        return self._paint(text, dim=True)

    def type_of(self, node):
        """The type of a node's value behind its name, where it is known."""
        value = node.meta.get("val", node.meta.get("example_value"))
        if isinstance(value, mica.Tensor):
            if value.layout is not mica.strided:
                return f': "{short_dtype(value.dtype)}{list(value.shape)}"'
            text = self._paint(short_dtype(value.dtype), "red") + self._paint(str(list(value.shape)), "blue")
            if self._stride:
                text += self._paint(str(list(value.stride())), "blue", dim=True)
            if self._device:
                text += self._paint(str(value.device), "green", dim=True)
            return f': "{text}"'
        if type(value).__name__ in ("SymInt", "SymFloat", "SymBool"):
            return f': "Sym({value})"'
        return ""

    def comment(self, node, begun):
        """The lines of a comment that says where the following nodes come from; none where that is the same place as before."""
        meta = "".join(f"{name}: {node.meta[name]} # " for name in self._meta if name in node.meta)
        text = self.dim(f"# {meta}{_origin(node.stack_trace)}")
        if text == self._last:
            return []
        self._last = text
        return ["", text] if begun else [text]


def _origin(trace):
    """The last place of a traceback."""
    places = re.findall(r'File "([^"]+)", line (\d+), in (\S+)\n\s*(.*)', trace or "")
    if not places:
        return "No stacktrace found for following nodes"
    path, line, function, code = places[-1]
    return f"File: {path}:{line} in {function}, code: {code.strip()}"


def readable(module, name, options):
    """The code of a GraphModule as a class, with those of the GraphModules inside it."""
    code = module.graph.python_code("self", verbose=True, **options).src.strip("\n").rstrip()
    body = "\n".join(f"    {line}".rstrip() for line in code.splitlines())
    text = f"class {name}(torch.nn.Module):\n{body}\n"
    for inner, child in module.named_children():
        if hasattr(child, "_graph"):
            part = readable(child, inner, options)
            text += "\n" + "\n".join(f"    {line}".rstrip() for line in part.splitlines()) + "\n"
    return text
