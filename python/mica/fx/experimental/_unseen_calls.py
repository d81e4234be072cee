"""Calls of a function that make_fx runs and that the dispatch of operators does not show as they are."""

import mica
from mica import _C
from mica.fx.experimental import _invented_numbers
from mica.fx.experimental._parts_for_gradients import in_parts
from mica.fx.experimental._proxy_arguments import alias_key
from mica.overrides import TorchFunctionMode
from mica.utils._pytree import tree_leaves

_VALUES = frozenset(["item", "tolist", "numpy", "__bool__", "__int__", "__float__", "__index__", "__complex__",
                     "__array__", "is_nonzero", "equal", "allclose"])  # fmt: skip
# Calls that return values or change facts about a tensor, and calls that run others: they have no operators of their
# own.
_NOT_CALLS = frozenset(["backward", "requires_grad_", "__get__", "__set__", "__delete__", "register_hook", "retain_grad",
                        "set_", "data_ptr", "untyped_storage", "as_subclass", "__repr__", *_VALUES])  # fmt: skip
# Made of operators that modes see. Where there are none, nothing has changed.
_DROPOUTS = frozenset(["dropout_", "alpha_dropout_", "feature_dropout_", "feature_alpha_dropout_"])


class UnseenCalls(TorchFunctionMode):
    """Calls that the dispatch of operators does not show: values are refused, detach is recorded."""

    _sees_operators = False

    def __init__(self, mode, error_on_values=True):
        super().__init__()
        self._mode, self._refuses = mode, error_on_values

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name, kwargs = getattr(func, "__name__", ""), kwargs or {}
        mode = self._mode
        if mode.is_within:
            return func(*args, **kwargs)
        if mode.enable_tracing and (parts := in_parts(name, args, kwargs)) is not None:
            with self:
                return parts()
        if name in ("tensor", "as_tensor") and mode.enable_tracing and args and _has_sizes(args[0]):
            from mica.export._made_tensors import tensor_of_sizes

            with self:
                return tensor_of_sizes(*args, **kwargs)
        if mode.shape_env is not None and mode.enable_tracing:
            from mica.export._data import with_numbers

            with self:
                changed = with_numbers(name, args, kwargs, lambda tensor: _is_tracked(tensor, mode.tracer))
                if changed is not None:
                    return func(*changed[0], **changed[1])
        if mode.shape_env is not None:
            from mica._subclasses.open_sizes import NEEDS_NUMBERS, engine_values

            given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, mica.SymFloat)]
            args, kwargs = engine_values((tuple(args), dict(kwargs)), name.split(".")[0] in NEEDS_NUMBERS)
            if mode.enable_tracing and any(not each.node.has_hint() for each in given):
                return self._with_numbers(func, args, kwargs, name in NEEDS_NUMBERS)
        if name in _VALUES and self._refuses and mode.enable_tracing and _is_tracked(args, mode.tracer):
            from mica._subclasses.fake_tensor import FakeTensor

            is_open_number = name == "item" and isinstance(args[0], FakeTensor) and mode.shape_env is not None
            if not is_open_number:
                raise _asks_for_a_value(f"{name}() asks for it.")
        if name == "to_dense" or not (name == "detach" and mode.enable_tracing):
            if not mode.enable_tracing or name in _NOT_CALLS or not _is_tracked((args, kwargs), mode.tracer):
                return func(*args, **kwargs)
            if name in ("__getitem__", "__setitem__") and self._refuses and mode.shape_env is None:
                _refuse_numbers(args[1], mode.tracer)
            if name in ("__getitem__", "__setitem__") and _has_places(args[1]):
                with self:
                    args = self._with_tensors(*args)
            return self._seen(func, args, kwargs)
        node_args = mode.argument(tuple(args))
        out = func(*args, **kwargs)
        mode.record(mica.ops.aten.detach.default, node_args, {}, out)
        return out

    def _with_tensors(self, tensor, index, *value):
        """The arguments of an index with tensors for lists and for a number that is set: the engine would make its own."""
        parts = index if isinstance(index, tuple) else (index,)
        lists = [isinstance(part, list) and _is_plain(part) for part in parts]
        parts = tuple(
            mica.tensor(part, device=tensor.device) if is_list else part
            for part, is_list in zip(parts, lists, strict=True)
        )
        if value and type(value[0]) in (int, float, bool, complex):
            value = (mica.full((), value[0], dtype=tensor.dtype, device=tensor.device),)
        return (tensor, parts if isinstance(index, tuple) else parts[0], *value)

    def _seen(self, func, args, kwargs):
        """A call whose operators are recorded as it runs. One that the engine computes in one piece is a node itself."""
        tracer, graph = self._mode.tracer, self._mode.tracer.graph
        count, known = len(graph.nodes), set(tracer.root.state_dict())
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, _C.TensorBase)]
        bound = [(leaf, tracer.bound(leaf)) for leaf in given]
        out = func(*args, **kwargs)
        made = [leaf for leaf in tree_leaves(out) if isinstance(leaf, _C.TensorBase)]
        constants = [name for name in tracer.root.state_dict() if name not in known]
        inner = [name for name in constants if not any(getattr(tracer.root, name) is each for each in given)]
        is_seen = all(_is_tracked(leaf, tracer) or any(leaf is each for each in given) for leaf in made)
        nodes = list(reversed(graph.nodes))[: len(graph.nodes) - count]
        if any(hasattr(leaf, "_batch_value") for leaf in (*given, *made)):
            return out  # the batch is known, so its examples are too
        env = self._mode.shape_env
        invented = env is not None and _invented_numbers.are_in(nodes, func, args, kwargs, env)
        name = getattr(func, "__name__", "")
        changes = name.endswith("_") and not name.endswith("__") and name not in _DROPOUTS
        is_lost = changes and not nodes  # a change in place that no mode sees
        if is_seen and not inner and not invented and not is_lost:
            return out
        tracer.erase(nodes, constants)
        self._mode.sizes.forget(nodes)
        for leaf, node in bound:  # what a call changes was known by its nodes
            if node is not None:
                tracer.bind(leaf, node)
        self._record_whole(func, args, kwargs, out)
        return out

    def _record_whole(self, func, args, kwargs, out):
        from mica._subclasses.dispatching import _more_targets
        from mica.export import _targets

        found = _targets.find(func, args, kwargs) or _more_targets(func, args, kwargs) or (func, args, kwargs)
        target, inner_args, inner_kwargs = found
        mode = self._mode
        mode.record(target, mode.argument(tuple(inner_args)), mode.argument(dict(inner_kwargs)), out,
                    name=getattr(func, "__name__", None))  # fmt: skip

    def _with_numbers(self, func, args, kwargs, is_refused):
        """A call with numbers that only data decide: the nodes that it is recorded as have to read them."""
        graph, count = self._mode.tracer.graph, len(self._mode.tracer.graph.nodes)
        out = None if is_refused else func(*args, **kwargs)
        nodes = reversed(graph.nodes)
        new = [next(nodes) for _ in range(len(graph.nodes) - count)]
        is_number = [isinstance(each.meta.get("val"), mica.SymFloat) for node in new for each in node.all_input_nodes]
        if is_refused or not any(is_number):
            raise NotImplementedError(
                f"{getattr(func, '__name__', func)} with a number that only data decide: a tensor of it can be in a graph"
            )
        return out


