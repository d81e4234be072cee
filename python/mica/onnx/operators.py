"""Operations that exporters treat specially."""

import mica

__all__ = ["reshape_from_tensor_shape", "shape_as_tensor"]


def shape_as_tensor(x):
    """The shape as a tensor."""
    return mica.tensor(x.shape)


def reshape_from_tensor_shape(x, shape):
    """Reshape to a shape that is a tensor."""
    return x.reshape(shape.tolist())
