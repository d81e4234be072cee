"""Tensors without data: no tensor is a special one, and a mode that makes them is not there."""

import mica


class FakeTensor(mica.Tensor):
    """The type of tensors without data that look like tensors on a device: nothing is one."""

    def __new__(cls, *args, **kwargs):
        raise NotImplementedError('FakeTensor is not in Mica: tensors without data are on the device "meta"')


class FakeTensorMode:
    """A with block in which tensors have no data: `with torch.device("meta"):` says it."""

    def __init__(self, *args, **kwargs):
        raise NotImplementedError(
            'FakeTensorMode is not in Mica: `with torch.device("meta"):` makes tensors without data'
        )


def is_fake(x):
    """Always False: Mica has no fake tensors; the meta device serves."""
    return False


def maybe_get_fake_mode(t):
    """The mode of a fake tensor: always None, since there are none."""


class UnsupportedFakeTensorException(RuntimeError):
    """Raised by torch's fake tensors; Mica does not raise it."""


class DataDependentOutputException(RuntimeError):
    """Raised by torch's fake tensors; Mica does not raise it."""
