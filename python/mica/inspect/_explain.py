"""`mica.explain(x)`: the anatomy of one tensor, as text, as a picture, as a dict."""

import gc
import sys

from mica import _C
from mica._C import Tensor
from mica.inspect import _terminal
from mica.inspect._explain_svg import MOST_DRAWN, draw

_MOST_NEIGHBOURS = 20


class Explanation:
    """What a tensor is made of. Prints itself; in a notebook it draws itself; `to_dict()` has every number.

    A line of a script that only says `mica.explain(x)` prints too: an explanation that is not used prints itself.
    """

    _read = True  # until it is whole

    def __init__(self, tensor):
        if getattr(tensor, "is_nested", False):
            values, offsets, lengths = tensor.values(), tensor.offsets(), tensor.lengths()
            self._facts, *self._text = _C._explain_nested(values, offsets, lengths, tensor._ragged)
        else:
            self._facts = _C._explain(tensor)
            self._text = (_C._explain_text(tensor), _C._explain_text(tensor, True))
        self._facts["neighbours"] = _neighbours(tensor)
        self._places = _stored_places(tensor, self._facts)
        self._read = False

    def __del__(self):
        if not self._read and not sys.is_finalizing():
            print(self.text())

    def to_dict(self):
        """Every number of the anatomy, as plain Python values."""
        self._read = True
        return self._facts

    def text(self, colours=None):
        """The anatomy as text; with colours if the terminal has them and NO_COLOR does not ask for none."""
        self._read = True
        text = self._text[_terminal.colours() if colours is None else bool(colours)]
        lines = [f"            {where}  {_tuple(shape)}\n" for where, shape in self._facts["neighbours"]]
        if not lines:
            return text
        head, mark, rest = text.partition("shared by")
        line, _, rest = rest.partition("\n")
        return head + mark + line + "\n" + "".join(lines) + rest

    def svg(self):
        """The storage as a tape, with what the tensor reaches of it, and the parts of other layouts, as an SVG picture."""
        self._read = True
        return draw(self._facts, self._places)

    def __str__(self):
        return self.text()

    __repr__ = __str__

    def _repr_html_(self):
        from html import escape

        return f'{self.svg()}<pre style="font-size:12px">{escape(self.text(colours=False))}</pre>'


def explain(x, *args, **kwargs):
    """The anatomy of a tensor: geometry, storage, contiguity, who shares its memory, how a view came about, its history.

    A compiled function or module is called with the further arguments, and the explanation says which calls were fused.
    """
    if hasattr(x, "_torchdynamo_orig_callable") or hasattr(type(x), "_is_compiled_module"):
        from mica._dynamo.explanation import explain_call

        return explain_call(x, *args, **kwargs)
    if not isinstance(x, Tensor):
        raise TypeError(f"explain() takes a Tensor or a compiled function, not {type(x).__name__}")
    return Explanation(x)


def _tuple(shape):
    return "(" + ", ".join(map(str, shape)) + (",)" if len(shape) == 1 else ")")


def _stored_places(tensor, facts):
    """Of a small sparse matrix, the rows and columns that have a value."""
    shape = facts["shape"]
    if "sparse" not in facts or len(shape) != 2 or max(shape) > MOST_DRAWN or tensor.is_meta:
        return []
    return list(zip(*tensor.detach().to_sparse_coo()._indices().tolist(), strict=True))


def _is_tensor(value):
    """By its type alone: isinstance would ask an object for its `__class__`, which may be a stranger's code."""
    return issubclass(type(value), Tensor)


def _key_name(key):
    """What an entry of a dict is called, without running code of the key's class."""
    if type(key) is str:
        return key
    plain = type(key) in (int, float, bool, bytes, type(None))
    return f"{key!r} of a dict" if plain else f"an entry of a dict, of key {type(key).__name__}"


def _neighbours(tensor):
    """Where the program keeps other tensors on the same storage: (name, shape) of variables, attributes and entries."""
    storage = _C._storage_identity(tensor)
    found, seen = [], {id(tensor)}

    def note(name, value):
        if _is_tensor(value) and id(value) not in seen and _C._storage_identity(value) == storage != 0:
            seen.add(id(value))
            found.append((name, tuple(value.shape)))

    frame = sys._getframe(1)
    while frame is not None:
        if not frame.f_globals.get("__name__", "").startswith("mica.inspect"):
            where = "" if frame.f_code.co_name == "<module>" else f" in {frame.f_code.co_name}"
            for name, value in list(frame.f_locals.items()):
                note(f"{name}{where}", value)
        frame = frame.f_back
    for holder in gc.get_objects():
        if len(found) >= _MOST_NEIGHBOURS:
            break
        if type(holder) is dict:
            for key, value in list(holder.items()):
                if _is_tensor(value):
                    note(_key_name(key), value)
        elif type(holder) in (list, tuple):
            for i, value in enumerate(holder):
                if _is_tensor(value):
                    note(f"[{i}] of a {type(holder).__name__}", value)
    return found
