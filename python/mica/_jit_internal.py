"""Marks that programs put on what TorchScript would compile, by the module that torch has them in.

A mark is kept on the function, as in torch; what is marked runs as the Python it is.
"""

from typing import Final  # noqa: F401


class FunctionModifiers:
    """The marks that a function can have in its `_torchscript_modifier`, as in torch."""

    UNUSED = "unused (ignored and replaced with raising of an exception)"
    IGNORE = "ignore (leave as a call to Python, cannot be torch.jit.save'd)"
    EXPORT = "export (compile this function even if nothing calls it)"
    DEFAULT = "default (compile if called from a exported function / forward)"
    COPY_TO_SCRIPT_WRAPPER = "if this method is not scripted, copy the python method onto the scripted model"


def _marked(fn, modifier):
    fn._torchscript_modifier = modifier
    return fn


def export(fn):
    """Mark a method: it would be compiled even if nothing calls it."""
    return _marked(fn, FunctionModifiers.EXPORT)


def unused(fn):
    """Mark a function: a compiled program would raise where it is called."""
    if isinstance(fn, property):
        for accessor in (fn.fget, fn.fset):
            if accessor is not None:
                _marked(accessor, FunctionModifiers.UNUSED)
        return fn
    return _marked(fn, FunctionModifiers.UNUSED)


def ignore(drop=False, **kwargs):
    """Mark a function, with arguments or without: a compiled program would call the Python function."""
    if callable(drop):
        return _marked(drop, FunctionModifiers.IGNORE)
    if not isinstance(drop, bool):
        raise RuntimeError(f"Argument to @torch.jit.ignore must be a bool or a function but got {drop}")
    return lambda fn: _marked(fn, FunctionModifiers.UNUSED if drop else FunctionModifiers.IGNORE)


def _copy_to_script_wrapper(fn):
    return _marked(fn, FunctionModifiers.COPY_TO_SCRIPT_WRAPPER)


def _overload(fn):
    """Leaves a declaration of types as it is: the definition that follows it is what runs."""
    return fn


def _overload_method(fn):
    """Leaves a declaration of types as it is: the definition that follows it is what runs."""
    return fn


def is_scripting():
    """False: nothing runs compiled."""
    return False


def is_tracing():
    """False: nothing is traced."""
    return False


class Future:
    """The type of what torch.jit.fork returns."""


class BroadcastingListCls:
    def __getitem__(self, types):
        return None


BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = BroadcastingListCls()


def boolean_dispatch(arg_name, arg_index, default, if_true, if_false, module_name, func_name):
    """A function that is one of two, by an argument."""

    def fn(*args, **kwargs):
        flag = kwargs.get(arg_name, args[arg_index] if arg_index < len(args) else default)
        return (if_true if flag else if_false)(*args, **kwargs)

    fn.__name__ = func_name or fn.__name__
    if module_name is not None:
        fn.__module__ = module_name
    return fn


def assert_int_or_pair(arg, arg_name, message):
    """Raise AssertionError, with the message and the name, unless the argument is an int or has two items."""
    if not isinstance(arg, int) and len(arg) != 2:
        raise AssertionError(message.format(arg_name))
