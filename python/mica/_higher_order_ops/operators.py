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
    from mica._higher_order_ops.subgraphs import recorder

    if recorder() is not None:
        from mica._higher_order_ops import cond

        return cond(pred, true_graph, false_graph, operands)
    made = (true_graph if bool(pred) else false_graph)(*operands)
    return made if isinstance(made, (tuple, list)) else (made,)


def _while_loop(cond_graph, body_graph, carried, additional=()):
    from mica._higher_order_ops.subgraphs import recorder

    if recorder() is not None:
        from mica._higher_order_ops import while_loop

        extra = tuple(additional)
        return while_loop(lambda *v: _one(cond_graph(*v, *extra)), lambda *v: body_graph(*v, *extra), carried)
    values = tuple(carried)
    while bool(_one(cond_graph(*values, *additional))):
        made = body_graph(*values, *additional)
        values = tuple(made) if isinstance(made, (tuple, list)) else (made,)
    return values


def _one(value):
    return value[0] if isinstance(value, (tuple, list)) else value


def _wrap_with_autocast(device_type, dtype, enabled, cache_enabled, graph, *operands):
    import mica

    with mica.autocast(device_type, dtype=dtype, enabled=enabled, cache_enabled=cache_enabled):
        made = graph(*operands)
    return made if isinstance(made, (tuple, list)) else (made,)


OPERATORS = {"wrap_with_autocast": _Operator("wrap_with_autocast", _wrap_with_autocast)}
OPERATORS |= {"cond": _Operator("cond", _cond), "while_loop": _Operator("while_loop", _while_loop)}
