"""How linear_cross_entropy is to be cut into parts."""

import dataclasses
import math

import mica

__all__ = ["LinearCrossEntropyOptions"]

_DEFAULT_METHOD = "aspect_ratio:2"


@dataclasses.dataclass(slots=True, frozen=True)
class LinearCrossEntropyOptions:
    """How many rows of logits exist at a time: a number, or so many that they take 1/N of the input's memory.

    The logits are computed again in the backward pass, so a graph can always be kept, whatever `allow_retain_graph` says, and sums are
    those of the kernels under every `acc_policy`.
    """

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"  # "aspect_ratio" or "aspect_ratio:N"
    acc_policy: str = "auto"
    acc_dtype: "mica.dtype | None" = None

    def __post_init__(self):
        if self.acc_policy not in ("auto", "accurate", "balanced", "compact"):
            raise ValueError(f"invalid acc_policy: {self.acc_policy!r}")
        if self.chunking_method not in (None, "auto"):
            name, colon, factor = self.chunking_method.partition(":")
            if name != "aspect_ratio" or (colon and not (factor.isdigit() and int(factor) > 0)):
                raise ValueError(f"invalid chunking_method: {self.chunking_method!r}")
        size = self.batch_chunk_size
        if size is not None and not (isinstance(size, int) and size > 0):
            raise ValueError(f"batch_chunk_size must be positive int or None, got {size!r}")
        if self.acc_dtype not in (None, mica.float16, mica.bfloat16, mica.float32, mica.float64):
            raise ValueError(
                "acc_dtype must be one of {None, torch.float16, torch.bfloat16, torch.float32, torch.float64}, "
                f"got {self.acc_dtype!r}. Pass acc_dtype=None to let the op pick automatically."
            )

    def _sum_dtype(self, dtype):
        if self.acc_dtype is not None:
            return self.acc_dtype
        return mica.float32 if self.acc_policy == "auto" and dtype in (mica.float16, mica.bfloat16) else dtype

    def _chunk_rows(self, rows, features, classes):
        given, method = self.batch_chunk_size, self.chunking_method
        if method is None or (method == "auto" and given is not None):
            return max(1, rows if given is None else min(given, rows))
        name = _DEFAULT_METHOD if method == "auto" else method
        share = math.ceil(rows / math.ceil(classes / features)) if features else rows
        size = min((1 << max(share - 1, 0).bit_length()) // int(name.partition(":")[2] or 1), rows)
        if given is not None and given != size:
            raise ValueError(
                f"batch_chunk_size (={given}) and chunking_method ('{name}') give different chunk sizes "
                f"({given} vs {size}); pass only one."
            )
        return max(1, size)
