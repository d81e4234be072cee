"""Branches and bodies of loops as graphs of their own, while make_fx, torch.export or torch._dynamo.export records the program
around them.

A function is run on its operands with a recorder of its own. Tensors of the program around that it reads besides become
further operands. Both branches of a condition get the same operands.
"""

import mica
from mica._dynamo.exc import TorchRuntimeError
from mica._higher_order_ops.gradients import has_gradients, pass_of, takes_gradients, with_gradients
from mica._higher_order_ops.open_results import counters, fit, kinds, merged
from mica._higher_order_ops.recorders import recorder
from mica._higher_order_ops.watched import differ_in_kind, differ_in_number, refuse, refuse_endless
from mica.fx.experimental._expressions import make
from mica.fx.experimental._truths import Relation
from mica.fx.graph_module import GraphModule
from mica.utils._python_dispatch import _disable_current_modes
from mica.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["recorded_cond", "recorded_map", "recorded_scan", "recorded_while"]


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


def _apart(around, leaf):
    """An operand that requires gradients as a leaf of its own: those of a branch are taken where the branch is read."""
    if not takes_gradients(around, leaf):
        return leaf
    with around.unseen():
        return leaf.detach().requires_grad_()


def _traced(around, functions, operands, carried=0):
    """([graph of each function], [results of each], all operands): functions of the operands, traced apart.

    The first `carried` operands have other values from step to step.
    """
    leaves, spec = tree_flatten(tuple(operands))
    given_leaves = [*counters(around, _others(around, leaves[:carried])), *leaves[carried:]]
    given_leaves = [_apart(around, leaf) for leaf in given_leaves]
    parts = []
    for function in functions:
        graph, result, lifted = around.subgraph(
            lambda *given, f=function: f(*tree_unflatten(list(given), spec)), given_leaves
        )
        parts.append((graph, result, lifted))
    extra = {}
    for _, _, lifted in parts:
        extra |= {_identity(value): value for value, _ in lifted if _identity(value) not in extra}
    modules = []
    for graph, _, lifted in parts:
        own = {_identity(value): node for value, node in lifted}
        first = next(node for node in graph.nodes if node.op != "placeholder")
        for i, (key, value) in enumerate(extra.items()):
            # Placeholders have one order, whether or not the branch reads them.
            node = own.get(key) or graph.create_node("placeholder", f"lifted_{i}", (), {}, f"lifted_{i}")
            node.meta.setdefault("val", around.likeness(value) if isinstance(value, mica.Tensor) else value)
            first.prepend(node)
        root = mica.nn.Module()
        for name, module in graph.inner_modules.items():  # branches within the branch
            root.add_module(name, module)
        modules.append(GraphModule(root, graph))
    return modules, [result for _, result, _ in parts], [*leaves, *extra.values()]


def _identity(value):
    return id(value) if isinstance(value, mica.Tensor) else value.node._expr


def _is_alike(made, given):
    """Whether a value is of the same kind as another one. Where a size is open, that is asked of it."""
    if not isinstance(made, mica.Tensor) or not isinstance(given, mica.Tensor):
        return kinds([made]) == kinds([given])
    return made.dtype is given.dtype and tuple(made.shape) == tuple(given.shape)


def _recorded(around, record, gradients, made, given):
    """The results of a node, with gradients where the trace takes some."""
    if takes_gradients(around, given):
        return with_gradients(around, record, gradients, made, given)
    record(made)
    return made


def _pass_of(function, given, operands, wanted):
    """The backward pass of a function whose operands may be nested."""
    leaves, spec = tree_flatten(tuple(operands))
    return pass_of(lambda *flat: function(*tree_unflatten(list(flat), spec)), given, len(leaves), wanted)


