"""What a file may name when nothing in it is to run: the tables of the weights-only unpickler."""

import _compat_pickle
from collections import Counter, OrderedDict
from pickle import UnpicklingError

from mica import _C, _utils
from mica._checkpoints.names import full_name
from mica._functions import quantization_schemes as _quantization_schemes
from mica.nn import parameter
from mica.nn.parameter import Parameter
from mica.storage import _CLASSES as _STORAGE_CLASSES
from mica.storage import TypedStorage, UntypedStorage

BLOCKED_MODULES = {"sys", "os", "posix", "nt"}
_DEEPEST_KEY = 200  # Python hashes nested tuples by recursion in C, without a limit of its own

# ---- what the user has declared safe

_safe = set()


def add_safe_globals(safe_globals):
    """Let files name these classes and functions: each an object, or a pair of one and its name in files."""
    _safe.update(safe_globals)


def get_safe_globals():
    """The classes and functions that weights_only lets pass beside its own."""
    return list(_safe)


def clear_safe_globals():
    """Forget the classes and functions that were let pass."""
    _safe.clear()


class safe_globals:
    """A context in which files may name these classes and functions."""

    def __init__(self, safe_globals):
        self.safe_globals = safe_globals

    def __enter__(self):
        self._added = set(self.safe_globals) - _safe
        _safe.update(self._added)

    def __exit__(self, *exception):
        _safe.difference_update(self._added)


def user_globals():
    """The classes and functions that the program has declared safe, by their names in files."""
    table = {}
    for each in _safe:
        if not isinstance(each, tuple):
            table[full_name(each)] = each
        elif len(each) != 2:
            raise ValueError(
                f"Expected tuple of length 2 (global, str of callable full path), but got tuple of length: {len(each)}"
            )
        elif not isinstance(each[1], str):
            raise TypeError(f"Expected second item in tuple to be str of callable full path, but got: {type(each[1])}")
        else:
            table[each[1]] = each[0]
    return table


# ---- what files may always name, and what is done when they call it


def refuse(message):
    raise UnpicklingError(message)


def checked_key(key):
    """The key, if hashing it takes no deeper recursion than any sensible file asks for."""
    level, depth = [key] if isinstance(key, tuple) else [], 0
    while level:
        depth += 1
        if depth > _DEEPEST_KEY or len(level) > 100_000:
            refuse("a key is nested too deeply")
        level = [item for each in level for item in each if isinstance(item, tuple)]
    return key


def checked_state(state):
    """The attributes of an object, or those and its slots, if none has a name that Python or a library gives a meaning.

    A file must not change an object's class, nor say where NumPy finds its memory (`__array_interface__`).
    """
    for names in state if isinstance(state, tuple) else (state,):
        for name in names or ():
            if not isinstance(name, str) or name.startswith("__"):
                refuse(f"the state of an object names {name!r:.80}")
    return state


def _make_set(items=()):
    return {checked_key(item) for item in items}


def _make_ordered_dict(pairs=()):
    return OrderedDict((checked_key(key), value) for key, value in pairs)


def _make_counter(counts=()):
    return Counter({checked_key(key): value for key, value in dict(counts).items()})


def _make_bytes(text, encoding="latin1"):
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        refuse(f"encode of {type(text).__name__} to {encoding!r}")
    return text.encode("latin1")


def _make_bytearray(content=b"", encoding=None):
    if encoding is not None:
        content = _make_bytes(content, encoding)
    if not isinstance(content, (bytes, bytearray)):
        refuse(f"bytearray of {type(content).__name__}")
    return bytearray(content)


def _make_complex(real=0, imaginary=0):
    return complex(float(real), float(imaginary))


def _make_tensor(*args):
    """Make an empty tensor for an old file, which fills it afterwards."""
    if args:
        refuse("a tensor made from arguments")
    return _C.empty(0)


def _rebuild_njt(parts):
    from mica.nested._internal import nested_tensor

    tensors = [parts["values"], parts["offsets"], *(t for t in (parts["lengths"],) if t is not None)]
    if not all(isinstance(t, _C.Tensor) for t in tensors) or not isinstance(parts["_ragged_idx"], int):
        refuse("a jagged tensor of other things than tensors")
    values, offsets, lengths = parts["values"], parts["offsets"], parts["lengths"]
    starts = offsets.tolist() if offsets.dim() == 1 else [1, 0]
    ends = starts[1:] if lengths is None else [s + n for s, n in zip(starts, lengths.tolist(), strict=False)]
    last = values.size(parts["_ragged_idx"] - 1)
    if sorted(starts) != starts or any(not 0 <= s <= e <= last for s, e in zip(starts, ends, strict=False)):
        refuse("the sequences of a jagged tensor lie outside of it")
    return nested_tensor._rebuild_njt(parts)


class _Jagged:
    """Stands for the class of jagged tensors, so that files that have none need not import it."""


