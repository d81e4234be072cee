"""Special functions: those of the table, and other names of operations that stand in the package itself."""

from mica._functions.families import publish as _publish

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mica._special import *  # noqa: F403

globals().update(_publish("special"))

__all__ = sorted(name for name in globals() if not name.startswith("_") and name != "TYPE_CHECKING")
