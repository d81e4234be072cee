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
    """False: nothing is one."""
    return False


def maybe_get_fake_mode(t):
    """None."""


class UnsupportedFakeTensorException(RuntimeError):
    """Nothing raises it."""


class DataDependentOutputException(RuntimeError):
    """Nothing raises it."""
