"""Where in a model an error happened: the name of the module, as `named_modules` has it."""


def _path(root, wanted):
    """The name of a module below another one; None if it is not there."""
    open_, seen = [("", root)], set()
    while open_:
        prefix, module = open_.pop()
        for name, child in module.__dict__.get("_modules", {}).items():
            if child is None or id(child) in seen:
                continue
            seen.add(id(child))
            path = f"{prefix}.{name}" if prefix else name
            if child is wanted:
                return path
            open_.append((path, child))
    return None


def _described(module):
    try:
        return f"{module._get_name()}({module.extra_repr()})"
    except Exception:  # a model's own extra_repr may fail; the error at hand matters more
        return type(module).__name__


def locate(module, error):
    """Add to the engine's message in which module of the model it happened; called by each module that it passes."""
    inner, message = error.__dict__.get("_mica_module", (module, error.args[0]))
    path = "" if inner is module else _path(module, inner)
    if path is None:
        return
    error._mica_module = (inner, message)
    where = f"{path}: {_described(inner)}" if path else _described(inner)
    error.args = (f"{message}\n  in {where}", *error.args[1:])


_KINDS = (RuntimeError, ValueError, IndexError, TypeError, AssertionError)


def locate_own(module, error):
    """Adds the module's name to an error that a layer of this package raised itself. A program's own errors stay as they
    are."""
    if type(error) not in _KINDS or not error.args or not isinstance(error.args[0], str):
        return
    innermost = error.__traceback__
    while innermost is not None and innermost.tb_next is not None:
        innermost = innermost.tb_next
    if innermost is not None and str(innermost.tb_frame.f_globals.get("__name__")).startswith("mica.nn."):
        locate(module, error)
