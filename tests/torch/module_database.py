"""torch's own databases of modules and optimizers as judges of Mica: what carries their inputs over."""

import dataclasses
import types

import mica
import torch
from operator_database import in_mica, tensor_in_mica
from torch.nn.utils.rnn import PackedSequence


def thinned(cases, at_most):
    """At most so many of them, from everywhere in the list."""
    cases = list(cases)
    return cases[:: -(-len(cases) // at_most)] if cases else cases


def mapped(function, value):
    """The function applied to all that lists, tuples and dictionaries hold."""
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return type(value)(mapped(function, each) for each in value)
    if isinstance(value, dict):
        return {key: mapped(function, each) for key, each in value.items()}
    return function(value)


def carried(value):
    """The Mica counterpart of what modules and optimizers are given."""
    return mapped(_carried, value)


def _carried(value):
    if isinstance(value, torch.nn.Parameter):
        return mica.nn.Parameter(tensor_in_mica(value.detach()), value.requires_grad)
    if isinstance(value, torch.nn.Module):
        return module_in_mica(value)
    if isinstance(value, PackedSequence):
        return mica.nn.utils.rnn.PackedSequence(*map(in_mica, value))
    if type(value).__name__ == "LinearCrossEntropyOptions":  # torch 2.11 has no such class
        fields = {each.name: in_mica(getattr(value, each.name)) for each in dataclasses.fields(value)}
        return mica.nn.LinearCrossEntropyOptions(**fields)
    if isinstance(value, types.FunctionType | types.BuiltinFunctionType):
        for theirs, ours in ((torch.nn.functional, mica.nn.functional), (torch, mica)):
            if getattr(theirs, value.__name__, None) is value:
                return getattr(ours, value.__name__)
    return in_mica(value)


BARE = torch.nn.Module()


def module_in_mica(module):
    """A module of the same class with the same parts."""
    cls = getattr(mica.nn, type(module).__name__, None) or getattr(
        mica.nn.modules.linear, type(module).__name__
    )  # a class of torch's that is not in torch.nn
    ours = cls.__new__(cls)
    mica.nn.Module.__init__(ours)
    for name, value in vars(module).items():
        if name == "training" or not hasattr(BARE, name):
            setattr(ours, name, carried(value))
    for kind in ("_parameters", "_buffers", "_modules"):
        for name, value in getattr(module, kind).items():
            getattr(ours, kind)[name] = None if value is None else carried(value)
    return ours


def leaves(value):
    """The same with tensors of their own, so that gradients of one run do not reach another."""
    return mapped(
        lambda t: t.detach().clone().requires_grad_(t.requires_grad) if isinstance(t, torch.Tensor) else t, value
    )


def strided(value):
    """The same in every second element of memory."""

    def change(t):
        if not isinstance(t, torch.Tensor) or t.dim() == 0:
            return t
        return torch.stack([t, t], -1)[..., 0].detach().requires_grad_(t.requires_grad)

    return mapped(change, value)


def channels_last(value):
    def change(t):
        if not isinstance(t, torch.Tensor) or t.dim() not in (4, 5):
            return t
        order = torch.channels_last if t.dim() == 4 else torch.channels_last_3d
        return t.detach().to(memory_format=order).requires_grad_(t.requires_grad)

    return mapped(change, value)


def plain(value):
    """Packed sequences as tuples."""
    return tuple(value) if type(value).__name__ == "PackedSequence" else value


def floating(value):
    """All tensors that have a gradient, in order."""
    if isinstance(value, torch.Tensor | mica.Tensor):
        return [value] if value.requires_grad else []
    if isinstance(value, dict):
        value = value.values()
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        return []
    return [t for each in value for t in floating(each)]


def random_like(tensors):
    generator = torch.Generator().manual_seed(5)
    return [torch.randn(t.shape, generator=generator, dtype=t.dtype) for t in tensors]


def assert_same_strides(ours, theirs):
    """Where there is more than one element along a dimension."""
    if isinstance(theirs, torch.Tensor) and theirs.numel():
        a, b = ([s for n, s in zip(t.shape, t.stride(), strict=True) if n > 1] for t in (ours, theirs))
        assert a == b, f"strides {ours.stride()}, {theirs.stride()} of {tuple(theirs.shape)}"
