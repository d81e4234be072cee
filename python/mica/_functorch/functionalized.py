"""Graphs without changes in place: every such operator becomes the one that computes a new value.

Each tensor of a graph is a value of its own or a view of one, by a chain of view operators. A change in place makes a
new value for the root of the chain: the changed part is written back through the inverses of the views. Whoever reads a
view of that root afterwards reads it anew. Inputs that were changed get their last values at the end, by copy_.
"""

import operator

import mica
from mica._functorch.functional_operators import (
    PLACE,
    functional_overload,
    functional_target,
    natural_dtypes,
    place_in,
    target_without_out,
    with_defaults,
)
from mica.fx.graph import Graph
from mica.fx.node import Node, changes_by_name, map_arg

__all__ = ["functionalized"]

aten = mica.ops.aten
# Changes of sizes and strides alone: the tensor becomes a view of what it was.
_RESHAPED = frozenset(
    ["as_strided_", "swapaxes_", "swapdims_", "t_", "transpose_", "squeeze_", "unsqueeze_", "detach_"]
)
_BATCH_NORMS = (aten.native_batch_norm.default, aten.batch_norm.default)
# These compute in the dtype of a tensor given as out=, if no dtype is given.
_IN_DTYPE_OF_OUT = frozenset(["cumprod", "cumsum", "mean", "nansum", "prod", "sum"])
_IDENTITY = frozenset(["alias", "detach", "lift_fresh", "view_as"])


def is_change(target):
    """Whether an operator changes an argument in place."""
    schema = getattr(target, "_schema", None)
    return schema is not None and schema.is_mutable


def _changes_unseen(target):
    """Whether a function that is no operator changes an argument, by its name."""
    is_operator = getattr(target, "_schema", None) is not None
    return not is_operator and (
        getattr(target, "__name__", "") in ("__setitem__", "setitem") or changes_by_name(target)
    )


class _Step:
    """One operator of a chain of views: the value that it views, and which item of its result where that is a list."""

    def __init__(self, node, item=None):
        self.target, self.args, self.kwargs, self.item = node.target, node.args[1:], dict(node.kwargs), item
        self.name = node.target._overloadpacket.__name__
        self.source = node.args[0]  # in the old graph; its meta data has the sizes


