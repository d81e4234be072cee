"""Parameters that are computed from others: a parametrized tensor becomes a property of the module's class."""

import copyreg
from collections.abc import Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy

from mica._C import Tensor
from mica.autograd.grad_mode import no_grad
from mica.nn.modules._conversion import _swaps
from mica.nn.modules.container import ModuleDict, ModuleList
from mica.nn.parameter import Parameter

__all__ = [
    "ParametrizationList",
    "cached",
    "is_parametrized",
    "register_parametrization",
    "remove_parametrizations",
    "transfer_parametrizations_and_params",
    "type_before_parametrizations",
]

_cache_enabled = 0  # how many `cached` blocks are open
_cache = {}  # (id of the module, name) -> tensor


@contextmanager
def cached():
    """Within the block, each parametrized tensor is computed once and then kept."""
    global _cache_enabled
    _cache_enabled += 1
    try:
        yield
    finally:
        _cache_enabled -= 1
        if not _cache_enabled:
            _cache.clear()


def _become(original, new):
    """Give the original the values of another tensor. One of a class that wraps others has no values to take: the two
    are swapped."""
    if new is original:
        return
    if not _swaps(original) and not _swaps(new):
        original.set_(new)
        return
    from mica.utils import swap_tensors

    if isinstance(original, Parameter) and not isinstance(new, Parameter):
        new = Parameter(new, requires_grad=original.requires_grad)
    swap_tensors(original, new)


def _register(module, name, tensor):
    if isinstance(tensor, Parameter):
        module.register_parameter(name, tensor)
    else:
        module.register_buffer(name, tensor)


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, called one after the other, and the tensor or tensors they start from."""

    def __init__(self, modules, original, unsafe=False):
        if len(modules) == 0:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        shape, dtype = original.shape, original.dtype
        new = self._inverted(original)
        self.is_tensor = isinstance(new, Tensor)
        self.ntensors = 1 if self.is_tensor else len(new)
        if self.is_tensor:
            for what in ("dtype", "device"):
                if getattr(original, what) != getattr(new, what):
                    raise ValueError(
                        f"When `right_inverse` outputs one tensor, it may not change the {what}.\n"
                        f"original.{what}: {getattr(original, what)}\n"
                        f"right_inverse(original).{what}: {getattr(new, what)}"
                    )
            with no_grad():
                _become(original, new)
            _register(self, "original", original)
        else:
            self._register_sequence(new, original)
        if not unsafe:
            self._check_result(shape, dtype)

    def _inverted(self, original):
        """The tensors from which the parametrizations compute the original, as far as they have a right_inverse."""
        with no_grad():
            new = original
            for module in reversed(self):
                if hasattr(module, "right_inverse"):
                    with suppress(NotImplementedError):
                        new = module.right_inverse(new)
        if not isinstance(new, (Tensor, Sequence)):
            raise ValueError(
                "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). Got "
                f"{type(new).__name__}"
            )
        return new

    def _register_sequence(self, tensors, original):
        for i, tensor in enumerate(tensors):
            if not isinstance(tensor, Tensor):
                raise ValueError(
                    "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). Got element "
                    f"{i} of the sequence with type {type(tensor).__name__}."
                )
            if isinstance(original, Parameter):
                tensor = Parameter(tensor, original.requires_grad)
            tensor.requires_grad_(original.requires_grad)
            _register(self, f"original{i}", tensor)

    def _check_result(self, shape, dtype):
        result = self()
        if not isinstance(result, Tensor):
            raise ValueError(f"A parametrization must return a tensor. Got {type(result).__name__}.")
        for what, before in (("dtype", dtype), ("shape", shape)):
            if getattr(result, what) != before:
                raise ValueError(
                    f"Registering a parametrization may not change the {what} of the tensor, unless `unsafe` flag is "
                    f"enabled.\nunparametrized {what}: {before}\nparametrized {what}: {getattr(result, what)}"
                )

    def right_inverse(self, value):
        """Set what the parametrizations start from so that they give the value."""
        with no_grad():
            for module in reversed(self):
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(f"parametrization {type(module).__name__} does not implement right_inverse.")
                value = module.right_inverse(value)
            if self.is_tensor:
                if not isinstance(value, Tensor):
                    raise ValueError(f"`right_inverse` should return a tensor. Got {type(value).__name__}")
                self._set("original", "The tensor", value)
                return
            if not isinstance(value, Sequence):
                raise ValueError(f"'right_inverse' must return a sequence of tensors. Got {type(value).__name__}.")
            if len(value) != self.ntensors:
                raise ValueError(
                    f"'right_inverse' must return a sequence of tensors of length {self.ntensors}. Got a sequence of "
                    f"length {len(value)}."
                )
            for i, tensor in enumerate(value):
                if not isinstance(tensor, Tensor):
                    raise ValueError(
                        "'right_inverse' must return a sequence of tensors or reference-type opaques. Got element "
                        f"{i} of type {type(tensor).__name__}."
                    )
                self._set(f"original{i}", f"Tensor {i}", tensor)

    def _set(self, name, what, value):
        original = getattr(self, name)
        if value.dtype != original.dtype:
            raise ValueError(
                f"{what} returned by `right_inverse` has dtype {value.dtype} while `{name}` has dtype {original.dtype}"
            )
        _become(original, value)

    def forward(self):
        if self.is_tensor:
            originals = (self.original,)
        else:
            originals = (getattr(self, f"original{i}") for i in range(self.ntensors))
        first, *others = self
        value = first(*originals)
        for module in others:
            value = module(value)
        return value


# ---- classes of modules that have parametrizations


def _deepcopy_parametrized(self, memo):
    if id(self) in memo:
        return memo[id(self)]
    copy = self.__new__(type(self))
    memo[id(self)] = copy
    copy.__dict__ = deepcopy(self.__dict__, memo)
    for slot in copyreg._slotnames(type(self)):
        if hasattr(self, slot):
            setattr(copy, slot, deepcopy(getattr(self, slot), memo))
    return copy


def _refuse_pickling(self):
    raise RuntimeError("Serialization of parametrized modules is only supported through state_dict().")


def _inject_new_class(module):
    """Give the module a class of its own, derived from the one it has."""
    base = type(module)
    members = {"__getstate__": _refuse_pickling}
    if not hasattr(base, "__deepcopy__"):
        members["__deepcopy__"] = _deepcopy_parametrized
    module.__class__ = type(f"Parametrized{base.__name__}", (base,), members)


def _inject_property(module, name):
    """Make the attribute compute the tensor; to set it goes through right_inverse."""

    def get(self):
        parametrizations = self.parametrizations[name]
        if not _cache_enabled:
            return parametrizations()
        key = (id(self), name)
        if key not in _cache:
            _cache[key] = parametrizations()
        return _cache[key]

    def set(self, value):
        self.parametrizations[name].right_inverse(value)

    setattr(type(module), name, property(get, set))


def _check_appended(module, name, parametrization):
    """One more parametrization must leave dtype and shape as they are."""

    def check(value, what, said):
        if getattr(value, what) != getattr(before, what):
            raise ValueError(
                f"{said}, unless the `unsafe` flag is enabled.\nmodule.{name}.{what}: {getattr(before, what)}\n"
            )

    before = getattr(module, name)
    after = parametrization(before)
    if not isinstance(after, Tensor):
        raise ValueError(f"A parametrization must return a tensor. Got {type(after).__name__}.")
    for what in ("dtype", "shape"):
        check(after, what, f"Registering a parametrization may not change the {what} of the tensor")
    if not hasattr(parametrization, "right_inverse"):
        return
    try:
        inverse = parametrization.right_inverse(after)
    except NotImplementedError:
        return
    if not isinstance(inverse, Tensor):
        raise ValueError(f"parametrization.right_inverse must return a tensor. Got: {type(inverse).__name__}")
    for what in ("dtype", "shape"):
        said = f"The tensor returned by parametrization.right_inverse must have the same {what} as module.{name}"
        check(inverse, what, said)


def register_parametrization(module, tensor_name, parametrization, *, unsafe=False):
    """Compute a parameter or buffer by a module from what is trained in its place.

    A parametrization with a `right_inverse` keeps the value it has; one that is registered later is called after the
    earlier ones. `unsafe` allows it to change dtype and shape.
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        if not unsafe:
            _check_appended(module, tensor_name, parametrization)
        parametrizations = module.parametrizations[tensor_name]
        parametrizations.append(parametrization)
        parametrizations.unsafe |= unsafe
    elif tensor_name in module._buffers or tensor_name in module._parameters:
        original = getattr(module, tensor_name)
        parametrizations = ParametrizationList([parametrization], original, unsafe=unsafe)
        delattr(module, tensor_name)
        if not is_parametrized(module):
            _inject_new_class(module)
            module.parametrizations = ModuleDict()
        _inject_property(module, tensor_name)
        module.parametrizations[tensor_name] = parametrizations
    else:
        raise ValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element with name "
            f"'{tensor_name}'"
        )
    return module


