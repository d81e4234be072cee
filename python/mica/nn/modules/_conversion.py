"""Changing all tensors of a module: their device, dtype, memory format."""

import warnings

from mica import _C
from mica._C import Tensor
from mica.autograd.grad_mode import no_grad
from mica.nn.parameter import Parameter


def _parse_to(*args, memory_format=None, **kwargs):
    """The device, dtype, non_blocking and memory format that the arguments of `to` say."""
    names = ("device", "dtype", "non_blocking", "copy")
    if "tensor" in kwargs or "other" in kwargs:
        args = (kwargs.pop("tensor", None) or kwargs.pop("other", None), *args)
    if args and isinstance(args[0], Tensor):
        args = (args[0].device, args[0].dtype, *args[1:])
    elif args and isinstance(args[0], _C.dtype):
        args = (None, *args)
    values = dict(zip(names, args, strict=False))
    nothing = not args and not kwargs and memory_format is None
    if nothing or len(args) > len(names) or not kwargs.keys() <= set(names) - values.keys():
        raise TypeError(
            "to() received an invalid combination of arguments. It takes (device, dtype, non_blocking), (dtype, "
            "non_blocking) or (tensor, non_blocking), and memory_format by name"
        )
    values |= kwargs
    if values.get("copy"):
        raise RuntimeError(".to() does not accept copy argument")
    device, dtype = values.get("device"), values.get("dtype")
    if dtype is not None and not isinstance(dtype, _C.dtype):
        raise TypeError(f"to(): argument 'dtype' must be torch.dtype, not {type(dtype).__name__}")
    return None if device is None else _C.device(device), dtype, bool(values.get("non_blocking")), memory_format


def _keeps_identity(tensor, changed):
    """Whether a converted tensor is put into the old tensor object, so that optimizers and others still hold it."""
    from mica import __future__ as settings

    if settings.get_overwrite_module_params_on_conversion():
        return False
    return tensor.is_meta == changed.is_meta and tensor.layout == changed.layout


def _swaps(changed):
    """Whether the objects of a parameter and of its converted tensor are swapped: where the program asks for it, and for wrapper
    subclasses."""
    from mica import __future__ as settings

    if settings.get_swap_module_params_on_conversion():
        return True
    if type(changed) in (Tensor, Parameter):
        return False
    from mica.utils._python_dispatch import is_traceable_wrapper_subclass

    return is_traceable_wrapper_subclass(changed)


class ModuleConversion:
    """The part of Module that converts its tensors."""

    __slots__ = ()

    def _apply(self, fn, recurse=True):
        """Replace every tensor by what fn makes of it: parameters, their gradients, buffers."""
        if recurse:
            for module in self.children():
                module._apply(fn)
        for name, parameter in self._parameters.items():
            if parameter is not None:
                self._apply_to_parameter(fn, name, parameter)
        for name, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[name] = fn(buffer)
        return self

    def _apply_to_parameter(self, fn, name, parameter):
        grad = parameter.grad
        with no_grad():
            changed = fn(parameter)
        if _swaps(changed):
            self._swap_parameter(fn, name, parameter, changed, grad)
            return
        if _keeps_identity(parameter, changed):
            parameter.data = changed
        else:
            parameter = self._parameters[name] = Parameter(changed, parameter.requires_grad)
        if grad is None:
            return
        with no_grad():
            changed = fn(grad)
        if parameter.grad is not None and _keeps_identity(grad, changed):
            parameter.grad.data = changed
        else:
            parameter.grad = changed.requires_grad_(grad.requires_grad)

    def _swap_parameter(self, fn, name, parameter, changed, grad):
        """Let the parameter's object stand for the changed tensor, and its gradient's likewise."""
        from mica.utils import swap_tensors

        try:
            parameter.grad = None  # another reference would keep it from being swapped
            swap_tensors(parameter, Parameter(changed, requires_grad=parameter.requires_grad))
        except Exception as error:
            parameter.grad = grad
            raise RuntimeError(f"_apply(): Couldn't swap {self._get_name()}.{name}") from error
        if grad is None:
            return
        with no_grad():
            changed = fn(grad).requires_grad_(grad.requires_grad)
        try:
            swap_tensors(grad, changed)
        except Exception as error:
            raise RuntimeError(f"_apply(): Couldn't swap {self._get_name()}.{name}.grad") from error
        parameter.grad = grad

    def _cast(self, dtype):
        return self._apply(lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor)

    def float(self):
        """Make all floating-point tensors float32."""
        return self._cast(_C.float32)

    def double(self):
        """Make all floating-point tensors float64."""
        return self._cast(_C.float64)

    def half(self):
        """Make all floating-point tensors float16."""
        return self._cast(_C.float16)

    def bfloat16(self):
        """Make all floating-point tensors bfloat16."""
        return self._cast(_C.bfloat16)

    def type(self, dst_type):
        """Make all tensors of the type."""
        return self._apply(lambda tensor: tensor.type(dst_type))

    def cpu(self):
        """Move all tensors to the CPU."""
        return self._apply(lambda tensor: tensor.cpu())

    def cuda(self, device=None):
        """Move all tensors to a GPU."""
        return self._apply(lambda tensor: tensor.cuda(device))

    def xpu(self, device=None):
        """Move all tensors to a device of Intel's."""
        return self._apply(lambda tensor: tensor.xpu(device))

    def mtia(self, device=None):
        """Move all tensors to an accelerator of Meta's."""
        return self._apply(lambda tensor: tensor.mtia(device))

    def ipu(self, device=None):
        """Move all tensors to a processor of Graphcore's."""
        return self._apply(lambda tensor: tensor.ipu(device))

    def to(self, *args, **kwargs):
        """Move or convert all tensors: to(device, dtype), to(dtype), to(tensor), with memory_format by name.

        A dtype applies to floating-point and complex tensors, a memory format to those of four or five dimensions.
        """
        device, dtype, non_blocking, memory_format = _parse_to(*args, **kwargs)
        if dtype is not None:
            if not (dtype.is_floating_point or dtype.is_complex):
                raise TypeError(
                    f"nn.Module.to only accepts floating point or complex dtypes, but got desired dtype={dtype}"
                )
            if dtype.is_complex:
                warnings.warn(
                    "Complex modules are a new feature under active development whose design may change, and some "
                    "modules might not work as expected when using complex tensors as parameters or buffers.",
                    stacklevel=2,
                )

        def convert(tensor):
            own_dtype = dtype if tensor.is_floating_point() or tensor.is_complex() else None
            formats = {"memory_format": memory_format} if memory_format is not None and tensor.dim() in (4, 5) else {}
            try:
                return tensor.to(device=device, dtype=own_dtype, non_blocking=non_blocking, **formats)
            except NotImplementedError as error:
                if not str(error).startswith("Cannot copy out of meta tensor; no data!"):
                    raise
                raise NotImplementedError(
                    "Cannot copy out of meta tensor; no data! Please use torch.nn.Module.to_empty() instead of "
                    "torch.nn.Module.to() when moving module from meta to a different device."
                ) from None

        return self._apply(convert)

    def to_empty(self, *, device, recurse=True):
        """Move to a device without copying values: the tensors' memory is uninitialised."""
        return self._apply(lambda tensor: _C.empty_like(tensor, device=device), recurse=recurse)

    def share_memory(self):
        """Move all tensors to memory that other processes can see."""
        return self._apply(lambda tensor: tensor.share_memory_())
