"""torch.cuda.sparse.FloatTensor and its like: constructors of old, and classes for isinstance."""


def __getattr__(name):
    if name.endswith("Tensor"):
        from mica._as_torch.legacy_types import sparse_types

        globals().update(sparse_types("torch.cuda.sparse", is_cuda=True))
        if name in globals():
            return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
