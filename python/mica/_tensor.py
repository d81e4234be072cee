"""Tensor's methods that are written in Python: storages, constructors, element-by-element functions. Others are in _methods."""

from mica import _C, functional
from mica._C import Tensor
from mica._functions.wrapping import wraps
from mica._methods import copies, old_names
from mica.storage import TypedStorage, UntypedStorage, storage_class, warn_of_typed_storage

_methods = {}


def _method(function):
    """Make the function a method of Tensor."""
    name = function.__name__
    _methods[name] = function
    function.__qualname__ = f"Tensor.{name}"
    return function


def _asking_method(function):
    """Make the function a method of Tensor that a class with a __torch_function__, or a mode, may answer instead."""

    @wraps(function)
    def method(self, *args, **kwargs):
        if _C._asked_about_values(self):
            return _C._handle_torch_function(method, (self,), self, *args, **kwargs)
        return function(self, *args, **kwargs)

    return _method(method)


# ---- memory that GPUs reach


@_asking_method
def pin_memory(self, device=None):
    """The tensor in host memory that a GPU reads and writes directly; itself where it is."""
    if self.layout is not _C.strided and not self.is_nested:
        import mica

        if self.layout is _C.sparse_coo:
            parts = self._indices().pin_memory(), self._values().pin_memory()
            return mica.sparse_coo_tensor(*parts, self.shape, is_coalesced=self.is_coalesced())
        by_rows = self.layout in (_C.sparse_csr, _C.sparse_bsr)
        outer, inner = (
            (self.crow_indices(), self.col_indices()) if by_rows else (self.ccol_indices(), self.row_indices())
        )
        parts = [part.pin_memory() for part in (outer, inner, self.values())]
        return mica.sparse_compressed_tensor(*parts, self.shape, layout=self.layout)
    return _C._pin_memory(self)


@_asking_method
def is_pinned(self, device=None):
    """Whether the tensor lies in host memory that a GPU reads and writes directly."""
    if self.layout is not _C.strided:  # the parts of such a tensor lie in memory
        parts = [self._values()] if self.layout is _C.sparse_coo else [self.values()]
        return all(_C._is_pinned(part) for part in parts)
    return _C._is_pinned(self)


@_asking_method
def record_stream(self, stream):
    """Keep the tensor's memory, after it is given up, until what is queued on the stream now is done."""
    if self.device.type in ("cpu", "meta"):
        raise NotImplementedError(
            f"record_stream: only memory of a GPU is used by streams, the tensor is on {self.device}"
        )
    _C._record_stream(self, stream.device, stream.cuda_stream)


# ---- subclasses


def _make_wrapper_subclass(
    cls, size, strides=None, storage_offset=None, memory_format=None, dtype=None, layout=None, device=None,
    pin_memory=False, requires_grad=False, dispatch_sizes_strides_policy=None, dispatch_device=False,
    dispatch_layout=False, _extra_dispatch_keys=None, storage_size=None,
):  # fmt: skip
    """A tensor without elements whose operations come to the class's __torch_dispatch__."""
    from mica._subclasses.dispatching import make

    return make(cls, size, strides, dtype, device, requires_grad, storage_offset or 0)


_methods["_make_wrapper_subclass"] = staticmethod(_make_wrapper_subclass)

# ---- storages


@_asking_method
def storage(self):
    """The tensor's storage, as numbers of its dtype."""
    warn_of_typed_storage(stacklevel=2)
    return self._typed_storage()


@_method
def _typed_storage(self):
    """The typed storage, for Mica's own use, without the warning."""
    # Made before the untyped storage's object, which dies with it. If a program keeps neither, the second object then
    # gets the memory of the first, and programs that compare their id() find them the same, as with torch.
    typed = TypedStorage.__new__(TypedStorage)
    typed.dtype = self.dtype
    typed._untyped_storage = self.untyped_storage()
    return typed


@_asking_method
def storage_type(self):
    """The class of the tensor's storage."""
    return storage_class(self.dtype)


@_method
def _neg_view(self):
    """The negative as a view: the sign is applied when the values are read."""
    return _C._neg_view(self)


@_method
def _lazy_clone(self):
    """A copy that shares the tensor's memory until one of the two is written."""
    from mica._methods.lazy_clone import lazy_clone

    return lazy_clone(self)


_set_to_tensor = Tensor.set_


