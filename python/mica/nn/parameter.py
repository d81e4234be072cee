"""Parameters, tensors that a module trains, and buffers, which it only carries; and those that have no shape yet."""

from mica import _C
from mica._C import Tensor
from mica._utils import _set_obj_state

__all__ = [
    "Buffer",
    "Parameter",
    "UninitializedBuffer",
    "UninitializedParameter",
    "UninitializedTensorMixin",
    "is_lazy",
]


class _ParameterMeta(type(Tensor)):
    def __instancecheck__(cls, instance):
        """A tensor marked as a parameter is one, whatever its class."""
        if cls is Parameter and isinstance(instance, Tensor) and getattr(instance, "_is_param", False):
            return True
        return super().__instancecheck__(instance)


class Parameter(Tensor, metaclass=_ParameterMeta):
    """A tensor that is trained: a module lists it among its parameters when it is assigned to an attribute.

    Args:
        data: the tensor; an empty one if it is not given
        requires_grad: whether gradients are computed for it

    Example::

        self.scale = nn.Parameter(torch.ones(8))
    """

    def __new__(cls, data=None, requires_grad=True):
        if data is None:
            data = _C.empty(0)
        if type(data) is Tensor or issubclass(type(data), Parameter):  # others may be marked as parameters
            return Tensor._make_subclass(cls, data, requires_grad)
        # A tensor of another subclass keeps its class, and is marked as a parameter.
        made = data.detach().requires_grad_(requires_grad)
        if type(made) is Tensor:  # it was a promise of a captured function, and is its value now
            return Tensor._make_subclass(cls, made, requires_grad)
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

        arguments = (self.data, self.requires_grad, OrderedDict())
        if not self.__dict__:
            return _rebuild_parameter, arguments
        return _rebuild_parameter_with_state, (*arguments, self.__dict__)

    __torch_function__ = _C._disabled_torch_function_impl


def _rebuild_parameter(data, requires_grad, backward_hooks):
    """A parameter from its pickle, in which this function has the name of torch._utils."""
    return Parameter(data, requires_grad)


def _rebuild_parameter_with_state(data, requires_grad, backward_hooks, state):
    """Put a parameter together from a pickle, with the attributes that a program gave it."""
    parameter = _rebuild_parameter(data, requires_grad, backward_hooks)
    _set_obj_state(parameter, state)
    return parameter


class _BufferMeta(type(Tensor)):
    def __instancecheck__(cls, instance):
        """A tensor marked as a buffer is one, whatever its class."""
        if cls is Buffer and isinstance(instance, Tensor) and getattr(instance, "_is_buffer", False):
            return True
        return super().__instancecheck__(instance)


class Buffer(Tensor, metaclass=_BufferMeta):
    """A tensor that a module lists among its buffers when it is assigned to it; in state_dict if it is persistent."""

    def __new__(cls, data=None, *, persistent=True):
        if data is None:
            data = _C.empty(0)
        made = data.detach().requires_grad_(data.requires_grad)
        made.persistent = persistent
        made._is_buffer = True
        return made

    __torch_function__ = _C._disabled_torch_function_impl


class UninitializedTensorMixin:
    """A tensor whose shape is known later, by the first input that a lazy module sees."""

    _values_are_plain = True  # for Tensor's methods that return a value

    # Calls that are allowed: moving, converting, and reading or setting attributes.
    _allowed = frozenset(
        (
            "__hash__",
            "size",
            "copy_",
            "is_complex",
            "is_floating_point",
            "half",
            "float",
            "double",
            "bfloat16",
            "char",
            "short",
            "int",
            "long",
            "cuda",
            "cpu",
            "to",
            "get_device",
            "__get__",
            "__set__",
            "__delete__",
        )
    )

    def materialize(self, shape, device=None, dtype=None):
        """Become an ordinary parameter or buffer of the shape, with uninitialised memory."""
        self.data = _C.empty(shape, device=device or self.data.device, dtype=dtype or self.data.dtype)
        self.__class__ = self.cls_to_become

    @property
    def shape(self):
        raise RuntimeError(
            "Can't access the shape of an uninitialized parameter or buffer. This error usually happens in "
            "`load_state_dict` when trying to load an uninitialized parameter into an initialized one. Call `forward` "
            "to initialize the parameters before accessing their attributes."
        )

    def _refuse(name):
        def method(self, *args):
            return type(self).__torch_function__(getattr(Tensor, name), (type(self),), (self, *args))

        return method

    # Methods that do not ask __torch_function__.
    dim = _refuse("dim")
    ndimension = _refuse("ndimension")
    numel = _refuse("numel")
    nelement = _refuse("nelement")
    item = _refuse("item")
    __len__ = _refuse("__len__")
    del _refuse

    def share_memory_(self):
        raise RuntimeError(
            "Can't share memory on an uninitialized parameter or buffer. Call `forward` to initialize the parameters "
            "before calling `module.share_memory()`."
        )

    def __repr__(self):
        return f"<{type(self).__name__}>"

    def __reduce_ex__(self, protocol):
        return type(self), (self.requires_grad,)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if getattr(func, "__name__", None) in cls._allowed:
            return super().__torch_function__(func, types, args, kwargs or {})
        raise ValueError(
            f"Attempted to use an uninitialized parameter in {func}. This error happens when you are using a "
            f"`LazyModule` or explicitly manipulating `torch.nn.parameter.{cls.__name__}` objects. When using "
            "LazyModules Call `forward` with a dummy batch to initialize the parameters before calling torch functions"
        )


def is_lazy(param):
    """Whether the tensor has no shape yet."""
    return isinstance(param, UninitializedTensorMixin)


class UninitializedParameter(UninitializedTensorMixin, Parameter):
    """A parameter that has no shape yet."""

    cls_to_become = Parameter

    def __new__(cls, requires_grad=True, device=None, dtype=None):
        return Tensor._make_subclass(cls, _C.empty(0, device=device, dtype=dtype), requires_grad)

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.requires_grad, self.data.device, self.data.dtype)
        return memo[id(self)]


class UninitializedBuffer(UninitializedTensorMixin, Tensor):
    """A buffer that has no shape yet."""

    cls_to_become = Tensor

    def __new__(cls, requires_grad=False, device=None, dtype=None, persistent=True):
        made = Tensor._make_subclass(cls, _C.empty(0, device=device, dtype=dtype), requires_grad)
        made.persistent = persistent
        made._is_buffer = True
        return made
