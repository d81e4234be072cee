"""Marks for TorchScript, by the module that torch has them in."""

from mica.jit import (  # noqa: F401
    Final,
    Future,
    _overload,
    _overload_method,
    export,
    ignore,
    is_scripting,
    unused,
)


def _copy_to_script_wrapper(fn):
    return fn


def is_tracing():
    return False


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
