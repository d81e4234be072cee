"""make_fx: a function as a graph of aten's operators, recorded below autograd while it runs.

The function runs once: on its arguments (tracing_mode="real"), on fake tensors of their sizes ("fake"), or on fake
tensors whose sizes are left open ("symbolic"). Branches of Python are those of that run. A value that the function asks
of a tensor is refused, since the graph could not follow it.
"""

import contextlib
import operator
import threading

import mica
from mica import _C
from mica._guards import active_fake_mode
from mica.fx.experimental._key_tracer import PythonKeyTracer, extract_val
from mica.fx.experimental._proxy_arguments import SizeNodes
from mica.fx.experimental._unseen_calls import UnseenCalls
from mica.fx.node import Node, map_arg
from mica.fx.proxy import Proxy
from mica.fx.traceback import hand_on
from mica.overrides import TorchFunctionMode
from mica.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from mica.utils._pytree import tree_leaves, tree_map, tree_map_only

__all__ = [
    "PreDispatchTorchFunctionMode",
    "ProxyTorchDispatchMode",
    "PythonKeyTracer",
    "decompose",
    "disable_autocast_cache",
    "disable_proxy_modes_tracing",
    "dispatch_trace",
    "extract_val",
    "get_innermost_proxy_mode",
    "get_isolated_graphmodule",  # noqa: F822
    "get_proxy_mode",
    "get_proxy_slot",
    "has_proxy_slot",
    "is_sym_node",
    "make_fx",  # noqa: F822
    "maybe_disable_fake_tensor_mode",
    "maybe_handle_decomp",
    "set_proxy_slot",
    "track_tensor_tree",
]  # fmt: skip
py_sym_types = (mica.SymInt, mica.SymFloat, mica.SymBool)
CURRENT_DECOMPOSITION_TABLE = {}
_local = threading.local()


def _traces():
    return _local.__dict__.setdefault("modes", [])


def get_proxy_mode():
    """The trace that is under way, or None."""
    return _traces()[-1] if _traces() else None


get_innermost_proxy_mode = get_proxy_mode


