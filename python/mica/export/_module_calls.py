"""Which modules a program calls while it is recorded, and how the arguments and results of some calls are nested."""

import contextlib
import itertools
import linecache
import os
import sys

import mica
from mica import _C
from mica.export.exported_program import ModuleCallEntry, ModuleCallSignature
from mica.export.graph_signature import ConstantArgument, SymIntArgument, TensorArgument
from mica.fx.graph_module import GraphModule
from mica.fx.node import Node
from mica.fx.traceback import current_meta, has_preserved_node_meta
from mica.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from mica.utils._pytree import tree_flatten

__all__ = ["ModuleCalls"]

_OPEN = (mica.SymInt, mica.SymFloat, mica.SymBool)


_HERE = os.path.dirname(mica.__file__) + os.sep
_LAYERS = os.path.join(_HERE, "nn", "modules") + os.sep


def _lines_of_program():
    """The lines of the modules' forwards that a node is made in, the innermost last, as a traceback shows them."""
    lines, frame = [], sys._getframe(2)
    while frame is not None and frame.f_code.co_name != "_run_once":
        path = frame.f_code.co_filename
        if frame.f_code.co_name == "forward" and (not path.startswith(_HERE) or path.startswith(_LAYERS)):
            code = linecache.getline(path, frame.f_lineno).strip()
            lines.append(f'File "{path}", line {frame.f_lineno}, in forward\n    {code}')
        frame = frame.f_back
    return "\n".join(reversed(lines))


def _node_that_runs():
    """The node of a graph whose line of code makes a node, and its module: programs are exported a second time. (None, None) if
    no graph runs."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_code.co_name != "_run_once":
        module = frame.f_locals.get("self") if frame.f_code.co_filename.startswith("<eval_with_key>") else None
        if isinstance(module, GraphModule):
            number = module._lineno_map.get(frame.f_lineno - module._prologue_start)
            return next(itertools.islice(module.graph.nodes, number, None), None) if number else None, module
        frame = frame.f_back
    return None, None


class ModuleCalls(contextlib.ExitStack):
    """While it is entered, nodes know the calls of modules that they are made in. `entries` are the calls in their order.

    A module that is called a second time is `name@1`. Of the modules in `kept`, by their paths, entries have signatures.
    """

    def __init__(self, recorder, module, kept=()):
        super().__init__()
        self._recorder, self._names = recorder, {id(each): name for name, each in module.named_modules()}
        self._counts, self._stack, self.entries = {}, {}, []
        self._open = []  # entries of calls that have begun and get signatures
        self._kept = [module.get_submodule(name) for name in kept]

    def __enter__(self):
        super().__enter__()
        graph = self._recorder.graph
        create = graph.create_node

        def create_node(*args, **kwargs):
            node = create(*args, **kwargs)
            node.meta.setdefault("nn_module_stack", dict(self._stack))
            if node.op in ("call_function", "get_attr") and self._stack:
                node.meta["stack_trace"] = _lines_of_program()
                self._inherit(node, *_node_that_runs())
            if node.op == "call_function" and has_preserved_node_meta() and "custom" in current_meta:
                node.meta["custom"] = dict(current_meta["custom"])
            return node

        graph.create_node = create_node
        self.callback(graph.__dict__.pop, "create_node")
        for hook in (
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(self._leave, always_call=True),
            *(each.register_forward_pre_hook(self._note_inputs, with_kwargs=True) for each in self._kept),
            *(each.register_forward_hook(self._note_outputs, with_kwargs=True) for each in self._kept),
        ):
            self.callback(hook.remove)
        return self

    def _inherit(self, node, origin, module):
        """Let a node of a graph that is exported again have what is known of the graph's own."""
        if origin is None or "stack_trace" not in origin.meta:
            return
        keys = ["stack_trace", "custom"]
        if self._names.get(id(module)) == "":
            keys.append("nn_module_stack")
        node.meta.update({key: origin.meta[key] for key in keys if key in origin.meta})

    def _enter(self, module, args):
        name = self._names.get(id(module))
        if name is None:
            return
        number = self._counts[name] = self._counts.get(name, -1) + 1
        called = f"{name}@{number}" if number else name
        kind = f"{type(module).__module__}.{type(module).__qualname__}".replace("mica.", "torch.", 1)
        self._stack[f"L__self__{called}"] = (name, kind)
        if name:
            self.entries.append(ModuleCallEntry(called))

    def _leave(self, module, args, result):
        if id(module) in self._names and self._stack:
            self._stack.popitem()

    def _note_inputs(self, module, args, kwargs):
        called = next(reversed(self._stack)).removeprefix("L__self__")
        leaves, spec = tree_flatten((args, kwargs))
        entry = next(each for each in self.entries if each.fqn == called)
        entry.signature = ModuleCallSignature([self._argument(each) for each in leaves], [], spec, None)
        self._open.append(entry)

    def _note_outputs(self, module, args, kwargs, result):
        signature = self._open.pop().signature
        leaves, signature.out_spec = tree_flatten(result)
        signature.outputs = [self._argument(each) for each in leaves]

    def _argument(self, value):
        if isinstance(value, _C.TensorBase):
            return TensorArgument(self._recorder.node_of(value).name)
        made = self._recorder.argument(value) if isinstance(value, _OPEN) else value
        return SymIntArgument(made.name) if isinstance(made, Node) else ConstantArgument("", made)
