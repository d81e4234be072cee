"""Constructors of sparse tensors: data of any kind becomes parts, which are checked and put together."""

import functools

from mica import _C

_COMPRESSED = (_C.sparse_csr, _C.sparse_csc, _C.sparse_bsr, _C.sparse_bsc)


class check_sparse_tensor_invariants:
    """Whether constructors check all that parts must fulfil. Mica always checks what keeps memory safe.

    A context manager, a decorator, and a switch: `check_sparse_tensor_invariants.enable()`.
    """

    _enabled = False

    @staticmethod
    def is_enabled():
        """Whether the checks are on."""
        return check_sparse_tensor_invariants._enabled

    @staticmethod
    def enable():
        """Turn the checks on."""
        check_sparse_tensor_invariants._enabled = True

    @staticmethod
    def disable():
        """Turn the checks off."""
        check_sparse_tensor_invariants._enabled = False

    def __init__(self, enable=True):
        self.state = enable
        self.saved_state = None

    def __enter__(self):
        if self.saved_state is not None:
            raise RuntimeError(
                "This context manager instance is already activated. Use a different context manager instance for context"
                " nesting."
            )
        self.saved_state = self.is_enabled()
        check_sparse_tensor_invariants._enabled = self.state

    def __exit__(self, *exception):
        check_sparse_tensor_invariants._enabled = self.saved_state
        self.saved_state = None

    def __call__(self, function):
        @functools.wraps(function)
        def checked(*args, **kwargs):
            with type(self)(self.state):
                return function(*args, **kwargs)

        return checked


def _as_part(data, dtype, device):
    """A tensor as it is, in the wanted dtype and place; anything else copied into one."""
    if isinstance(data, _C.Tensor):
        return data.to(device=device if device is not None else data.device, dtype=dtype or data.dtype)
    return _C.tensor(data, dtype=dtype, device=device)


def _values_and_indices(values, indices, dtype, device, is_coo=False):
    values = _as_part(values, dtype, device)
    if not isinstance(indices, _C.Tensor):
        indices = _C.tensor(indices, device=values.device)
        if indices.numel() == 0:
            indices = indices.to(_C.int64)
    if is_coo and indices.is_floating_point():
        indices = indices.to(_C.int64)
    if indices.is_floating_point() or indices.is_complex() or indices.dtype == _C.bool:
        raise RuntimeError(f"indices must be an integral tensor, but got dtype {indices.dtype}")
    return values, indices.to(values.device)


def _finish(tensor, requires_grad, pin_memory):
    tensor = tensor.pin_memory() if pin_memory else tensor
    return tensor.requires_grad_() if requires_grad else tensor


def _asking_modes(constructor):
    """Wraps a constructor so that active modes see its call, and not the operations that it is made of."""

    @functools.wraps(constructor)
    def asking(*args, **kwargs):
        if _C._has_torch_function(()):
            return _C._handle_torch_function(asking, (), *args, **kwargs)
        return constructor(*args, **kwargs)

    return asking


@_asking_modes
def sparse_coo_tensor(
    indices=None,
    values=None,
    size=None,
    *,
    dtype=None,
    layout=None,
    device=None,
    pin_memory=False,
    requires_grad=False,
    check_invariants=None,
    is_coalesced=None,
):
    """A COO tensor of `values` at `indices`, one column of them for each value; without a size, just large enough.

    Values of one index add up. With `size` alone, a tensor without elements.
    """
    if values is None:
        sizes = _C.Size(size if size is not None else indices)
        made = _C._sparse_coo_tensor_unsafe(
            _C.empty((len(sizes), 0), dtype=_C.int64, device=device),
            _C.empty((0,), dtype=dtype, device=device),
            sizes,
            True,
        )
        return _finish(made, requires_grad, pin_memory)
    values, indices = _values_and_indices(values, indices, dtype, device, is_coo=True)
    indices = indices.to(_C.int64)
    if values.dim() == 0:
        values = values.expand(indices.size(1) if indices.dim() == 2 else 1)
    if indices.dim() != 2:
        raise RuntimeError(f"indices must be sparse_dim x nnz, but got: {tuple(indices.shape)}")
    if size is None:
        if indices.size(1) == 0 and indices.size(0) > 0:
            sparse_sizes = [0] * indices.size(0)
        else:
            if indices.numel() and indices.min() < 0:
                row = int((indices < 0).any(1).nonzero()[0])
                raise RuntimeError(f"found negative index {int(indices[row].min())} for dim {row}")
            sparse_sizes = (indices.amax(1) + 1).tolist() if indices.size(0) else []
        size = [*sparse_sizes, *values.shape[1:]]
    size = _C.Size(size)
    _C._validate_sparse_coo_tensor_args(indices, values.detach(), size, is_coalesced)
    made = _C._sparse_coo_tensor_unsafe(indices, values, size, is_coalesced)
    return _finish(made, requires_grad, pin_memory)