class ProxyTorchDispatchMode(TorchDispatchMode):
    """Records the operators of a with block as nodes of a tracer's graph."""

    def __init__(
        self, tracer, tracing_mode="real", decomposition_table=None, shape_env=None, pre_dispatch=False, **options
    ):
        super().__init__()
        self.tracer, self.tracing_mode, self.shape_env = tracer, tracing_mode, shape_env
        self.enable_tracing, self.decomposition_table = True, decomposition_table or {}
        self.is_within = False  # whether an operator that is recorded as one node runs
        self.functional = None  # what functionalize is to remove: "mutations", or "mutations_and_views"
        self.sizes = SizeNodes(tracer.graph, shape_env)

    @classmethod
    def is_infra_mode(cls):
        return True

    def __enter__(self):
        _traces().append(self)
        if self.shape_env is not None:
            self.shape_env.recorders.append(self)
        return super().__enter__()

    def __exit__(self, *exception):
        _traces().remove(self)
        if self.shape_env is not None:
            self.shape_env.recorders.remove(self)
        return super().__exit__(*exception)

    def argument(self, value):
        """A value as an argument of a node."""
        if isinstance(value, _C.TensorBase):
            return self.tracer.node_of(value)
        if isinstance(value, (list, tuple)):
            items = [self.argument(each) for each in value]
            return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
        if isinstance(value, dict):
            return {key: self.argument(each) for key, each in value.items()}
        if isinstance(value, (Proxy, Node)):
            return getattr(value, "node", value)
        return self.sizes.argument(value)

    def _arguments(self, func, args, kwargs):
        """The arguments of an operator as a node's."""
        declared = getattr(getattr(func, "_schema", None), "arguments", ())
        numbers = {
            a.name for a in declared if "int" not in str(a.type).lower()
        }  # a number where a tensor may stand, too
        names = [a.name for a in declared]

        def argument(name, value):
            if type(value) is int and name in numbers:
                return self.sizes.argument(value, near=False)
            return self.argument(value)

        named = [*names, *[""] * len(args)]
        return tuple(map(argument, named, args)), {name: argument(name, value) for name, value in kwargs.items()}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if not self.enable_tracing:
            return func(*args, **kwargs)
        taken_apart = maybe_handle_decomp(self, func, args, kwargs)
        if taken_apart is not NotImplemented:
            return taken_apart
        if _reads_lazy(func, args, kwargs):
            with self:
                args, kwargs = tree_map(_resolved, (tuple(args), kwargs))
                return func(*args, **kwargs)
        name, seen = func.overloadpacket.__name__, func
        if name in ("lift_fresh", "lift"):
            func = mica.ops.aten.lift_fresh_copy.default
            seen = seen if active_fake_mode() is not None else func  # a fake tensor of it is a copy
        if name == "_to_copy" and _stays_where_it_is(args[0], kwargs):
            kwargs.pop("device")
        node_args, node_kwargs = self._arguments(func, args, kwargs)
        if seen is not func and not hasattr(args[0], "fake_mode"):
            out = active_fake_mode().fresh(args[0])
        else:
            with self.within_operator():
                out = seen(*_opened(args), **_opened(kwargs))
        self.record(func, node_args, node_kwargs, out, args)
        return out

    @contextlib.contextmanager
    def within_operator(self):
        """A block in which an operator that is recorded as one node computes: its own calls are not recorded."""
        before, self.is_within, passes = self.is_within, True, _C._graph_tasks_begun()
        try:
            yield
        finally:
            self.is_within = before
            if not before:
                self.tracer.leave_out_passes(_C._graph_tasks_begun() - passes)

    def record(self, func, node_args, node_kwargs, out, args=(), name=None):
        """A node for a call whose result is known."""
        packet = getattr(func, "overloadpacket", func)
        node = self.tracer.graph.create_node(
            "call_function", func, tuple(node_args), dict(node_kwargs), name or getattr(packet, "__name__", None)
        )
        hand_on(node)
        track_tensor_tree(out, node, tracer=self.tracer, constant=None)
        if self.shape_env is not None and self.shape_env.has_data() and isinstance(out, _C.TensorBase):
            self.sizes.add_input(node, out)
        for user in list(node.users) if isinstance(out, (list, tuple)) else ():
            value = user.meta.get("val")
            if isinstance(value, mica.SymInt):  # a number that a loop has counted
                self.sizes.add_number(user, value)
            elif self.shape_env is not None and self.shape_env.has_data() and isinstance(value, _C.TensorBase):
                self.sizes.add_input(user, value)
        return node

    # ---- numbers that only data decide

    def note_number(self, tensor, number):
        """The function has asked for such a number."""
        if self.enable_tracing:
            target = mica.ops.aten._local_scalar_dense.default
            node = self.tracer.graph.create_node(
                "call_function", target, (self.tracer.node_of(tensor),), {}, "_local_scalar_dense"
            )
            self.sizes.add_number(node, number)

    def note_statement(self, relation):
        """Note a statement of the function about numbers that only data decide (torch._check)."""
        if self.enable_tracing:
            self.sizes.assertion(relation)

    # ---- graphs within the graph (torch.cond, torch.while_loop)

    def likeness(self, tensor):
        return extract_val(tensor)

    def subgraph(self, function, leaves):
        """(graph, result, [(value, placeholder)]) of a function of tensors: what it reads besides are placeholders."""
        tracer = PythonKeyTracer(self.tracer)
        inner = ProxyTorchDispatchMode(tracer, self.tracing_mode, self.decomposition_table, self.shape_env)
        inner.functional, inner.sizes.lifted = self.functional, []
        for i, leaf in enumerate(leaves):
            node = tracer.graph.create_node("placeholder", f"arg{i}_1", (), {}, f"arg{i}_1")
            track_tensor_tree(leaf, node, tracer=tracer)
            inner.sizes.add_input(node, leaf)
        with disable_proxy_modes_tracing(), inner, UnseenCalls(inner):
            result = function(*leaves)
            outputs = tuple(tree_leaves(tree_map(inner.argument, result)))
        lifted = {}  # by the name of the constant, which each use of it reads by a node of its own
        tracer.graph.inner_modules = dict(tracer.root.named_children())
        for node in [n for n in tracer.graph.nodes if n.op == "get_attr"]:
            if node.target in tracer.graph.inner_modules:
                continue
            if node.target not in lifted:
                with tracer.graph.inserting_before(next(iter(tracer.graph.nodes))):
                    made = tracer.graph.create_node("placeholder", node.name, (), {}, node.name)
                made.meta = dict(node.meta)
                lifted[node.target] = (getattr(tracer.root, node.target), made)
            made = lifted[node.target][1]
            node.replace_all_uses_with(made)
            outputs = map_arg(outputs, lambda each, old=node, new=made: new if each is old else each)
            tracer.graph.erase_node(node)
        tracer.graph.output(outputs)
        return tracer.graph, result, [*lifted.values(), *inner.sizes.lifted]

    def stands_for(self, other, tensor):
        """Let another object of a tensor be known by its node."""
        self.tracer.bind(other, self.tracer.node_of(tensor))

    def attach(self, name, module):
        """A node that stands for a graph."""
        number = sum(key.startswith(f"{name}_") for key in self.tracer.root._modules)
        self.tracer.root.add_module(f"{name}_{number}", module)
        return self.tracer.graph.create_node("get_attr", f"{name}_{number}")

    @staticmethod
    def unseen():
        """A block in which nothing is recorded."""
        return disable_proxy_modes_tracing()

    def record_call(self, target, args, out, name, kwargs=None):
        args = tuple(self.sizes.truth(each) if isinstance(each, mica.SymBool) else each for each in args)
        kwargs = {key: self.argument(each) for key, each in (kwargs or {}).items()}
        self.record(target, tuple(self.argument(each) for each in args), kwargs, out, name=name)


