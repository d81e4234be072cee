"""Tensor's methods for copies and pickles."""

from mica import _C
from mica._C import Tensor
from mica._methods.untyped_storage import deepcopy_storage
from mica._utils import _get_obj_state, _rebuild_from_type_v2, _reduce_tensor, _set_obj_state


def __deepcopy__(self, memo):
    if not self.is_leaf:
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment. "
            " If you were attempting to deepcopy a module, this may be because of a torch.nn.utils.weight_norm usage, "
            "see https://github.com/pytorch/pytorch/pull/103001. Copy the values with x.detach().clone()."
        )
    if id(self) in memo:
        return memo[id(self)]
    from copy import deepcopy

    grad_was_enabled = _C.is_grad_enabled()
    _C._set_grad_enabled(False)
    try:
        if (
            self.layout is not _C.strided
            or self.is_quantized
            or self.is_meta
            or self.is_conj()
            or self.is_neg()
            or (type(self) is not Tensor and self.data_ptr() == 0)
            # Such a tensor has no elements of its own.
            or type(self).__torch_dispatch__ is not _C._disabled_torch_dispatch_impl
        ):
            copy = self.clone()
        else:
            untyped = deepcopy_storage(self.untyped_storage(), memo)
            copy = self.new_empty([])._set_storage(untyped, self.storage_offset(), self.size(), self.stride())
        if type(copy) is not type(self):
            raise RuntimeError(
                "The default implementation of __deepcopy__() for subclasses only works where new_empty() and clone() "
                f"return another instance of the same subclass: {type(self).__name__} gave {type(copy).__name__}. "
                "Implement them, or override __deepcopy__()."
            )
        copy.requires_grad_(self.requires_grad)
        if self.grad is not None:
            copy.grad = self.grad.__deepcopy__(memo)
        memo[id(self)] = copy
        state = _get_obj_state(self)
        if state:
            _set_obj_state(copy, deepcopy(state, memo))
    finally:
        _C._set_grad_enabled(grad_was_enabled)
    return copy


def __reduce_ex__(self, protocol):
    state = _get_obj_state(self)
    if type(self) is Tensor and not state:
        return _reduce_tensor(self)
    function, arguments = _reduce_tensor(self)
    return _rebuild_from_type_v2, (function, None if type(self) is Tensor else type(self), arguments, state)


def __setstate__(self, state):
    _set_obj_state(self, state)


METHODS = (__deepcopy__, __reduce_ex__, __setstate__)