@_asking_modes
def sparse_compressed_tensor(
    compressed_indices,
    plain_indices,
    values,
    size=None,
    *,
    dtype=None,
    layout=None,
    device=None,
    pin_memory=False,
    requires_grad=False,
    check_invariants=None,
):
    """A CSR, CSC, BSR or BSC tensor, as `layout` says, of its three parts."""
    if layout not in _COMPRESSED:
        raise RuntimeError(f"sparse_compressed_tensor: expected a compressed sparse layout but got {layout}")
    values, compressed_indices = _values_and_indices(values, compressed_indices, dtype, device)
    _, plain_indices = _values_and_indices(values, plain_indices, None, None)
    if size is None:
        size = _inferred_size(layout, compressed_indices, plain_indices, values)
    size = _C.Size(size)
    _C._validate_sparse_compressed_tensor_args(compressed_indices, plain_indices, values.detach(), size, layout)
    made = _C._sparse_compressed_tensor_unsafe(compressed_indices, plain_indices, values, size, layout)
    return _finish(made, requires_grad, pin_memory)


def _inferred_size(layout, compressed, plain, values):
    """The smallest size that holds all indices."""
    batch = compressed.dim() - 1
    blocks = layout in (_C.sparse_bsr, _C.sparse_bsc)
    if batch < 0 or plain.dim() != batch + 1 or values.dim() < batch + 1 + 2 * blocks:
        return []  # the check of all parts reports the error
    height, width = values.shape[batch + 1 : batch + 3] if blocks else (1, 1)
    lines = max(compressed.size(-1) - 1, 0)
    across = int(plain.max()) + 1 if plain.numel() else 0
    rows, columns = (lines, across) if layout in (_C.sparse_csr, _C.sparse_bsr) else (across, lines)
    return [*compressed.shape[:-1], rows * height, columns * width, *values.shape[batch + 1 + 2 * blocks :]]


def _of_layout(layout, name, line, other):
    def constructor(
        compressed_indices,
        plain_indices,
        values,
        size=None,
        *,
        dtype=None,
        layout=None,
        device=None,
        pin_memory=False,
        requires_grad=False,
        check_invariants=None,
    ):
        if layout is not None and layout is not fixed:
            raise RuntimeError(f"{name}: expected layout {fixed} but got {layout}")
        return sparse_compressed_tensor(
            compressed_indices, plain_indices, values, size, dtype=dtype, layout=fixed, device=device,
            pin_memory=pin_memory, requires_grad=requires_grad, check_invariants=check_invariants,
        )  # fmt: skip

    fixed = layout
    constructor.__name__ = constructor.__qualname__ = name
    constructor.__doc__ = (
        f"A tensor of layout {layout}: where each {line} begins, the {other} of each value, the values."
    )
    return _asking_modes(constructor)


sparse_csr_tensor = _of_layout(_C.sparse_csr, "sparse_csr_tensor", "row", "column")
sparse_csc_tensor = _of_layout(_C.sparse_csc, "sparse_csc_tensor", "column", "row")
sparse_bsr_tensor = _of_layout(_C.sparse_bsr, "sparse_bsr_tensor", "row of blocks", "column of blocks")
sparse_bsc_tensor = _of_layout(_C.sparse_bsc, "sparse_bsc_tensor", "column of blocks", "row of blocks")
