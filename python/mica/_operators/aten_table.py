"""The operators of torch.ops.aten that are operations of the table (ops/*.toml): their lines, and how a line is called."""

import functools

import mica
from mica._library.schema import parse_schema


@functools.cache
def table():
    """Operator -> its lines in the table of operations, each split into its fields."""
    from mica._generated.aten_schemas import TEXT
    from mica._operators.rare import SCHEMAS

    rare = [
        f"_operators.rare\t{schema.partition('(')[0].partition('.')[0]}\tp\t{schema}" for schema in SCHEMAS.splitlines()
    ]
    table = {}
    # Python's functions elu and elu_ take fewer arguments than the operators do.
    for line in [*(each for each in TEXT.splitlines() if "\telu\t" not in each and "\telu_\t" not in each), *rare]:
        space, target, way, schema = line.split("\t")
        table.setdefault(schema.partition("(")[0].partition(".")[0], []).append((space, target, way, schema))
    return table


def function_of(space, name):
    """The function that a line of the table names."""
    if not space:  # names that begin with an underscore belong to the engine
        return getattr(mica._C, name, None) or getattr(mica, name)
    owner = mica
    for part in space.split("."):
        owner = getattr(owner, part)
    return getattr(owner, name)


# torch's numbers of dtypes. A schema takes them where it says ScalarType.
_DTYPES = (
    "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex32", "complex64", "complex128",
    "bool", "qint8", "quint8", "qint32", "bfloat16",
)  # fmt: skip


def with_dtypes(kwargs):
    """Arguments with a dtype and a layout where numbers stand for them, as torch's own graphs write them."""
    dtype, layout = kwargs.get("dtype"), kwargs.get("layout")
    if type(dtype) is int:
        if not 0 <= dtype < len(_DTYPES):
            raise RuntimeError(f"{dtype} is the number of no dtype")
        kwargs = kwargs | {"dtype": getattr(mica, _DTYPES[dtype])}
    return kwargs | {"layout": mica.strided} if type(layout) is int and layout == 0 else kwargs


# Operators that change sizes, strides or the memory of a tensor, and not its elements.
_INPLACE_VIEWS = frozenset([
    "as_strided_", "detach_", "resize_", "resize_as_", "set_", "squeeze_", "swapaxes_", "swapdims_", "t_", "transpose_",
    "unsqueeze_",
])  # fmt: skip


def tags_of(name):
    """What is known of every overload of an operator."""
    return (mica.Tag.inplace_view,) if name in _INPLACE_VIEWS else ()


class AtenKernel:
    """Calls the function of the table with the arguments of a schema."""

    def __init__(self, space, target, way, schema):
        self.schema = parse_schema(f"aten::{schema}")
        self.function = function_of(space, target)
        self._by_name = way == "k"
        self._is_method = space == "Tensor"
        self._outs = [a.name for a in self.schema.arguments if a.is_out]
        self._positional = [a.name for a in self.schema.arguments if not a.kwarg_only]
        # Functions take a reduction by name, or have another default than the operator.
        self._reduction = [
            (a.name, a.default_value) for a in self.schema.arguments if way == "k" and a.name == "reduction"
        ]

    def __call__(self, /, *args, **kwargs):
        if not kwargs and not self._by_name and len(args) <= len(self._positional):
            return self.function(*args)
        if len(args) > len(self._positional):
            raise TypeError(
                f"{self.schema.name}() expected at most {len(self._positional)} argument(s) but received {len(args)}. Declaration: {self.schema}"
            )
        given = dict(self._reduction) | dict(zip(self._positional, args, strict=False)) | with_dtypes(kwargs)
        if self._outs:
            outs = [given.pop(name) for name in self._outs if name in given]
            if outs:
                given["out"] = outs[0] if len(outs) == 1 else tuple(outs)
        if self._by_name and self._is_method:
            return self.function(given.pop("self"), **given)
        if self._by_name:
            return self.function(**{"input" if name == "self" else name: value for name, value in given.items()})
        leading = []
        for name in self._positional:
            if name not in given:
                break
            leading.append(given.pop(name))
        return self.function(*leading, **{"input" if name == "self" else name: value for name, value in given.items()})