class _Rewriter:
    def __init__(self, old, remove_views):
        self.old, self.new = old, Graph(tracer_cls=old._tracer_cls)
        self.values, self.places = {}, {}  # old node -> (new node, version); old node -> (root, chain)
        self.current, self.versions = {}, {}  # root -> new node, number of changes
        self.remove_views = remove_views
        self.items = {}  # old node of several results -> new nodes of them
        self.sources = {}  # old node -> the one that gave it its sizes, where that is another

    # ---- reading

    def get(self, node):
        """The value of a node as it is now."""
        root, chain = self.places.get(node, (node, ()))
        version = self.versions.get(root, 0)
        made, seen = self.values[node]
        if seen == version:
            return made
        made = self.current[root]
        for step in chain:
            made = self.view(step, made)
        self.values[node] = (made, version)
        return made

    def view(self, step, value):
        args = map_arg(step.args, self.get)
        made = self.emit(step.target, (value, *args), map_arg(step.kwargs, self.get))
        return made if step.item is None else self.emit(operator.getitem, (made, step.item), {})

    def emit(self, target, args, kwargs=None, name=None):
        if self.remove_views and getattr(target, "is_view", False):
            packet = getattr(aten, f"{target._overloadpacket.__name__}_copy", None)
            if packet is not None and target._overloadname in packet.overloads():
                target = getattr(packet, target._overloadname)
        packet = getattr(target, "_overloadpacket", target)
        return self.new.create_node("call_function", target, args, kwargs or {}, name or packet.__name__)

    # ---- writing

    def write(self, node, value):
        """Give a node another value from now on. The value that it is a view of changes too."""
        root, chain = self.places.get(node, (node, ()))
        inner = [self.current[root]] if chain else []
        for step in chain[:-1]:
            inner.append(self.view(step, inner[-1]))
        made = value
        for step, base in zip(reversed(chain), reversed(inner), strict=True):
            made = self.inverse(step, base, made)
        self.current[root] = made
        self.versions[root] = self.versions.get(root, 0) + 1
        self.values[node] = (value, self.versions[root])
        self.values[root] = (made, self.versions[root])

    def sizes(self, node, value):
        """The sizes of an old node, open ones as nodes that read them of a new value of the same sizes."""
        shape = node.meta["val"].shape
        return [
            size if isinstance(size, int) else self.emit(aten.sym_size.int, (value, i), name="sym_size_int")
            for i, size in enumerate(shape)
        ]

    def inverse(self, step, base, value):
        """The new value of a viewed tensor after its view has become `value`."""
        name, args = step.name, map_arg(step.args, self.get)
        if name in ("slice", "select", "diagonal", "as_strided"):
            packet = getattr(aten, f"{name}_scatter")
            overload = {"slice": "Tensor", "select": "int"}.get(name, "default")
            overload = overload if overload in packet.overloads() else "default"
            return self.emit(getattr(packet, overload), (base, value, *args), map_arg(step.kwargs, self.get))
        if name in ("transpose", "swapaxes", "swapdims"):
            return self.emit(aten.transpose.int, (value, *args))
        if name in ("t", "numpy_T", "_conj", "_neg_view"):
            return self.emit(step.target, (value,))
        if name == "view" and step.target is aten.view.dtype:
            return self.emit(aten.view.dtype, (value, step.source.meta["val"].dtype))
        if name == "permute":
            dims = [dim % len(args[0]) for dim in args[0]]
            return self.emit(aten.permute.default, (value, [dims.index(i) for i in range(len(dims))]))
        if name in (
            "view",
            "_unsafe_view",
            "reshape",
            "squeeze",
            "unsqueeze",
            "unflatten",
            "flatten",
            "_reshape_alias",
        ):
            return self.emit(aten.view.default, (value, self.sizes(step.source, base)))
        if name in _IDENTITY:
            return value
        if name in ("unbind", "split", "split_with_sizes", "chunk", "tensor_split"):
            return self.list_inverse(step, base, value)
        if name in ("view_as_real", "view_as_complex"):
            return self.emit(
                getattr(aten, "view_as_complex" if name == "view_as_real" else "view_as_real").default, (value,)
            )
        raise NotImplementedError(f"Mica's functionalize cannot write through a view by {step.target}")

    def list_inverse(self, step, base, value):
        dim = step.kwargs.get("dim", step.args[1] if len(step.args) > 1 else 0)
        if step.name == "unbind":
            dim = step.kwargs.get("dim", step.args[0] if step.args else 0)
            return self.emit(aten.select_scatter.default, (base, value, dim, step.item))
        items = next(user for user in self.old.nodes if user.target is step.target and user.args[:1] == (step.source,))
        parts = items.meta["val"]
        start = sum(part.shape[dim] for part in parts[: step.item])
        stop = start + parts[step.item].shape[dim]
        return self.emit(aten.slice_scatter.default, (base, value, dim, start, stop))

    # ---- the graph

    def run(self, outputs, inputs_are_changed=True):
        firsts = {}
        for node in self.old.nodes:
            if node.op in ("placeholder", "get_attr"):
                made = firsts[node] = self.new.node_copy(node)
                self.values[node], self.current[node] = (made, 0), made
            elif node.op == "call_function":
                self.call(node)
        outputs = map_arg(outputs, self.get)
        for node, first in firsts.items():
            if self.versions.get(node, 0) and self.current[node] is not first:
                self.emit(aten.copy_.default, (first, self.current[node]))
        return outputs

    def call(self, node):
        if is_change(node.target):
            self.change(node)
            return
        if _changes_unseen(node.target):
            raise NotImplementedError(f"Mica's functionalize knows no operator that computes what {node.target} writes")
        if node.target in _BATCH_NORMS and node.args[5] and isinstance(node.args[3], Node):
            self.change_statistics(node)
            return
        if node.target is operator.getitem and node.args[0] in self.items:
            self.values[node] = (made := self.items[node.args[0]][node.args[1]], 0)
            self.current[node] = made
            return
        first = node.args[0] if node.args and isinstance(node.args[0], Node) else None
        if node.target is operator.getitem and first in self.places and self.places[first][1] == "list":
            source, step = self.places[first][0]
            root, chain = self.places.get(source, (source, ()))
            self.places[node] = (root, (*chain, _Step(step, node.args[1])))
        elif getattr(node.target, "is_view", False) and first is not None:
            if isinstance(node.meta.get("val"), (list, tuple)):
                self.places[node] = ((first, node), "list")
                made = self.copied(node)
                self.values[node] = (made, 0)
                self.versions.setdefault((first, node), 0)
                return
            root, chain = self.places.get(first, (first, ()))
            self.places[node] = (root, (*chain, _Step(node)))
        made = self.copied(node)
        root = self.places.get(node, (node, ()))[0]
        # A view of what was changed before is made anew where it is read first. So are torch's: names of nodes are alike.
        version = self.versions.get(root, 0)
        self.values[node] = (made, -1 if version and root is not node else version)
        if root is node:
            self.current[node] = made

    def copied(self, node):
        args, kwargs = map_arg(node.args, self.get), map_arg(node.kwargs, self.get)
        packet = getattr(node.target, "_overloadpacket", node.target)
        made = self.emit(node.target, args, kwargs, None if node.name.startswith(packet.__name__) else node.name)
        made.meta = dict(node.meta)
        return made

    def change(self, node):
        schema = node.target._schema
        written = [a for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
        if written and all(a.is_out for a in written):
            self.change_outputs(node, written)
            return
        target_node = node.args[0] if node.args else None
        name = node.target._overloadpacket.__name__
        if name in _RESHAPED or (name == "set_" and node.target._overloadname == "source_Tensor"):
            self.become(node, target_node, name)
            return
        if node.target.namespace != "aten":
            self.change_arguments(node, written)
            return
        if len(written) != 1 or written[0].is_out or not isinstance(target_node, Node):
            raise NotImplementedError(f"Mica's functionalize knows no operator that computes what {node.target} writes")
        target = functional_target(node.target)
        args = node.args[:1] if name == "zero_" else with_defaults(node.args, node.kwargs, node.target, target)
        made = self.emit(target, map_arg(args, self.get), map_arg(node.kwargs, self.get))
        made = self.cast(made, natural_dtypes(target, args, node.kwargs), node.meta)
        self.write(target_node, made)
        place = self.places.get(target_node, (target_node, ()))
        self.places[node] = place
        self.values[node] = (made, self.versions[place[0]])

    def cast(self, made, dtypes, meta):
        """A new value in the dtype of the tensor that it is written to, where the operator gives another one."""
        wanted = getattr(meta.get("val"), "dtype", None)
        if wanted is not None and dtypes and dtypes[0] != wanted:
            made = self.emit(aten._to_copy.default, (made,), {"dtype": wanted, "layout": mica.strided})
        made.meta = dict(meta)
        return made

    def become(self, node, target_node, name):
        """Let a tensor be a view of what it was, or of another one, from now on."""
        source = node.args[1] if name == "set_" else target_node
        root, chain = self.places.get(source, (source, ()))
        if name not in ("set_", "detach_"):
            step = _Step(node)
            packet = getattr(aten, name.removesuffix("_"))
            step.target = getattr(packet, functional_overload(packet, node.target))
            step.name = name.removesuffix("_")
            step.source = self.sources.get(target_node, target_node)
            chain = (*chain, step)
        made = self.get(source)
        if chain and name not in ("set_", "detach_"):
            made = self.view(chain[-1], made)
        for each in (target_node, node):
            self.places[each], self.values[each] = (root, chain), (made, self.versions.get(root, 0))
            self.sources[each] = node

    def change_arguments(self, node, written):
        """Call an operator of the program's own on copies of the arguments that it changes. The copies are further results."""
        schema = node.target._schema
        given = dict(zip((a.name for a in schema.arguments), node.args, strict=False)) | dict(node.kwargs)
        bases, kwargs = [], {name: value for name, value in given.items() if all(a.name != name for a in written)}
        kwargs = dict(map_arg(kwargs, self.get))
        roots = [self.places.get(each, (each,))[0] for each in _nodes([given.get(a.name) for a in written])]
        shared = {root for root in roots if roots.count(root) > 1}

        def keep(name, value):
            if isinstance(value, (list, tuple)):
                kwargs[f"_{name}_length"] = len(value)
                for i, each in enumerate(value):
                    keep(f"{name}_{i}", each)
                return
            root, chain = self.places.get(value, (value, ()))
            if root in shared:
                kwargs.update(zip((f"_{name}_{each}" for each in PLACE), place_in(root, chain), strict=True))
                value = root
            if value is not None and value not in bases:
                bases.append(value)
            kwargs[f"_{name}_base_index"] = None if value is None else bases.index(value)

        for a in written:
            keep(a.name, given.get(a.name))
        dense = {"memory_format": mica.contiguous_format}  # by which places in a shared base are counted
        kwargs["_all_bases"] = [
            self.emit(aten.clone.default, (self.get(base),), dense) if base in shared else self.get(base)
            for base in bases
        ]
        made = self.emit(mica.ops.higher_order.auto_functionalized_v2, (node.target,), kwargs)
        value = node.meta.get("val")
        values = value if len(schema.returns) > 1 else (value,)
        made.meta = {**node.meta, "val": (*values, *(base.meta.get("val") for base in bases))}
        self.values[node] = (made, 0)
        if len(schema.returns) == 1:
            item = self.emit(operator.getitem, (made, 0), {})
            item.meta = dict(node.meta)
            self.values[node], self.current[node] = (item, 0), item
        for i, base in enumerate(bases, len(values)):
            item = self.emit(operator.getitem, (made, i), {})
            item.meta["val"] = base.meta.get("val")
            self.write(base, item)

    def change_statistics(self, node):
        """Batch norm in training changes the running mean and variance, which its schema does not say."""
        made = self.emit(aten._native_batch_norm_legit_functional.default, map_arg(node.args[:8], self.get))
        bases, is_composite = node.args[3:5], node.target is aten.batch_norm.default
        like = (node.meta.get("val"), None, None) if is_composite else node.meta["val"]
        made.meta = {**node.meta, "val": (*like, *(base.meta.get("val") for base in bases))}
        items = self.items[node] = [self.emit(operator.getitem, (made, i), {}) for i in range(5)]
        for item, value in zip(items, made.meta["val"], strict=True):
            item.meta["val"] = value
        self.values[node] = (items[0] if is_composite else made, 0)
        self.current[node] = self.values[node][0]
        for i, base in enumerate(bases, 3):
            self.write(base, items[i])

    def change_outputs(self, node, written):
        """Replace an operator with out= by the one without it. Its results are the new values of the tensors given as out=."""
        outs = [node.kwargs.get(a.name) for a in written]
        target = target_without_out(node.target, {a.name for a in written})
        if target is None or not all(isinstance(out, Node) for out in outs):
            raise NotImplementedError(f"Mica's functionalize knows no operator that computes what {node.target} writes")
        kwargs = {name: value for name, value in node.kwargs.items() if name not in {a.name for a in written}}
        dtypes = natural_dtypes(target, node.args, kwargs)
        if target._overloadpacket.__name__ in _IN_DTYPE_OF_OUT and kwargs.get("dtype") is None:
            kwargs["dtype"], dtypes = outs[0].meta["val"].dtype, ()
        made = self.emit(target, map_arg(node.args, self.get), map_arg(kwargs, self.get))
        made.meta = dict(node.meta)
        if len(outs) == 1:
            made = self.cast(made, dtypes, node.meta)
            self.write(outs[0], made)
            place = self.places.get(outs[0], (outs[0], ()))
            self.places[node] = place
            self.values[node] = (made, self.versions[place[0]])
            return
        self.values[node] = (made, 0)
        for i, out in enumerate(outs):
            item = self.emit(operator.getitem, (made, i), {})
            item = self.cast(item, dtypes[i : i + 1], {"val": node.meta["val"][i]})
            self.write(out, item)


def functionalized(graph, outputs, remove_views=False):
    """(a graph without changes in place, its outputs) for a graph of aten's operators that has no output node yet."""
    rewriter = _Rewriter(graph, remove_views)
    outputs = rewriter.run(outputs)
    for node in reversed(rewriter.new.nodes):
        is_free = node.op == "call_function" and not is_change(node.target) and getattr(node.target, "is_view", False)
        used = any(node is found for found in _nodes(outputs))
        if (is_free or node.target is operator.getitem) and not node.users and not used:
            rewriter.new.erase_node(node)
    return rewriter.new, outputs


def _nodes(values):
    found = []
    map_arg(values, lambda node: found.append(node) or node)
    return found