def _opened(values):
    """Arguments with the open sizes of tensors that the engine hands on without them."""
    fakes = active_fake_mode()
    if fakes is None or fakes.shape_env is None:
        return values
    return tree_map_only(_C.TensorBase, fakes.with_open_sizes, values)


def _stays_where_it_is(tensor, kwargs):
    """Whether a conversion names the device only because the engine does: a fake tensor is on the meta device there."""
    own = getattr(tensor, "fake_device", None)
    return own is not None and own.type != "meta" and str(kwargs.get("device")) == "meta"


def maybe_handle_decomp(proxy_mode, op, args, kwargs):
    """What an operator's entry in the table of decompositions makes of it; NotImplemented without one."""
    table = proxy_mode.decomposition_table or CURRENT_DECOMPOSITION_TABLE
    if op not in table:
        return NotImplemented
    before, proxy_mode.is_within = proxy_mode.is_within, False
    try:
        with proxy_mode:
            return table[op](*args, **kwargs)
    finally:
        proxy_mode.is_within = before


# Operators that take tensors which are read conjugated or negated as they are.
_TAKES_LAZY = frozenset(
    ["_conj", "_neg_view", "clone", "conj_physical", "copy_", "_to_copy", "resolve_conj", "resolve_neg"]
)


def _reads_lazy(func, args, kwargs):
    """Whether an operator computes with tensors that are read conjugated or negated. As in torch, it computes with copies then:
    the engine's own copies are seen by nobody, and gradients would read them."""
    if func.is_view or func._schema.is_mutable or func.overloadpacket.__name__ in _TAKES_LAZY:
        return False
    return any(_is_lazy(leaf) for leaf in tree_leaves((args, kwargs)))


