"""How pickled and deep-copied tensors are put together again. The names are torch's, for they stand in pickles."""

from mica import _C

_WITHOUT_STORAGE_CLASS = {
    _C.complex32,
    _C.float8_e4m3fn,
    _C.float8_e4m3fnuz,
    _C.float8_e5m2,
    _C.float8_e5m2fnuz,
    _C.float8_e8m0fnu,
    _C.float4_e2m1fn_x2,
    _C.bits8,
    _C.bits16,
    _C.bits1x8,
    _C.bits2x4,
    _C.bits4x2,
    *(getattr(_C, f"{sign}int{bits}") for sign in ("u", "") for bits in range(1, 8)),
    _C.uint16,
    _C.uint32,
    _C.uint64,
}


def _no_hooks():
    """Stands in torch's pickles in the place where older tensors had their hooks."""
    from collections import OrderedDict

    return OrderedDict()


def _rebuild_tensor(storage, storage_offset, size, stride):
    return _C._view_storage(storage._untyped_storage, storage.dtype, storage_offset, size, stride)


def _rebuild_tensor_v2(storage, storage_offset, size, stride, requires_grad, backward_hooks, metadata=None):
    tensor = _with_metadata(_rebuild_tensor(storage, storage_offset, size, stride), metadata)
    tensor.requires_grad = requires_grad
    return tensor


def _rebuild_tensor_v3(storage, storage_offset, size, stride, requires_grad, backward_hooks, dtype, metadata=None):
    """Put a tensor together whose dtype has no storage class: its storage is one of bytes."""
    untyped = getattr(storage, "_untyped_storage", storage)
    tensor = _with_metadata(_C._view_storage(untyped, dtype, storage_offset, size, stride), metadata)
    tensor.requires_grad = requires_grad
    return tensor


def _with_metadata(tensor, metadata):
    """Torch notes here that a tensor is lazily conjugated or negated."""
    if metadata and metadata.get("conj"):
        tensor = tensor.conj()
    if metadata and metadata.get("neg"):
        tensor = _C._neg_view(tensor)
    return tensor


def _rebuild_wrapper_subclass(cls, dtype, size, stride, storage_offset, layout, device, requires_grad):
    """Make a tensor of a class with a __torch_dispatch__: its elements are in its attributes, which are set later."""
    if not (isinstance(cls, type) and issubclass(cls, _C.TensorBase)):
        raise TypeError(f"_rebuild_wrapper_subclass: {cls} is no class of tensors")
    return _C.Tensor._make_wrapper_subclass(
        cls, size, strides=stride, dtype=dtype, storage_offset=storage_offset, layout=layout, device=device,
        requires_grad=requires_grad,
    )  # fmt: skip


def _rebuild_meta_tensor_no_storage(dtype, size, stride, requires_grad):
    return _C.empty_strided(size, stride, dtype=dtype, device="meta", requires_grad=requires_grad)


def _rebuild_sparse_tensor(layout, data):
    """A sparse tensor from its parts, which are checked: they may come from a file."""
    from mica.sparse import sparse_compressed_tensor, sparse_coo_tensor

    if layout == _C.sparse_coo:
        indices, values, size, *coalesced = data
        return sparse_coo_tensor(indices, values, size, is_coalesced=coalesced[0] if coalesced else None)
    if layout not in (_C.sparse_csr, _C.sparse_csc, _C.sparse_bsr, _C.sparse_bsc):
        raise NotImplementedError(f"rebuilding sparse tensor for layout {layout}")
    compressed, plain, values, size = data
    return sparse_compressed_tensor(compressed, plain, values, size, layout=layout)


def _rebuild_nested_tensor(buffer, sizes, strides, storage_offsets):
    """A nested tensor with views of one buffer as its parts."""
    import mica  # the module of nested tensors, whose pickles name this function, imports this file

    return mica.nested._internal.strided.strided_from_geometry(buffer, sizes, strides, storage_offsets)


def _rebuild_from_type_v2(func, new_type, args, state):
    """Rebuild a tensor of a subclass, or one with further attributes. Without a type it is a plain tensor."""
    made = func(*args)
    if new_type is not None and type(made) is not new_type:
        made = made.as_subclass(new_type)
    # Tensor's own method would ask the class, which has none of its attributes yet.
    if getattr(type(made), "__setstate__", _C.Tensor.__setstate__) is not _C.Tensor.__setstate__:
        made.__setstate__(state)
    else:
        _set_obj_state(made, state)
    return made


