"""A module on the GPUs of one process: none or one of them."""

from mica import _C, accelerator
from mica.nn.modules.module import Module

__all__ = ["DataParallel", "data_parallel"]


def _indices(device_ids):
    if not accelerator.is_available():
        return []
    if device_ids is None:
        device_ids = range(accelerator.device_count())
    ids = [each if isinstance(each, int) else _C.device(each).index for each in device_ids]
    if len(ids) > 1:
        raise RuntimeError(f"A module can be on one GPU so far, got device_ids {ids}: name one, as device_ids=[0]")
    return ids


def _moved(arguments, index):
    """The arguments with their tensors moved to a device, which is given as a device, or by its index with -1 for the CPU."""
    from mica.utils._pytree import tree_map  # of use to those only who run a module in parallel

    device = _C.device("cpu" if index == -1 else index)
    return tree_map(lambda each: each.to(device) if isinstance(each, _C.TensorBase) else each, arguments)


class DataParallel(Module):
    """Calls a module: on the CPU as it is, on one GPU with its inputs moved there and its results to output_device."""

    def __init__(self, module, device_ids=None, output_device=None, dim=0):
        super().__init__()
        self.dim = dim
        self.module = module
        self.device_ids = _indices(device_ids)
        self.output_device = None
        if self.device_ids:
            self.output_device = self.device_ids[0] if output_device is None else output_device
            self.module.to(_C.device(self.device_ids[0]))

    def forward(self, *inputs, **kwargs):
        if self.device_ids:
            inputs, kwargs = _moved((inputs, kwargs), self.device_ids[0])
        result = self.module(*inputs, **kwargs)
        return _moved(result, self.output_device) if self.device_ids else result


def data_parallel(module, inputs, device_ids=None, output_device=None, dim=0, module_kwargs=None):
    """Call the module as DataParallel does, once."""
    inputs = inputs if isinstance(inputs, tuple) else (() if inputs is None else (inputs,))
    kwargs = module_kwargs or {}
    indices = _indices(device_ids)
    if indices:
        inputs, kwargs = _moved((inputs, kwargs), indices[0])
    result = module(*inputs, **kwargs)
    return _moved(result, indices[0] if output_device is None else output_device) if indices else result
