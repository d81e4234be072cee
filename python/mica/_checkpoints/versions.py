"""The versions of modules and classes that files were written with."""

import warnings


class SourceChangeWarning(Warning):
    """Would say that a class has changed since it was saved. Files hold no sources here, as in torch's of today."""


def check_module_version_greater_or_equal(module, req_version_tuple, error_if_malformed=True):
    """Whether a module's `__version__` is at least a version, given as a tuple of numbers.

    A version that has no numbers raises RuntimeError, or counts as new enough without `error_if_malformed`.
    """
    try:
        found = tuple(
            type(wanted)(part) for wanted, part in zip(req_version_tuple, module.__version__.split("."), strict=False)
        )
    except ValueError as error:
        message = (
            f"'{module.__name__}' module version string is malformed '{module.__version__}' and cannot be compared with "
            f"tuple {req_version_tuple!s}"
        )
        if error_if_malformed:
            raise RuntimeError(message) from error
        warnings.warn(f"{message}, but continuing assuming that requirement is met", stacklevel=2)
        return True
    return found >= req_version_tuple
