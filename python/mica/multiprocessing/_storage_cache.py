"""A cache of storages that came from other processes, so that each is here once."""

import weakref


class StorageWeakRef:
    """Tells whether a storage still exists, and which it was."""

    __slots__ = ("_reference", "cdata")

    def __init__(self, storage):
        untyped = getattr(storage, "_untyped_storage", storage)
        self.cdata = untyped._cdata
        self._reference = weakref.ref(untyped)

    def expired(self):
        return self._reference() is None

    def __hash__(self):
        return hash(self.cdata)

    def __eq__(self, other):
        return isinstance(other, StorageWeakRef) and self.cdata == other.cdata


class SharedCache(dict):
    """Storages that came from other processes, by what names their memory: one that comes again is the same object."""

    def __init__(self):
        super().__init__()
        self.limit = 128

    def __setitem__(self, key, storage_ref):
        super().__setitem__(key, storage_ref)
        if len(self) > self.limit:
            self.free_dead_references()

    def free_dead_references(self):
        """Forget storages that are gone."""
        for key, reference in list(self.items()):
            if reference.expired():
                self.pop(key, None)
        self.limit = max(128, 2 * len(self))


shared_cache = SharedCache()


def storage_from_cache(cls, key):
    """The storage of this key, if it still exists."""
    reference = shared_cache.get(key)
    return None if reference is None else reference._reference()
