"""Layers joined with what follows them, that take float32 and quantize it as it comes."""

from mica.ao.nn.quantized import dynamic

__all__ = ["LinearReLU"]


class LinearReLU(dynamic.Linear):
    """A linear map with a qint8 (or float16) weight, and relu."""

    @classmethod
    def from_float(cls, mod, use_precomputed_fake_quant=False, dtype=None):
        """The dynamically quantized form of a fused LinearReLU."""
        return super().from_float(mod[0], use_precomputed_fake_quant, dtype)

    def forward(self, x):
        return super().forward(x).relu()

    def _get_name(self):
        return "DynamicQuantizedLinearReLU"