def _resolved(leaf):
    return leaf.resolve_conj().resolve_neg() if _is_lazy(leaf) else leaf


def _is_lazy(leaf):
    return isinstance(leaf, _C.TensorBase) and leaf.layout is mica.strided and (leaf.is_conj() or leaf.is_neg())


def track_tensor_tree(inner_res, proxy_res, *, constant=None, tracer=None):
    """Let the tensors of a result be known by a node and its items."""
    node = getattr(proxy_res, "node", proxy_res)
    if tracer is None:
        tracer = proxy_res.tracer
    node.meta.setdefault("val", extract_val(inner_res))
    if isinstance(inner_res, _C.TensorBase):
        from mica.fx.passes.shape_prop import _extract_tensor_metadata

        if type(inner_res) is _C.Tensor and inner_res.layout is mica.strided:
            node.meta["tensor_meta"] = _extract_tensor_metadata(inner_res)
        tracer.bind(inner_res, node)
    elif isinstance(inner_res, (list, tuple)):
        for i, each in enumerate(inner_res):
            if any(isinstance(leaf, (_C.TensorBase, *py_sym_types)) for leaf in tree_leaves(each)):
                item = tracer.graph.create_node("call_function", operator.getitem, (node, i), {}, "getitem")
                track_tensor_tree(each, item, tracer=tracer)
    return inner_res


def has_proxy_slot(obj, tracer):
    """Whether a tensor is known by a node."""
    return isinstance(obj, _C.TensorBase) and tracer.tensor_tracker.get(obj) is not None


def get_proxy_slot(obj, tracer, default=None, transform=lambda x: x):
    """The node that a tensor is known by."""
    found = tracer.tensor_tracker.get(obj) if isinstance(obj, _C.TensorBase) else None
    return default if found is None else transform(Proxy(found, tracer))


def set_proxy_slot(obj, tracer, proxy):
    """Let a tensor be known by a node."""
    tracer.bind(obj, getattr(proxy, "node", proxy))


class PreDispatchTorchFunctionMode(TorchFunctionMode):
    """By torch's name; calls above autograd are recorded by torch.export here."""

    def __init__(self, tracer):
        raise NotImplementedError("graphs of calls above autograd come from torch.export and torch.compile here")


def dispatch_trace(root, tracer, concrete_args=()):
    """Raises: by torch's name for a step of make_fx."""
    raise NotImplementedError("make_fx makes graphs below autograd here; torch.fx.Tracer.trace those of Python's calls")


# ---- with blocks


@contextlib.contextmanager
def decompose(decomposition_table):
    """In this block traces take these operators apart."""
    global CURRENT_DECOMPOSITION_TABLE
    before, CURRENT_DECOMPOSITION_TABLE = CURRENT_DECOMPOSITION_TABLE, decomposition_table or {}
    try:
        yield CURRENT_DECOMPOSITION_TABLE
    finally:
        CURRENT_DECOMPOSITION_TABLE = before


@contextlib.contextmanager
def disable_proxy_modes_tracing():
    """In this block nothing is recorded."""
    mode = get_proxy_mode()
    before = mode.enable_tracing if mode is not None else None
    if mode is not None:
        mode.enable_tracing = False
    try:
        yield mode
    finally:
        if mode is not None:
            mode.enable_tracing = before


@contextlib.contextmanager
def disable_autocast_cache():
    """In this block autocast casts each time."""
    before = mica.is_autocast_cache_enabled()
    mica.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        mica.set_autocast_cache_enabled(before)


def maybe_disable_fake_tensor_mode():
    """In this block no fake mode is active."""
    return _disable_current_modes()


def is_sym_node(node):
    """Whether a node is an open number."""
    return isinstance(node.meta.get("val"), py_sym_types)


def __getattr__(name):
    if name in ("make_fx", "get_isolated_graphmodule"):
        from mica.fx.experimental import _make_fx

        return getattr(_make_fx, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
