"""The masked tensor: data, and a boolean mask of the same shape."""

import warnings

import mica
from mica import _C
from mica.masked.maskedtensor._sparse_parts import aligned, at, check_indices

__all__ = ["MaskedTensor", "is_masked_tensor"]

_DTYPES = frozenset(
    (mica.float16, mica.float32, mica.float64, mica.bool, mica.int8, mica.int16, mica.int32, mica.int64)
)
_PROTOTYPE = (
    "The PyTorch API of MaskedTensors is in prototype stage and will change in the near future. Please open a Github issue "
    "for features requests and see our documentation on the torch.masked module for further information about the project."
)
_REQUIRES_GRAD = (
    "It is not recommended to create a MaskedTensor with a tensor that requires_grad. "
    "To avoid this, you can use data.detach().clone()"
)


def is_masked_tensor(obj, /):
    """Whether an object is a masked tensor."""
    return isinstance(obj, MaskedTensor)


def _check(data, mask):
    if data.layout != mask.layout:
        raise TypeError(f"data and mask must have the same layout. They have {data.layout} and {mask.layout}")
    if data.layout not in (mica.strided, mica.sparse_coo, mica.sparse_csr):
        raise TypeError(f"data layout of {data.layout} is not supported.")
    if data.layout != mica.strided:
        check_indices(data, mask)
    if mask.dtype != mica.bool:
        raise TypeError(f"mask must have dtype bool. It has {mask.dtype}")
    if data.dtype not in _DTYPES:
        raise TypeError(f"{data.dtype} is not supported in MaskedTensor.")
    if data.dim() != mask.dim():
        raise ValueError(f"data.dim() must equal mask.dim(), but they are {data.dim()} and {mask.dim()}")
    if data.size() != mask.size():
        raise ValueError(
            f"data.size() must equal mask.size(), but they are {tuple(data.size())} and {tuple(mask.size())}"
        )


_answers = []  # the functions of _functions.py, which imports this file


def answer_with(call):
    """Let a function answer for torch's functions of masked tensors."""
    _answers[:] = [call]


