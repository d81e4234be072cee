"""The graph of an ONNX file as it grows."""

import mica
from mica.onnx._state import OnnxExporterError


def _onnx():
    try:
        import onnx
    except ImportError as error:
        raise ImportError("torch.onnx.export needs the package onnx: pip install onnx") from error
    return onnx


def data_type(dtype):
    """ONNX's number of a dtype."""
    proto = _onnx().TensorProto
    table = {
        mica.float32: proto.FLOAT, mica.float64: proto.DOUBLE, mica.float16: proto.FLOAT16, mica.bfloat16: proto.BFLOAT16,
        mica.int64: proto.INT64, mica.int32: proto.INT32, mica.int16: proto.INT16, mica.int8: proto.INT8,
        mica.uint8: proto.UINT8, mica.bool: proto.BOOL,
    }  # fmt: skip
    if dtype not in table:
        raise OnnxExporterError(f"{dtype} has no counterpart in ONNX here")
    return table[dtype]


class Writer:
    """The graph as it grows: nodes, weights, and which name stands for which tensor."""

    def __init__(self, names, opset):
        self.opset = opset
        self.nodes, self.initializers = [], {}
        self._names, self._kept = {}, []  # tensors are kept, so that no other gets their identity
        self._stale = set()  # tensors that hold something else than their names stand for
        self._count = 0
        self._parameters = {id(tensor): name for name, tensor in names.items()}
        self._given = names
        self.versions = {}  # of domains, as symbolic operators ask for them
        self.dynamic = {}  # size -> (input's name, axis): what multiples of a size stand for

    def weights(self):
        return self._given.values()

    def fresh(self, hint="v"):
        self._count += 1
        return f"{hint}_{self._count}"

    def name_tensor(self, tensor, name):
        self._names[id(tensor)] = name
        self._stale.discard(id(tensor))
        self._kept.append(tensor)

    def known(self, tensor):
        return id(tensor) in self._names

    def is_parameter(self, tensor):
        return id(tensor) in self._parameters

    def forget_sharers(self, changed):
        """A tensor was changed in place. What others in its memory hold is not known by a name any more."""
        place = changed.untyped_storage().data_ptr()
        for tensor in self._kept:
            if tensor is not changed and tensor.untyped_storage().data_ptr() == place:
                self._stale.add(id(tensor))

    def constant(self, array, hint="constant"):
        """The name of a constant."""
        name = self.fresh(hint)
        self.initializers[name] = array
        return name

    def ints(self, values):
        import numpy

        return self.constant(numpy.asarray(values, dtype=numpy.int64))

    def value(self, x, like=None):
        """The name of a value: a tensor that was computed, a weight, or a number as a constant of a tensor's dtype."""
        import numpy

        if isinstance(x, mica.Tensor):
            if not self.known(x):
                name = self._parameters.get(id(x)) or self.fresh("constant")
                self.initializers[name] = x.detach().cpu().resolve_conj().contiguous().numpy()
                self.name_tensor(x, name)
            if id(x) in self._stale:
                raise OnnxExporterError(
                    "a tensor is read whose memory was changed in place through another one, which is not written: "
                    "use the result of the change, or change a copy"
                )
            return self._names[id(x)]
        dtype = like.dtype if like is not None else mica.tensor(x).dtype
        if (size := self.size(x, dtype)) is not None:
            return size
        if isinstance(x, float) and not dtype.is_floating_point:
            dtype = mica.float32
        return self.constant(mica.tensor(x, dtype=dtype).numpy() if dtype != mica.bfloat16 else numpy.float32(x))

    def add(self, op, inputs, outputs=1, **attributes):
        """Add a node; returns the name of its output, or the names of all outputs."""
        names = [self.fresh(op.lower()) for _ in range(outputs)]
        self.add_named(op, inputs, names, **attributes)
        return names[0] if outputs == 1 else names

    def add_named(self, op, inputs, outputs, **attributes):
        attributes = {key: value for key, value in attributes.items() if value is not None}
        self.nodes.append(_onnx().helper.make_node(op, list(inputs), list(outputs), **attributes))

    def _own(self):
        """The constants that are no weights."""
        weights = set(self._parameters.values())
        return {name: array for name, array in self.initializers.items() if name not in weights}

    def is_like(self, other):
        """Whether another writer has written the same nodes, with the same numbers."""
        return self.difference_from(other) is None

    def difference_from(self, other):
        """What differs from the graph of another writer, in words; None if nothing does."""
        import numpy

        for mine, theirs in zip(self.nodes, other.nodes, strict=False):
            if mine.SerializeToString(deterministic=True) != theirs.SerializeToString(deterministic=True):
                return f"an operation is written as {theirs.op_type} or {mine.op_type}"
        if len(self.nodes) != len(other.nodes):
            return f"{len(other.nodes)} or {len(self.nodes)} operations are written"
        mine, theirs = self._own(), other._own()
        for name, array in mine.items():
            if name not in theirs or not numpy.array_equal(array, theirs[name], equal_nan=array.dtype.kind == "f"):
                used = next((node.op_type for node in self.nodes if name in node.input), "the results")
                return f"a constant of {used} of shape {numpy.shape(theirs.get(name))} or {numpy.shape(array)}"
        return None

    def bind(self, tensor, name):
        """Let a name of the graph stand for a tensor."""
        self.name_tensor(tensor, name)

    def size(self, x, dtype):
        """The name of a number that is a multiple of a dynamic size; None of another one."""
        if type(x) is not int or x <= 0 or not any(x % unit == 0 for unit in self.dynamic):
            return None
        return self.add("Cast", [self.add("Reshape", [self.shape([x]), self.number()])], to=data_type(dtype))

    def number(self):
        """The shape of a number."""
        import numpy

        return self.constant(numpy.zeros(0, dtype=numpy.int64))

    def place(self, number):
        """The name of a list of one number: a place that is a multiple of a dynamic size stays one."""
        return self.shape([number]) if number > 0 else self.ints([number])

    def shape(self, sizes):
        """The name of a list of sizes, of which those that are declared dynamic are asked of the input."""
        if not any(size and size % unit == 0 for size in sizes for unit in self.dynamic):
            return self.ints(sizes)
        parts = []
        for size in sizes:
            part = None
            for unit, (source, axis) in self.dynamic.items():
                while size and size % unit == 0:
                    asked = self.add("Shape", [source], start=axis, end=axis + 1)
                    part, size = asked if part is None else self.add("Mul", [part, asked]), size // unit
            if part is None:
                part = self.ints([size])
            elif size != 1:
                part = self.add("Mul", [part, self.ints([size])])
            parts.append(part)
        return self.add("Concat", parts, axis=0)
