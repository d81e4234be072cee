"""The warning that typed storages are old, and how often it comes."""

from mica._functions.once import forget, warn_once

_OLD = (
    "TypedStorage is deprecated. It will be removed in the future and UntypedStorage will be the only storage "
    "class. This should only matter to you if you are using storages directly.  To access UntypedStorage directly, "
    "use tensor.untyped_storage() instead of tensor.storage()"
)
_always_warn = False


def warn_of_typed_storage(stacklevel):
    """Say that typed storages are old: once, unless a program wants to hear it always."""
    if _always_warn:
        import warnings  # imported here, so that importing mica does not load it

        warnings.warn(_OLD, UserWarning, stacklevel=stacklevel + 1)
    else:
        warn_once(_OLD, stacklevel=stacklevel + 1)


def _get_always_warn_typed_storage_removal():
    return _always_warn


def _set_always_warn_typed_storage_removal(always_warn):
    global _always_warn
    if not isinstance(always_warn, bool):
        raise AssertionError(f"always_warn must be bool, got {type(always_warn)}")
    _always_warn = always_warn


def _reset_warn_typed_storage_removal():
    forget(_OLD)
