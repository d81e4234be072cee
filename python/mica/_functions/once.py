"""Warnings that a program gets once."""

from mica import _C

_said = set()


def warn_once(text, category=UserWarning, stacklevel=1):
    """Warn the first time that this is to be said, or always after torch.set_warn_always(True)."""
    if text in _said and not _C._is_warn_always():
        return
    _said.add(text)
    import warnings

    warnings.warn(text, category, stacklevel=stacklevel + 1)


def forget(text):
    """Forget that a warning was given, so that it is given once more."""
    _said.discard(text)
