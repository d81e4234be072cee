"""A module is run once on example inputs, and every operation becomes a node of a graph.

Branches and loops of Python are those of the run. A value that a branch asks of a tensor that depends on the inputs is an
error: the graph could not follow it.
"""

import contextlib
import enum
import operator
import sys

import mica
from mica import _C
from mica._functions.families import own_name
from mica._subclasses import open_sizes
from mica._subclasses.dispatching import _more_targets
from mica._subclasses.fake_tensor import FakeTensor
from mica.export import _targets
from mica.export._data import (
    SIZES,
    DataDependentError,
    NeedsData,
    SizeOfData,
    has_open_float,
    has_sizes_of_data,
    refused_value,
    tensors_in,
    with_numbers,
)
from mica.export._graph import ProgramGraph, casts_now
from mica.export._made_tensors import results_that_are_wanted, tensor_of_sizes, tensor_of_tensor
from mica.export._nodes import Parts, Unseen
from mica.export._state import version_of
from mica.func import _batched
from mica.fx.experimental._parts_of_layers import PARTS
from mica.overrides import TorchFunctionMode
from mica.utils._python_dispatch import _disable_current_modes
from mica.utils._pytree import tree_leaves, tree_map_only

_VALUES = {"item", "tolist", "numpy", "__bool__", "__int__", "__float__", "__index__", "__complex__", "__array__",
           "is_nonzero", "equal", "allclose"}  # fmt: skip
_ITEMS = {"item", "tolist"}
_CONSTANTS = {"new_tensor", "tensor", "as_tensor", "from_numpy", "asarray"}

_SIZES = (mica.SymInt, mica.SymFloat, mica.SymBool)

# No operators, and made of calls that a dispatch mode does not all see.
_IN_PYTHON = frozenset(["gumbel_softmax"])

# They are one thing, whatever they are made of.
_WHOLE_CALLS = frozenset(["new_tensor", "lstm", "gru", "rnn_tanh", "rnn_relu"])


