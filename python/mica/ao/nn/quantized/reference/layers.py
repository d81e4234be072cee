"""Reference layers with one weight: linear maps, convolutions, tables."""

from mica import nn
from mica.ao.nn.quantized.reference.weights import ReferenceQuantizedModule
from mica.nn import functional as F

__all__ = [
    "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "Embedding", "EmbeddingBag",
    "Linear",
]  # fmt: skip


class Linear(ReferenceQuantizedModule, nn.Linear):
    """nn.Linear with a rounded weight."""

    _IS_REFERENCE = True

    def __init__(self, in_features, out_features, bias_=True, device=None, dtype=None, weight_qparams=None):
        nn.Linear.__init__(self, in_features, out_features, bias_, device, dtype)
        self._init_weight_qparams(weight_qparams, device)

    def forward(self, x):
        return F.linear(x, self.get_weight(), self.bias)


class _Conv(ReferenceQuantizedModule):
    """What convolutions share. The float layer's class follows this one."""

    _IS_REFERENCE = True

    def __init__(
        self, in_channels, out_channels, kernel_size, stride=1, padding=0, dilation=1, groups=1, bias=True,
        padding_mode="zeros", device=None, dtype=None, weight_qparams=None,
    ):  # fmt: skip
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode, device, dtype
        )
        self._init_weight_qparams(weight_qparams, device)

    def forward(self, x):
        return self._conv_forward(x, self.get_weight(), self.bias)


class Conv1d(_Conv, nn.Conv1d):
    """nn.Conv1d with a rounded weight."""


class Conv2d(_Conv, nn.Conv2d):
    """nn.Conv2d with a rounded weight."""


class Conv3d(_Conv, nn.Conv3d):
    """nn.Conv3d with a rounded weight."""


class _Transposed(ReferenceQuantizedModule):
    """What transposed convolutions share. The float layer's class follows this one."""

    _IS_REFERENCE = True
    _dims = 2

    def __init__(
        self, in_channels, out_channels, kernel_size, stride=1, padding=0, output_padding=0, groups=1, bias=True,
        dilation=1, padding_mode="zeros", device=None, dtype=None, weight_qparams=None,
    ):  # fmt: skip
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, output_padding, groups, bias, dilation,
            padding_mode, device, dtype,
        )  # fmt: skip
        self._init_weight_qparams(weight_qparams, device)

    def forward(self, x, output_size=None):
        more = self._output_padding(
            x, output_size, self.stride, self.padding, self.kernel_size, self._dims, self.dilation
        )
        convolve = getattr(F, f"conv_transpose{self._dims}d")
        return convolve(x, self.get_weight(), self.bias, self.stride, self.padding, more, self.groups, self.dilation)


class ConvTranspose1d(_Transposed, nn.ConvTranspose1d):
    """nn.ConvTranspose1d with a rounded weight."""

    _dims = 1


class ConvTranspose2d(_Transposed, nn.ConvTranspose2d):
    """nn.ConvTranspose2d with a rounded weight."""


class ConvTranspose3d(_Transposed, nn.ConvTranspose3d):
    """nn.ConvTranspose3d with a rounded weight."""

    _dims = 3


class Embedding(ReferenceQuantizedModule, nn.Embedding):
    """nn.Embedding with a rounded table."""

    def __init__(
        self, num_embeddings, embedding_dim, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False,
        sparse=False, _weight=None, device=None, dtype=None, weight_qparams=None,
    ):  # fmt: skip
        nn.Embedding.__init__(
            self, num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, _weight,
            device=device, dtype=dtype,
        )  # fmt: skip
        self._init_weight_qparams(weight_qparams, device)

    def forward(self, input):
        return F.embedding(
            input, self.get_weight(), self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq,
            self.sparse,
        )  # fmt: skip


class EmbeddingBag(ReferenceQuantizedModule, nn.EmbeddingBag):
    """nn.EmbeddingBag with a rounded table."""

    def __init__(
        self, num_embeddings, embedding_dim, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, mode="mean",
        sparse=False, _weight=None, include_last_offset=False, padding_idx=None, device=None, dtype=None,
        weight_qparams=None,
    ):  # fmt: skip
        nn.EmbeddingBag.__init__(
            self, num_embeddings, embedding_dim, max_norm, norm_type, scale_grad_by_freq, mode, sparse, _weight,
            include_last_offset, padding_idx, device, dtype,
        )  # fmt: skip
        self._init_weight_qparams(weight_qparams, device)

    def forward(self, input, offsets=None, per_sample_weights=None):
        return F.embedding_bag(
            input, self.get_weight(), offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.mode,
            self.sparse, per_sample_weights, self.include_last_offset, self.padding_idx,
        )  # fmt: skip

    def _get_name(self):
        return "QuantizedEmbedding(Reference)"
