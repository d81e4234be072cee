"""Which blocks of a matrix of attention scores count: the masks of flex_attention."""

import inspect

import mica
from mica.nn.attention.each_score import evaluate

_DEFAULT_SPARSE_BLOCK_SIZE = 128

_SLICED = """Cannot use mask_mod from a sliced BlockMask. When you slice a BlockMask using [], the mask_mod attribute is reset. \
You must set it from the original BlockMask's mask_mod."""


def noop_mask(batch, head, token_q, token_kv):
    """Lets every token see every other."""
    return mica.ones((), dtype=mica.bool, device=getattr(batch, "device", None))


def _sliced_mask_mod_error(batch, head, token_q, token_kv):
    raise RuntimeError(_SLICED)


def or_masks(*mask_mods):
    """A mask that lets through what one of the masks lets through."""
    return _combined(mask_mods, mica.logical_or, False)


def and_masks(*mask_mods):
    """A mask that lets through what all of the masks let through."""
    return _combined(mask_mods, mica.logical_and, True)


def _combined(mask_mods, combine, start):
    if not all(callable(mask_mod) for mask_mod in mask_mods):
        raise RuntimeError(f"All inputs should be callable mask_mods: {mask_mods}")

    def mask(b, h, q_idx, kv_idx):
        result = mica.full((), start, dtype=mica.bool, device=b.device)
        for mask_mod in mask_mods:
            result = combine(result, mask_mod(b, h, q_idx, kv_idx))
        return result

    return mask


# ---- blocks


def _ordered(dense):
    """How many blocks of each row are used, and the columns of all blocks, those of used ones first."""
    dense = dense.to(mica.int32)
    indices = mica.argsort(dense, dim=-1, descending=True, stable=True)
    return dense.sum(-1).to(mica.int32), indices.to(mica.int32)


def _dense(num_blocks, indices, columns):
    """The blocks that count, as a matrix of 0 and 1."""
    place = mica.arange(indices.shape[-1], device=indices.device)
    counts = (place < num_blocks.unsqueeze(-1)) & (indices >= 0)  # -1 where a page is not there
    dense = mica.zeros((*indices.shape[:-1], columns + 1), dtype=mica.int32, device=indices.device)
    # Entries that do not count go to a column that is cut off.
    dense.scatter_(-1, mica.where(counts, indices, columns).long(), 1)
    return dense[..., :columns].contiguous()


def _transposed(num_blocks, indices, columns):
    return _ordered(_dense(num_blocks, indices, columns).transpose(-2, -1))


