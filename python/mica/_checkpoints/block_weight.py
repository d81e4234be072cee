"""A matrix whose numbers have few bits and a scale for each group of them, as GGUF files have it."""

import math

from mica import _C

__all__ = ["BlockWeight"]


class BlockWeight:
    """Weights of 4 or 8 bits for `linear` and `embedding`, on the CPU. They are not trained; what comes before them is.

    `torch.nn.functional.linear(x, weight)` and `embedding(indices, weight)` take it in the place of a matrix. A product
    rounds the activations of each group of 32 or 16 to 8 bits, as llama.cpp does.
    """

    __slots__ = ("_parts", "shape", "type")

    def __init__(self, type, data, shape):
        self.type, self.shape = type, _C.Size(shape)
        rows, columns = math.prod(shape[:-1]), shape[-1]
        self._parts = (type, *_C._pack_blocks(type, data, rows, columns), rows, columns)

    @property
    def nbytes(self):
        """Bytes of memory that it takes, packed. The file's own bytes stay mapped."""
        return sum(part.nbytes for part in self._parts[2:4])

    def dim(self):
        return len(self.shape)

    def linear(self, x, bias=None):
        """x @ weight^T + bias, of float32, bfloat16 or float16 numbers."""
        self._check_matrix("linear")
        result = _C._block_linear(x, *self._parts)
        return result if bias is None else result + bias

    def rows(self, indices):
        """The rows of these indices as float32 numbers."""
        self._check_matrix("rows")
        return _C._block_rows(indices, *self._parts)

    def dequantize(self):
        """The numbers that the blocks stand for, as a float32 tensor."""
        return _C._block_rows(_C.arange(self._parts[-2]), *self._parts).view(self.shape)

    def _check_matrix(self, name):
        if len(self.shape) != 2:
            raise RuntimeError(f"{name}: expected a matrix, got a weight of shape {tuple(self.shape)}")

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        name = getattr(function, "__name__", "")
        if name == "linear":
            return _linear(*args, **kwargs) if kwargs else _linear(*args)
        kwargs = kwargs or {}
        if name == "embedding":
            return _embedding(*args, **kwargs)
        raise NotImplementedError(f"{name} of a BlockWeight: linear and embedding are there; else use dequantize()")

    def __reduce__(self):
        """The file's own blocks are saved: how they are packed is this version's affair."""
        return type(self), (self.type, self._parts[1], tuple(self.shape))

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self  # nothing changes its numbers

    def __repr__(self):
        return f"BlockWeight({self.type}, shape={tuple(self.shape)})"


HUGE_PAGE = 2 << 20
TOGETHER = 32 << 20  # bytes of weights that share memory


def gather(weights):
    """Moves the parts of small weights together, so that huge pages hold them.

    A part that is smaller than a huge page lies in small ones, and a product spends a few percent of its time on
    finding these. The order of the weights is kept, which is the order in which they are read.
    """
    moved = [(w, k) for w in weights for k in (2, 3) if w._parts[k].nbytes < 2 * HUGE_PAGE]
    room = 0
    for i, (weight, k) in enumerate(moved):
        part = weight._parts[k]
        nbytes = -(-part.nbytes // 64) * 64
        if room < nbytes:
            rest = sum(-(-w._parts[j].nbytes // 64) * 64 for w, j in moved[i:])
            if rest < HUGE_PAGE:
                return
            room = max(nbytes, min(rest, TOGETHER))
            memory, at = _C.empty(room, dtype=_C.uint8), 0
        place = memory[at : at + part.nbytes].view(part.dtype).view(part.shape)
        place.copy_(part)
        weight._parts = (*weight._parts[:k], place, *weight._parts[k + 1 :])
        at, room = at + nbytes, room - nbytes


def _linear(input, weight, bias=None):
    if not isinstance(weight, BlockWeight):
        raise NotImplementedError("linear: only the weight may be a BlockWeight")
    if bias is None and len(weight.shape) == 2:  # what decoding calls for each layer
        return _C._block_linear(input, *weight._parts)
    return weight.linear(input, bias)


def _embedding(input, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False):
    if not isinstance(weight, BlockWeight) or max_norm is not None:
        raise NotImplementedError("embedding: only the weight may be a BlockWeight, without max_norm")
    return weight.rows(input)
