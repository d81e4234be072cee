"""Layers that train for dynamic quantization: their inputs are measured afresh in every call."""

from mica.ao.nn import qat

__all__ = ["Linear"]


def _is_memoryless(qconfig):
    activation = qconfig.activation()
    observer = getattr(activation, "activation_post_process", activation)
    return getattr(observer, "averaging_constant", None) == 1


class Linear(qat.Linear):
    """qat.Linear for dynamic quantization: the qconfig's observer of activations must keep no statistics."""

    def __init__(self, in_features, out_features, bias=True, qconfig=None, device=None, dtype=None):
        super().__init__(in_features, out_features, bias, qconfig=qconfig, device=device, dtype=dtype)
        self._check()

    @classmethod
    def from_float(cls, mod, use_precomputed_fake_quant=False):
        """The trained form of a float layer with a qconfig."""
        made = super().from_float(mod, use_precomputed_fake_quant)
        made._check()
        return made

    def _check(self):
        if not _is_memoryless(self.qconfig):
            raise ValueError(
                "Dynamic QAT requires a memoryless observer. This means a MovingAverage observer with averaging constant "
                "equal to 1"
            )
