"""Branches and bodies of loops as graphs of their own, while make_fx or torch.export records the program around them.

A function is run on its operands with a recorder of its own. Tensors of the program around that it reads besides become
further operands. Both branches of a condition get the same operands.
"""

import mica
from mica.fx.experimental._expressions import make
from mica.fx.experimental._truths import Relation
from mica.fx.graph_module import GraphModule
from mica.utils._python_dispatch import _disable_current_modes
from mica.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

__all__ = ["needs_parts", "recorded_cond", "recorded_map", "recorded_scan", "recorded_while", "recorder"]


def recorder():
    """The recorder of the program that is being traced, or None."""
    import sys

    tracing = sys.modules.get("mica.fx.experimental.proxy_tensor")
    mode = None if tracing is None else tracing.get_proxy_mode()
    if mode is not None and mode.enable_tracing:
        return mode
    recording = sys.modules.get("mica.export._record")
    if recording is not None and (current := recording.current()) is not None:
        return current
    whole = sys.modules.get("mica._dynamo._whole_graphs")
    return None if whole is None else whole.current()


def _others(around, leaves):
    """Copies of tensors, for a function that may also read one of them as a global and then means its first value."""
    if not hasattr(around, "unseen"):
        return [around.likeness(leaf) if isinstance(leaf, mica.Tensor) else leaf for leaf in leaves]
    with around.unseen():
        return [_copy(leaf) if isinstance(leaf, mica.Tensor) else leaf for leaf in leaves]


def _copy(leaf):
    if hasattr(leaf, "fake_mode"):
        return leaf.detach().clone()
    with _disable_current_modes(), mica._C.DisableTorchFunction():  # a real tensor stays one within a fake mode
        return leaf.detach().clone()


def _traced(around, functions, operands, carried=0):
    """([graph of each function], [results of each], all operands): functions of the operands, traced apart.

    The first `carried` operands have other values from step to step.
    """
    leaves, spec = tree_flatten(tuple(operands))
    given_leaves = [*_counters(around, _others(around, leaves[:carried])), *leaves[carried:]]
    parts = []
    for function in functions:
        graph, result, lifted = around.subgraph(
            lambda *given, f=function: f(*tree_unflatten(list(given), spec)), given_leaves
        )
        parts.append((graph, result, lifted))
    extra = []
    for _, _, lifted in parts:
        extra += [tensor for tensor, _ in lifted if not any(tensor is known for known in extra)]
    modules = []
    for graph, _, lifted in parts:
        own = {id(tensor): node for tensor, node in lifted}
        first = next(node for node in graph.nodes if node.op != "placeholder")
        for i, tensor in enumerate(extra):
            # Placeholders have one order, whether or not the branch reads them.
            node = own.get(id(tensor)) or graph.create_node("placeholder", f"lifted_{i}", (), {}, f"lifted_{i}")
            node.meta.setdefault("val", around.likeness(tensor))
            first.prepend(node)
        root = mica.nn.Module()
        for name, module in graph.inner_modules.items():  # branches within the branch
            root.add_module(name, module)
        modules.append(GraphModule(root, graph))
    return modules, [result for _, result, _ in parts], [*leaves, *extra]


def _is_alike(made, given):
    """Whether a value is of the same kind as another one. Where a size is open, that is asked of it."""
    if not isinstance(made, mica.Tensor) or not isinstance(given, mica.Tensor):
        return _kinds([made]) == _kinds([given])
    return made.dtype is given.dtype and tuple(made.shape) == tuple(given.shape)


def needs_parts(around, values):
    """Whether a trace takes gradients by itself: they are those of the single steps, since the node of a loop has none."""
    takes = type(around).__name__ == "ProxyTorchDispatchMode" and mica.is_grad_enabled()
    return takes and any(isinstance(leaf, mica.Tensor) and leaf.requires_grad for leaf in tree_leaves(values))


def _kinds(leaves):
    return [
        (tuple(map(str, leaf.shape)), leaf.dtype)
        if isinstance(leaf, mica.Tensor)
        else (int if isinstance(leaf, mica.SymInt) else type(leaf))
        for leaf in leaves
    ]


def _env(around, what):
    """The environment for numbers that only data decide."""
    env = around.sizes._env
    if env is None and getattr(around, "runs_again", False):
        from mica.export._data import NeedsData

        raise NeedsData
    if env is None:
        raise NotImplementedError(
            f"{what}, and the graph is made without open sizes. A tensor of no dimensions can take the number's place"
        )
    return env


def _counters(around, leaves):
    """What a loop carries, with open numbers for whole numbers, which have other values from step to step."""
    if not any(map(_is_counter, leaves)):
        return leaves
    env = _env(around, "torch.while_loop: a whole number is among what is carried")
    return [env.create_unbacked_symint() if _is_counter(leaf) else leaf for leaf in leaves]


def _merged(around, ours, theirs):
    """The results of a condition: whole numbers that differ between the branches are open."""
    made = []
    for a, b in zip(ours, theirs, strict=True):
        if isinstance(a, mica.Tensor) or (type(a) is type(b) and not isinstance(a, mica.SymInt) and a == b):
            made.append(a)
        elif _is_counter(a):
            env = _env(around, "torch.cond: the branches return different whole numbers")
            ends = {"least": min(a, b), "greatest": max(a, b)} if type(a) is type(b) is int else {}
            made.append(env.create_unbacked_symint(**ends))
        else:
            raise RuntimeError(
                f"torch.cond: the branches return {a!r} and {b!r}, and only whole numbers and tensors may differ"
            )
    return made


