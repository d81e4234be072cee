"""Traces of operators with their operands, as tools of Chakra and PARAM read them."""

import gzip
import json
import os
import time

import mica
from mica.utils._python_dispatch import TorchDispatchMode

__all__ = ["ExecutionTraceObserver"]

_SCHEMA = "1.1.1-chakra.0.0.4"
_PROCESS, _THREAD = 1, 2  # numbers of the first two nodes
_OPERATOR, _USER = 0, 7  # scopes


class ExecutionTraceObserver:
    """Writes the operators that run between start() and stop() into a file, with shapes, dtypes and who made what.

    Operators are those that a TorchDispatchMode sees on the thread that called start(), each below the thread's
    node. What torch's operators call, and nodes of the backward pass, are left out.
    """

    def __init__(self):
        self._file = None
        self._mode = None
        self._nodes = []

    def __del__(self):
        self.unregister_callback()

    def register_callback(self, output_file_path):
        """Write to this file when the observer is unregistered; with the ending .gz it is compressed."""
        if self._file is None:
            self._file = os.fspath(output_file_path)
            self._numbers = {}  # of tensors and storages
            self._next = _THREAD + 1
            self._started = time.time()
            self._nodes = [_node(_THREAD, "[pytorch|profiler|execution_trace|thread]", _PROCESS, scope=_USER)]
        return self

    @property
    def is_registered(self):
        """Whether there is a file to write to."""
        return self._file is not None

    def is_running(self):
        """Whether operators are recorded."""
        return self._mode is not None

    def get_output_file_path(self):
        """The file that is written, or None."""
        return self._file

    def start(self):
        """Record operators from here on."""
        if self._file is not None and self._mode is None:
            self._mode = _Recorder(self)
            self._mode.__enter__()

    def stop(self):
        """Record no more."""
        mode, self._mode = self._mode, None
        if mode is not None:
            mode.__exit__(None, None, None)

    def unregister_callback(self):
        """Stop, and write the file."""
        self.stop()
        path, self._file = self._file, None
        if path is None:
            return
        self._nodes.append(
            _node(_PROCESS, "[pytorch|profiler|execution_trace|process]", _PROCESS, scope=_USER, thread=0)
        )
        trace = {
            "schema": _SCHEMA,
            "pid": os.getpid(),
            "time": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self._started)),
            "start_ts": int(self._started * 1e6),
            "nodes": self._nodes,
            "finish_ts": int(time.time() * 1e6),
        }
        opened = gzip.open(path, "wt", encoding="utf-8") if path.endswith(".gz") else open(path, "w", encoding="utf-8")  # noqa: SIM115
        with opened as file:
            json.dump(trace, file)
        self._nodes = []

    def cleanup(self):
        """Ends the recording, as unregister_callback does."""
        self.unregister_callback()

    # ---- what is recorded
    def _number(self):
        self._next += 1
        return self._next - 1

    def _named(self, key):
        if key not in self._numbers:
            self._numbers[key] = self._number()
        return self._numbers[key]

    def _value(self, x):
        """(value, shape, type, strides) as the format has them."""
        if isinstance(x, mica.Tensor):
            kind = f"Tensor({_type_name(x.dtype)})"
            if x.layout != mica.strided:
                return [self._named(id(x)), 0, 0, x.numel(), x.itemsize, str(x.device)], list(x.shape), kind, []
            storage = self._named(("storage", x.untyped_storage()._cdata))
            value = [self._named(id(x)), storage, x.storage_offset(), x.numel(), x.itemsize, str(x.device)]
            return value, list(x.shape), kind, list(x.stride())
        if isinstance(x, (list, tuple)):
            parts = [self._value(each) for each in x]
            values, shapes, kinds, strides = ([part[i] for part in parts] for i in range(4))
            return values, shapes, f"GenericList[{','.join(kinds)}]", strides
        if x is None:
            return "<None>", [], "None", []
        if isinstance(x, (bool, int, float)):
            return x, [], type(x).__name__.replace("float", "double").capitalize(), []
        return str(x), [], {"str": "String"}.get(type(x).__name__, type(x).__name__.capitalize()), []

    def _record(self, func, args, kwargs, out):
        number = self._number()
        given = [
            args[i] if i < len(args) else kwargs.get(argument.name, argument.default_value)
            for i, argument in enumerate(func._schema.arguments)
        ]
        inputs = _columns([self._value(each) for each in given])
        outputs = _columns([self._value(each) for each in (out if isinstance(out, tuple) else (out,))])
        name = func._schema.name
        self._nodes.append(_node(number, name, _THREAD, inputs, outputs, schema=str(func._schema)))


class _Recorder(TorchDispatchMode):
    def __init__(self, observer):
        super().__init__()
        self._observer = observer

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self._observer._record(func, args, kwargs or {}, out)
        return out


def _type_name(dtype):
    """As C++ calls it in torch's traces."""
    short = str(dtype).removeprefix("torch.")
    names = {
        "float32": "float", "float64": "double", "int64": "long int", "int32": "int", "int16": "short int",
        "int8": "signed char", "uint8": "unsigned char", "float16": "c10::Half", "bfloat16": "c10::BFloat16",
        "complex64": "c10::complex<float>", "complex128": "c10::complex<double>",
    }  # fmt: skip
    return names.get(short, short)


def _columns(rows):
    names = ("values", "shapes", "types", "strides")
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}


def _node(number, name, parent, inputs=None, outputs=None, schema="", scope=_OPERATOR, thread=1):
    attributes = (
        ("rf_id", "uint64", number), ("fw_parent", "uint64", 0), ("seq_id", "int64", -1), ("scope", "uint64", scope),
        ("tid", "uint64", thread), ("fw_tid", "uint64", 0), ("op_schema", "string", schema),
        ("kernel_backend", "string", ""), ("kernel_file", "string", ""), ("tensor_range", "string", ""),
    )  # fmt: skip
    return {
        "id": number,
        "name": name,
        "ctrl_deps": parent,
        "inputs": inputs or _columns([]),
        "outputs": outputs or _columns([]),
        "attrs": [{"name": n, "type": kind, "value": value} for n, kind, value in attributes],
    }