def is_parametrized(module, tensor_name=None):
    """Whether the module has parametrizations, of the tensor or of any."""
    parametrizations = getattr(module, "parametrizations", None)
    if not isinstance(parametrizations, ModuleDict):
        return False
    return len(parametrizations) > 0 if tensor_name is None else tensor_name in parametrizations


def remove_parametrizations(module, tensor_name, leave_parametrized=True):
    """Make the tensor a plain one again, with its computed value, or with the original with leave_parametrized=False."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    parametrizations = module.parametrizations[tensor_name]
    if parametrizations.is_tensor:
        original = parametrizations.original
        if leave_parametrized:
            with no_grad():
                _become(original, getattr(module, tensor_name))
    elif leave_parametrized:
        value = getattr(module, tensor_name)
        original = Parameter(value) if value.requires_grad else value
    else:
        raise ValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is parametrized in terms of a "
            "sequence of tensors."
        )
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    _register(module, tensor_name, original)
    if not is_parametrized(module):
        del module.parametrizations
        module.__class__ = type(module).__bases__[0]
    return module


def type_before_parametrizations(module):
    """The class that the module had before it was parametrized."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(from_module, to_module, tensor_name=None):
    """Give a module the parametrizations of another, and what they start from."""
    if not is_parametrized(from_module):
        return to_module
    for name in list(from_module.parametrizations) if tensor_name is None else [tensor_name]:
        source = from_module.parametrizations[name]
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(getattr(from_module, name)))
        for parametrization in source:
            register_parametrization(to_module, name, parametrization)
        target = to_module.parametrizations[name]
        for original in ["original"] if source.is_tensor else [f"original{i}" for i in range(source.ntensors)]:
            setattr(target, original, getattr(source, original))
    return to_module