class Recorder(ProgramGraph, TorchFunctionMode):
    """Sees the calls of a program, and says which node each becomes."""

    _sees_operators = False

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if self.is_aside:
            return func(*args, **(kwargs or {}))
        if _batched.active_levels() and _batched.levels_in((args, tuple((kwargs or {}).values())), None) is not None:
            if args and isinstance(args[0], _batched.BatchedTensor):
                with _batched.rules_within(self):  # what they call is recorded
                    return func(*args, **(kwargs or {}))
            with self:  # of a fake tensor and an example, the first would be asked
                return _batched.dispatch(func, args, kwargs or {})
        if self._of_data and self._asks_sizes(func, args):
            raise SizeOfData
        if self.fakes is not None and own_name(func) not in (*_VALUES, *_CONSTANTS):
            args, kwargs = tree_map_only(_C.TensorBase, self._faked, (tuple(args), dict(kwargs or {})))
        last = next(reversed(self.graph.nodes), None)
        out = self._recorded(func, args, kwargs or {})
        self._note_source(func, last)
        if self.watches_sizes and has_sizes_of_data(own_name(func), args):
            self._of_data |= {self._nodes[id(tensor)] for tensor in tensors_in((out,)) if id(tensor) in self._nodes}
        return out

    def _as_fake(self, tensor):
        """The fake counterpart of a real tensor, where the run is on fake tensors."""
        is_real = not isinstance(tensor, FakeTensor) and tensor.layout is mica.strided and tensor.device.type != "meta"
        if self.fakes is None or not is_real or type(tensor) not in (_C.Tensor, mica.nn.Parameter, mica.nn.Buffer):
            return tensor
        with self.fakes:
            return self.fakes.from_tensor(tensor, static_shapes=True)

    def _faked(self, tensor):
        """The same of a parameter, a buffer or a constant, which the fake one is in the graph."""
        fake = self._as_fake(tensor)
        if fake is not tensor and id(fake) not in self._nodes:
            self._bind(fake, self.node_of(tensor))
        return fake

    def _asks_sizes(self, func, args):
        name = func.__self__.__name__ if func.__name__ == "__get__" else func.__name__
        return name in SIZES and self._nodes.get(id(args[0])) in self._of_data

    def _note_source(self, func, last):
        """Let the nodes behind `last` know the function that was called, by its name and a number."""
        name = getattr(func, "__name__", "")
        kind = "function" if isinstance(func, _C._Function) else type(func).__name__
        count = None
        for node in reversed(self.graph.nodes):
            if node is last:
                break
            if node.op == "call_function":
                if count is None:
                    count = self._sources[func] = self._sources.get(func, 0) + 1
                node.meta["torch_fn"] = (f"{name}_{count}", f"{kind}.{name}")

    def _recorded(self, func, args, kwargs):
        name = own_name(func)
        if name not in ("_assert_scalar", "tensor"):
            args, kwargs = tree_map_only((mica.SymBool, enum.IntEnum), _number, (tuple(args), dict(kwargs)))
        depends = any(map(self.depends, tensors_in((args, kwargs))))
        if depends:
            with self:
                changed = with_numbers(name, args, kwargs, self.depends)
                if changed is not None:
                    return func(*changed[0], **changed[1])
        if depends and self.runs_again and (name in _ITEMS or has_sizes_of_data(name, args)):
            raise NeedsData
        if depends and name in open_sizes.NEEDS_NUMBERS and has_open_float((args, kwargs)):
            raise DataDependentError(f"the size of what {name}() makes follows from a number that only data decide")
        if name in _VALUES and depends:
            raise refused_value(name)
        if name == "multi_head_attention_forward":
            from mica.onnx.decompositions import multi_head_attention_forward

            with self:
                return multi_head_attention_forward(*args, **kwargs)
        if name.endswith("_") and name != "__get__":  # what a constant was before it is changed
            self.argument((args, kwargs))
        if name in ("__getitem__", "__setitem__"):
            return self._subscript(name, func, args)
        if name in ("tensor", "as_tensor") and args and any(isinstance(leaf, _SIZES) for leaf in tree_leaves(args[0])):
            with self:
                return tensor_of_sizes(*args, **kwargs)
        if name in _CONSTANTS and (made := tensor_of_tensor(name, args, kwargs)) is not None:
            with self:
                return made()
        found = None
        if name not in _CONSTANTS:
            found = _targets.find(func, args, kwargs) or _more_targets(func, args, kwargs)
        if (
            found is not None and self._is_cast()
        ):  # a graph runs as its caller does: its own casts are recorded with the call
            return self._with_casts(name, func, args, kwargs)
        if found is None:
            if name in _CONSTANTS:  # real ones: their values are the program's
                with _disable_current_modes():
                    out = func(*args, **kwargs)
            elif name in _IN_PYTHON and (made := PARTS[name](name, *args, **kwargs)) is not None:
                with self:
                    return made()
            else:
                parts = self._in_parts(func, args, kwargs) if name != "__get__" else None
                if parts is not None:
                    return parts[0]
                out = func(*args, **kwargs)
            if name in _CONSTANTS:
                self._fresh.add(id(out))
                self._kept.append(out)
            elif tensors_in((out,)) and not (name == "__get__" and id(out) in self._nodes):
                self._record_function(func, args, kwargs, out)
            return out
        target, args, kwargs = found
        if depends and self.runs_again and _may_ask_data(target):
            raise NeedsData
        if getattr(target, "_overloadpacket", None) is mica.ops.aten.to and isinstance(args[0], _C.TensorBase):
            self._note_metadata(args[0])
        out = target(*args, **kwargs)
        if tensors_in((out,)) or _has_effect(target):
            base = getattr(target, "_overloadpacket", target).__name__
            self._record("call_function", target, args, kwargs, out, base)
        return out if name != "unique_consecutive" else results_that_are_wanted(*out, *args[1:], **kwargs)

    def _is_cast(self):
        """Whether the program itself has entered autocast."""
        root = self
        while root.outer is not None:
            root = root.outer
        return (now := casts_now()) != root.casts and bool(now)

    def _note_metadata(self, tensor):
        """Let the program assert of what is converted that it is as in the example: the graph's conversion was chosen by it."""
        known = {"dtype": tensor.dtype, "device": tensor.device, "layout": tensor.layout}
        target = mica.ops.aten._assert_tensor_metadata.default
        self._record("call_function", target, (tensor,), known, None, "_assert_tensor_metadata_default")

    def _with_casts(self, name, func, args, kwargs):
        before = mica.is_autocast_cache_enabled()
        mica.set_autocast_cache_enabled(False)  # a cast that was kept would not be seen
        try:
            parts = self._in_parts(func, args, kwargs) if tensors_in((args, kwargs)) else (func(*args, **kwargs),)
        finally:
            mica.set_autocast_cache_enabled(before)
        if parts is not None:
            return parts[0]
        out = func(*args, **kwargs)
        if tensors_in((out,)):
            raise NotImplementedError(f"torch.export: {name} under autocast; export what is cast by hand instead")
        return out

    def _in_parts(self, func, args, kwargs):
        """(the result of a call,) recorded as the operators that the call is made of; None if not all of them are seen."""
        tensors = tensors_in((args, kwargs))
        if not tensors or _WHOLE_CALLS & {own_name(func)}:
            return None
        self.argument((args, kwargs))
        last, state = next(reversed(self.graph.nodes)), mica.get_rng_state()
        versions = [version_of(tensor) for tensor in tensors]
        self.sees_all = True
        try:
            with Parts(self):
                out = func(*args, **kwargs)
            if all(id(tensor) in self._nodes for tensor in tensors_in((out,))) and tensors_in((out,)):
                return (out,)
        except Unseen:
            pass
        finally:
            self.sees_all = False
        if versions != [version_of(tensor) for tensor in tensors]:
            raise RuntimeError(
                f"torch.export: {getattr(func, '__name__', func)} changes tensors in a way that Mica does not see"
            )
        gone = []
        for node in reversed(self.graph.nodes):
            if node is last:
                break
            self.graph.erase_node(node)
            gone.append(node)
        self.sizes.forget(gone)
        mica.set_rng_state(state)
        return None

    def _record_function(self, func, args, kwargs, out):
        name = getattr(func, "__name__", "function")
        if name == "__get__":
            self._record("call_function", getattr, (args[0], func.__self__.__name__), {}, out, "getattr")
        elif type(func).__name__ in ("method_descriptor", "wrapper_descriptor"):
            self._record("call_method", name, args, kwargs, out, name.strip("_"))
        else:
            self._record("call_function", func, args, kwargs, out, name)

    def _subscript(self, name, func, args):
        """x[...] and x[...] = y, as the operators that they are made of."""
        x, index = args[0], self._plain_index(args[1], args[0].device)
        steps = _targets.index_steps(x, index)
        if steps is None or (name == "__setitem__" and any(step == "index" for step, _ in steps[:-1])):
            out = func(*args)
            self._record(
                "call_function",
                operator.getitem if name == "__getitem__" else operator.setitem,
                args, {}, out, name.strip("_"),
            )  # fmt: skip
            return out
        last = steps.pop() if name == "__setitem__" and steps and steps[-1][0] == "index" else None
        for step, rest in steps or [("alias", ())]:
            x = self._call(step, (x, *rest))
        if name == "__getitem__":
            return x
        value = args[2]
        if not isinstance(value, _C.TensorBase):
            if last is None:
                self._call("fill_", (x, value))
                return None
            value = self._constant(value, x.dtype, x.device)
        self._call("copy_" if last is None else "index_put_", (x, value) if last is None else (x, *last[1], value))
        return None

    def _plain_index(self, index, device):
        """An index whose lists of integers are constants of the graph, and whose slices have numbers where their bounds are
        tensors that depend on no input."""
        if isinstance(index, tuple):
            return tuple(self._plain_index(each, device) for each in index)
        if isinstance(index, slice):
            return slice(*map(self._bound, (index.start, index.stop, index.step)))
        is_list = isinstance(index, list) and all(type(leaf) is int for leaf in tree_leaves(index))
        return self._constant(index, mica.int64, device) if is_list else index

    def _bound(self, value):
        if isinstance(value, enum.IntEnum):
            return int(value)
        if isinstance(value, _C.TensorBase) and self.depends(value) and value.numel() == 1:
            with self:
                return value.item()
        is_known = isinstance(value, _C.TensorBase) and not self.depends(value)
        if not is_known or isinstance(value, mica._subclasses.FakeTensor) or value.device.type == "meta":
            return value
        with _disable_current_modes(), _aside(self):
            return value.__index__()

    def _constant(self, value, dtype, device):
        with _disable_current_modes():
            made = mica.tensor(value, dtype=dtype, device=device)
        self._fresh.add(id(made))
        self._kept.append(made)
        return made

    def _call(self, name, args):
        target, args, kwargs = _targets.overload(name, args, {})
        out = target(*args, **kwargs)
        self._record("call_function", target, args, kwargs, out, name)
        return out

    # ---- graphs within the graph (torch.cond, torch.while_loop)

    def __enter__(self):
        _active.append(self)
        _collectives().append(_refuse_collective)
        if self.sizes._env is not None:
            self.sizes._env.recorders.append(self)
        return super().__enter__()

    def __exit__(self, *exception):
        _active.remove(self)
        if _refuse_collective in _collectives():
            _collectives().remove(_refuse_collective)
        if self.sizes._env is not None:
            self.sizes._env.recorders.remove(self)
        return super().__exit__(*exception)

    def subgraph(self, function, leaves):
        """(graph, result, [(value, placeholder)]) of a function of tensors: what it reads besides are placeholders."""
        inner = Recorder(self.sizes._env)
        inner.outer, inner.runs_again, inner.fakes, inner.sizes.lifted = self, self.runs_again, self.fakes, []
        with _C.DisableTorchFunction():
            leaves = [self._as_fake(leaf) if isinstance(leaf, _C.TensorBase) else leaf for leaf in leaves]
        with _aside(self):
            for i, leaf in enumerate(leaves):
                inner.placeholder(f"arg{i}_1", leaf, is_input=True)
        with _aside(self), inner:
            result = function(*leaves)
        lifted, made = [], tuple(inner.argument(each) for each in tree_leaves(result))
        for name in inner.originals:
            node = next(n for n in inner.graph.nodes if n.name == name)
            lifted.append((inner.originals[name], node))
        inner.graph.create_node("output", "output", (made,), {}, "output")
        inner.graph.inner_modules = inner.modules
        return inner.graph, result, [*lifted, *inner.sizes.lifted]

    def unseen(self):
        """A block in which nothing is recorded."""
        return _aside(self)


_active = []


def _number(value):
    """A truth of open sizes, or a member of an IntEnum, as a number."""
    return int(value) if isinstance(value, enum.IntEnum) else open_sizes.number_of_truth(value)


def _collectives():
    """The list of functions that are told of collectives; empty where torch.distributed was not imported."""
    watched = sys.modules.get("mica.distributed._watched")
    return [] if watched is None else watched.watchers


def _refuse_collective(name):
    raise NotImplementedError(
        f"torch.export: the program calls {name}, and Mica records no collectives of torch.distributed"
    )


def _has_effect(target):
    """Whether an operator is called for its effect: it returns nothing, or changes an argument."""
    schema = getattr(target, "_schema", None)
    return schema is not None and (schema.is_mutable or not schema.returns)


def _may_ask_data(target):
    """Whether an operator of the program's own says what it makes, which may be of sizes that only data decide."""
    return getattr(getattr(target, "_op", None), "fake", None) is not None


def current():
    """The recorder that is at work, or None."""
    return _active[-1] if _active else None


@contextlib.contextmanager
def _aside(recorder):
    """A block in which a recorder records nothing. It stays on the stack of modes, and passes calls on."""
    recorder.is_aside = True
    try:
        yield
    finally:
        recorder.is_aside = False