@_method
def set_(self, source=None, storage_offset=0, size=None, stride=None):
    """Make the tensor a view of a storage, or of another tensor's, in place."""
    if source is None:
        return _set_to_tensor(self)
    if isinstance(source, Tensor) and size is None:
        return _set_to_tensor(self, source)
    if isinstance(source, (Tensor, TypedStorage)) and source.dtype != self.dtype:
        if isinstance(source, Tensor):
            raise RuntimeError(f"Could not set tensor of type {source.dtype} to a tensor of type {self.dtype}")
        raise RuntimeError(
            f"Expected a Storage of type {self.dtype} or an UntypedStorage, but got type {source.dtype} for argument 1 "
            "'storage'"
        )
    untyped = source.untyped_storage() if isinstance(source, Tensor) else getattr(source, "_untyped_storage", source)
    if not isinstance(untyped, UntypedStorage):
        raise TypeError(
            f"set_(): argument 'source' (position 1) must be a Tensor or a storage, not {type(source).__name__}"
        )
    if size is None:
        size = (untyped.nbytes() // self.element_size(),)
    elif isinstance(size, int):
        size = (size,)
    if isinstance(stride, int):
        stride = (stride,)
    if self.requires_grad and _C.is_grad_enabled():
        _set_to_tensor(self, self.detach())  # refuses a leaf, and notes that there is no derivative
    return self._set_storage(untyped, storage_offset, size, stride or (None if size else ()))


@_asking_method
def is_shared(self):
    """Whether other processes can see the tensor's memory."""
    return self.untyped_storage().is_shared()


@_asking_method
def share_memory_(self):
    """Move the tensor's storage to memory that other processes can see."""
    self.untyped_storage().share_memory_()
    return self


@_asking_method
def qscheme(self):
    """How the tensor is quantized: per tensor, or per channel with integers or real numbers as zero points."""
    from mica._functions import quantization_schemes as schemes

    if not self.is_quantized:
        raise RuntimeError(f"qscheme() is only for quantized tensors, but got one of dtype {self.dtype}")
    if not self._is_quantized_per_channel():
        return schemes.per_tensor_affine
    real = self.q_per_channel_zero_points().is_floating_point()
    return schemes.per_channel_affine_float_qparams if real else schemes.per_channel_affine


# ---- other constructors


@_asking_method
def new_tensor(self, data, *, dtype=None, device=None, requires_grad=False):
    """A tensor of the data, always a copy, of this tensor's dtype and device unless told otherwise."""
    if isinstance(data, Tensor):
        import warnings

        warnings.warn(
            "To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone() or "
            "sourceTensor.detach().clone().requires_grad_(True), rather than tensor.new_tensor(sourceTensor).",
            stacklevel=2,
        )
        data = data.detach().clone()
        given = {"dtype": dtype or self.dtype, "device": device or self.device}
        return data.to(**given).requires_grad_(requires_grad)
    return _C.tensor(data, dtype=dtype or self.dtype, device=device or self.device, requires_grad=requires_grad)


@_asking_method
def polygamma_(self, n):
    """polygamma, in place."""
    result = self.polygamma(n)
    if not _C.can_cast(result.dtype, self.dtype):
        raise RuntimeError(
            f"result type {result.type().split('.')[-1].removesuffix('Tensor')} can't be cast to the desired output type "
            f"{self.type().split('.')[-1].removesuffix('Tensor')}"
        )
    return self.copy_(result)


@_method
def __array_namespace__(self, *, api_version=None):
    """The functions of the array API standard for tensors."""
    from mica._interop import array_namespace as _array_namespace

    if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
        raise ValueError(f"Mica follows the array API standard up to 2024.12, not {api_version!r}")
    return _array_namespace


# ---- element by element


def _refuse_gradient(tensor, name):
    if tensor.requires_grad:
        raise RuntimeError(f"Can't call {name}() on Variable that requires grad. Use var.detach().{name}() instead.")
    if not tensor.is_cpu:
        raise TypeError(f"{name} is only implemented on CPU tensors")


@_asking_method
def apply_(self, callable):
    """Replace each element by what a Python function makes of it; slow."""
    _refuse_gradient(self, "apply_")
    values = [callable(value) for value in self.reshape(-1).tolist()]
    for value in values:
        if not any(hasattr(value, name) for name in ("__index__", "__float__", "__complex__")):
            raise TypeError(f"must be real number, not {type(value).__name__}")
    return self.copy_(_C.tensor(values, dtype=self.dtype).reshape(self.shape))


@_asking_method
def map_(self, tensor, callable):
    """Replace each element by what a Python function makes of it and the other tensor's; slow."""
    _refuse_gradient(self, "map_")
    if tensor.requires_grad:
        raise RuntimeError("Can't call map_() on Variable that requires grad. Use var.detach().map_() instead.")
    return _mapped(self, callable, tensor)


@_asking_method
def map2_(self, x, y, callable):
    """Replace each element by what a Python function makes of it and those of two other tensors; slow."""
    for each in (self, x, y):
        _refuse_gradient(each, "map2_")
    return _mapped(self, callable, x, y)


def _mapped(self, callable, *others):
    columns = [each.expand(self.shape).reshape(-1).tolist() for each in (self, *others)]
    values = [callable(*row) for row in zip(*columns, strict=True)]
    return self.copy_(_C.tensor(values, dtype=self.dtype).reshape(self.shape))


# ---- geometry


@_asking_method
def dim_order(self, *, ambiguity_check=False):
    """The dimensions from the outermost in memory to the innermost; ambiguity_check refuses where several would do."""
    if ambiguity_check is not False:
        formats = None if isinstance(ambiguity_check, bool) else ambiguity_check
        is_list = isinstance(formats, list) and all(isinstance(each, _C.memory_format) for each in formats)
        if formats is not None and not is_list:
            raise TypeError("The ambiguity_check argument must be a bool or a list of memory formats.")
        if formats is None:
            ambiguous = any(size <= 1 for size in self.shape) and self.dim() > 1
        else:
            ambiguous = sum(self.is_contiguous(memory_format=each) for each in formats) != 1
        if ambiguous:
            raise RuntimeError(
                "The tensor does not have unique dim order, or cannot map to exact one of the given memory formats."
            )
    if self.layout != _C.strided:
        raise AttributeError(
            f"Can't get dim order on sparse type: {self.type()} Use Tensor.to_dense() to convert to a dense tensor first."
        )
    return _dim_order(self)


_dim_order = Tensor.dim_order


@_asking_method
def resize_as_sparse_(self, the_template):
    """Give a sparse COO tensor the shape and the sparse and dense dimensions of another one, a compressed one its indices."""
    from mica.sparse._compressed import COMPRESSED, resize_as

    if self.layout in COMPRESSED or the_template.layout in COMPRESSED:
        return resize_as(self, the_template)
    return self.sparse_resize_(the_template.shape, the_template.sparse_dim(), the_template.dense_dim())


@_method
def to_padded_tensor(self, padding, output_size=None):
    """The strided form of a nested tensor."""
    raise NotImplementedError(
        "Could not run 'aten::to_padded_tensor' with arguments from the 'CPU' backend: the tensor is not nested"
    )


@_method
def module_load(self, other, assign=False):
    """What load_state_dict puts in the place of the tensor under swap_module_params_on_conversion."""
    asked = tuple(x for x in (self, other) if isinstance(x, _C.TensorBase) and _C._asked_about_values(x))
    if asked:  # the class of the loaded value is asked too
        return _C._handle_torch_function(module_load, asked, self, other, assign=assign)
    return other.detach() if assign else self.copy_(other).detach()


@_method
def const_data_ptr(self):
    """The address of the first element."""
    return self.data_ptr()


def _names_of(self):
    names = set(dir(type(self))) | set(self.__dict__)
    if not self.is_cuda:
        names.discard("__cuda_array_interface__")
    return sorted(names)


# A function called __dir__ would become this module's own.
_names_of.__name__, _names_of.__qualname__ = "__dir__", "Tensor.__dir__"
_asking_method(_names_of)


@_asking_method
def unique(self, sorted=True, return_inverse=False, return_counts=False, dim=None):
    """The distinct elements: torch.unique."""
    return functional.unique(self, sorted, return_inverse, return_counts, dim)


@_asking_method
def unique_consecutive(self, return_inverse=False, return_counts=False, dim=None):
    """The elements without the repetitions that follow one another: torch.unique_consecutive."""
    return functional.unique_consecutive(self, return_inverse, return_counts, dim)


@_asking_method
def lu(self, pivot=True, get_infos=False):
    """The factors of matrices: torch.lu."""
    return functional.lu(self, pivot, get_infos)


@_asking_method
def split(self, split_size, dim=0):
    """Pieces of a size, or of sizes, along a dimension."""
    if isinstance(split_size, Tensor):
        split_size = int(split_size)
    is_one = isinstance(split_size, int)
    return _C.split(self, split_size, dim) if is_one else _C.split_with_sizes(self, split_size, dim)


for _function in (*copies.METHODS, *old_names.METHODS):
    (_method if _function.__name__ == "new" else _asking_method)(_function)

for _name, _function in _methods.items():
    setattr(Tensor, _name, _function)

# Set on the class, so that Tensor.__array_priority__ is a number too.
Tensor.__array_priority__ = 1000
