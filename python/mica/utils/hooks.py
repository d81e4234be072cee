"""Handles that take hooks off."""

from mica import _C


class _HandleMeta(type):
    """A hook that the engine keeps has a handle of the engine's: it counts as a RemovableHandle."""

    def __instancecheck__(cls, other):
        return super().__instancecheck__(other) or (cls is RemovableHandle and isinstance(other, _C._RemovableHandle))


class RemovableHandle(metaclass=_HandleMeta):
    """Takes a hook out of the dict that holds it; does not keep the dict's owner alive."""

    next_id = 0

    def __init__(self, hooks_dict, *, extra_dict=None):
        import weakref

        extra = [] if extra_dict is None else extra_dict if isinstance(extra_dict, list) else [extra_dict]
        self._dicts = [weakref.ref(each) for each in (hooks_dict, *extra)]
        self.id = RemovableHandle.next_id
        RemovableHandle.next_id += 1

    def remove(self):
        for reference in self._dicts:
            hooks = reference()
            if hooks is not None:
                hooks.pop(self.id, None)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.remove()


def unserializable_hook(function):
    """Mark a hook that is not to be pickled with what it hangs on."""
    function.__torch_unserializable__ = True
    return function
