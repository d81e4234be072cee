"""Small parts of torch._inductor.utils that programs use."""

import contextlib

__all__ = ["fresh_cache", "fresh_inductor_cache"]


@contextlib.contextmanager
def fresh_cache(cache_entries=None, dir=None, delete=True):
    """A block that starts without earlier compilations. Mica keeps none on disk, so there are no entries to list."""
    from mica._dynamo import reset

    reset()
    yield


fresh_inductor_cache = fresh_cache