def _get_obj_state(obj):
    """The state of an object beside the tensor: its dict, and its slots if it has any."""
    import copyreg

    if hasattr(type(obj), "__getstate__") and type(obj).__getstate__ is not object.__getstate__:
        return obj.__getstate__()
    slots = {name: getattr(obj, name) for name in copyreg._slotnames(type(obj)) if hasattr(obj, name)}
    return (obj.__dict__, slots) if slots else obj.__dict__


def _set_obj_state(obj, state):
    """Give an object the state that _get_obj_state has told, and return it."""
    attributes, slots = state if isinstance(state, tuple) else (state, {})
    for name, value in {**(attributes or {}), **(slots or {})}.items():
        setattr(obj, name, value)
    return obj


def _rebuild_qtensor(storage, storage_offset, size, stride, quantizer_params, requires_grad, backward_hooks):
    """A quantized tensor: integers in a storage, and what numbers they stand for."""
    untyped = getattr(storage, "_untyped_storage", storage)
    if storage.dtype in (_C.quint4x2, _C.quint2x4):
        return _rebuild_packed(untyped, storage.dtype, size, quantizer_params)
    dtype = {_C.quint8: _C.uint8, _C.qint8: _C.int8, _C.qint32: _C.int32}.get(storage.dtype, storage.dtype)
    integers = _C._view_storage(untyped, dtype, storage_offset, size, stride)
    scheme, first, *rest = quantizer_params

    def over_storage(copy):
        return copy._set_storage(untyped, storage_offset, size, stride)  # which other tensors of the file may share

    if str(scheme) in ("torch.per_tensor_affine", "torch.per_tensor_symmetric"):
        return over_storage(_C._make_per_tensor_quantized_tensor(integers, first, rest[0]))
    if str(scheme).startswith("torch.per_channel_"):
        scales, zero_points, axis = first, *rest
        if isinstance(scales, (list, tuple)):
            scales, zero_points = _C.tensor(scales, dtype=_C.float64), _C.tensor(zero_points, dtype=_C.int64)
        return over_storage(_C._make_per_channel_quantized_tensor(integers, scales, zero_points, axis))
    raise RuntimeError(f"Can't deserialize quantized tensor with qscheme {scheme}")


def _rebuild_packed(untyped, dtype, size, quantizer_params):
    """Rebuild a tensor of 4-bit or 2-bit integers, whose storage holds fewer bytes than the tensor has elements."""
    count = untyped.nbytes()
    data = _C._view_storage(untyped, _C.uint8, 0, (count,), (1,))
    _, scale, zero_point, *axis = quantizer_params
    if not axis:
        scale, zero_point = _C.tensor(scale, dtype=_C.float64), _C.tensor(zero_point)
    return _C._make_packed_quantized_tensor(data, size, scale, zero_point, axis[0] if axis else -1, dtype)


def _reduce_quantized_tensor(tensor):
    from mica.storage import TypedStorage

    if not tensor._is_quantized_per_channel():
        parameters = (tensor.qscheme(), tensor.q_scale(), tensor.q_zero_point())
    else:
        parameters = (
            tensor.qscheme(),
            tensor.q_per_channel_scales(),
            tensor.q_per_channel_zero_points(),
            tensor.q_per_channel_axis(),
        )
    storage = TypedStorage(wrap_storage=tensor.untyped_storage(), dtype=tensor.dtype, _internal=True)
    return _rebuild_qtensor, (
        storage,
        tensor.storage_offset(),
        tuple(tensor.size()),
        tensor.stride(),
        parameters,
        False,
        _no_hooks(),
    )


def _reduce_sparse_tensor(tensor):
    detached = tensor.detach()
    if tensor.layout is _C.sparse_coo:
        parts = (detached._indices(), detached._values(), tensor.size(), tensor.is_coalesced())
    elif tensor.layout in (_C.sparse_csr, _C.sparse_bsr):
        parts = (detached.crow_indices(), detached.col_indices(), detached.values(), tensor.size())
    else:
        parts = (detached.ccol_indices(), detached.row_indices(), detached.values(), tensor.size())
    return _rebuild_sparse_tensor, (tensor.layout, parts)


