"""Cutting the arguments of a step into those of microbatches, and putting their results together."""

import mica
from mica.nn.attention.flex_attention import BlockMask
from mica.utils._pytree import tree_flatten, tree_map, tree_unflatten

__all__ = ["TensorChunkSpec", "merge_chunks", "split_args_kwargs_into_chunks"]

DEFAULT_CHUNK_DIM = 0


class _CustomReducer:
    """How results of microbatches become one: `reduce_fn`, beginning with `init_value`."""

    def __init__(self, init_value, reduce_fn):
        self.init_value, self.reduce_fn = init_value, reduce_fn


class _LossReducer(_CustomReducer):
    pass


sum_reducer = _LossReducer(mica.tensor(0.0), lambda a, b: a + b)


class TensorChunkSpec:
    """The dimension along which an argument is cut."""

    def __init__(self, split_dim):
        self.split_dim = split_dim

    def __repr__(self):
        return f"{type(self).__module__}.{type(self).__name__}({self.split_dim})"

    def __str__(self):
        return f"TensorChunkSpec({self.split_dim})"

    @staticmethod
    def from_tuple(chunk_dims):
        """Dimensions of positional arguments."""
        return tree_map(TensorChunkSpec, chunk_dims)

    @staticmethod
    def from_dict(chunk_dims):
        """Dimensions of named arguments."""
        return tree_map(TensorChunkSpec, chunk_dims)


class _Replicate:
    """Every microbatch gets the whole argument."""


def _default_spec(value):
    return TensorChunkSpec(DEFAULT_CHUNK_DIM) if isinstance(value, (mica.Tensor, BlockMask)) else _Replicate()


def _is_mask(value):
    return isinstance(value, BlockMask)


def _cut_mask(mask, chunks):
    """The masks of parts of a batch; a mask of one is for all."""
    count = mask.kv_num_blocks.size(0)
    if count == 1:
        return [mask] * chunks
    if count < chunks:
        raise ValueError("Block mask has fewer batch size than the number of chunks. ")
    tensors = (mask.kv_num_blocks, mask.kv_indices, mask.full_kv_num_blocks, mask.full_kv_indices)
    parts = [[None] * chunks if tensor is None else tensor.tensor_split(chunks) for tensor in tensors]
    made, first = [], 0
    for numbers, indices, full_numbers, full_indices in zip(*parts, strict=True):

        def moved(b, h, q, kv, first=first):
            return mask.mask_mod(b + first, h, q, kv)

        made.append(
            BlockMask.from_kv_blocks(
                numbers,
                indices,
                full_numbers,
                full_indices,
                BLOCK_SIZE=mask.BLOCK_SIZE,
                mask_mod=moved,
                seq_lengths=mask.seq_lengths,
            )
        )
        first += numbers.size(0)
    return made


def _is_spec(value):
    return isinstance(value, (TensorChunkSpec, _Replicate, _CustomReducer)) or value is _Replicate


def _specs_of(arguments, spec):
    """A spec for each leaf of the arguments."""
    leaves, tree = tree_flatten(arguments, is_leaf=_is_mask)
    if spec is None:
        return leaves, [_default_spec(leaf) for leaf in leaves], tree
    given = tree_flatten(spec, is_leaf=_is_spec)[0]
    if len(given) != len(leaves):
        raise ValueError(f"Argument value {arguments} did not have the same number of values as chunk spec {spec}")
    return leaves, given, tree


def _cut(arguments, spec, chunks):
    leaves, specs, tree = _specs_of(arguments, spec)
    parts = []
    for leaf, how in zip(leaves, specs, strict=True):
        if isinstance(how, TensorChunkSpec) and isinstance(leaf, BlockMask):
            parts.append(_cut_mask(leaf, chunks))
        elif isinstance(how, TensorChunkSpec):
            if not isinstance(leaf, mica.Tensor):
                raise ValueError(f"Cannot chunk {leaf!r}, which is no tensor, along a dimension")
            if leaf.size(how.split_dim) < chunks:
                raise ValueError(
                    f"Tensor size on chunking dimension is {leaf.size(how.split_dim)}, smaller than the number of chunks {chunks}."
                )
            parts.append(leaf.tensor_split(chunks, how.split_dim))
        elif isinstance(how, _Replicate) or how is _Replicate:
            parts.append([leaf] * chunks)
        else:
            raise TypeError(f"Unrecognized chunk spec: {how}")
    return [tree_unflatten([part[i] for part in parts], tree) for i in range(chunks)]


def split_args_kwargs_into_chunks(args, kwargs, chunks, args_chunk_spec=None, kwargs_chunk_spec=None):
    """(positional arguments of each microbatch, named arguments of each): tensors are cut along their first dimension."""
    kwargs = {} if kwargs is None else kwargs
    return _cut(tuple(args), args_chunk_spec, chunks), _cut(kwargs, kwargs_chunk_spec, chunks)


def merge_chunks(chunks, chunk_spec):
    """One value from those of microbatches: tensors are put together along the dimension that they were cut along."""
    first, tree = tree_flatten(chunks[0])
    every = [tree_flatten(chunk)[0] for chunk in chunks]
    if chunk_spec is None:
        specs = [_default_spec(leaf) for leaf in first]
    else:
        specs = tree_flatten(chunk_spec, is_leaf=_is_spec)[0]
    made = []
    for i, how in enumerate(specs):
        values = [leaves[i] for leaves in every]
        if isinstance(how, TensorChunkSpec):
            made.append(mica.cat(values, how.split_dim))
        elif isinstance(how, _CustomReducer):
            total = how.init_value
            for value in values:
                total = how.reduce_fn(total, value)
            made.append(total)
        else:
            made.append(values[0])
    return tree_unflatten(made, tree)
