"""What an export leaves as it was: the tensors of the module and of the example, and the attributes of the modules."""

import contextlib
import copy
import operator
import warnings

import mica
from mica.utils._python_dispatch import is_traceable_wrapper_subclass, transform_subclass
from mica.utils._pytree import tree_leaves

__all__ = [
    "copied", "fake_modes", "kept_attributes", "original_state", "real_ones_beside_fakes", "unchanged", "version_of",
]  # fmt: skip

_CONTAINERS = (list, dict, set)


def copied(tensor):
    """A copy without a history. Of a tensor that is made of others, these are copied: what its class makes of `clone` may be something else."""
    if is_traceable_wrapper_subclass(tensor):
        return transform_subclass(tensor, lambda _, part: copied(part))
    return tensor.detach().clone()


def fake_modes(mod, args, kwargs):
    """The modes of the fake tensors among the module's tensors and the example's."""
    from mica._subclasses.fake_tensor import FakeTensor

    tensors = (*mod.parameters(), *mod.buffers(), *tree_leaves((args, kwargs)))
    return list({id(each.fake_mode): each.fake_mode for each in tensors if isinstance(each, FakeTensor)}.values())


@contextlib.contextmanager
def real_ones_beside_fakes(modes):
    """A block in which fake tensors may be computed with real ones: a module has weights, and its example is fake, or the
    other way round."""
    before = [mode.allow_non_fake_inputs for mode in modes]
    for mode in modes:
        mode.allow_non_fake_inputs = True
    try:
        yield
    finally:
        for mode, allowed in zip(modes, before, strict=True):
            mode.allow_non_fake_inputs = allowed


@contextlib.contextmanager
def unchanged(mod, leaves=()):
    """A block after which changes of a module's tensors, and of the other given ones, are undone."""
    tensors = [*mod.buffers(), *mod.parameters(), *(leaf for leaf in leaves if type(leaf) is mica.Tensor)]
    before = [(value, version_of(value), value.detach().clone()) for value in tensors if value.layout is mica.strided]
    leaves = [value for value, _, _ in before if value.is_leaf]
    try:
        yield
    finally:
        for value in leaves:
            if not value.is_leaf:  # it was changed by what requires grad
                value.detach_()
        for value, version, same in before:
            if version is None:
                with mica.inference_mode():
                    value.copy_(same)
            elif value._version != version:
                with mica.no_grad():
                    value.detach().copy_(same)
            elif _differs(value, same):
                value.data.copy_(same)


def _differs(value, same):
    """Whether a tensor has other numbers, though no version says so: batch_norm counts no changes of its statistics."""
    is_real = type(value) in (mica.Tensor, mica.nn.Parameter, mica.nn.Buffer) and value.device.type != "meta"
    return is_real and value.is_floating_point() and not mica.equal(value, same)


def original_state(mod):
    """The parameters and persistent buffers by their paths, whatever hooks make of the module's state_dict."""
    found = {}
    for path, module in mod.named_modules(remove_duplicate=False):
        prefix = f"{path}." if path else ""
        found |= {prefix + name: value for name, value in module._parameters.items() if value is not None}
        found |= {
            prefix + name: value
            for name, value in module._buffers.items()
            if value is not None and name not in module._non_persistent_buffers_set
        }
    return found


def version_of(tensor):
    """How often a tensor was changed; tensors of inference mode do not count that."""
    return None if tensor.is_inference() else tensor._version


@contextlib.contextmanager
def kept_attributes(mod, warns=True):
    """A block after which attributes of the modules are as before. It gives a function that lists (buffer, what was
    assigned to it)."""
    modules = [(path, module, dict(vars(module))) for path, module in mod.named_modules()]
    held = [(each, copy.copy(each)) for _, _, attributes in modules for each in _contents(attributes)]
    tensors = []
    try:
        yield lambda: _replaced(modules, held)
        for path, module, before in modules:
            names = [name for name, value in vars(module).items() if value is not before.get(name)]
            place = f"self.{path}." if path else "self."
            tensors += [place + name for name in names if isinstance(vars(module)[name], mica.Tensor)]
            for name, value in vars(module).items():
                if value is before.get(name) and not name.startswith("_"):
                    tensors += [f"{place}{name}[{key!r}]" for key in _assigned_items(value, held)]
    finally:
        for _, module, before in modules:
            vars(module).clear()
            vars(module).update(before)
        for each, same in held:
            if not isinstance(each, list) or len(each) != len(same) or any(map(operator.is_not, each, same)):
                each.clear()
                each.extend(same) if isinstance(each, list) else each.update(same)
    if tensors and warns:
        several = len(tensors) > 1
        warnings.warn(
            f"The tensor attribute{'s' if several else ''} {', '.join(tensors)} {'were' if several else 'was'} assigned during "
            "export. Such attributes must be registered as buffers using the `register_buffer` API: the program does not keep "
            "them, and the module is as it was",
            UserWarning,
            stacklevel=6,
        )


def _assigned_items(value, held):
    """The keys of tensors that were assigned to a list or a dict that a module holds."""
    was = next((same for each, same in held if each is value), None)
    if was is None or type(value) not in (list, dict) or len(was) != len(value):
        return []
    items = value.items() if isinstance(value, dict) else enumerate(value)
    known = was if isinstance(was, dict) else dict(enumerate(was))
    return [key for key, each in items if isinstance(each, mica.Tensor) and each is not known.get(key)]


def _contents(attributes):
    """The lists, dicts and sets that a module holds, its own of parameters and buffers among them."""
    return [value for value in attributes.values() if type(value) in _CONTAINERS]


def _replaced(modules, held):
    """[(buffer, what was assigned to it)] of all modules."""
    first = {id(each): same for each, same in held}
    found = []
    for _, module, _ in modules:
        before = first[id(module._buffers)]
        for name, value in module._buffers.items():
            if (
                isinstance(value, mica.Tensor)
                and isinstance(before.get(name), mica.Tensor)
                and value is not before[name]
            ):
                found.append((before[name], value))
    return found
