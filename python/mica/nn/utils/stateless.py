"""Calling a module with other tensors in the place of its parameters and buffers."""

import contextlib
import warnings

from mica._C import Tensor
from mica.nn.modules.module import Module

__all__ = ["functional_call"]


_NOTHING = object()


class _Place:
    """Where a parameter or buffer of a full name is kept, or would be."""

    def __init__(self, module, full_name):
        path, _, self.name = full_name.rpartition(".")
        if not self.name:
            raise KeyError('tensor name can\'t be empty string ""')
        for part in path.split(".") if path else ():
            if not hasattr(module, part):
                raise AttributeError(f"{module._get_name()} has no attribute `{part}`")
            module = getattr(module, part)
            if not isinstance(module, Module):
                raise TypeError(f"submodule `{path}`: {module} is not an instance of torch.nn.Module")
        self.module = module

    def swap(self, value):
        """Put a tensor there, past the checks of assignment; returns the one that was there."""
        module, name = self.module, self.name
        if not (value is None or value is _NOTHING or isinstance(value, Tensor)):
            raise TypeError(f"{value} is not an instance of torch.Tensor")
        for members in (module._parameters, module._buffers):
            if name in members:
                before, members[name] = members[name], value
                if value is _NOTHING:
                    del members[name]
                return before
        before = getattr(module, name, _NOTHING)  # a tensor that is a plain attribute, or one the module does not have
        if not (before is None or before is _NOTHING or isinstance(before, Tensor)):
            raise TypeError(f"attribute `{name}`: {before} is not an instance of torch.Tensor")
        if value is not _NOTHING:
            setattr(module, name, value)
        elif before is not _NOTHING:
            delattr(module, name)
        return before


def _all_tensors(module):
    return {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }


def _with_tied_names(module, given):
    """The given tensors under all names of the tensors that have several names."""
    names = {}
    for name, tensor in _all_tensors(module).items():
        names.setdefault(tensor, set()).add(name)
    complete = dict(given)
    for tied in names.values():
        present = tied & given.keys()
        if len(tied) == 1 or not present:
            continue
        if len({id(given[name]) for name in present}) > 1:
            raise ValueError(
                f"functional_call got multiple values for keys {sorted(tied)}, which are tied. Consider using "
                "tie_weights=False"
            )
        complete.update(dict.fromkeys(tied, given[next(iter(present))]))
    return complete


def _check_keys(module, given):
    known = _all_tensors(module).keys()
    problems = []
    for kind, keys in (("Unexpected", given.keys() - known), ("Missing", known - given.keys())):
        if keys:
            problems.append(f"{kind} key(s): {', '.join(map(repr, sorted(keys)))}.")
    if problems:
        details = "\n\t".join(problems)
        raise RuntimeError(f"Error(s) in reparametrizing for {module._get_name()}:\n\t{details}")


@contextlib.contextmanager
def _reparametrize_module(module, parameters_and_buffers, tie_weights=False, strict=False, stack_weights=False):
    given = _with_tied_names(module, parameters_and_buffers) if tie_weights else parameters_and_buffers
    if strict:
        _check_keys(module, given)
    swapped = []
    try:
        for name, value in given.items():
            place = _Place(module, name)
            swapped.append((name, place, place.swap(value)))
        yield
    finally:
        # A tensor that the module has put in the place of a given one, such as a buffer that counts, is returned.
        for name, place, before in reversed(swapped):
            after = place.swap(before)
            if name in parameters_and_buffers and after is not _NOTHING:
                parameters_and_buffers[name] = after


def _functional_call(module, parameters_and_buffers, args=None, kwargs=None, *, tie_weights=True, strict=False):
    if args is None:
        args = ()
    elif not isinstance(args, tuple):
        args = (args,)
    with _reparametrize_module(module, parameters_and_buffers, tie_weights=tie_weights, strict=strict):
        return module(*args, **(kwargs or {}))


def functional_call(module, parameters_and_buffers, args=None, kwargs=None, *, tie_weights=True, strict=False):
    """The older name of torch.func.functional_call."""
    warnings.warn(
        "`torch.nn.utils.stateless.functional_call` is deprecated as of PyTorch 2.0 and will be removed in a future "
        "version of PyTorch. Please use `torch.func.functional_call` instead which is a drop-in replacement.",
        FutureWarning,
        stacklevel=2,
    )
    return _functional_call(module, parameters_and_buffers, args, kwargs, tie_weights=tie_weights, strict=strict)
