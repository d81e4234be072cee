"""Type stubs of the extension: _C.pyi, from which editors and type checkers know every function and method."""

from __future__ import annotations

import re

from bindings import is_named
from model import Op
from overloads import Group, Overload, collect, type_text
from schema import Argument, Type

HEADER = '''\
"""The engine's functions and types. Generated from ops/*.toml."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Self, overload

_bool = builtins.bool
_int = builtins.int
_float = builtins.float
_complex = builtins.complex
_dtype = dtype
_layout = layout
_device = device
_memory_format = memory_format
Number = _bool | _int | _float | _complex
_Sizes = Sequence[_int] | Size
_Device = _device | str | _int

class dtype:
    is_floating_point: _bool
    is_complex: _bool
    is_signed: _bool
    itemsize: _int
    def to_complex(self) -> _dtype: ...
    def to_real(self) -> _dtype: ...

class layout: ...
class memory_format: ...

class device:
    type: str
    index: _int | None
    def __init__(self, type: str | _int | _device, index: _int | None = None) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *args: object) -> None: ...

class Size(tuple[_int, ...]):
    def numel(self) -> _int: ...

class finfo:
    bits: _int
    dtype: str
    eps: _float
    max: _float
    min: _float
    tiny: _float
    smallest_normal: _float
    resolution: _float
    def __init__(self, type: _dtype | None = None) -> None: ...

class iinfo:
    bits: _int
    dtype: str
    max: _int
    min: _int
    def __init__(self, type: _dtype) -> None: ...

class Generator:
    device: _device
    def __init__(self, device: _Device | None = None) -> None: ...
    def manual_seed(self, seed: _int, /) -> Generator: ...
    def seed(self) -> _int: ...
    def initial_seed(self) -> _int: ...
    def get_state(self) -> Tensor: ...
    def set_state(self, state: Tensor, /) -> Generator: ...
    def clone_state(self) -> Generator: ...

class OutOfMemoryError(RuntimeError): ...

default_generator: Generator
strided: _layout
contiguous_format: _memory_format
preserve_format: _memory_format
channels_last: _memory_format
channels_last_3d: _memory_format

def tensor(
    data: Any,
    *,
    dtype: _dtype | None = None,
    device: _Device | None = None,
    pin_memory: _bool = False,
    requires_grad: _bool = False,
) -> Tensor: ...
def is_tensor(obj: object, /) -> _bool: ...
def is_grad_enabled() -> _bool: ...
def get_default_dtype() -> _dtype: ...
def set_default_dtype(d: _dtype, /) -> None: ...
def get_num_threads() -> _int: ...
def set_num_threads(count: _int, /) -> None: ...
def promote_types(type1: _dtype, type2: _dtype, /) -> _dtype: ...
def can_cast(from_: _dtype, to: _dtype, /) -> _bool: ...
'''

NAMESPACE_HEADER = '''\
"""What mica.{space} takes from the engine. Generated from ops/*.toml."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, overload

from mica._C import (
    Generator, Number, Tensor, _bool, _complex, _Device, _dtype, _float, _int, _layout, _memory_format, _Sizes,
)
'''

