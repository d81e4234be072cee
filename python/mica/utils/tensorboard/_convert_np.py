"""Values as NumPy arrays."""

import mica


def make_np(x):
    """A tensor, an array or a number as an array."""
    import numpy

    if isinstance(x, (numpy.ndarray, list)):
        return numpy.asarray(x)
    if numpy.isscalar(x):
        return numpy.array([x])
    if isinstance(x, mica.Tensor):
        x = x.detach().cpu()
        return (x.float() if x.dtype in (mica.bfloat16,) else x).numpy()
    raise NotImplementedError(f"Got {type(x)}, but numpy array or torch tensor are expected.")
