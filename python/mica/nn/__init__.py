"""Parts of networks: modules and their parameters. The functions are in nn.functional."""

from mica.nn.parameter import Buffer, Parameter, UninitializedBuffer, UninitializedParameter  # noqa: F401, I001
from mica.nn.modules import *  # noqa: F403
from mica.nn import functional, grad, init, modules, parallel, parameter, utils  # noqa: F401
from mica.nn.parallel import DataParallel  # noqa: F401

functional.grad = grad


def __getattr__(name):
    import importlib

    if name in ("attention", "intrinsic", "qat", "quantizable", "quantized"):
        return importlib.import_module(f"mica.nn.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def factory_kwargs(kwargs):
    """The keyword arguments of a module that go to the functions which make its tensors. Others are an error."""
    if kwargs is None:
        return {}
    simple = {"device", "dtype", "memory_format"}
    unexpected = kwargs.keys() - simple - {"factory_kwargs"}
    if unexpected:
        raise TypeError(f"unexpected kwargs {unexpected}")
    made = dict(kwargs.get("factory_kwargs", {}))
    for key in simple & kwargs.keys():
        if key in made:
            raise TypeError(f"{key} specified twice, in **kwargs and in factory_kwargs")
        made[key] = kwargs[key]
    return made
