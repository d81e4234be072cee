"""Layers whose weights are rounded during training as they will be when quantized."""

from mica import nn

__all__ = ["Conv1d", "Conv2d", "Conv3d", "Embedding", "EmbeddingBag", "Linear"]


def __getattr__(name):
    if name == "dynamic":
        import importlib

        return importlib.import_module("mica.ao.nn.qat.dynamic")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _Trained:
    """A float layer with a rounding of its weight."""

    def __init__(self, *args, qconfig=None, **kwargs):
        if qconfig is None:
            raise AssertionError("qconfig must be provided for QAT module")
        super().__init__(*args, **kwargs)
        self.qconfig, self.weight_fake_quant = qconfig, qconfig.weight()

    @classmethod
    def from_float(cls, mod, use_precomputed_fake_quant=False):
        """The trained form of a float layer with a qconfig: the same object's parts, the parameters themselves."""
        if getattr(mod, "qconfig", None) is None:
            raise AssertionError("Input float module must have qconfig defined")
        made = cls.__new__(cls)
        nn.Module.__init__(made)
        made.__dict__.update({k: v for k, v in vars(mod).items() if k not in ("_parameters", "_modules", "_buffers")})
        for kind in ("_parameters", "_modules", "_buffers"):
            getattr(made, kind).update(getattr(mod, kind))
        made.weight_fake_quant = mod.qconfig.weight()
        return made

    def to_float(self):
        """The float layer again, with the trained weight."""
        kind = next(k for k in type(self).__mro__ if issubclass(k, nn.Module) and not issubclass(k, _Trained))
        made = kind.__new__(kind)
        nn.Module.__init__(made)
        made.__dict__.update({k: v for k, v in vars(self).items() if k not in ("_parameters", "_modules", "_buffers")})
        made._parameters.update(self._parameters)
        return made

    def _rounded(self):
        return self.weight_fake_quant(self.weight)


class Linear(_Trained, nn.Linear):
    """nn.Linear with a rounded weight."""

    def forward(self, input):
        return nn.functional.linear(input, self._rounded(), self.bias)


class _TrainedConv(_Trained):
    def forward(self, input):
        return self._conv_forward(input, self._rounded(), self.bias)


class Conv1d(_TrainedConv, nn.Conv1d):
    """nn.Conv1d with a rounded weight."""


class Conv2d(_TrainedConv, nn.Conv2d):
    """nn.Conv2d with a rounded weight."""


class Conv3d(_TrainedConv, nn.Conv3d):
    """nn.Conv3d with a rounded weight."""


class Embedding(_Trained, nn.Embedding):
    """nn.Embedding with a rounded table."""

    def forward(self, input):
        return nn.functional.embedding(
            input,
            self._rounded(),
            self.padding_idx,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.sparse,
        )


class EmbeddingBag(_Trained, nn.EmbeddingBag):
    """nn.EmbeddingBag with a rounded table."""

    def forward(self, input, offsets=None, per_sample_weights=None):
        return nn.functional.embedding_bag(
            input, self._rounded(), offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.mode,
            self.sparse, per_sample_weights, self.include_last_offset, self.padding_idx,
        )  # fmt: skip
