"""The graph of a program while it is made: the nodes of its tensors, what they are called, and what it returns."""

import operator

import mica
from mica import _C
from mica._ops import OpOverload
from mica._subclasses.fake_tensor import FakeTensor
from mica.export._canonical import canonical
from mica.export._data import UnseenError, tensors_in
from mica.export._nodes import Unseen, as_identifier, meta_of, placeholder
from mica.export._state import copied, version_of
from mica.fx.experimental._expressions import make
from mica.fx.experimental._proxy_arguments import SizeNodes
from mica.fx.experimental._truths import Relation
from mica.fx.graph import Graph
from mica.fx.node import Node
from mica.utils._python_dispatch import _disable_current_modes

__all__ = ["ProgramGraph", "casts_now"]

_ASSERT = mica.ops.aten._assert_tensor_metadata.default  # its arguments have names
_OPEN = (mica.SymInt, mica.SymFloat, mica.SymBool)


def casts_now():
    """Which devices' operations are cast, and to what."""
    return tuple((kind, mica.get_autocast_dtype(kind)) for kind in ("cpu", "cuda") if mica.is_autocast_enabled(kind))


class ProgramGraph:
    """Makes nodes of what a recorder has seen."""

    def __init__(self, env=None):
        super().__init__()  # of the mode that a recorder is
        self.graph = Graph()
        self.sizes = SizeNodes(self.graph, env)  # of open sizes
        self._inner = {}  # id of a tensor within a computed one of a class with parts -> the name of the class
        self._nodes, self._kept = {}, []  # tensors are kept, so that no other gets their identity
        self._fresh, self.is_aside, self.sees_all = set(), False, False
        self.constants, self.originals = {}, {}  # placeholder's name -> copy of the tensor, and the tensor itself
        self._versions = {}  # placeholder's name -> version of that tensor
        self.attributes, self.targets = {}, {}  # id of a tensor -> its path in the module; placeholder's name -> path
        self.modules = {}  # graphs of branches and loops, by name
        self._sources = {}  # function -> how often it was called
        self.of_inputs = set()  # nodes that depend on the inputs
        self.first_input, self.outer = None, None  # the graph around, of a graph of a branch
        self.casts = casts_now()  # those of the caller, which are no part of the graph
        self.fakes = None  # the mode of a run on fake tensors
        self.runs_again = False  # whether NeedsData is answered by a run on fake tensors
        self.watches_sizes, self._of_data = False, set()  # nodes whose sizes follow from data, in a run on the example
        self.unknown = 0  # how many constants there are of which only their values are known
        self._grad = mica.is_grad_enabled()

    def placeholder(self, name, value, is_input=False):
        node = placeholder(self.graph, name)
        node.meta["val"] = meta_of(value)
        if isinstance(value, _C.TensorBase) and value.requires_grad and value.layout is mica.strided:
            node.meta["val"].requires_grad_()
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

    def depends(self, tensor):
        """Whether a tensor follows from the inputs of the program."""
        node = self._nodes.get(id(tensor))
        if node is None and self.outer is not None:
            return self.outer.depends(tensor)
        return node in self.of_inputs

    def node_of(self, tensor):
        """The node of a tensor; one that is not known is a constant of the program."""
        node = self._nodes.get(id(tensor))
        if node is not None:
            return node
        if self.sees_all:
            raise Unseen
        if id(tensor) in self._inner:
            raise UnseenError(
                f"torch.export: the program reads a tensor within a {self._inner[id(tensor)]} that it has computed. Calls of "
                "tensors with a __torch_dispatch__ are recorded as they are, and not what the class makes of them"
            )
        target = self.attributes.get(id(tensor))
        number = len(self.originals) - len(self.targets)
        name = f"c_lifted_tensor_{number}" if target is None else f"c_{as_identifier(target)}"
        if self.first_input is None:
            node = self.graph.create_node("placeholder", name, (), {}, name)
        else:
            with self.graph.inserting_before(self.first_input):
                node = self.graph.create_node("placeholder", name, (), {}, name)
        node.meta["val"] = meta_of(tensor)
        if self.outer is not None and self.outer.depends(tensor):
            self.of_inputs.add(node)
        self.originals[node.name] = tensor
        if target is not None:
            self.targets[node.name] = target
        elif id(tensor) not in self._fresh:
            self.unknown += 1
        if isinstance(tensor, FakeTensor):
            if self.outer is None:
                raise UnseenError(
                    "torch.export: the program uses a tensor that was made by a call which Mica does not see, such as "
                    "a gradient that the program computes by itself (autograd.grad, func.grad, jvp)"
                )
            self._bind(tensor, node)  # of the graph around
            return node
        with _C.DisableTorchFunction(), _disable_current_modes():
            self.constants[node.name] = copied(tensor)
            self._versions[node.name] = version_of(tensor)
        if id(tensor) in self._fresh:  # made anew by every call: changes in place do not add up
            node = self.graph.create_node(
                "call_function", mica.ops.aten.lift_fresh_copy.default, (node,), {}, "lift_fresh_copy"
            )
            node.meta["val"] = meta_of(tensor)
        self._bind(tensor, node)
        return node

    def constant(self, name):
        """What the program has as a constant: the tensor itself, whose later changes it sees, or a copy if the program makes
        the tensor anew or changes it."""
        tensor = self.originals[name]
        is_own = id(tensor) in self._fresh or type(tensor) is not _C.Tensor or tensor.requires_grad
        return self.constants[name] if is_own or version_of(tensor) != self._versions[name] else tensor

    def _note_inner(self, tensor):
        """The tensors within one of a class that says which they are follow from the inputs, and have no nodes."""
        if not hasattr(type(tensor), "__tensor_flatten__"):
            return
        for name in tensor.__tensor_flatten__()[0]:
            inner = getattr(tensor, name)
            if id(inner) not in self._nodes:
                self._inner[id(inner)] = type(tensor).__name__
                self._kept.append(inner)
                self._note_inner(inner)

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
        # What a call is made of gets numbers of the engine's, among them those that stand for open sizes.
        is_ours = self.sees_all and (type(value) is float or (type(value) is int and value > self.sizes.large))
        return self.sizes.argument(value) if is_ours or isinstance(value, _OPEN) else value

    def note_number(self, tensor, number):
        """The program has asked for a number that only data decide."""
        if not self.is_aside:
            node = self.graph.create_node(
                "call_function", mica.ops.aten.item.default, (self.node_of(tensor),), {}, "item"
            )
            self.of_inputs.add(node)
            self.sizes.add_number(node, number)

    def note_statement(self, relation):
        """Note a statement of the program about numbers that only data decide (torch._check)."""
        self.sizes.assertion(relation)

    def _record(self, op, target, args, kwargs, out, name):
        # Parts of a call are seen below autograd, and the forward of an autograd.Function runs without gradients: the graph
        # has gradients by what they call.
        if not self.sees_all and mica.is_grad_enabled() != self._grad and not _C._forward_of_function_is_running():
            self._grad = mica.is_grad_enabled()
            self.graph.create_node("call_function", mica._C._set_grad_enabled, (self._grad,), {}, "_set_grad_enabled")
        if isinstance(target, OpOverload) and target is not _ASSERT:
            args, kwargs = canonical(target, tuple(args), dict(kwargs))
        args, kwargs = self.argument(tuple(args)), self.argument(dict(kwargs))
        node = self.graph.create_node(op, target, tuple(args), kwargs, name)
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
            if depends:
                self._note_inner(out)
            if self.sizes._env is not None and self.sizes._env.has_data():
                self.sizes.add_input(node, out)
        elif isinstance(out, (tuple, list)):
            node.meta["val"] = type(out)(map(meta_of, out)) if type(out) in (tuple, list) else tuple(map(meta_of, out))
            for i, each in enumerate(out):
                if tensors_in((each,)):
                    part = self.graph.create_node("call_function", operator.getitem, (node, i), {}, "getitem")
                    self._name_result(each, part, depends)
                elif isinstance(each, mica.SymInt):  # a number that a loop has counted
                    part = self.graph.create_node("call_function", operator.getitem, (node, i), {}, "getitem")
                    self.sizes.add_number(part, each)

    @staticmethod
    def likeness(tensor):
        return meta_of(tensor)

    def attach(self, name, module):
        """A node that stands for a graph."""
        number = sum(key.startswith(f"{name}_") for key in self.modules)
        self.modules[f"{name}_{number}"] = module
        return self.graph.create_node("get_attr", f"{name}_{number}")

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
            node = self.graph.create_node("call_function", mica.ops.aten.copy_.default, nodes, {}, "copy__default")
            node.meta["val"] = nodes[0].meta.get("val")
        return leaves

    def _assert_sizes(self):
        """Numbers of data that are sizes of tensors are not negative: that is asserted where the program asks for them."""
        env, sizes = self.sizes._env, set()
        for node in self.graph.nodes:
            for tensor in tensors_in((node.meta.get("val"),)):
                sizes |= {
                    size for size in getattr(tensor, "__dict__", {}).get("_sizes", ()) if not isinstance(size, int)
                }
        for node in [node for node in self.graph.nodes if node.target is mica.ops.aten.item.default]:
            expr = getattr(getattr(node.meta.get("val"), "node", None), "_expr", None)
            low = env.bound_sympy(expr).lower if expr in sizes else 0
            if low is None or low < 0:
                with self.graph.inserting_before(node.next):
                    self.sizes.assertion(Relation(">=", self.sizes.symbol_of(node) or expr, make(0)))
                env.constrain_symbol_range(next(iter(expr.free_symbols)), 0, None)

    def finish(self, leaves):
        """The output node: tensors by their nodes, other values as they are."""
        if self.sizes._env is not None and self.sizes._env.has_data():
            self._assert_sizes()
        if self._grad != mica.is_grad_enabled():
            self.graph.create_node(
                "call_function", mica._C._set_grad_enabled, (mica.is_grad_enabled(),), {}, "_set_grad_enabled"
            )
        made = tuple(self.argument(each) for each in leaves)
        self.graph.create_node("output", "output", (made,), {}, "output")
        return made