def _is_counter(leaf):
    return isinstance(leaf, (int, mica.SymInt)) and not isinstance(leaf, bool)


def recorded_cond(around, pred, true_fn, false_fn, operands):
    """torch.cond as a node with two graphs."""
    modules, results, given = _traced(around, (true_fn, false_fn), operands)
    (ours, spec), (theirs, other) = tree_flatten(results[0]), tree_flatten(results[1])
    if spec != other or _kinds(ours) != _kinds(theirs):
        raise RuntimeError(
            "torch.cond: both branches must return tensors of the same shapes and dtypes, nested alike, but they return "
            f"{_kinds(ours)} and {_kinds(theirs)}"
        )
    graphs = [around.attach(name, module) for name, module in zip(("true_graph", "false_graph"), modules, strict=True)]
    made = _merged(around, ours, theirs)
    around.record_call(mica.ops.higher_order.cond, (pred, *graphs, tuple(given)), tuple(made), "cond")
    for each in made:
        if isinstance(each, mica.SymInt):  # the graph asserts what is known of it
            low, high = around.sizes._env.bound_sympy(each.node._expr)
            for sign, end in ((">=", low), ("<=", high)) if low is not None else ():
                around.note_statement(Relation(sign, each.node._expr, make(end)))
    return tree_unflatten(made, spec)


def recorded_while(around, cond_fn, body_fn, carried):
    """torch.while_loop as a node with two graphs."""
    leaves, spec = tree_flatten(tuple(carried))
    modules, results, given = _traced(around, (cond_fn, body_fn), carried, len(leaves))
    made = results[1] if isinstance(results[1], (tuple, list)) else (results[1],)
    ours, _ = tree_flatten(tuple(made))
    if _kinds(ours) != _kinds(leaves):
        raise RuntimeError(
            f"torch.while_loop: the body must return what it is given, {_kinds(leaves)}, but it returns {_kinds(ours)}"
        )
    graphs = [
        around.attach(name, module)
        for name, module in zip(("while_loop_cond_graph", "while_loop_body_graph"), modules, strict=True)
    ]
    count = len(leaves)
    args, ours = (*graphs, tuple(given[:count]), tuple(given[count:])), _counters(around, ours)
    around.record_call(mica.ops.higher_order.while_loop, args, tuple(ours), "while_loop")
    return tree_unflatten(ours, spec)


def _is_fake(leaves):
    return any(hasattr(leaf, "fake_mode") for leaf in leaves)


def _rows(around, leaves):
    """The first elements, which stand for all."""
    with around.unseen():
        return [leaf[0] for leaf in leaves]


def _stacked(rows, count):
    return [row.new_empty((count, *row.shape)) for row in rows]


def recorded_map(around, f, leaves, spec, args):
    """map as a node with a graph."""
    from mica._higher_order_ops.element_by_element import mapped

    count = len(leaves)
    given, args_spec = tree_flatten(tuple(args))

    def body(*values):
        return f(tree_unflatten(list(values[:count]), spec), *tree_unflatten(list(values[count:]), args_spec))

    modules, results, operands = _traced(around, (body,), (*_rows(around, leaves), *given))
    row, out_spec = tree_flatten(results[0])
    with around.unseen():
        if _is_fake((*leaves, *operands)):
            out = _stacked(row, leaves[0].shape[0])
        else:
            out = tree_flatten(mapped(f, leaves, spec, args))[0]
    graph = around.attach("body_graph", modules[0])
    around.record_call(
        mica.ops.higher_order.map_impl, (graph, list(leaves), list(operands[count:])), tuple(out), "map_impl"
    )
    return tree_unflatten(list(out), out_spec)


def recorded_scan(around, combine_fn, init, leaves, spec):
    """scan as a node with a graph."""
    from mica._higher_order_ops.element_by_element import scanned

    carried, carry_spec = tree_flatten(init)
    count = len(carried)
    specs = []

    def body(*values):
        carry, out = combine_fn(
            tree_unflatten(list(values[:count]), carry_spec), tree_unflatten(list(values[count:]), spec)
        )
        made, made_spec = tree_flatten(carry)
        specs.append((made_spec, tree_flatten(out)[1]))
        return (*made, *tree_flatten(out)[0])

    modules, results, operands = _traced(around, (body,), (*carried, *_rows(around, leaves)), count)
    made_spec, out_spec = specs[-1]
    if made_spec != carry_spec or not all(_is_alike(*pair) for pair in zip(results[0][:count], carried, strict=True)):
        raise RuntimeError(
            f"scan: the function must return a carry like the one that it is given, {_kinds(carried)}, but it returns "
            f"{_kinds(results[0][:count])}"
        )
    with around.unseen():
        if _is_fake((*leaves, *operands)):
            out = (*results[0][:count], *_stacked(results[0][count:], leaves[0].shape[0]))
        else:
            carry, rows = scanned(combine_fn, init, leaves, spec)
            out = (*tree_flatten(carry)[0], *tree_flatten(rows)[0])
    graph = around.attach("scan_combine_graph", modules[0])
    extra = tuple(operands[count + len(leaves) :])
    around.record_call(mica.ops.higher_order.scan, (graph, list(carried), list(leaves), extra), tuple(out), "scan")
    return tree_unflatten(list(out[:count]), carry_spec), tree_unflatten(list(out[count:]), out_spec)
