"""torch._dynamo.decorators.leaf_function: a function that captured functions call as it is, wherever it stands."""

import functools
import inspect
import re
import sys

from mica import _C
from mica._higher_order_ops.recorders import recorder
from mica.compiler import _running

__all__ = ["leaf_function"]


def leaf_function(fn=None, *, mutates_args=None):
    """A function that runs uncompiled within compiled ones, also with fullgraph=True. What it computes with values, prints
    or logs happens on every call.

    As in torch, it needs a function that makes results without values (`@f.register_fake`), which is not called here.
    `mutates_args` names arguments that it changes, which is seen here without it.
    """
    if fn is None:
        return functools.partial(leaf_function, mutates_args=mutates_args)
    known = set(inspect.signature(fn).parameters) if mutates_args else ()
    for expression in mutates_args or ():
        root = re.split(r"[.\[]", expression, maxsplit=1)[0]
        if root not in known:
            raise ValueError(
                f"mutates_args expression '{expression}' refers to parameter '{root}', which is not a parameter of "
                f"'{fn.__name__}'. Available parameters: {', '.join(sorted(known))}"
            )

    @functools.wraps(fn)
    def leaf(*args, **kwargs):
        if leaf._torchdynamo_leaf_fake_fn is None:
            raise ValueError(
                f"leaf_function '{getattr(fn, '__name__', fn)}' requires a fake implementation. Please provide one using the "
                "@<func>.register_fake decorator."
            )
        return _called(fn, args, kwargs)

    def register_fake(fake_fn):
        leaf._torchdynamo_leaf_fake_fn = fake_fn
        return leaf

    leaf._torchdynamo_leaf_real_fn, leaf._torchdynamo_leaf_fake_fn = fn, None
    leaf.register_fake = register_fake
    return leaf


def _called(fn, args, kwargs):
    """The result of the function, which no graph holds."""
    capture = sys.modules.get("mica._dynamo.capture")
    if capture is not None and (now := capture.active()) is not None and now.active:
        return now.uncaptured(fn, args, kwargs, whole=False)
    if recorder() is not None:
        raise NotImplementedError(
            f"the program calls the leaf_function {getattr(fn, '__name__', fn)}, and graphs of make_fx and torch.export have "
            "no node for one here; torch.library.custom_op makes an operator that they can hold"
        )
    return _C._call_uncompiled(fn, *args, **kwargs)


_running.mark_opaque(_called)  # its functions may ask for values, also where a function is to be compiled as a whole
