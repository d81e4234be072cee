"""The graphs of a captured function that a backend has compiled: which are known, how many there may be, who is asked."""

import logging
import re
import threading
import warnings
import weakref

from mica import _logging
from mica._dynamo._capture_names import end_of_graph
from mica._dynamo.callback import CallbackTrigger, callback_handler
from mica._dynamo.exc import BackendCompilerFailed, FailOnRecompileLimitHit, RecompileError
from mica._dynamo.utils import counters
from mica.compiler import _stance
from mica.nn import Module

__all__ = ["CompiledGraphs", "forget"]

_log = logging.getLogger("torch._dynamo")


_shared = weakref.WeakKeyDictionary()  # backend -> {code of a function: (its graphs, a lock)}


def _of_code(function, backend):
    """(graphs, a lock) that all functions with the same code share: as in torch, all layers of a class use what was
    compiled for one of them."""
    function = getattr(type(function), "forward", function) if isinstance(function, Module) else function
    code = getattr(function, "__code__", None)
    if code is None:
        return {}, threading.RLock()
    try:
        return _shared.setdefault(backend, {}).setdefault(code, ({}, threading.RLock()))
    except TypeError:  # a backend that has no hash, or no weak references
        return {}, threading.RLock()


def _without_numbers(code):
    return re.sub(r"\d+", "0", code)


def forget():
    """Forget what backends have compiled, for functions that are gone too."""
    for graphs in list(_shared.values()):
        for made, lock in list(graphs.values()):
            with lock:
                made.clear()


class CompiledGraphs:
    """The functions that a backend has returned for the graphs of one function."""

    def __init__(self, function, backend, fullgraph, limit=None):
        self.backend, self._fullgraph, self._limit = backend, fullgraph, limit
        self._name = getattr(function, "__qualname__", type(function).__name__)
        # key -> (the compiled function, the part, the graph). Names in keys are those of objects that the graph keeps.
        (self._made, self._lock), self._warned = _of_code(function, backend), False

    def clear(self):
        self._made.clear()

    def get(self, module, inputs, key, part, reason=None):
        """A function that computes a graph: the backend's, which is asked once for each graph and kind of inputs.

        Args:
            module, inputs: the graph, and what it is called with
            key: what tells it from others
            part: how many breaks of the function were before it
            reason: why the graph ends where it does; None at the end of the function
        """
        with self._lock:
            if key in self._made:
                return self._made[key][0]
            before = sum(known_part == part for _, known_part, _ in self._made.values())
            if self._is_left_alone(before, key):
                return module.forward
            counters["stats"]["unique_graphs"] += 1
            self._report(module, inputs, before)
            module.compile_subgraph_reason = end_of_graph(reason)
            with callback_handler.install_callbacks(CallbackTrigger.DYNAMO, f"{part}/{before}"):
                compiled = self._compiled(module, inputs)
            self._made[key] = (compiled, part, module)
            return self._made[key][0]

    def _compiled(self, module, inputs):
        backend = self.backend
        if _stance.backend is not None:
            import mica  # the module of backends by name imports this file

            backend = mica._dynamo.lookup_backend(_stance.backend)
        from mica._dynamo import config

        try:
            made = backend(module, list(inputs))
        except Exception as error:
            if config.suppress_errors and not self._fullgraph:
                _log.warning("the graph of %s runs as it is: %s", self._name, BackendCompilerFailed(backend, error))
                return module.forward
            raise BackendCompilerFailed(backend, error) from error
        if not callable(made):
            raise BackendCompilerFailed(
                backend, TypeError(f"a backend must return a callable, but it returned a {type(made).__name__}")
            )
        return made

    def _is_left_alone(self, before, key):
        """Whether a new graph runs uncompiled, because the limit of compiled graphs is reached."""
        from mica._dynamo import config

        if _stance.name == "eager_on_recompile":
            return True
        if _stance.name == "fail_on_recompile":
            raise RuntimeError(
                f"Detected recompile when torch.compile stance is 'fail_on_recompile'. function name: '{self._name}'"
            )
        if before and config.error_on_recompile:
            raise RecompileError(f"Recompiling function {self._name}: torch._dynamo.config.error_on_recompile is set")
        limit = config.recompile_limit if self._limit is None else self._limit
        if before < limit and len(self._made) < config.accumulated_recompile_limit:
            return False
        said = (
            f"torch._dynamo hit config.recompile_limit ({limit})\n   function: '{self._name}'\n"
            "Graphs that are new run as they are from now on; dynamic=True and mark_dynamic make graphs for more than one size"
        )
        if self._fullgraph and not config.fail_on_recompile_limit_hit and self._differs_by_numbers(key):
            return True
        if self._fullgraph or config.fail_on_recompile_limit_hit:
            raise FailOnRecompileLimitHit(said)
        if not self._warned:
            self._warned = True
            warnings.warn(said, stacklevel=2)
        return True

    def _differs_by_numbers(self, key):
        """Whether a known graph is the same but for numbers of Python's in it, for which torch has one graph."""
        code, *others = key
        return any(
            known != code and other == others and _without_numbers(known) == _without_numbers(code)
            for known, *other in self._made
        )

    def _report(self, module, inputs, before):
        """Write what TORCH_LOGS asks for about a new graph."""
        name = self._name
        if before:
            _logging.write(
                "recompiles", f"Recompiling function {name}: its graph was compiled for inputs of other kinds"
            )
        _logging.write("graph_code", f"TRACED GRAPH\n ===== {name} =====\n{module.code.strip()}\n")
        _logging.write("graph", f"TRACED GRAPH\n ===== {name} =====\n{module.graph}\n")
        if _logging.is_on("graph_sizes"):
            sizes = "\n".join(
                f"{node.name}: {tuple(each.shape)}"
                for node, each in zip(module.graph.nodes, inputs, strict=False)
                if hasattr(each, "shape")
            )
            _logging.write("graph_sizes", f"TRACED GRAPH TENSOR SIZES\n===== {name} =====\n{sizes}\n")
