"""torch.qscheme and its values: how a quantized tensor's integers stand for real numbers."""


class qscheme:
    """A way of quantizing: one scale or one for each channel."""

    __module__ = "torch"
    __slots__ = ("_name",)

    def __init__(self, name):
        self._name = name

    def __repr__(self):
        return f"torch.{self._name}"

    def __reduce__(self):
        return _named, (self._name,)


def _named(name):
    return globals()[name]


per_tensor_affine = qscheme("per_tensor_affine")
per_channel_affine = qscheme("per_channel_affine")
per_tensor_symmetric = qscheme("per_tensor_symmetric")
per_channel_symmetric = qscheme("per_channel_symmetric")
per_channel_affine_float_qparams = qscheme("per_channel_affine_float_qparams")
