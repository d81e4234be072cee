"""Parameters: tensors that a module trains."""

from mica import _C
from mica._C import Tensor


class _ParameterMeta(type(Tensor)):
    def __instancecheck__(cls, instance):
        """A tensor marked as a parameter is one, whatever its class."""
        if cls is Parameter and isinstance(instance, Tensor) and getattr(instance, "_is_param", False):
            return True
        return super().__instancecheck__(instance)


class Parameter(Tensor, metaclass=_ParameterMeta):
    """A tensor that a module lists among its parameters when it is assigned to it."""

    def __new__(cls, data=None, requires_grad=True):
        if data is None:
            data = _C.empty(0)
        if type(data) is Tensor or isinstance(data, Parameter):
            return Tensor._make_subclass(cls, data, requires_grad)
        # Of another subclass: the tensor stays what it is, and is marked.
        made = data.detach().requires_grad_(requires_grad)
        if type(made) is not type(data):
            raise RuntimeError(
                f"Creating a Parameter from an instance of type {type(data).__name__} requires that detach() returns "
                f"an instance of the same type, but it returned {type(made).__name__}"
            )
        made._is_param = True
        return made

    def __deepcopy__(self, memo):
        if id(self) in memo:
            return memo[id(self)]
        from copy import deepcopy

        copy = type(self)(self.data.clone(memory_format=_C.preserve_format), self.requires_grad)
        memo[id(self)] = copy
        if self.__dict__:
            copy.__dict__.update(deepcopy(self.__dict__, memo))
        return copy

    def __repr__(self):
        return f"Parameter containing:\n{self.data.requires_grad_(self.requires_grad)!r}"

    def __reduce_ex__(self, protocol):
        from collections import OrderedDict

        from mica._utils import _rebuild_parameter, _rebuild_parameter_with_state

        arguments = (self.data, self.requires_grad, OrderedDict())
        if not self.__dict__:
            return _rebuild_parameter, arguments
        return _rebuild_parameter_with_state, (*arguments, self.__dict__)

    __torch_function__ = _C._disabled_torch_function_impl