class MaskedTensor(mica.Tensor):
    """A tensor in which only the elements that a mask marks have a meaning. The others are shown as `--`.

    The tensor itself is its data, so that autograd treats it like any other. Operations on several of them need equal masks.
    """

    _values_are_plain = True  # for Tensor's methods that return a value

    def __new__(cls, data, mask, requires_grad=False):
        for name, given in (("data", data), ("mask", mask)):
            if is_masked_tensor(given) or not isinstance(given, mica.Tensor):
                raise TypeError(f"{name} must be a Tensor")
        warnings.warn(_PROTOTYPE, UserWarning, stacklevel=2)
        if data.requires_grad:
            warnings.warn(_REQUIRES_GRAD, UserWarning, stacklevel=2)
        if data.layout == mask.layout != mica.strided and data.layout in (mica.sparse_coo, mica.sparse_csr):
            data, mask = aligned(data, mask)
        _check(data, mask)
        if requires_grad and not (data.is_floating_point() or data.is_complex()):
            raise RuntimeError("Only Tensors of floating point and complex dtype can require gradients")
        made = data.detach().clone().as_subclass(cls)
        made._masked_mask = mask.detach().clone()
        if requires_grad:
            made.requires_grad_()
        return made

    def __init__(self, data, mask, requires_grad=False):
        pass  # __new__ has done everything; this only accepts its arguments

    @staticmethod
    def _from_values(data, mask):
        _check(data, mask)
        return _with_mask(data, mask)

    def get_data(self):
        """The data as a plain tensor, in the same graph."""
        with _C.DisableTorchFunctionSubclass():
            return self.as_subclass(mica.Tensor)

    def get_mask(self):
        """The mask: True where the data counts."""
        return self._masked_mask

    @property
    def _masked_data(self):
        return self.get_data().detach()

    def to_tensor(self, value):
        """A plain tensor with a given value in the place of masked-out elements."""
        x = self.to_dense()
        return x.get_data().masked_fill(~x.get_mask(), value)

    @property
    def grad(self):
        with _C.DisableTorchFunctionSubclass():
            found = mica.Tensor.grad.__get__(self)
            return None if found is None else _with_mask(found.as_subclass(mica.Tensor), self.get_mask())

    @grad.setter
    def grad(self, value):
        with _C.DisableTorchFunctionSubclass():
            mica.Tensor.grad.__set__(self, value.get_data() if is_masked_tensor(value) else value)

    def is_sparse_coo(self):
        """Whether data and mask are sparse by coordinates."""
        return self.get_mask().layout == mica.sparse_coo

    def is_sparse_csr(self):
        """Whether data and mask are sparse by rows."""
        return self.get_mask().layout == mica.sparse_csr

    @property
    def is_sparse(self):
        return self.get_mask().layout != mica.strided

    def to_dense(self, dtype=None, *, masked_grad=None):
        """The masked tensor with strided data and mask."""
        x = to_layout(self, mica.strided)
        return x if dtype is None else x.to(dtype)

    def to_sparse_coo(self):
        """The masked tensor with sparse COO data and mask, which hold the elements that the mask marks."""
        return to_layout(self, mica.sparse_coo)

    def to_sparse(self, *, layout=None):
        """As to_sparse_coo, or in a layout."""
        return to_layout(self, mica.sparse_coo if layout is None else layout)

    def to_sparse_csr(self):
        """The masked tensor with sparse CSR data and mask."""
        return to_layout(self, mica.sparse_csr)

    def __repr__(self, *, tensor_contents=None):
        data, mask = self._masked_data.to_dense(), self.get_mask().to_dense()
        if data.dim() == 0:
            return f"MaskedTensor({_shown(data.item()) if mask.item() else '--'}, {mask.item()})"
        lines = _rows(data, mask).split("\n")
        return "MaskedTensor(\n" + "\n".join("  " + line for line in lines) + "\n)"

    def __reduce_ex__(self, protocol):
        return _rebuilt, (self._masked_data, self.get_mask(), self.requires_grad)

    def __deepcopy__(self, memo):
        return _rebuilt(self._masked_data, self.get_mask(), self.requires_grad)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return _answers[0](func, args, kwargs or {})


def _with_mask(data, mask):
    """Plain data as a masked tensor, without a copy and without warnings."""
    with _C.DisableTorchFunctionSubclass():
        made = data.as_subclass(MaskedTensor)
    made._masked_mask = mask
    return made


def _rebuilt(data, mask, requires_grad):
    made = _with_mask(data.clone(), mask.clone())
    return made.requires_grad_() if requires_grad else made


def _shown(number):
    return f"{number:8.4f}" if isinstance(number, float) else str(number)


def _rows(data, mask):
    if data.dim() == 1:
        numbers, marked = [_shown(n) for n in data.tolist()], mask.tolist()
        width = max((len(n) if m else 8 for n, m in zip(numbers, marked, strict=True)), default=0)
        return "[" + ", ".join(n if m else "--".rjust(width) for n, m in zip(numbers, marked, strict=True)) + "]"
    parts = [_rows(d, m) for d, m in zip(data, mask, strict=True)]
    return "[\n" + ",\n".join("\n".join("  " + line for line in part.split("\n")) for part in parts) + "\n]"


def to_dense(x):
    """The same masked tensor with strided data and mask."""
    return _with_mask(x.get_data().to_dense(), x.get_mask().to_dense())


def to_layout(x, layout):
    """The same masked tensor in a layout."""
    if x.layout == layout:
        return x
    x = x if x.layout == mica.strided else to_dense(x)
    if layout == mica.strided:
        return x
    mask = x.get_mask()
    mask = mask.to_sparse_csr() if layout == mica.sparse_csr else mask.to_sparse_coo().coalesce()
    return _with_mask(at(x.get_data(), mask), mask)