def recorded_cond(around, pred, true_fn, false_fn, operands):
    """torch.cond as a node with two graphs."""
    modules, results, given = _traced(around, (true_fn, false_fn), operands)
    (ours, spec), (theirs, other) = tree_flatten(results[0]), tree_flatten(results[1])
    if spec != other:
        refuse(
            "torch.cond", f"Expected branches to return the same pytree structure, but they return {spec} and {other}."
        )
    if not fit(ours, theirs):
        raise TorchRuntimeError(
            "When merging two branches' output in torch.cond: both must return tensors of the same dtypes and numbers of "
            f"dimensions, but they return {kinds(ours)} and {kinds(theirs)}"
        )
    graphs = [around.attach(name, module) for name, module in zip(("true_graph", "false_graph"), modules, strict=True)]
    made, fresh = merged(around, ours, theirs)

    def record(made):
        around.record_call(mica.ops.higher_order.cond, (pred, *graphs, tuple(given)), tuple(made), "cond")

    def gradients(values, results, grads, wanted):
        if kinds(ours) != kinds(theirs):
            raise NotImplementedError(
                "make_fx: a gradient of torch.cond whose branches return tensors of different sizes"
            )
        passes = [_pass_of(function, given, operands, wanted) for function in (true_fn, false_fn)]
        return recorded_cond(recorder(), pred, *passes, (*values, *grads))

    made = _recorded(around, record, gradients, made, given)
    for each in fresh:  # the graph asserts what is known of it
        low, high = each.node.shape_env.bound_sympy(each.node._expr)
        for sign, end in ((">=", low), ("<=", high)) if low is not None else ():
            around.note_statement(Relation(sign, each.node._expr, make(end)))
    return tree_unflatten(made, spec)


def recorded_while(around, cond_fn, body_fn, carried):
    """torch.while_loop as a node with two graphs."""
    leaves, _ = tree_flatten(tuple(carried))
    modules, results, given = _traced(around, (cond_fn, body_fn), carried, len(leaves))
    if results[0] is True:
        refuse_endless("torch.while_loop")
    made = results[1] if isinstance(results[1], (tuple, list)) else (results[1],)
    ours, _ = tree_flatten(tuple(made))
    words = "body_fn_output and carried_inputs"
    if len(ours) != len(leaves):
        differ_in_number(words, ours, leaves)
    if kinds(ours) != kinds(leaves):
        differ_in_kind(
            words,
            f"torch.while_loop: the body must return what it is given, {kinds(leaves)}, but it returns {kinds(ours)}",
        )
    graphs = [
        around.attach(name, module)
        for name, module in zip(("while_loop_cond_graph", "while_loop_body_graph"), modules, strict=True)
    ]
    count = len(leaves)
    args = (*graphs, tuple(given[:count]), tuple(given[count:]))

    def record(ours):
        around.record_call(mica.ops.higher_order.while_loop, args, tuple(ours), "while_loop")

    ours = _recorded(around, record, _refuse_gradients, counters(around, ours), given)
    return tree_unflatten(ours, tree_flatten(results[1])[1])


def _refuse_gradients(values, results, grads, wanted):
    raise NotImplementedError(
        "make_fx: a gradient of torch.while_loop, which needs what all the steps have computed. scan keeps that, "
        "and a loop of Python with a number of steps that is known has gradients as well"
    )


def _is_fake(around, leaves):
    """Whether nothing is computed: torch._dynamo.export has no values, and make_fx none of fake tensors."""
    return not hasattr(around, "unseen") or any(hasattr(leaf, "fake_mode") for leaf in leaves)


def _unseen(around):
    """A block whose calls are not recorded."""
    return around.unseen() if hasattr(around, "unseen") else around.unrecorded()


def _rows(around, leaves):
    """The first elements, which stand for all."""
    if not hasattr(around, "unseen"):  # tensors are not fake for the program, and only their likenesses have open sizes
        leaves = [around.likeness(leaf) for leaf in leaves]
    with _unseen(around):
        return [leaf.detach()[0].requires_grad_(leaf.requires_grad) for leaf in leaves]


def _count(around, leaf):
    """How many elements there are."""
    return (leaf if hasattr(around, "unseen") else around.likeness(leaf)).shape[0]


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
    others = list(operands[count:])
    with _unseen(around):
        if _is_fake(around, (*leaves, *operands)):
            out = _stacked(row, _count(around, leaves[0]))
        elif takes_gradients(around, (leaves, operands)):
            with mica.no_grad():
                out = mica.ops.higher_order.map_impl(modules[0], list(leaves), others)
        else:
            out = tree_flatten(mapped(f, leaves, spec, args))[0]
    graph = around.attach("body_graph", modules[0])

    def record(out):
        around.record_call(mica.ops.higher_order.map_impl, (graph, list(leaves), others), tuple(out), "map_impl")

    def gradients(values, results, grads, wanted):
        step = pass_of(body, [*operands[:count], *others], count + len(given), wanted)
        rows = [*values[:count], *grads]
        made = recorded_map(
            recorder(),
            lambda rows, *others: step(*rows[:count], *others, *rows[count:]),
            rows,
            tree_flatten(rows)[1],
            values[count:],
        )
        return [each if i < count else each.sum(0) for i, each in zip(wanted, made, strict=True)]

    out = _recorded(around, record, gradients, out, [*leaves, *others])
    return tree_unflatten(list(out), out_spec)


