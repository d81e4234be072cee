"""Joined layers in training: weights are rounded as they will be when quantized, with batch normalization folded in.

The batch normalization of a joined layer is trained with it. In every step the weight is scaled by the running statistics,
as it will be in the quantized model, and rounded; the sums are scaled back and normalized by the statistics of the batch.
"""

import math

from mica import _C, nn
from mica.ao.nn import intrinsic as nni
from mica.ao.nn import qat
from mica.nn import functional as F
from mica.nn.utils.fusion import fuse_conv_bn_weights, fuse_linear_bn_weights

__all__ = [
    "ConvBn1d", "ConvBn2d", "ConvBn3d", "ConvBnReLU1d", "ConvBnReLU2d", "ConvBnReLU3d", "ConvReLU1d", "ConvReLU2d",
    "ConvReLU3d", "LinearBn1d", "LinearReLU", "freeze_bn_stats", "update_bn_stats",
]  # fmt: skip


class _Joined:
    """A float layer's trained form that stands for several modules."""

    _is_joined = True  # its parts have no observers of their own

    @classmethod
    def from_float(cls, mod, use_precomputed_fake_quant=False):
        """The trained form of a joined module with a qconfig, or of a layer alone."""
        first = mod[0] if isinstance(mod, nni._FusedModule) else mod
        if getattr(mod, "qconfig", None) is None:
            raise AssertionError("Input float module must have a valid qconfig")
        first.qconfig = mod.qconfig
        made = super().from_float(first)
        made.train(mod.training)
        return made


class _ReLU(_Joined):
    def forward(self, input):
        return F.relu(super().forward(input))


class LinearReLU(_ReLU, qat.Linear):
    """A linear map and relu."""

    def to_float(self):
        return nni.LinearReLU(super().to_float(), nn.ReLU())


class _ConvReLU(_ReLU):
    def to_float(self):
        return getattr(nni, type(self).__name__)(super().to_float(), nn.ReLU())


class ConvReLU1d(_ConvReLU, qat.Conv1d):
    """A convolution of sequences and relu."""


class ConvReLU2d(_ConvReLU, qat.Conv2d):
    """A convolution of images and relu."""


class ConvReLU3d(_ConvReLU, qat.Conv3d):
    """A convolution of volumes and relu."""


class _Folded:
    """A view of a layer in which batch normalization is folded into the weight. All other attributes are the layer's own."""

    def __init__(self, layer, weight, bias):
        self._layer, self.weight, self.bias = layer, weight, bias

    def __getattr__(self, name):
        return getattr(self._layer, name)


class _WithNorm(_Joined):
    """A layer with batch normalization behind it. The layer's class follows this one."""

    _norm = None

    def _take_norm(self, norm, freeze_bn):
        rounding = self._modules.pop("weight_fake_quant")
        self.bn, self.freeze_bn = norm, freeze_bn
        self._modules["weight_fake_quant"] = rounding  # it comes last, as in torch's state dicts
        if self.training and freeze_bn:
            self.freeze_bn_stats()
        elif self.training:
            self.update_bn_stats()
        else:
            self.freeze_bn_stats()

    def reset_running_stats(self):
        """Start the statistics again."""
        self.bn.reset_running_stats()

    def reset_bn_parameters(self):
        """Draw the factors of batch normalization, and the layer's bias, again."""
        self.bn.reset_running_stats()
        nn.init.uniform_(self.bn.weight)
        nn.init.zeros_(self.bn.bias)
        if self.bias is not None:
            bound = 1 / math.sqrt(nn.init._calculate_fan_in_and_fan_out(self.weight)[0])
            nn.init.uniform_(self.bias, -bound, bound)

    def update_bn_stats(self):
        """Let the statistics follow the batches."""
        self.freeze_bn, self.bn.training = False, True
        return self

    def freeze_bn_stats(self):
        """Keep the statistics as they are."""
        self.freeze_bn, self.bn.training = True, False
        return self

    def train(self, mode=True):
        super().train(mode)
        if mode and getattr(self, "freeze_bn", False):
            self.bn.training = False
        return self

    @classmethod
    def from_float(cls, mod, use_precomputed_fake_quant=False):
        made = super().from_float(mod)
        made._take_norm(mod[1], False)
        return made

    def forward(self, input):
        scale = self.bn.weight / _C.sqrt(self.bn.running_var + self.bn.eps)
        across = (-1,) + (1,) * (self.weight.dim() - 1)
        weight = self.weight_fake_quant(self.weight * scale.reshape(across))
        sums = self._apply_weight(input, weight)
        beside = (1, -1) + (1,) * (sums.dim() - 2)
        sums = sums / scale.reshape(beside)
        if self.bias is not None:
            sums = sums + self.bias.reshape(beside)
        return self.bn(sums)

    def _folded(self):
        """The layer that is quantized: batch normalization is in its weight."""
        bn = self.bn
        fuse = fuse_linear_bn_weights if isinstance(self, nn.Linear) else fuse_conv_bn_weights
        return _Folded(self, *fuse(self.weight, self.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias))

    def to_float(self):
        """The float layer with batch normalization folded into its weight."""
        folded = self._folded()
        made = qat._Trained.to_float(self)
        for name in ("freeze_bn", "qconfig"):
            made.__dict__.pop(name, None)
        made.weight, made.bias = nn.Parameter(folded.weight.detach()), nn.Parameter(folded.bias.detach())
        return made