def _rebuild_from_type(func, new_type, args, state):
    if func is _rebuild_njt and new_type is _Jagged:
        return _rebuild_njt(*args)
    if func not in (*_REBUILD.values(), _utils._rebuild_wrapper_subclass) or not (
        isinstance(new_type, type) and issubclass(new_type, _C.Tensor)
    ):
        refuse(f"_rebuild_from_type_v2 with {func} and {new_type}")
    if new_type.__setstate__ is _C.Tensor.__setstate__:  # another class reads its state in its own way
        checked_state(state)
    if func is parameter._rebuild_parameter_with_state and len(args) > 3:
        checked_state(args[3])
    return _utils._rebuild_from_type_v2(func, new_type, args, state)


def _rebuild_parameter_with_state(data, requires_grad, backward_hooks, state):
    return parameter._rebuild_parameter_with_state(data, requires_grad, backward_hooks, checked_state(state))


_REBUILD = {
    f"torch._utils.{name}": getattr(_utils, name)
    for name in (
        "_rebuild_tensor",
        "_rebuild_tensor_v2",
        "_rebuild_tensor_v3",
        "_rebuild_parameter",
        "_rebuild_parameter_with_state",
        "_rebuild_meta_tensor_no_storage",
        "_rebuild_qtensor",
        "_rebuild_sparse_tensor",
    )
}


_LAYOUTS = {
    f"torch.{name}" for name in ("strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc")
}


def _get_layout(name):
    return getattr(_C, name.removeprefix("torch.")) if name in _LAYOUTS else refuse(f"layout {name}")


def _rebuild_nested_tensor(buffer, *geometry):
    if not all(isinstance(t, _C.Tensor) for t in (buffer, *geometry)):
        refuse("a nested tensor of other things than tensors")
    return _utils._rebuild_nested_tensor(buffer, *geometry)


class DimRange(tuple):
    """What torch's compiler noted about a dimension of a jagged tensor. It is read, and of no use here."""


CALLS = {
    DimRange: lambda *args: DimRange(args),
    _utils._rebuild_nested_tensor: _rebuild_nested_tensor,
    OrderedDict: _make_ordered_dict,
    Counter: _make_counter,
    Parameter: lambda *args: Parameter(*args),
    _get_layout: _get_layout,
    _C.Size: lambda sizes=(): _C.Size(sizes),
    _C.Tensor: _make_tensor,
    _C.device: lambda *args: _C.device(*args),
    _make_bytes: _make_bytes,
    bytearray: _make_bytearray,
    set: _make_set,
    complex: _make_complex,
    _utils._rebuild_from_type_v2: _rebuild_from_type,
    **{function: function for function in _REBUILD.values()},
    parameter._rebuild_parameter_with_state: _rebuild_parameter_with_state,
}

# Found by identity: nothing from a file is compared.
CALLS = {id(named): function for named, function in CALLS.items()}

_OBJECTS = {
    "collections.OrderedDict": OrderedDict,
    "collections.Counter": Counter,
    "torch.nn.parameter.Parameter": Parameter,
    "torch.serialization._get_layout": _get_layout,
    "torch.Size": _C.Size,
    "torch.Tensor": _C.Tensor,
    "torch.device": _C.device,
    "_codecs.encode": _make_bytes,
    "builtins.bytearray": bytearray,
    "builtins.set": set,
    "builtins.complex": complex,
    "torch.storage.TypedStorage": TypedStorage,
    "torch.storage.UntypedStorage": UntypedStorage,
    "torch.UntypedStorage": UntypedStorage,
    "torch._tensor._rebuild_from_type_v2": _utils._rebuild_from_type_v2,
    **_REBUILD,
    **{f"torch.{name}": storage_class for name, storage_class in _STORAGE_CLASSES.items()},
    **{str(value): value for value in vars(_C).values() if isinstance(value, _C.dtype)},
    **{
        str(scheme): scheme
        for scheme in vars(_quantization_schemes).values()
        if isinstance(scheme, _quantization_schemes.qscheme)
    },
}

_NESTED = {
    "torch._utils._rebuild_wrapper_subclass": _utils._rebuild_wrapper_subclass,
    "torch._utils._rebuild_nested_tensor": _utils._rebuild_nested_tensor,
    "torch.nested._internal.nested_tensor._rebuild_njt": _rebuild_njt,
    "torch.nested._internal.nested_tensor.NestedTensor": _Jagged,
    "torch._dynamo.decorators._DimRange": DimRange,
}

# One list says what files may name, here and in C++: src/io/buildable.cpp. Nested tensors are Python's alone.
ALLOWED = {**{name: _OBJECTS[name] for name in _C._buildable_names()}, **_NESTED}


def standard_name(module, name):
    """Python 3's name for what Python 2 and old protocols call otherwise."""
    if (module, name) in _compat_pickle.NAME_MAPPING:
        return _compat_pickle.NAME_MAPPING[module, name]
    return _compat_pickle.IMPORT_MAPPING.get(module, module), name


def is_allowed(path):
    return path in ALLOWED or path in user_globals()