def _reduce_tensor(tensor):
    """The function and the arguments that make an equal tensor: over the same storage object."""
    if type(tensor).__torch_dispatch__ is not _C._disabled_torch_dispatch_impl:
        geometry = (tuple(tensor.size()), tensor.stride(), tensor.storage_offset())
        return _rebuild_wrapper_subclass, (
            type(tensor),
            tensor.dtype,
            *geometry,
            tensor.layout,
            tensor.device,
            tensor.requires_grad,
        )
    if tensor.layout is not _C.strided:
        return _reduce_sparse_tensor(tensor)
    if tensor.is_quantized:
        return _reduce_quantized_tensor(tensor)
    if tensor.has_names():
        raise RuntimeError("NYI: Named tensors don't support serialization. Drop the names with `tensor.rename(None)`.")
    if tensor.device.type == "meta":
        return _rebuild_meta_tensor_no_storage, (
            tensor.dtype,
            tuple(tensor.size()),
            tensor.stride(),
            tensor.requires_grad,
        )
    if tensor.is_conj() or tensor.is_neg():
        requires_grad = tensor.requires_grad
        tensor = tensor.detach().resolve_conj().resolve_neg().requires_grad_(requires_grad)
    geometry = (
        tensor.storage_offset(),
        tuple(tensor.size()),
        tensor.stride(),
        tensor.requires_grad,
        _no_hooks(),
    )
    if tensor.dtype in _WITHOUT_STORAGE_CLASS:
        return _rebuild_tensor_v3, (tensor.untyped_storage(), *geometry, tensor.dtype)
    return _rebuild_tensor_v2, (tensor._typed_storage(), *geometry)


def __getattr__(name):
    """Torch's names for what puts parameters together: it stands with them, in mica/nn/parameter.py."""
    if name in ("_rebuild_parameter", "_rebuild_parameter_with_state"):
        from mica.nn import parameter

        return getattr(parameter, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class KeyErrorMessage(str):
    """A message that KeyError prints unchanged, although it prints the repr of its argument."""

    __slots__ = ()

    def __repr__(self):
        return self


class ExceptionWrapper:
    """An exception with its traceback as text, to be raised in another process or thread."""

    def __init__(self, exc_info=None, where="in background"):
        import sys
        import traceback

        exc_info = exc_info or sys.exc_info()
        self.exc_type = exc_info[0]
        self.exc_msg = "".join(traceback.format_exception(*exc_info))
        self.where = where

    def reraise(self):
        message = f"Caught {self.exc_type.__name__} {self.where}.\nOriginal {self.exc_msg}"
        if "DataLoader worker" in self.where:
            message += "num_workers=0 loads in this process instead, where a debugger stops at the line that failed.\n"
        if self.exc_type is KeyError:
            message = KeyErrorMessage(message)
        elif getattr(self.exc_type, "message", None):
            raise self.exc_type(message=message)
        try:
            exception = self.exc_type(message)
        except Exception:
            raise RuntimeError(message) from None  # the exception's class takes other arguments
        try:
            raise exception
        finally:
            del exception  # otherwise its traceback would keep it alive, with the frames of all callers


def _flatten_dense_tensors(tensors):
    """One vector of the elements of tensors."""
    return _C.cat([tensor.contiguous().view(-1) for tensor in tensors])


def _unflatten_dense_tensors(flat, tensors):
    """A vector as tensors of the shapes of others."""
    outputs, start = [], 0
    for tensor in tensors:
        outputs.append(flat.narrow(0, start, tensor.numel()).view_as(tensor))
        start += tensor.numel()
    return tuple(outputs)


def _element_size(dtype):
    """How many bytes an element of the dtype takes."""
    return dtype.itemsize


def _get_device_index(device, optional=False, allow_cpu=False):
    """The index of a device of the accelerator."""
    if isinstance(device, int):
        return device
    device = _C.device(device) if isinstance(device, str) else device
    if device is None:
        if optional:
            return _C._current_device(_C._accelerator() or "cuda")
    elif device.type not in ("cpu", "meta"):
        return _C._current_device(device) if device.index is None else device.index
    elif allow_cpu and device.type == "cpu":
        return -1
    raise ValueError(f"Expected a torch.device with a specified index or an integer, but got:{device}")


def _get_all_device_indices():
    device = _C._accelerator()
    return [] if device is None else list(range(_C._device_count(device)))


def _get_available_device_type():
    device = _C._accelerator()
    return None if device is None else device.type


def _get_device_module(device_type):
    """The module of a device by its type, as torch.cuda is."""
    import importlib

    try:
        return importlib.import_module(f"mica.{device_type}")
    except ModuleNotFoundError:
        raise RuntimeError(
            f"Device '{device_type}' does not have a corresponding module registered as 'torch.{device_type}'."
        ) from None


def _to(self, device, non_blocking=False):
    return self.to(device, non_blocking=non_blocking)


def is_compiling():
    """An older name of torch.compiler.is_compiling, which says so."""
    import sys
    import warnings

    warnings.warn(
        "`torch._utils.is_compiling` is deprecated. Use `torch.compiler.is_compiling` instead.",
        UserWarning,
        stacklevel=2,
    )
    compiler = sys.modules.get("mica.compiler")
    return _C._is_recording() if compiler is None else compiler.is_compiling()
