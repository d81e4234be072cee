"""Compares tensors apart from their elements, which a tensor on the meta device does not have."""

import mica

__all__ = [
    "assert_metadata_eq",
    "is_sparse_any",
    "is_sparse_compressed",
    "is_sparse_compressed_layout",
    "is_sparse_coo",
]

_COMPRESSED = (mica.sparse_csr, mica.sparse_csc, mica.sparse_bsr, mica.sparse_bsc)


def is_sparse_coo(t):
    return isinstance(t, mica.Tensor) and t.layout is mica.sparse_coo


def is_sparse_compressed_layout(layout):
    return layout in _COMPRESSED


def is_sparse_compressed(t):
    return isinstance(t, mica.Tensor) and is_sparse_compressed_layout(t.layout)


def is_sparse_any(t):
    return is_sparse_coo(t) or is_sparse_compressed(t)


def assert_metadata_eq(assert_eq, m1, m2, *, skip_symbolic=False, skip_leaf=False):
    """Hand what two tensors are, one thing after the other, to `assert_eq`; also of their gradients and bases."""
    names = ["dtype", "requires_grad", "is_sparse"]
    names += [] if skip_symbolic else ["shape"]
    names += [] if skip_leaf else ["is_leaf"]
    for name in names:
        assert_eq(getattr(m1, name), getattr(m2, name))
    calls = ["is_inference", "is_conj", "is_neg"]
    if is_sparse_any(m1):
        assert_eq(m1.layout, m2.layout)
        calls += ["dense_dim", "sparse_dim", *(["is_coalesced"] if m1.is_sparse else [])]
    else:
        calls += ["_is_view", *([] if skip_symbolic else ["stride", "storage_offset"])]
    for name in calls:
        assert_eq(getattr(m1, name)(), getattr(m2, name)())
    options = {"skip_symbolic": skip_symbolic, "skip_leaf": skip_leaf}
    first, second = (m.grad if m.is_leaf else None for m in (m1, m2))
    assert_eq(first is not None, second is not None)
    if first is not None:
        assert_metadata_eq(assert_eq, first, second, **options)
    if not is_sparse_any(m1) and m1._is_view():
        assert_metadata_eq(assert_eq, m1._base, m2._base, **options)
