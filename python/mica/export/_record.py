"""A module is run once on example inputs, and every operation becomes a node of a graph.

Branches and loops of Python are those of the run. A value that a branch asks of a tensor that depends on the inputs is an
error: the graph could not follow it.
"""

import contextlib
import operator

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
    tensors_in,
)
from mica.export._nodes import Parts, Unseen, as_identifier, meta_of, placeholder
from mica.fx.experimental._proxy_arguments import SizeNodes
from mica.fx.graph import Graph
from mica.fx.node import Node
from mica.overrides import TorchFunctionMode
from mica.utils._python_dispatch import _disable_current_modes
from mica.utils._pytree import tree_leaves, tree_map_only

_VALUES = {"item", "tolist", "numpy", "__bool__", "__int__", "__float__", "__index__", "__complex__", "__array__",
           "is_nonzero", "equal", "allclose"}  # fmt: skip
_OPEN = (mica.SymInt, mica.SymFloat, mica.SymBool)
_ITEMS = {"item", "tolist"}
_CONSTANTS = {"new_tensor", "tensor", "as_tensor", "from_numpy", "asarray"}


# They are one thing, whatever they are made of.
_WHOLE_CALLS = frozenset(["new_tensor", "lstm", "gru", "rnn_tanh", "rnn_relu"])


