"""torch.ops.higher_order: the operators that nodes of graphs call, with graphs among their arguments."""

__all__ = ["OPERATORS"]


class _Operator:
    """An operator whose arguments are graphs."""

    __module__ = "torch._ops.higher_order"

    def __init__(self, name, function):
        self.__name__ = self._name = self.__qualname__ = name
        self._function = function

    def name(self):
        return self._name

    def __call__(self, *args, **kwargs):
        return self._function(*args, **kwargs)

    def __str__(self):
        return self._name

    def __repr__(self):
        return f"<HigherOrderOperator {self._name}>"

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        return _found, (self._name,)


def _found(name):
    return OPERATORS[name]


def _cond(pred, true_graph, false_graph, operands=()):
    from mica._higher_order_ops.recorders import recorder
    from mica._higher_order_ops.subgraphs import recorded_cond

    if recorder() is not None and not isinstance(pred, (bool, int, float)):
        return recorded_cond(recorder(), pred, true_graph, false_graph, operands)
    made = (true_graph if bool(pred) else false_graph)(*operands)
    return made if isinstance(made, (tuple, list)) else (made,)


def _while_loop(cond_graph, body_graph, carried, additional=()):
    from mica._higher_order_ops.recorders import recorder
    from mica._higher_order_ops.subgraphs import recorded_while

    around, extra = recorder(), tuple(additional)
    if around is not None:
        return recorded_while(
            around, lambda *v: _one(cond_graph(*v, *extra)), lambda *v: body_graph(*v, *extra), carried
        )
    values, begun = tuple(carried), False
    while bool(_one(cond_graph(*values, *additional))):
        made, begun = body_graph(*values, *additional), True
        values = tuple(made) if isinstance(made, (tuple, list)) else (made,)
    return values if begun else tuple(each.clone() if hasattr(each, "clone") else each for each in values)


def _map_impl(graph, xs, operands=()):
    from mica._higher_order_ops.element_by_element import mapped
    from mica._higher_order_ops.recorders import recorder
    from mica._higher_order_ops.subgraphs import recorded_map
    from mica.utils._pytree import tree_flatten

    def step(rows):
        return tuple(graph(*rows, *operands))

    leaves, spec = tree_flatten(list(xs))
    around = recorder()
    if around is not None and hasattr(around, "unseen"):
        return tuple(recorded_map(around, step, leaves, spec, ()))
    return tuple(mapped(step, leaves, spec, ()))


def _scan(graph, init, xs, additional=()):
    from mica._higher_order_ops.element_by_element import scanned
    from mica._higher_order_ops.recorders import recorder
    from mica._higher_order_ops.subgraphs import recorded_scan
    from mica.utils._pytree import tree_flatten

    def step(carry, rows):
        made = tuple(graph(*carry, *rows, *additional))
        return list(made[: len(init)]), list(made[len(init) :])

    leaves, spec = tree_flatten(list(xs))
    around = recorder()
    if around is not None and hasattr(around, "unseen"):
        carry, out = recorded_scan(around, step, list(init), leaves, spec)
    else:
        carry, out = scanned(step, list(init), leaves, spec)
    return (*carry, *out)


def _one(value):
    return value[0] if isinstance(value, (tuple, list)) else value


def _wrap_with_autocast(device_type, dtype, enabled, cache_enabled, graph, *operands):
    import mica

    with mica.autocast(device_type, dtype=dtype, enabled=enabled, cache_enabled=cache_enabled):
        made = graph(*operands)
    return made if isinstance(made, (tuple, list)) else (made,)


def _wrap_with_set_grad_enabled(enabled, graph, *operands):
    import mica

    with mica.set_grad_enabled(enabled):
        made = graph(*operands)
    return made if isinstance(made, (tuple, list)) else (made,)


def _changed(op, _all_bases=(), **given):
    """The results of an operator that changes arguments, followed by the new values of these arguments. The arguments
    themselves stay as they are."""
    from mica._higher_order_ops.recorders import recorder

    around = recorder()
    if around is None or not hasattr(around, "unseen"):
        return _on_copies(op, list(_all_bases), dict(given))
    with around.unseen():
        out = _on_copies(op, list(_all_bases), dict(given))
    name = "auto_functionalized_v2"
    around.record_call(OPERATORS[name], (op,), out, name, {**given, "_all_bases": list(_all_bases)})
    return out


def _on_copies(op, bases, given):
    by_strides = any(name.endswith("_storage_offset") for name in given)
    copies = [_copy_with_strides(base) if by_strides else base.clone() for base in bases]

    def value(name):
        if f"_{name}_length" in given:
            length = given[f"_{name}_length"]
            return None if length is None else [value(f"{name}_{i}") for i in range(length)]
        index = given.get(f"_{name}_base_index")
        return None if index is None else _part(copies[index], f"_{name}_", given)

    arguments = {}
    for a in op._schema.arguments:
        if a.name in given:
            arguments[a.name] = given[a.name]
        elif a.alias_info is not None and a.alias_info.is_write:
            arguments[a.name] = value(a.name)
    made = op(**arguments)
    made = made if isinstance(made, tuple) else (made,)
    return (*made, *copies)


def _copy_with_strides(base):
    """A copy with the same strides and storage offset, so that the same views can be made of it."""
    if base.numel() == 0 or (base.storage_offset() == 0 and base.is_contiguous()):
        return base.clone()
    reach = sum((size - 1) * stride for size, stride in zip(base.shape, base.stride(), strict=True))
    memory = base.as_strided((base.storage_offset() + reach + 1,), (1,), 0).clone()
    return memory.as_strided(base.shape, base.stride(), base.storage_offset())


def _part(base, prefix, given):
    """The view of a changed tensor that the operator is given: all of it, a slice, or one by strides."""
    if f"{prefix}slice_dim" in given:
        dim, start, end = (given[f"{prefix}slice_{each}"] for each in ("dim", "start", "end"))
        return base[(slice(None),) * dim + (slice(start, end),)]
    if f"{prefix}size" in given:
        return base.as_strided(*(given[f"{prefix}{each}"] for each in ("size", "stride", "storage_offset")))
    return base


OPERATORS = {"wrap_with_autocast": _Operator("wrap_with_autocast", _wrap_with_autocast)}
OPERATORS |= {"cond": _Operator("cond", _cond), "while_loop": _Operator("while_loop", _while_loop)}
OPERATORS |= {"auto_functionalized_v2": _Operator("auto_functionalized_v2", _changed)}
OPERATORS |= {"map_impl": _Operator("map_impl", _map_impl), "scan": _Operator("scan", _scan)}
OPERATORS |= {"wrap_with_set_grad_enabled": _Operator("wrap_with_set_grad_enabled", _wrap_with_set_grad_enabled)}