TENSOR = """\
class Tensor:
    shape: Size
    dtype: _dtype
    device: _device
    layout: _layout
    ndim: _int
    itemsize: _int
    nbytes: _int
    requires_grad: _bool
    grad: Tensor | None
    grad_fn: Any
    is_leaf: _bool
    retains_grad: _bool
    grad_dtype: _dtype | None
    output_nr: _int
    data: Tensor
    T: Tensor
    mT: Tensor
    H: Tensor
    mH: Tensor
    real: Tensor
    imag: Tensor
    is_cpu: _bool
    is_cuda: _bool
    is_meta: _bool
    def __init__(self, *args: Any) -> None: ...
    def __getitem__(self, index: Any, /) -> Tensor: ...
    def __setitem__(self, index: Any, value: Tensor | Number, /) -> None: ...
    def __len__(self) -> _int: ...
    def __iter__(self) -> Any: ...
    def __bool__(self) -> _bool: ...
    def __int__(self) -> _int: ...
    def __float__(self) -> _float: ...
    def __index__(self) -> _int: ...
    def __complex__(self) -> _complex: ...
    @overload
    def size(self) -> Size: ...
    @overload
    def size(self, dim: _int) -> _int: ...
    @overload
    def stride(self) -> tuple[_int, ...]: ...
    @overload
    def stride(self, dim: _int) -> _int: ...
    def is_contiguous(self, *, memory_format: _memory_format = ...) -> _bool: ...
    def dim(self) -> _int: ...
    def numel(self) -> _int: ...
    def nelement(self) -> _int: ...
    def element_size(self) -> _int: ...
    def storage_offset(self) -> _int: ...
    def data_ptr(self) -> _int: ...
    def item(self) -> Number: ...
    def tolist(self) -> Any: ...
    @overload
    def to(
        self,
        device: _Device | None = None,
        dtype: _dtype | None = None,
        non_blocking: _bool = False,
        copy: _bool = False,
        *,
        memory_format: _memory_format | None = None,
    ) -> Tensor: ...
    @overload
    def to(self, dtype: _dtype, non_blocking: _bool = False, copy: _bool = False) -> Tensor: ...
    @overload
    def to(self, other: Tensor, non_blocking: _bool = False, copy: _bool = False) -> Tensor: ...
    def backward(
        self,
        gradient: Tensor | None = None,
        retain_graph: _bool | None = None,
        create_graph: _bool = False,
        inputs: Sequence[Tensor] | None = None,
    ) -> None: ...
    def requires_grad_(self, requires_grad: _bool = True) -> Self: ...
    def register_hook(self, hook: Callable[[Tensor], Tensor | None], /) -> Any: ...
    def retain_grad(self) -> None: ...
    def detach_(self) -> Self: ...
    def as_subclass(self, cls: type[Tensor], /) -> Any: ...
"""

DTYPES = """
    uint8 int8 int16 int32 int64 uint16 uint32 uint64 bool float16 float32 float64 bfloat16 complex32 complex64
    complex128 float8_e5m2 float8_e4m3fn float8_e5m2fnuz float8_e4m3fnuz float8_e8m0fnu float4_e2m1fn_x2 float
    double half long int short cfloat cdouble chalf bit uint1 uint2 uint3 uint4 uint5 uint6 uint7 int1 int2 int3 int4
    int5 int6 int7 bits8 bits16 bits1x8 bits2x4 bits4x2 quint8 qint8 qint32 quint4x2 quint2x4
"""
CONVERSIONS = "float double half bfloat16 cfloat cdouble chalf bool byte char short int long"
BINARY = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift"
# Methods that TENSOR already says more about.
BY_HAND = {"to", "size", "stride", "detach_", *CONVERSIONS.split()}
KEYWORDS = {"from", "lambda", "in", "is", "not", "def", "class"}

PLAIN = {
    "Tensor": "Tensor", "Scalar": "Number", "int": "_int", "float": "_float", "bool": "_bool", "str": "str",
    "ScalarType": "_dtype", "Layout": "_layout", "Device": "_Device", "MemoryFormat": "_memory_format",
    "Generator": "Generator",
}  # fmt: skip
RETURNS = {"Tensor": "Tensor", "int": "_int", "SymInt": "_int", "float": "_float", "bool": "_bool", "Scalar": "Number",
           "ScalarType": "_dtype", "str": "str"}  # fmt: skip


def annotation(t: Type) -> str:
    base = "int" if t.base == "SymInt" else t.base
    text = PLAIN[base]
    if t.is_list:
        text = f"Sequence[{text}{' | None' if t.element_optional else ''}]"
        if base == "int":
            text = "_int | _Sizes" if t.list_size else "_Sizes"
    return text + (" | None" if t.optional else "")


def default_text(a: Argument) -> str:
    d = a.default
    if d is None:
        return ""
    simple = d in ("None", "True", "False") or d.startswith("'") or re.fullmatch(r"-?\d+(\.\d*)?(e-?\d+)?", d)
    return f" = {d}" if simple else " = ..."