class Recorder(TorchFunctionMode):
    """Makes the graph."""

    def __init__(self, env=None):
        super().__init__()
        self.graph = Graph()
        self.sizes = SizeNodes(self.graph, env)  # of open sizes
        self._nodes, self._kept = {}, []  # tensors are kept, so that no other gets their identity
        self._fresh, self.is_aside, self.sees_all = set(), False, False
        self.constants, self.originals = {}, {}  # placeholder's name -> copy of the tensor, and the tensor itself
        self.attributes, self.targets = {}, {}  # id of a tensor -> its path in the module; placeholder's name -> path
        self.modules = {}  # graphs of branches and loops, by name
        self._sources = {}  # function -> how often it was called
        self.of_inputs = set()  # nodes that depend on the inputs
        self.first_input, self.is_inner = None, False
        self.fakes = None  # the mode of a run on fake tensors
        self.runs_again = False  # whether NeedsData is answered by a run on fake tensors
        self.watches_sizes, self._of_data = False, set()  # nodes whose sizes follow from data, in a run on the example
        self._grad = mica.is_grad_enabled()

    @contextlib.contextmanager
    def modules_of(self, module):
        """While the module runs, nodes know the calls of modules that they are made in."""
        names, counts, stack = {id(each): name for name, each in module.named_modules()}, {}, {}
        create = self.graph.create_node

        def create_node(*args, **kwargs):
            node = create(*args, **kwargs)
            node.meta.setdefault("nn_module_stack", dict(stack))
            return node

        def enter(each, args):
            if (name := names.get(id(each))) is not None:
                number = counts[name] = counts.get(name, -1) + 1
                called = f"{name}@{number}" if number else name
                key = f"L__self__{called}"
                stack[key] = (
                    name,
                    f"{type(each).__module__}.{type(each).__qualname__}".replace("mica.", "torch.", 1),
                )

        def leave(each, args, result):
            if id(each) in names and stack:
                stack.popitem()

        hooks = (
            mica.nn.modules.module.register_module_forward_pre_hook(enter),
            mica.nn.modules.module.register_module_forward_hook(leave, always_call=True),
        )
        self.graph.create_node = create_node
        try:
            yield
        finally:
            del self.graph.create_node
            for hook in hooks:
                hook.remove()

    # ---- nodes of tensors

    def placeholder(self, name, value, is_input=False):
        node = placeholder(self.graph, name)
        node.meta["val"] = meta_of(value)
        if is_input:
            self.sizes.add_input(node, value)
            self.of_inputs.add(node)
            self.first_input = self.first_input or node
        if isinstance(value, _C.TensorBase) and id(value) not in self._nodes:  # of a tied parameter, the first name
            self._bind(value, node)
        return node

    def _bind(self, tensor, node):
        self._nodes[id(tensor)] = node
        self._kept.append(tensor)

    def node_of(self, tensor):
        """The node of a tensor; one that is not known is a constant of the program."""
        node = self._nodes.get(id(tensor))
        if node is not None:
            return node
        if self.sees_all:
            raise Unseen
        target = self.attributes.get(id(tensor))
        number = len(self.originals) - len(self.targets)
        name = f"c_lifted_tensor_{number}" if target is None else f"c_{as_identifier(target)}"
        if self.first_input is None:
            node = self.graph.create_node("placeholder", name, (), {}, name)
        else:
            with self.graph.inserting_before(self.first_input):
                node = self.graph.create_node("placeholder", name, (), {}, name)
        node.meta["val"] = meta_of(tensor)
        self.originals[node.name] = tensor
        if target is not None:
            self.targets[node.name] = target
        if isinstance(tensor, FakeTensor):
            if not self.is_inner:
                raise RuntimeError(
                    "torch.export: the program uses a tensor that was made by a call which Mica does not see"
                )
            self._bind(tensor, node)  # of the graph around
            return node
        with _C.DisableTorchFunction(), _disable_current_modes():
            self.constants[node.name] = tensor.detach().clone()
        if id(tensor) in self._fresh:  # made anew by every call: changes in place do not add up
            node = self.graph.create_node(
                "call_function", mica.ops.aten.lift_fresh_copy.default, (node,), {}, "lift_fresh_copy"
            )
            node.meta["val"] = meta_of(tensor)
        self._bind(tensor, node)
        return node

    def argument(self, value):
        """A value as an argument of a node."""
        if isinstance(value, _C.TensorBase):
            return self.node_of(value)
        if isinstance(value, (list, tuple)):
            items = [self.argument(each) for each in value]
            return items if isinstance(value, list) or not hasattr(value, "_fields") else type(value)(*items)
        if isinstance(value, Node):
            return value
        if isinstance(value, dict):
            return {key: self.argument(each) for key, each in value.items()}
        if isinstance(value, slice):
            return slice(*(self.argument(each) for each in (value.start, value.stop, value.step)))
        return self.sizes.argument(value) if isinstance(value, _OPEN) else value

    # ---- calls

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if self.is_aside:
            return func(*args, **(kwargs or {}))
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

    def _faked(self, tensor):
        """The fake counterpart of a parameter, a buffer or a constant, where the run is on fake tensors."""
        is_real = not isinstance(tensor, FakeTensor) and tensor.layout is mica.strided and tensor.device.type != "meta"
        if not is_real or type(tensor) not in (_C.Tensor, mica.nn.Parameter, mica.nn.Buffer):
            return tensor
        with self.fakes:
            fake = self.fakes.from_tensor(tensor, static_shapes=True)
        if id(fake) not in self._nodes:
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
        depends = any(self._nodes.get(id(t)) in self.of_inputs for t in tensors_in((args, kwargs)))
        if depends and self.runs_again and (name in _ITEMS or has_sizes_of_data(name, args)):
            raise NeedsData
        if depends and name in open_sizes.NEEDS_NUMBERS and has_open_float((args, kwargs)):
            raise DataDependentError(f"the size of what {name}() makes follows from a number that only data decide")
        if name in _VALUES and depends:
            raise DataDependentError(
                f"Could not guard on data-dependent expression: the program calls {name}() on a tensor that depends on "
                "its inputs, and an exported graph cannot follow the value. torch.where or torch.cond says it within "
                "the graph"
            )
        if name == "multi_head_attention_forward":
            from mica.onnx.decompositions import multi_head_attention_forward

            with self:
                return multi_head_attention_forward(*args, **kwargs)
        if name.endswith("_") and name != "__get__":  # what a constant was before it is changed
            self.argument((args, kwargs))
        if name in ("__getitem__", "__setitem__"):
            return self._subscript(name, func, args)
        found = None
        if name not in _CONSTANTS:
            found = _targets.find(func, args, kwargs) or _more_targets(func, args, kwargs)
        if found is not None and _is_autocast():  # a graph runs without: its casts are recorded with the call
            return self._with_casts(name, func, args, kwargs)
        if found is None:
            if name in _CONSTANTS:  # real ones: their values are the program's
                with _disable_current_modes():
                    out = func(*args, **kwargs)
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
        out = target(*args, **kwargs)
        if tensors_in((out,)) or _has_effect(target):
            base = getattr(target, "_overloadpacket", target).__name__
            self._record("call_function", target, args, kwargs, out, base)
        return out

    def note_number(self, tensor, number):
        """The program has asked for a number that only data decide."""
        if not self.is_aside:
            node = self.graph.create_node(
                "call_function", mica.ops.aten.item.default, (self.node_of(tensor),), {}, "item"
            )
            self.of_inputs.add(node)
            self.sizes.add_number(node, number)

    def note_statement(self, relation):
        """The program has stated something of such numbers."""
        self.sizes.assertion(relation)

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
        versions = [tensor._version for tensor in tensors]
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
        if versions != [tensor._version for tensor in tensors]:
            raise RuntimeError(
                f"torch.export: {getattr(func, '__name__', func)} changes tensors in a way that Mica does not see"
            )
        for node in reversed(self.graph.nodes):
            if node is last:
                break
            self.graph.erase_node(node)
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

    def _record(self, op, target, args, kwargs, out, name):
        # Parts of a call are seen below autograd; the graph has its gradients by them.
        if not self.sees_all and mica.is_grad_enabled() != self._grad:
            self._grad = mica.is_grad_enabled()
            self.graph.create_node("call_function", mica._C._set_grad_enabled, (self._grad,), {}, "_set_grad_enabled")
        args, kwargs = self.argument(tuple(args)), self.argument(dict(kwargs))
        node = self.graph.create_node(op, target, tuple(args), kwargs, name.rstrip("_") or name)
        depends = any(each in self.of_inputs for each in node.all_input_nodes)
        self._name_result(out, node, depends)

    def _name_result(self, out, node, depends):
        if depends:
            self.of_inputs.add(node)
        if any(each in self._of_data for each in node.all_input_nodes):
            self._of_data.add(node)
        if isinstance(out, _C.TensorBase):
            node.meta["val"] = meta_of(out)
            self._bind(out, node)
            if self.sizes._env is not None and self.sizes._env.has_data():
                self.sizes.add_input(node, out)
        elif isinstance(out, (tuple, list)):
            node.meta["val"] = type(out)(map(meta_of, out)) if type(out) in (tuple, list) else tuple(map(meta_of, out))
            for i, each in enumerate(out):
                if tensors_in((each,)):
                    part = self.graph.create_node("call_function", operator.getitem, (node, i), {}, "getitem")
                    self._name_result(each, part, depends)

    def _subscript(self, name, func, args):
        """x[...] and x[...] = y, as the operators that they are made of."""
        x, index = args[0], args[1]
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
            with _disable_current_modes():
                value = mica.tensor(value, dtype=x.dtype, device=x.device)
            self._fresh.add(id(value))
            self._kept.append(value)
        self._call("copy_" if last is None else "index_put_", (x, value) if last is None else (x, *last[1], value))
        return None

    def _call(self, name, args):
        target, args, kwargs = _targets.overload(name, args, {})
        out = target(*args, **kwargs)
        self._record("call_function", target, args, kwargs, out, name)
        return out

    # ---- graphs within the graph (torch.cond, torch.while_loop)

    def __enter__(self):
        _active.append(self)
        if self.sizes._env is not None:
            self.sizes._env.recorders.append(self)
        return super().__enter__()

    def __exit__(self, *exception):
        _active.remove(self)
        if self.sizes._env is not None:
            self.sizes._env.recorders.remove(self)
        return super().__exit__(*exception)

    @staticmethod
    def likeness(tensor):
        return meta_of(tensor)

    def subgraph(self, function, leaves):
        """(graph, result, [(tensor, placeholder)]) of a function of tensors: those that it reads besides are placeholders."""
        inner = Recorder(self.sizes._env)
        inner.is_inner, inner.runs_again, inner.fakes = True, self.runs_again, self.fakes
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
        return inner.graph, result, lifted

    def attach(self, name, module):
        """A node that stands for a graph."""
        number = sum(key.startswith(f"{name}_") for key in self.modules)
        self.modules[f"{name}_{number}"] = module
        return self.graph.create_node("get_attr", f"{name}_{number}")

    def unseen(self):
        """A block in which nothing is recorded."""
        return _aside(self)

    def record_call(self, target, args, out, name, kwargs=None):
        args = tuple(self.sizes.truth(each) if isinstance(each, mica.SymBool) else each for each in args)
        args = tuple(tuple(each) if isinstance(each, list) else each for each in self.argument(args))
        node = self.graph.create_node("call_function", target, args, self.argument(kwargs or {}), name)
        self._name_result(out, node, any(each in self.of_inputs for each in node.all_input_nodes))

    def assign(self, pairs, leaves):
        """Write what was assigned to buffers into them, behind all that reads them. The leaves of the result."""
        olds = [old for old, _ in pairs]
        leaves = [leaf.clone() if any(leaf is old for old in olds) else leaf for leaf in leaves]
        for old, new in pairs:
            nodes = (self.node_of(old), self.node_of(new))
            self.graph.create_node("call_function", mica.ops.aten.copy_.default, nodes, {}, "copy__default")
        return leaves

    def finish(self, leaves):
        """The output node: tensors by their nodes, other values as they are."""
        if self._grad != mica.is_grad_enabled():
            self.graph.create_node(
                "call_function", mica._C._set_grad_enabled, (mica.is_grad_enabled(),), {}, "_set_grad_enabled"
            )
        made = tuple(self.argument(each) for each in leaves)
        self.graph.create_node("output", "output", (made,), {}, "output")
        return made


_active = []


def _has_effect(target):
    """Whether an operator is called for what it does: it returns nothing, or changes an argument."""
    schema = getattr(target, "_schema", None)
    return schema is not None and (schema.is_mutable or not schema.returns)


def _may_ask_data(target):
    """Whether an operator of the program's own says what it makes, which may be of sizes that only data decide."""
    return getattr(getattr(target, "_op", None), "fake", None) is not None


def _is_autocast():
    return mica.is_autocast_enabled("cpu") or mica.is_autocast_enabled("cuda")


def current():
    """The recorder that is at work, or None."""
    return _active[-1] if _active else None


@contextlib.contextmanager
def _aside(recorder):
    """In this block a recorder sees nothing: it stays on the stack of modes, and passes calls on."""
    recorder.is_aside = True
    try:
        yield
    finally:
        recorder.is_aside = False