def _asks_for_a_value(who):
    return RuntimeError(
        "It appears that you're trying to get value out of a tracing tensor with aten._local_scalar_dense.default - "
        f"erroring out! ({who}) It's likely that this is caused by data-dependent control flow or similar. It may be "
        "possible to trace this with dynamic shapes; try setting tracing_mode='symbolic' in your make_fx call."
    )


def _refuse_numbers(index, tracer):
    """Refuse an index by a number that the graph computes: the engine would ask for it, and the graph would have that of
    the run.
    """
    for part in index if isinstance(index, tuple) else (index,):
        if isinstance(part, _C.TensorBase) and not part.dim() and _is_tracked(part, tracer):
            raise _asks_for_a_value("An index by a tensor of no dimensions asks for it.")


def _has_places(index):
    """Whether elements are named by lists or tensors of places."""
    parts = index if isinstance(index, tuple) else (index,)
    return any(
        (isinstance(part, list) and _is_plain(part))
        or (isinstance(part, _C.TensorBase) and part.dim() and part.dtype not in (mica.bool, mica.uint8))
        for part in parts
    )


def _is_plain(values):
    return bool(values) and all(type(value) in (int, bool) for value in values)


def _has_sizes(values):
    return any(isinstance(leaf, (mica.SymInt, mica.SymFloat, mica.SymBool)) for leaf in tree_leaves(values))


def _is_tracked(values, tracer):
    return any(
        isinstance(leaf, _C.TensorBase)
        and (tracer.tensor_tracker.get(leaf) is not None or alias_key(leaf) in tracer.by_alias)
        for leaf in tree_leaves(values)
    )
