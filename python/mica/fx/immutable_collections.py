"""Lists and dicts that do not change: the arguments of nodes."""

from mica.utils._pytree import register_pytree_node as _register

__all__ = ["immutable_dict", "immutable_list"]


def _refuse(self, *args, **kwargs):
    raise TypeError(
        f"{type(self).__name__!r} object does not support mutation. If you are attempting to modify the kwargs or args of "
        "a torch.fx.Node object, instead create a new copy of it and assign the copy to the node:\n"
        "    new_args = ...  # copy and mutate args\n    node.args = new_args\n"
    )


class immutable_list(list):
    """A list that does not change."""

    append = extend = insert = remove = pop = clear = sort = reverse = _refuse
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse

    def __hash__(self):
        return hash(tuple(self))

    def __reduce__(self):
        return type(self), (tuple(self),)


class immutable_dict(dict):
    """A dict that does not change."""

    pop = popitem = clear = update = setdefault = __setitem__ = __delitem__ = __ior__ = _refuse

    def __hash__(self):
        return hash(frozenset(self.items()))

    def __reduce__(self):
        return type(self), (tuple(self.items()),)


_register(immutable_list, lambda d: (list(d), None), lambda values, _: immutable_list(values))
_register(
    immutable_dict,
    lambda d: (list(d.values()), list(d)),
    lambda values, keys: immutable_dict(zip(keys, values, strict=True)),
)
