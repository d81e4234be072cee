"""A program as a list of nodes."""

import contextlib
import inspect
import warnings

from mica.fx._codegen import CodeGen, PythonCode, _Namespace
from mica.fx._pytree_codegen import _PyTreeCodeGen, _PyTreeInfo  # noqa: F401 - by this name in torch
from mica.fx.node import Node, map_arg

__all__ = ["CodeGen", "Graph", "PythonCode"]


class _NodeList:
    """The nodes in order; they may be erased or added to while one goes over them."""

    def __init__(self, graph, backwards=False):
        self._graph, self._backwards = graph, backwards

    def __iter__(self):
        root = self._graph._root
        node = root._prev if self._backwards else root._next
        while node is not root:
            following = node._prev if self._backwards else node._next
            if not node._erased:
                yield node
            # Nodes that were appended after this one while it was visited come next.
            node = (node._prev if self._backwards else node._next) if not node._erased else following

    def __reversed__(self):
        return iter(_NodeList(self._graph, not self._backwards))

    def __len__(self):
        return self._graph._len


class Graph:
    """Nodes: inputs, calls, and an output."""

    def __init__(self, owning_module=None, tracer_cls=None, tracer_extras=None):
        self._root = Node(self, "", "root", "", (), {})
        self._len = 0
        self._insert = self._root.prepend
        self._graph_namespace = _Namespace()
        self._owning_module, self._tracer_cls, self._tracer_extras = owning_module, tracer_cls, tracer_extras
        self._codegen = CodeGen()
        self._co_fields = {}  # of the function that was traced: its name, file and line

    owning_module = property(
        lambda self: self._owning_module, lambda self, module: setattr(self, "_owning_module", module)
    )

    @property
    def nodes(self):
        return _NodeList(self)

    def output_node(self):
        return next(node for node in reversed(self.nodes) if node.op == "output")

    def find_nodes(self, *, op, target=None, sort=True):
        """The nodes of a kind, and of a target."""
        return [node for node in self.nodes if node.op == op and (target is None or node.target == target)]

    # ---- making nodes

    def create_node(self, op, target, args=None, kwargs=None, name=None, type_expr=None):
        """A new node at the place where nodes are inserted: at the end, unless told otherwise."""
        candidate = name if name is not None else self._target_to_str(target)
        node = Node(
            self, self._graph_namespace.create_name(candidate, None), op, target, args or (), kwargs or {}, type_expr
        )
        self._insert(node)
        self._len += 1
        return node

    def _target_to_str(self, target):
        if callable(target):
            name = getattr(target, "__name__", type(target).__name__)
        else:
            name = target.replace(".", "_").lstrip("*")
            if name.startswith("__") and name.endswith("__"):
                name = name[2:-2]
        return _snake_case(name)

    def placeholder(self, name, type_expr=None, default_value=inspect.Signature.empty):
        args = () if default_value is inspect.Signature.empty else (default_value,)
        return self.create_node("placeholder", name, args, type_expr=type_expr)

    def get_attr(self, qualified_name, type_expr=None):
        if self.owning_module is not None and not _has(self.owning_module, qualified_name):
            warnings.warn(
                "Attempted to insert a get_attr Node with no underlying reference in the owning GraphModule! Call "
                "GraphModule.add_submodule to add the necessary submodule, GraphModule.add_parameter to add the necessary "
                "Parameter, or nn.Module.register_buffer to add the necessary buffer",
                stacklevel=2,
            )
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_module(self, module_name, args=None, kwargs=None, type_expr=None):
        if self.owning_module is not None and not _has(self.owning_module, module_name):
            warnings.warn(
                "Attempted to insert a call_module Node with no underlying reference in the owning GraphModule! Call "
                "GraphModule.add_submodule to add the necessary submodule",
                stacklevel=2,
            )
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def call_method(self, method_name, args=None, kwargs=None, type_expr=None):
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_function(self, the_function, args=None, kwargs=None, type_expr=None, name=None):
        return self.create_node("call_function", the_function, args, kwargs, name, type_expr)

    def output(self, result, type_expr=None):
        return self.create_node("output", "output", (result,), type_expr=type_expr)

    def node_copy(self, node, arg_transform=lambda x: x):
        """A copy of a node of another graph, with other arguments."""
        args, kwargs = map_arg(node.args, arg_transform), map_arg(node.kwargs, arg_transform)
        made = self.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        made.meta = dict(node.meta)
        return made

    def graph_copy(self, g, val_map, return_output_node=False):
        """Copy the nodes of another graph; returns what its output is made of."""
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                result = map_arg(node.args[0], val_map.__getitem__)
                return (result, node) if return_output_node else result
            val_map[node] = self.node_copy(node, val_map.__getitem__)
        return None

    def __deepcopy__(self, memo=None):
        memo = {} if memo is None else memo
        made = Graph(tracer_cls=self._tracer_cls)
        memo[id(self)] = made
        values = {}
        found = made.graph_copy(self, values, return_output_node=True)
        if isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], Node):
            output = made.output(found[0], type_expr=found[1].type)
            output.meta = dict(found[1].meta)
        made._codegen, made._co_fields = self._codegen, dict(self._co_fields)
        return made

    # ---- changing

    def erase_node(self, to_erase):
        """Take a node out that nobody uses."""
        if to_erase.users:
            raise RuntimeError(
                f"Tried to erase Node {to_erase} but it still had {len(to_erase.users)} users in the graph: {to_erase.users}!"
            )
        if to_erase.graph is not self:
            raise RuntimeError(f"Attempting to remove {to_erase} from wrong graph!")
        if to_erase._erased:
            return
        to_erase._remove_from_list()
        to_erase._erased = True
        self._len -= 1
        to_erase._update((), {})

    def inserting_before(self, n=None):
        """New nodes go before this one; a with block, or for good."""
        return _InsertPoint(self, self._root.append if n is None else n.prepend)

    def inserting_after(self, n=None):
        """New nodes go after this one, in their order; a with block, or for good."""
        if n is None:
            return _InsertPoint(self, self._root.prepend)
        return _InsertPoint(self, n.append)

    def eliminate_dead_code(self, is_impure_node=None):
        """Take out nodes that nobody uses; returns whether there were any."""
        impure = is_impure_node or (lambda node: node.is_impure())
        changed = False
        for node in reversed(self.nodes):
            if not node.users and not impure(node):
                self.erase_node(node)
                changed = True
        return changed

    def lint(self):
        """Check that the graph is sound."""
        seen, names = set(), set()
        for node in self.nodes:
            if node.graph is not self:
                raise RuntimeError(f"Node '{node}' does not belong to this Graph!")
            for used in node.all_input_nodes:
                if used.graph is not self:
                    raise RuntimeError(
                        f"Argument '{used}' of Node '{node}' does not belong to this Graph, but was used as an argument! If you are copying nodes from another graph, make sure to use ``arg_transform`` on node_copy() to remap values\n{self}"
                    )
                if used not in seen:
                    raise RuntimeError(
                        f"Argument '{used}' of Node '{node}' was used before it has been defined! Please check that Nodes in the graph are topologically ordered\n{self}"
                    )
            if node.name in names:
                raise RuntimeError(f"Node redefined name {node.name}!")
            seen.add(node)
            names.add(node.name)
            if self.owning_module is not None and node.op in ("get_attr", "call_module"):
                value = self.owning_module
                for part in node.target.split("."):
                    if not hasattr(value, part):
                        raise RuntimeError(f"Node {node} target {node.target} references nonexistent attribute {part}")
                    value = getattr(value, part)

    # ---- text

    def set_codegen(self, codegen):
        self._codegen = codegen

    def on_generate_code(self, make_transformer):
        """Change the code of the graph: make_transformer(the one before, or None) returns a function of its lines.

        The lines of the body end in newlines. It is so for good, or until the end of the with block of what is returned.
        """
        before = self._codegen._body_transformer
        self._codegen._body_transformer = make_transformer(before)
        return _restoring(self._codegen, before)

    def process_inputs(self, *args):
        return self._codegen.process_inputs(*args)

    def process_outputs(self, out):
        return self._codegen.process_outputs(out)

    def python_code(
        self,
        root_module,
        *,
        verbose=False,
        include_stride=False,
        include_device=False,
        colored=False,
        expanded_def=False,
        record_func=False,
        additional_meta=None,
    ):
        """The graph as the source of a function; a verbose one says what values are and where nodes come from."""
        if record_func:
            raise NotImplementedError("python_code(record_func=True): the code of a graph enters no profiler events")
        if not verbose:
            return self._codegen.generate(self.nodes, root_module, self._graph_namespace)
        from mica.fx._readable import Notes

        notes = Notes(include_stride, include_device, colored, expanded_def, additional_meta)
        return self._codegen.generate(self.nodes, root_module, self._graph_namespace, notes)

    def __str__(self):
        names = []
        lines = [node.format_node(names) for node in self.nodes]
        return "graph():" + "".join(f"\n    {line}" for line in lines if line)

    def print_tabular(self):
        """Print the graph as a table."""
        rows = [("opcode", "name", "target", "args", "kwargs")]
        rows += [tuple(map(str, (n.op, n.name, n.target, n.args, n.kwargs))) for n in self.nodes]
        widths = [max(len(row[i]) for row in rows) for i in range(5)]
        for i, row in enumerate(rows):
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
            if i == 0:
                print("  ".join("-" * width for width in widths))


def _has(module, target):
    """Whether there is something at a path."""
    for part in target.split("."):
        if not hasattr(module, part):
            return False
        module = getattr(module, part)
    return True


@contextlib.contextmanager
def _restoring(codegen, transformer):
    try:
        yield
    finally:
        codegen._body_transformer = transformer


class _InsertPoint:
    """Where new nodes go, until the with block that was opened with it ends."""

    def __init__(self, graph, insert):
        self._graph, self._before = graph, graph._insert
        graph._insert = _in_order(insert)

    def __enter__(self):
        return None

    def __exit__(self, *exception):
        self._graph._insert = self._before


def _in_order(insert):
    """Keeps the order of insertion: of two nodes inserted after the same node, the second one comes second."""
    if insert.__name__ != "append":
        return insert
    last = []

    def following(node):
        (last[-1].append if last else insert)(node)
        last.append(node)

    return following


def _snake_case(name):
    import re

    return re.sub(r"(?<=[a-z])([A-Z])", r"_\1", name).lower()