class _ConvBn(_WithNorm):
    def __init__(
        self, in_channels, out_channels, kernel_size, stride=1, padding=0, dilation=1, groups=1, bias=None,
        padding_mode="zeros", eps=1e-05, momentum=0.1, freeze_bn=False, qconfig=None,
    ):  # fmt: skip
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, False, padding_mode,
            qconfig=qconfig,
        )  # fmt: skip
        if bias:
            self.bias = nn.Parameter(_C.empty(out_channels))
        self._take_norm(self._norm(out_channels, eps, momentum), freeze_bn)
        self.reset_bn_parameters()

    def _apply_weight(self, input, weight):
        return self._conv_forward(input, weight, None)


class ConvBn1d(_ConvBn, qat.Conv1d):
    """A convolution of sequences and batch normalization."""

    _norm = nn.BatchNorm1d


class ConvBn2d(_ConvBn, qat.Conv2d):
    """A convolution of images and batch normalization."""

    _norm = nn.BatchNorm2d


class ConvBn3d(_ConvBn, qat.Conv3d):
    """A convolution of volumes and batch normalization."""

    _norm = nn.BatchNorm3d


class _ConvBnReLU:
    def forward(self, input):
        return F.relu(super().forward(input))

    def to_float(self):
        return getattr(nni, type(self).__name__.replace("Bn", ""))(super().to_float(), nn.ReLU())


class ConvBnReLU1d(_ConvBnReLU, ConvBn1d):
    """A convolution of sequences, batch normalization and relu."""


class ConvBnReLU2d(_ConvBnReLU, ConvBn2d):
    """A convolution of images, batch normalization and relu."""


class ConvBnReLU3d(_ConvBnReLU, ConvBn3d):
    """A convolution of volumes, batch normalization and relu."""


class LinearBn1d(_WithNorm, qat.Linear):
    """A linear map and batch normalization."""

    def __init__(self, in_features, out_features, bias=True, eps=1e-05, momentum=0.1, freeze_bn=False, qconfig=None):
        super().__init__(in_features, out_features, bias, qconfig=qconfig)
        self._take_norm(nn.BatchNorm1d(out_features, eps, momentum), freeze_bn)
        self.reset_bn_parameters()

    def reset_bn_parameters(self):
        """Draw the factors of batch normalization again."""
        self.bn.reset_running_stats()
        nn.init.uniform_(self.bn.weight)
        nn.init.zeros_(self.bn.bias)

    def _apply_weight(self, input, weight):
        return F.linear(input, weight)


def update_bn_stats(mod):
    """Let a joined layer's statistics follow the batches; for Module.apply."""
    if isinstance(mod, _WithNorm):
        mod.update_bn_stats()


def freeze_bn_stats(mod):
    """Keep a joined layer's statistics as they are; for Module.apply."""
    if isinstance(mod, _WithNorm):
        mod.freeze_bn_stats()


# The trained form of each joined module.
TRAINED = {getattr(nni, name): globals()[name] for name in __all__ if name[0].isupper()}
