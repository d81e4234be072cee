"""Fake tensors of one element that a program has made of a number. They keep the number, and so do results that are computed
from such tensors alone.

The real tensors behind them are views of one another where the fake ones are, so that a change in place is seen by all.
Where something unknown is written, what lies in the same memory has no number any more.
"""

import weakref

import mica
from mica import _C
from mica.utils._pytree import tree_leaves, tree_map_only

__all__ = ["follow", "forget_written", "note"]

_MOST = 1  # the most elements of a constant
_DRAWING = ("rand", "bernoulli", "normal", "uniform", "dropout", "multinomial", "poisson", "exponential", "random")


def _memory(fake):
    return _C.TensorBase.untyped_storage(fake)._cdata


def note(mode, fake, real):
    """Let a fake tensor stand for a real one, if that is small."""
    if real.numel() <= _MOST and real.layout is mica.strided and real.device.type == "cpu":
        fake.constant = real
        if len(mode.constants) >= 256:  # drops entries of tensors that are gone
            for key in [key for key, known in mode.constants.items() if all(each() is None for each in known)]:
                del mode.constants[key]
        known = mode.constants.setdefault(_memory(fake), [])
        known[:] = [each for each in known if each() is not None] + [weakref.ref(fake)]


def _forget(mode, fake):
    for each in mode.constants.pop(_memory(fake), ()):
        if (known := each()) is not None:
            known.constant = None


def _written(func, args, kwargs):
    """The fake tensors that an operator writes."""
    names = [a.name for a in func._schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    given = dict(zip((a.name for a in func._schema.arguments), args, strict=False)) | kwargs
    return [leaf for name in names for leaf in tree_leaves(given.get(name)) if isinstance(leaf, _C.TensorBase)]


def forget_written(mode, func, args, kwargs):
    """Forget the numbers of tensors that an operator writes."""
    for fake in _written(func, args, kwargs) if func._schema.is_mutable else ():
        _forget(mode, fake)


def follow(mode, func, args, kwargs, made, fakes):
    """Compute an operator on the real tensors behind its arguments, if all of them have one."""
    is_known = all(fake.constant is not None for fake in fakes) and str(kwargs.get("device", "cpu")) in ("cpu", "None")
    is_known = is_known and fakes and not any(word in func.overloadpacket.__name__ for word in _DRAWING)
    real = _computed(func, args, kwargs) if is_known else None
    if real is None:
        forget_written(mode, func, args, kwargs)
        return
    results = zip(tree_leaves(made), tree_leaves(real), strict=False)
    for fake, each in results:
        if isinstance(each, _C.TensorBase) and getattr(fake, "fake_mode", None) is mode and fake.constant is None:
            note(mode, fake, each)
    for fake in _written(func, args, kwargs):  # a tensor that has grown beyond one element stands for no number
        if fake.constant is not None and fake.constant.numel() > _MOST:
            _forget(mode, fake)


def _computed(func, args, kwargs):
    with mica.utils._python_dispatch._disable_current_modes(), _C.DisableTorchFunction(), mica.no_grad():
        try:
            args, kwargs = tree_map_only(_C.TensorBase, lambda fake: fake.constant, (tuple(args), dict(kwargs)))
            return func(*args, **kwargs)
        except (RuntimeError, ValueError, IndexError, TypeError, NotImplementedError):
            return None