def recorded_scan(around, combine_fn, init, leaves, spec):
    """scan as a node with a graph."""
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
    if made_spec.num_leaves != count:
        differ_in_number("init and carry", carried, results[0][: made_spec.num_leaves])
    if not all(_is_alike(*pair) for pair in zip(results[0][:count], carried, strict=True)):
        differ_in_kind(
            "init and carry",
            f"scan: the function must return a carry like the one that it is given, {kinds(carried)}, but it returns "
            f"{kinds(results[0][:count])}",
        )
    extra = operands[count + len(leaves) :]
    if takes_gradients(around, (carried, leaves, extra)):
        out = _scan_with_gradients(around, body, carried, leaves, operands)
    else:
        out = _recorded_steps(around, modules[0], results[0], body, carried, leaves, extra)
    return tree_unflatten(list(out[:count]), made_spec), tree_unflatten(list(out[count:]), out_spec)


def _recorded_steps(around, module, result, body, carried, leaves, extra, gradients=None):
    """The results of a node for a scan: the last carry, and what the steps return, stacked."""
    from mica._higher_order_ops.element_by_element import scanned

    count = len(carried)

    def step(carry, rows):
        made = body(*carry, *rows)
        return list(made[:count]), list(made[count:])

    with _unseen(around):
        if _is_fake(around, (*leaves, *carried, *extra)):
            out = (*result[:count], *_stacked(result[count:], _count(around, leaves[0])))
        elif gradients is not None:
            with mica.no_grad():
                out = mica.ops.higher_order.scan(module, list(carried), list(leaves), tuple(extra))
        else:
            carry, rows = scanned(step, list(carried), leaves, tree_flatten(list(leaves))[1])
            out = (*carry, *rows)
    graph = around.attach("scan_combine_graph", module)

    def record(out):
        args = (graph, list(carried), list(leaves), tuple(extra))
        around.record_call(mica.ops.higher_order.scan, args, tuple(out), "scan")

    if gradients is not None:
        return with_gradients(around, record, gradients, out, [*carried, *leaves, *extra], slice(count, 2 * count))
    record(out)
    return out


def _scan_with_gradients(around, body, carried, leaves, operands):
    """The results of a scan whose backward pass is a scan from the end: the node keeps the carry of each step."""
    count, rows = len(carried), len(leaves)
    given = list(operands)

    def keeping(*values):
        made = body(*values)
        return (*made[:count], *values[:count], *made[count:])

    def gradients(values, results, grads, wanted):
        return _scanned_back(body, given, count, rows, values, results, grads, wanted)

    modules, results, _ = _traced(around, (keeping,), operands[: count + rows], count)
    extra = operands[count + rows :]
    out = _recorded_steps(around, modules[0], results[0], keeping, carried, leaves, extra, gradients)
    return (*out[:count], *out[2 * count :])


def _scanned_back(body, given, count, rows, values, carries, grads, wanted):
    """The gradients of what a scan is given: what is carried back is those of the carry, and sums of those of tensors
    that all steps read."""
    open_carries = [i for i in range(count) if has_gradients(carries[i])]
    width, last = len(open_carries), count + rows
    sums = [i for i in wanted if i >= last]
    sought = [*open_carries, *(i for i in wanted if count <= i < last), *sums]
    step = pass_of(body, given, last, sought)
    others = values[last:]

    def back(state, row):
        before, of_carry, of_out = row[:last], row[last : last + width], row[last + width :]
        made = step(*before, *others, *state[:width], *of_out)
        first = [a + b for a, b in zip(made[:width], of_carry, strict=True)]
        split = len(made) - len(sums)
        return [*first, *(a + b for a, b in zip(state[width:], made[split:], strict=True))], list(made[width:split])

    state = [*grads[:width], *(mica.zeros_like(values[i]) for i in sums)]
    flipped = [each.flip(0) for each in (*carries, *values[count:last], *grads[width:])]
    state, out = recorded_scan(recorder(), back, state, flipped, tree_flatten(flipped)[1])
    found = dict(zip(open_carries, state[:width], strict=True)) | dict(zip(sums, state[width:], strict=True))
    found |= dict(zip(sought[width : len(sought) - len(sums)], [each.flip(0) for each in out], strict=True))
    return [found[i] for i in wanted]
