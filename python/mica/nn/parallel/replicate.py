"""Copies of a module on several devices."""

from mica.nn.parallel.scatter_gather import _device

__all__ = ["replicate"]


def replicate(network, devices, detach=False):
    """A copy of the module for each device. Gradients of the copies' parameters arrive at those of the module."""
    modules = list(network.modules())
    position = {module: i for i, module in enumerate(modules)}
    made = []
    for each in devices:
        place = _device(each)
        copies = [module._replicate_for_data_parallel() for module in modules]
        moved = {}
        for module, copy in zip(modules, copies, strict=True):
            for name, child in module._modules.items():
                copy._modules[name] = None if child is None else copies[position[child]]
            for name, parameter in module._parameters.items():
                if parameter is None:
                    copy._parameters[name] = None
                    continue
                if id(parameter) not in moved:
                    # A view where nothing has to move, so that the copy's parameter is not a leaf, as on another
                    # device.
                    there = parameter.view_as(parameter) if parameter.device == place else parameter.to(place)
                    moved[id(parameter)] = there.detach() if detach else there
                setattr(copy, name, moved[id(parameter)])
            for name, buffer in module._buffers.items():
                copy._buffers[name] = None if buffer is None else buffer.to(place)
        made.append(copies[0])
    return made
