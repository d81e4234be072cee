"""torch.cuda.sparse.FloatTensor and its like: constructors of old, and classes for isinstance."""

from mica._as_torch.legacy_types import sparse_types

globals().update(sparse_types("torch.cuda.sparse", is_cuda=True))