def _columns(indices, length, size):
    """How many columns of blocks there are. Of a row only the blocks that count need be listed."""
    return max(indices.shape[-1], -(-length // size))


_NO_ORDERS = "there are no orders of writing, gradients are the same in every run"


class BlockMask:
    """Which blocks of scores count: in part, where `mask_mod` decides, and in full."""

    def __init__(
        self, seq_lengths, kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices, q_num_blocks, q_indices,
        full_q_num_blocks, full_q_indices, BLOCK_SIZE=(_DEFAULT_SPARSE_BLOCK_SIZE, _DEFAULT_SPARSE_BLOCK_SIZE),
        mask_mod=noop_mask, *, dq_write_order=None, dq_write_order_full=None, dq_kv_order=None, dq_kv_order_spt=None,
    ):  # fmt: skip
        if any(each is not None for each in (dq_write_order, dq_write_order_full, dq_kv_order, dq_kv_order_spt)):
            raise NotImplementedError(f"BlockMask: {_NO_ORDERS}")
        if kv_indices.dim() < 2:
            raise RuntimeError("BlockMask must have at least 2 dimensions")
        if (full_kv_num_blocks is None) != (full_kv_indices is None):
            raise AssertionError("full_kv_num_blocks and full_kv_indices must be both provided or omitted")
        self.seq_lengths = tuple(seq_lengths)
        self.kv_num_blocks, self.kv_indices = kv_num_blocks, kv_indices
        self.full_kv_num_blocks, self.full_kv_indices = full_kv_num_blocks, full_kv_indices
        self.q_num_blocks, self.q_indices = q_num_blocks, q_indices
        self.full_q_num_blocks, self.full_q_indices = full_q_num_blocks, full_q_indices
        self.BLOCK_SIZE = BLOCK_SIZE
        self.mask_mod = mask_mod

    _TENSORS = ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices", "q_num_blocks", "q_indices",
                "full_q_num_blocks", "full_q_indices")  # fmt: skip

    @classmethod
    def from_kv_blocks(
        cls, kv_num_blocks, kv_indices, full_kv_num_blocks=None, full_kv_indices=None,
        BLOCK_SIZE=_DEFAULT_SPARSE_BLOCK_SIZE, mask_mod=None, seq_lengths=None, compute_q_blocks=True,
    ):  # fmt: skip
        """The mask whose rows of blocks have these columns."""
        if kv_indices.dim() < 2:
            raise RuntimeError("BlockMask must have at least 2 dimensions")
        if (full_kv_num_blocks is None) != (full_kv_indices is None):
            raise AssertionError("full_kv_num_blocks and full_kv_indices must be both provided or omitted")
        size = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else tuple(BLOCK_SIZE)
        if seq_lengths is None:
            seq_lengths = (kv_indices.shape[-2] * size[0], kv_indices.shape[-1] * size[1])
        q = full_q = (None, None)
        if compute_q_blocks:
            columns = _columns(kv_indices, seq_lengths[1], size[1])
            q = _transposed(kv_num_blocks, kv_indices, columns)
            if full_kv_num_blocks is not None:
                full_q = _transposed(full_kv_num_blocks, full_kv_indices, columns)
        return cls(
            seq_lengths, kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices, *q, *full_q, size,
            noop_mask if mask_mod is None else mask_mod,
        )  # fmt: skip

    def as_tuple(self, flatten=True):
        """Everything that the mask holds."""
        sizes = (*self.seq_lengths,) if flatten else (self.seq_lengths,)
        blocks = (*self.BLOCK_SIZE,) if flatten else (self.BLOCK_SIZE,)
        return (
            *sizes,
            *(getattr(self, name) for name in self._TENSORS),
            None,
            None,
            None,
            None,
            *blocks,
            self.mask_mod,
        )

    @property
    def shape(self):
        return (*self.kv_indices.shape[:-2], *self.seq_lengths)

    def numel(self):
        """How many scores there are."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    def sparsity(self):
        """The percentage of scores whose blocks do not count."""
        counted = int(self.kv_num_blocks.sum())
        if self.full_kv_num_blocks is not None:
            counted += int(self.full_kv_num_blocks.sum())
        return 100 * (1 - counted * self.BLOCK_SIZE[0] * self.BLOCK_SIZE[1] / self.numel())

    def to_dense(self):
        """The blocks that count, in part or in full, as a matrix of 0 and 1."""
        dense = self._blocks(self.kv_num_blocks, self.kv_indices)
        return dense if self.full_kv_num_blocks is None else dense | self._full_blocks()

    def _blocks(self, num_blocks, indices):
        return _dense(num_blocks, indices, _columns(indices, self.seq_lengths[1], self.BLOCK_SIZE[1]))

    def _full_blocks(self):
        return self._blocks(self.full_kv_num_blocks, self.full_kv_indices)

    def _by_element(self, blocks):
        (rows, columns), (queries, keys) = self.BLOCK_SIZE, self.seq_lengths
        spread = blocks.bool().repeat_interleave(rows, -2).repeat_interleave(columns, -1)
        return spread[..., :queries, :keys]

    def _for_batch(self, blocks, batch, heads):
        """The blocks for so many batches and heads. As in torch's kernels, those of another number are used in turns."""
        for dim, count in ((-4, batch), (-3, heads)):
            if blocks.dim() >= -dim and blocks.shape[dim] not in (1, count):
                blocks = blocks.index_select(dim, mica.arange(count, device=blocks.device) % blocks.shape[dim])
        return blocks

    def element_mask(self, batch, heads, device):
        """Which scores count, for so many batches and heads; they broadcast over those where the mask has one."""
        shape = (batch, heads, *self.seq_lengths)
        counts = evaluate(self.mask_mod, shape, device).to(mica.bool)
        some = self._blocks(self.kv_num_blocks, self.kv_indices)
        counts = counts & self._by_element(self._for_batch(some, batch, heads))
        if self.full_kv_num_blocks is None:
            return counts
        return counts | self._by_element(self._for_batch(self._full_blocks(), batch, heads))

    def __getitem__(self, index):
        """The mask of some batches, heads or rows of blocks; its mask_mod must be set anew."""
        index = index if isinstance(index, tuple) else (index,)
        index = (*index, *(slice(None),) * (3 - len(index)))
        index = tuple(
            slice(i % n, i % n + 1) if isinstance(i, int) else i
            for i, n in zip(index, self.kv_num_blocks.shape, strict=True)
        )
        taken = [None if t is None else t[index] for t in (self.kv_num_blocks, self.kv_indices,
                                                           self.full_kv_num_blocks, self.full_kv_indices)]  # fmt: skip
        return BlockMask.from_kv_blocks(
            *taken, BLOCK_SIZE=self.BLOCK_SIZE, mask_mod=_sliced_mask_mod_error, seq_lengths=self.seq_lengths,
            compute_q_blocks=self.q_indices is not None,
        )  # fmt: skip

    def _adjust(self, new_q_len, new_kv_len):
        """The same mask cut to shorter sequences."""
        rows = -(-new_q_len // self.BLOCK_SIZE[0])
        columns = -(-new_kv_len // self.BLOCK_SIZE[1])

        def cut(num_blocks, indices):
            if num_blocks is None:
                return None, None
            return _ordered(self._blocks(num_blocks, indices)[..., :rows, :columns])

        return BlockMask.from_kv_blocks(
            *cut(self.kv_num_blocks, self.kv_indices), *cut(self.full_kv_num_blocks, self.full_kv_indices),
            self.BLOCK_SIZE, self.mask_mod, (new_q_len, new_kv_len),
        )  # fmt: skip

    def to(self, device):
        """The mask with its tensors on a device."""
        tensors = (getattr(self, name) for name in self._TENSORS)
        return BlockMask(
            self.seq_lengths, *(None if t is None else t.to(device) for t in tensors), self.BLOCK_SIZE, self.mask_mod
        )

    def to_string(self, grid_size=(20, 20), limit=4):
        """A picture of the blocks: full squares where they count."""
        dense = self.to_dense()
        pictures = []
        for place in (
            mica.cartesian_prod(*(mica.arange(n) for n in dense.shape[:-2])).reshape(-1, dense.dim() - 2).tolist()
        ):
            if len(pictures) == limit:
                pictures += [
                    "...",
                    "To print out more, set BlockMask.to_string(limit=N)",
                    "You can also index (BlockMask[batch, head]) to choose a specific batch or head",
                ]
                break
            rows = dense[tuple(place)].tolist()
            step_r = step_c = 1
            if grid_size != -1:
                height, width = (grid_size, grid_size) if isinstance(grid_size, int) else grid_size
                step_r, step_c = max(1, -(-len(rows) // height)), max(1, -(-len(rows[0]) // width))
            lines = []
            for r in range(0, len(rows), step_r):
                cells = [
                    [v for row in rows[r : r + step_r] for v in row[c : c + step_c]]
                    for c in range(0, len(rows[0]), step_c)
                ]
                lines.append("".join("██" if all(cell) else "░░" if any(cell) else "  " for cell in cells) + "\n")
            pictures.append(f"({', '.join(map(str, place))})\n" + "".join(lines))
        return "\n".join(pictures)

    def __str__(self):
        return f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%, \n{self.to_string().strip()}\n)"

    def __repr__(self):
        lines = [f"    {name}={getattr(t, 'shape', None)}," for name in self._TENSORS for t in [getattr(self, name)]]
        name = getattr(self.mask_mod, "__name__", self.mask_mod)
        return "\n".join(
            ["BlockMask(", *lines, f"    BLOCK_SIZE={self.BLOCK_SIZE},", f"    shape={self.shape},",
             f"    sparsity={self.sparsity():.2f}%,", f"    mask_mod={name}", ")"]
        )  # fmt: skip


def _takes(function):
    """How many arguments a score_mod (5) or mask_mod (4) takes."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 4
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return 4
    count = sum(p.kind in kinds and p.default is p.empty for p in parameters)
    if count not in (4, 5):
        raise AssertionError(f"Expected 4 or 5 positional args, got {count}")
    return count


def create_mask(mod_fn, B, H, Q_LEN, KV_LEN, device=None):
    """A mask_mod as a tensor of booleans; of a score_mod, which scores it does not make minus infinity."""
    device = mica.device("cpu" if device is None else device)
    shape = (1 if B is None else B, 1 if H is None else H, Q_LEN, KV_LEN)
    if _takes(mod_fn) == 4:
        return evaluate(mod_fn, shape, device).to(mica.bool).contiguous()
    scores = evaluate(mod_fn, shape, device, mica.zeros(shape, device=device))
    return mica.where(mica.isneginf(scores), False, True)


def create_block_mask(
    mask_mod, B, H, Q_LEN, KV_LEN, device=None, BLOCK_SIZE=_DEFAULT_SPARSE_BLOCK_SIZE, _compile=False,
    separate_full_blocks=True, compute_dq_write_order=False, dq_kv_order=True,
):  # fmt: skip
    """The blocks of scores that a mask_mod lets through, in part or in full.

    `_compile` changes nothing, and `dq_kv_order` is about the orders that `compute_dq_write_order` asks for.
    """
    if compute_dq_write_order:
        raise NotImplementedError(f"create_block_mask(compute_dq_write_order=True): {_NO_ORDERS}")
    if _takes(mask_mod) != 4:
        raise AssertionError(f"create-block_mask requires a mask_mod function! Got {mask_mod}")
    rows, columns = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else BLOCK_SIZE
    mask = evaluate(mask_mod, (B or 1, H or 1, Q_LEN, KV_LEN), mica.device("cpu" if device is None else device))
    if mask.dtype is not mica.bool:
        raise AssertionError(f"mask.dtype must be torch.bool, got {mask.dtype}")
    mask = mica.nn.functional.pad(mask, (0, -KV_LEN % columns, 0, -Q_LEN % rows))
    blocks = mask.reshape(*mask.shape[:2], mask.shape[2] // rows, rows, mask.shape[3] // columns, columns)
    counted = blocks.sum((3, 5))
    full = counted == rows * columns if separate_full_blocks else None
    part = (counted > 0) & ~full if separate_full_blocks else counted > 0
    full_kv = _ordered(full) if separate_full_blocks else (None, None)
    return BlockMask.from_kv_blocks(*_ordered(part), *full_kv, (rows, columns), mask_mod, (Q_LEN, KV_LEN))


def _register():
    from mica.utils._pytree import GetAttrKey, register_pytree_node

    def flatten(mask):
        context = (mask.seq_lengths, mask.BLOCK_SIZE, mask.mask_mod)
        return [getattr(mask, name) for name in BlockMask._TENSORS], context

    def with_keys(mask):
        values, context = flatten(mask)
        return [(GetAttrKey(name), value) for name, value in zip(BlockMask._TENSORS, values, strict=True)], context

    def unflatten(values, context):
        return BlockMask(context[0], *values, *context[1:])

    register_pytree_node(BlockMask, flatten, unflatten, flatten_with_keys_fn=with_keys)


_register()
