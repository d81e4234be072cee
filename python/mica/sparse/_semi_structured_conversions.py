"""Between dense matrices and their kept halves: two of every four elements of a row, and where they were.

The places are words of 16 bits (of 32 for int8) with two bits for each kept element. The words lie in the order in which
the lanes of a GPU's matrix unit take them, which is also torch's.
"""

import mica
from mica import _C

__all__ = ["sparse_semi_structured_from_dense_cutlass", "sparse_semi_structured_to_dense_cutlass"]

# By the bits of a group that are set where an element is not zero: the two places to keep. If fewer or more bits are
# set, these are the places that torch keeps.
_KEPT = ((2, 3), (0, 2), (1, 2), (0, 1), (2, 3), (0, 2), (1, 2), (0, 1), (2, 3), (0, 3), (1, 3), (0, 1), (2, 3), (0, 3),
         (1, 3), (0, 1))  # fmt: skip


def _word_dtype(dtype):
    if dtype not in (_C.int8, _C.float16, _C.bfloat16, _C.float32):
        return None
    return _C.int32 if dtype == _C.int8 else _C.int16


def word_order(rows, columns, dtype, device):
    """Where each word of a matrix of words lies in memory.

    Columns come in pairs, one after the other. Within a pair, 32 rows (16 for 32 bits) have 64 (32) words: for each row
    of eight, those of the rows that are 8 apart lie side by side where a lane takes both.
    """
    row = _C.arange(rows, device=device)[:, None]
    column = _C.arange(columns, device=device)[None, :]
    side = row // 8 % 2
    if dtype == _C.int16:
        place = row // 32 * 64 + row % 8 * 8 + row // 16 % 2 * 4 + column % 2 * 2 + side
    else:
        place = row // 16 * 32 + row % 8 * 4 + column % 2 * 2 + side
    return column // 2 * (2 * rows) + place


def _groups(dense):
    """The matrix as groups of four. A float32 counts as two elements of 16 bits, so that one of two is kept."""
    if dense.dtype == _C.float32:
        pairs = dense.view(*dense.shape[:-1], -1, 2) != 0
        return pairs.repeat_interleave(2, -1)
    return dense.view(*dense.shape[:-1], -1, 4) != 0


def sparse_semi_structured_from_dense_cutlass(dense):
    """The kept elements of a matrix, half as many columns, and the words that say where they were."""
    if dense.dim() != 2:
        raise RuntimeError(f"Expected 2-dimensional dense tensor, got {dense.dim()}-dimensional tensor")
    rows, columns = dense.shape
    words = _word_dtype(dense.dtype)
    if words is None:
        raise RuntimeError(f"Invalid datatype {dense.dtype} of dense matrix")
    least = 32 if words == _C.int16 else 16
    if rows % least:
        raise RuntimeError(f"Number of rows of dense matrix {rows} must be divisible by {least}")
    quads = 4 if words == _C.int16 else 8  # in a word
    unit = (2 if dense.dtype == _C.float32 else 4) * quads
    if columns % unit:
        raise RuntimeError(f"Number of columns of dense matrix {columns} must be divisible by {unit}")
    dense = dense.contiguous()
    held = _groups(dense)
    pattern = (held * _C.tensor([1, 2, 4, 8], device=dense.device)).sum(-1)
    kept = _C.tensor(_KEPT, device=dense.device)[pattern]
    if dense.dtype == _C.float32:
        packed = dense.view(rows, -1, 2).gather(-1, kept[..., :1] // 2).view(rows, -1)
    else:
        packed = dense.view(rows, -1, 4).gather(-1, kept).view(rows, -1)
    nibbles = (kept[..., 0] | kept[..., 1] << 2).view(rows, -1, quads)
    shifts = _C.arange(0, 4 * quads, 4, device=dense.device)
    meta = (nibbles << shifts).sum(-1)
    meta = (meta - ((meta >> (4 * quads - 1)) << (4 * quads))).to(words)  # the sign is the highest bit
    order = word_order(rows, meta.shape[1], words, dense.device)
    placed = _C.empty_like(meta).view(-1)
    placed[order.view(-1)] = meta.view(-1)
    return packed, placed.view(rows, -1)


def sparse_semi_structured_to_dense_cutlass(sparse, meta_reordered):
    """The matrix with zeros where nothing was kept."""
    if sparse.dim() != 2:
        raise RuntimeError(f"Expected 2-dimensional sparse tensor, got {sparse.dim()}-dimensional tensor")
    rows, kept_columns = sparse.shape
    if _word_dtype(sparse.dtype) is None:
        raise RuntimeError(f"Invalid datatype {sparse.dtype} of sparse matrix")
    if meta_reordered.dim() != 2:
        raise RuntimeError(f"Expected 2-dimensional meta tensor, got {meta_reordered.dim()}-dimensional tensor")
    words = meta_reordered.dtype
    if words not in (_C.int16, _C.int32):
        raise RuntimeError(f"Invalid datatype {words} of meta matrix")
    quads = 4 if words == _C.int16 else 8
    per_quad = 1 if sparse.dtype == _C.float32 else 2
    meta_rows, meta_columns = meta_reordered.shape
    if meta_rows != rows:
        raise RuntimeError(
            f"Number of rows of meta matrix {meta_rows} must be equal to number of columns of spase matrix {rows}"
        )
    if meta_columns * quads * per_quad != kept_columns:
        raise RuntimeError(
            f"Number of columns of sparse matrix {kept_columns} different from the {meta_columns * quads * per_quad}, "
            "expected according to the number of columns of meta matrix"
        )
    order = word_order(rows, meta_columns, words, sparse.device)
    meta = meta_reordered.reshape(-1)[order.view(-1)].view(rows, meta_columns, 1).to(_C.int64)
    nibbles = (meta >> _C.arange(0, 4 * quads, 4, device=sparse.device) & 15).view(rows, -1, 1)
    if sparse.dtype == _C.float32:
        places, width = (nibbles & 3) // 2, 2
    else:
        places, width = mica.cat([nibbles & 3, nibbles >> 2], -1), 4
    dense = sparse.new_zeros(rows, nibbles.shape[1], width)
    return dense.scatter_(-1, places, sparse.reshape(rows, -1, per_quad)).view(rows, -1)


def tile_mask(dense, by_size=False):
    """Which elements stay when at most two in each row and column of every 4 x 4 tile may: the largest first."""
    rows, columns = dense.shape
    tiles = dense.view(rows // 4, 4, columns // 4, 4).transpose(1, 2).reshape(-1, 16)
    order = (tiles.abs() if by_size else tiles).argsort(dim=-1, descending=True, stable=True)
    number = _C.arange(len(tiles), device=dense.device)
    kept = _C.zeros_like(tiles, dtype=_C.bool)
    in_row, in_column = (_C.zeros(len(tiles), 4, dtype=_C.int64, device=dense.device) for _ in range(2))
    for at in order.unbind(-1):
        row, column = at // 4, at % 4
        fits = (in_row[number, row] < 2) & (in_column[number, column] < 2)
        kept[number, at] = fits
        in_row[number, row] += fits
        in_column[number, column] += fits
    return kept.view(rows // 4, columns // 4, 4, 4).transpose(1, 2).reshape(rows, columns)


def _sparse_semi_structured_tile(dense):
    """The matrix, with zeros where `tile_mask` keeps nothing."""
    return dense * tile_mask(dense)
