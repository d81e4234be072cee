"""Dictionaries whose keys are held weakly and told apart by identity: tensors compare by element."""

import weakref
from collections.abc import MutableMapping

__all__ = ["TensorWeakRef", "WeakIdKeyDictionary", "WeakIdRef", "WeakTensorKeyDictionary"]


class WeakIdRef(weakref.ref):
    """A weak reference that is equal to another of the same object."""

    __slots__ = ["_id"]

    def __new__(cls, key, callback=None):
        return super().__new__(cls, key, callback)

    def __init__(self, key, callback=None):
        super().__init__(key, callback)
        self._id = id(key)

    def __call__(self):
        return super().__call__()

    def __hash__(self):
        return self._id

    def __eq__(self, other):
        mine, theirs = self(), other()
        return mine is theirs if mine is not None and theirs is not None else self is other

    def __ne__(self, other):
        return not self == other


class TensorWeakRef:
    """A weak reference to a tensor."""

    def __init__(self, tensor):
        self.ref = weakref.ref(tensor)

    def __call__(self):
        return self.ref()


class WeakIdKeyDictionary(MutableMapping):
    """A dictionary by the identity of its keys, which it does not keep alive."""

    def __init__(self, dict=None, ref_type=WeakIdRef):
        self.data = {}
        self.ref_type = ref_type

        owner = weakref.ref(self)

        def remove(reference):
            mapping = owner()
            if mapping is not None:
                mapping.data.pop(reference, None)

        self._remove = remove
        if dict is not None:
            self.update(dict)

    def __getitem__(self, key):
        return self.data[self.ref_type(key)]

    def __setitem__(self, key, value):
        self.data[self.ref_type(key, self._remove)] = value

    def __delitem__(self, key):
        del self.data[self.ref_type(key)]

    def __contains__(self, key):
        try:
            return self.ref_type(key) in self.data
        except TypeError:  # cannot be referred to weakly
            return False

    def __iter__(self):
        for reference in list(self.data):
            key = reference()
            if key is not None:
                yield key

    def __len__(self):
        return sum(reference() is not None for reference in list(self.data))

    def __repr__(self):
        return f"<{type(self).__name__} at {id(self):#x}>"

    def copy(self):
        made = type(self)(ref_type=self.ref_type) if type(self) is WeakIdKeyDictionary else type(self)()
        made.update(self)
        return made

    __copy__ = copy

    def __deepcopy__(self, memo):
        from copy import deepcopy

        made = self.copy()
        for key in list(made):
            made[key] = deepcopy(made[key], memo)
        return made

    def keyrefs(self):
        """References to the keys; some may be dead."""
        return list(self.data)

    def __or__(self, other):
        made = self.copy()
        made.update(other)
        return made

    def __ior__(self, other):
        self.update(other)
        return self

    # As with all mappings that are kept by identity.
    __hash__ = None

    def __eq__(self, other):
        if not isinstance(other, MutableMapping):
            return NotImplemented
        return {id(key): value for key, value in self.items()} == {id(key): value for key, value in other.items()}


WeakTensorKeyDictionary = WeakIdKeyDictionary
