"""Context managers that are decorators too."""

import functools
import warnings

_GENERATOR = 0x20  # the flag of a generator function's code; the inspect module takes long to import


def _is_generator_function(function):
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None)
    return code is not None and bool(code.co_flags & _GENERATOR)


def _wrap_generator(make_context, function):
    """Wraps a generator function so that each of its steps runs in a new context, and the caller between steps does not."""

    @functools.wraps(function)
    def generator(*args, **kwargs):
        inner = function(*args, **kwargs)
        try:
            with make_context():
                value = inner.send(None)
            while True:
                try:
                    sent = yield value
                except GeneratorExit:
                    with make_context():
                        inner.close()
                    raise
                except BaseException as thrown:
                    with make_context():
                        value = inner.throw(thrown)
                else:
                    with make_context():
                        value = inner.send(sent)
        except StopIteration as stop:
            return stop.value

    return generator


def context_decorator(context, function):
    """`function` run within `context`, a context manager or a function that makes one."""
    make_context = context if callable(context) and not hasattr(context, "__enter__") else lambda: context
    if isinstance(function, type):
        raise RuntimeError(f"Cannot decorate classes; it is ambiguous whether to decorate {function.__name__}.__init__")
    if _is_generator_function(function):
        return _wrap_generator(make_context, function)

    @functools.wraps(function)
    def decorated(*args, **kwargs):
        with make_context():
            return function(*args, **kwargs)

    return decorated


class _DecoratorContextManager:
    """Base of context managers that decorate: each call of the function enters a fresh copy of the manager."""

    def __call__(self, function):
        if isinstance(function, type):
            warnings.warn(
                "Decorating classes is deprecated and will be disabled in future versions. You should only decorate "
                "functions or methods: decorate `__init__` to keep what this does.",
                FutureWarning,
                stacklevel=2,
            )
            made = function
            return functools.wraps(made, updated=())(
                context_decorator(self.clone, lambda *args, **kwargs: made(*args, **kwargs))
            )
        return context_decorator(self.clone, function)

    def __enter__(self):
        raise NotImplementedError

    def __exit__(self, *exception):
        raise NotImplementedError

    def clone(self):
        return type(self)()


class _NoParamDecoratorContextManager(_DecoratorContextManager):
    """One that may stand above a function without parentheses."""

    def __new__(cls, function=None):
        return super().__new__(cls) if function is None else cls()(function)
