"""Averages parameters over the processes of a group."""

import mica

__all__ = ["average_parameters", "average_parameters_or_parameter_groups", "get_params_to_average"]


def average_parameters(params, process_group):
    """Give every parameter the mean over the group, with one collective for each dtype and device."""
    from mica.distributed import all_reduce, get_world_size
    from mica.distributed.world import _group, _rank_not_in_group

    group = _group(process_group)
    if _rank_not_in_group(group):
        return
    kinds = {}
    for parameter in params:
        kinds.setdefault((parameter.dtype, parameter.device), []).append(parameter)
    for members in kinds.values():
        flat = mica.cat([parameter.detach().reshape(-1) for parameter in members])
        flat /= get_world_size(group)
        all_reduce(flat, group=group)
        begin = 0
        for parameter in members:
            parameter.data = flat[begin : begin + parameter.numel()].view_as(parameter)
            begin += parameter.numel()


def get_params_to_average(params):
    """The parameters that have a gradient, among parameters or in an optimizer's groups."""
    found = []
    for each in params:
        if isinstance(each, dict):
            members = each["params"]
        elif isinstance(each, mica.nn.Parameter):
            members = [each]
        else:
            raise NotImplementedError(f"Parameter input of type {type(each)} is not supported")
        found += [parameter for parameter in members if parameter.grad is not None]
    return found


def average_parameters_or_parameter_groups(params, process_group):
    """Give those with a gradient the mean over the group."""
    average_parameters(get_params_to_average(params), process_group)
