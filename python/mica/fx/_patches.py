"""Changes that a tracer makes while it runs a function: they are taken back."""

import inspect
import types


class Patches:
    """Changes of attributes that are undone at the end of a block."""

    def __init__(self):
        self._undo = []

    def item(self, table, name, value):
        missing = object()
        before = table.get(name, missing)

        def undo():
            if before is missing:
                table.pop(name, None)
            else:
                table[name] = before

        self._undo.append(undo)
        table[name] = value

    def attribute(self, owner, name, value):
        own = name in vars(owner)
        before = vars(owner).get(name)
        self._undo.append(lambda: setattr(owner, name, before) if own else delattr(owner, name))
        setattr(owner, name, value)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        for undo in reversed(self._undo):
            undo()


def star_names(function):
    parameters = inspect.signature(function).parameters.values()
    star = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), None)
    return star, next((p.name for p in parameters if p.kind is p.VAR_KEYWORD), None)


def with_star_parameters(function):
    """The function with *args and **kwargs as ordinary parameters."""
    inner = function.__func__ if inspect.ismethod(function) else function
    code = inner.__code__
    count = code.co_argcount + bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    names = list(code.co_varnames)
    keyword_only = code.co_kwonlyargcount
    if keyword_only:
        raise NotImplementedError(
            "torch.fx cannot trace a function with *args or **kwargs and keyword-only parameters here"
        )
    flags = code.co_flags & ~inspect.CO_VARARGS & ~inspect.CO_VARKEYWORDS
    new = code.replace(co_argcount=count, co_flags=flags, co_varnames=tuple(names))
    made = types.FunctionType(new, inner.__globals__, inner.__name__, inner.__defaults__, inner.__closure__)
    return types.MethodType(made, function.__self__) if inspect.ismethod(function) else made
