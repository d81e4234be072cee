"""Tables of qint8 rows, each with a scale of its own; lookups return float32."""

from mica import _C
from mica.nn import Module
from mica.nn import functional as F

__all__ = ["Embedding", "EmbeddingBag"]


def quantized_table(rows):
    """Rows of float32 as qint8, with a scale for each."""
    scales = (rows.abs().amax(1) / 127).clamp_min(1e-8) if rows.numel() else _C.ones(len(rows))
    return _C.quantize_per_channel(rows, scales, _C.zeros(len(rows), dtype=_C.int64), 0, _C.qint8)


class Embedding(Module):
    """A table of qint8 rows, each with its scale; lookups return float32."""

    def __init__(self, weight):
        super().__init__()
        self._weight = weight
        self.num_embeddings, self.embedding_dim = weight.shape

    @classmethod
    def from_float(cls, mod, use_precomputed_fake_quant=False):
        """The quantized form of an nn.Embedding."""
        return cls(quantized_table(mod.weight.detach()))

    def weight(self):
        """The quantized table."""
        return self._weight

    def _rows(self, indices):
        rows = self._weight.int_repr()[indices].float()
        return rows * self._weight.q_per_channel_scales().float()[indices].unsqueeze(-1)

    def forward(self, indices):
        return self._rows(indices)

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "weight"] = self._weight

    def _load_from_state_dict(self, state_dict, prefix, metadata, strict, missing, unexpected, errors):
        self._weight = state_dict.pop(prefix + "weight")
        super()._load_from_state_dict(state_dict, prefix, metadata, False, missing, unexpected, errors)

    def _get_name(self):
        return f"Quantized{type(self).__name__}"

    def extra_repr(self):
        return f"num_embeddings={self.num_embeddings}, embedding_dim={self.embedding_dim}, dtype=torch.qint8"


class EmbeddingBag(Embedding):
    """Sums, means or maxima of rows of a quantized table."""

    def __init__(self, weight, mode="sum", include_last_offset=False, padding_idx=None):
        super().__init__(weight)
        self.mode, self.include_last_offset, self.padding_idx = mode, include_last_offset, padding_idx

    @classmethod
    def from_float(cls, mod, use_precomputed_fake_quant=False):
        """The quantized form of an nn.EmbeddingBag."""
        return cls(quantized_table(mod.weight.detach()), mod.mode, mod.include_last_offset, mod.padding_idx)

    def forward(self, indices, offsets=None, per_sample_weights=None):
        # Only the rows that are asked for are made float32: a small table, in the order of its first use.
        used, places = indices.unique(return_inverse=True)
        padding = None if self.padding_idx is None else (used == self.padding_idx).nonzero().reshape(-1).tolist()
        return F.embedding_bag(
            places, self._rows(used), offsets, mode=self.mode, per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset, padding_idx=padding[0] if padding else None,
        )  # fmt: skip
