"""All parameters as one vector, and back."""

from mica import _C
from mica._C import Tensor
from mica._functions.settings import typename

__all__ = ["parameters_to_vector", "vector_to_parameters"]


def _on_one_device(parameters):
    """The parameters one by one, which must be on one device."""
    device = None
    for parameter in parameters:
        if device is not None and parameter.device != device:
            raise TypeError("Found two parameters on different devices, this is currently not supported.")
        device = parameter.device
        yield parameter


def parameters_to_vector(parameters):
    """The elements of all parameters, one after the other."""
    return _C.cat([parameter.view(-1) for parameter in _on_one_device(parameters)])


def vector_to_parameters(vec, parameters):
    """Let the parameters share the elements of a vector, one after the other."""
    if not isinstance(vec, Tensor):
        raise TypeError(f"expected torch.Tensor, but got: {typename(vec)}")
    parts, first = [], 0
    for parameter in _on_one_device(parameters):
        count = parameter.numel()
        parts.append((parameter, vec[first : first + count].view_as(parameter).data))
        first += count
    before = [(parameter, parameter.data) for parameter, _ in parts]
    try:
        for parameter, part in parts:
            parameter.data = part
    except Exception:  # all or none
        for parameter, data in before:
            parameter.data = data
        raise