def parameters(o: Overload, method: bool) -> str:
    parts, keyword_only = (["self"] if method else []), False
    arguments = [a for a in o.arguments if not (method and a.name == "self")]
    spread = [a for a in arguments if not a.keyword_only]
    for a in arguments:
        if a.name in KEYWORDS:  # can only be given by position
            parts.append(f"{a.name}_: {annotation(a.type)}{default_text(a)}")
            continue
        if a.keyword_only and not keyword_only:
            parts.append("*")
            keyword_only = True
        if a.type.base == "Options":
            parts += ["dtype: _dtype | None = None", "layout: _layout | None = None", "device: _Device | None = None",
                      "pin_memory: _bool = False", "requires_grad: _bool = False"]  # fmt: skip
            continue
        name = "input" if a.name == "self" and a.type.is_tensor else a.name
        text = annotation(a.type)
        if a.default == "None" and not text.endswith("None"):
            text += " | None"
        if spread == [a] and type_text(a.type).startswith("int[]"):
            parts.append(f"*{name}: _int | _Sizes")
            keyword_only = True
            continue
        parts.append(f"{name}: {text}{default_text(a)}")
    if o.out and not method:
        if not keyword_only:
            parts.append("*")
        count = len(o.schema.returns)
        parts.append(f"out: {'Tensor' if count == 1 else 'tuple[' + ', '.join(['Tensor'] * count) + ']'} | None = None")
    return ", ".join(parts)


def result(group: Group, o: Overload, method: bool) -> str:
    returns = o.schema.returns
    if o.in_place:
        return "Self" if method else "Tensor"
    if not returns:
        return "None"
    if is_named(o.schema):
        return f"_{group.name}_result"
    kinds = ["tuple[Tensor, ...]" if r.type.is_list else RETURNS[r.type.base] for r in returns]
    return kinds[0] if len(kinds) == 1 else f"tuple[{', '.join(kinds)}]"


def definitions(group: Group, method: bool) -> list[str]:
    indent = "    " if method else ""
    chosen = [o for o in group.overloads if (o.method if method else o.function) and not o.deprecated]
    lines = []
    for name in [group.name, *group.aliases]:
        for i, o in enumerate(chosen):
            if len(chosen) > 1:
                lines.append(f"{indent}@overload")
            head = f"{indent}def {name}({parameters(o, method)}) -> {result(group, o, method)}:"
            if group.doc and i == 0:
                summary = group.doc.splitlines()[0].replace('"""', "'''")
                lines += [head, f'{indent}    """{summary}"""']
            else:
                lines.append(head + " ...")
    return lines


def named_tuples(groups: list[Group]) -> list[str]:
    lines = []
    for g in groups:
        named = [o for o in g.overloads if is_named(o.schema) and not o.in_place]
        if named:
            lines.append(f"class _{g.name}_result(NamedTuple):")
            lines += [f"    {r.name}: Tensor" for r in named[0].schema.returns]
    return lines


def generate(ops: list[Op]) -> dict[str, str]:
    """relative path -> text"""
    groups = collect(ops)
    lines = [HEADER, *[f"{d}: _dtype" for d in DTYPES.split()], "", *named_tuples(groups), ""]
    for g in groups:
        if not g.space:
            lines += definitions(g, method=False)
    lines += ["", TENSOR.rstrip()]
    for name in CONVERSIONS.split():
        lines.append(f"    def {name}(self, *, memory_format: _memory_format | None = None) -> Tensor: ...")
    for symbol in BINARY.split():
        for prefix in ("", "r") if symbol == "matmul" else ("", "r", "i"):
            lines.append(f"    def __{prefix}{symbol}__(self, other: Any, /) -> Tensor: ...")
    for symbol in ("neg", "pos", "abs", "invert"):
        lines.append(f"    def __{symbol}__(self) -> Tensor: ...")
    for symbol in ("lt", "le", "gt", "ge"):
        lines.append(f"    def __{symbol}__(self, other: Any, /) -> Tensor: ...")
    for g in groups:
        if not g.space and g.name not in BY_HAND:
            lines += definitions(g, method=True)
    files = {"package/_C.pyi": "\n".join(lines) + "\n"}
    for space in sorted({g.space for g in groups if g.space}):
        body = [NAMESPACE_HEADER.format(space=space)]
        for g in groups:
            if g.space == space:
                body += definitions(g, method=False)
        files[f"package/_{space.replace('.', '_')}.pyi"] = "\n".join(body) + "\n"
    return files
