"""Divides what a module's backward pass needs among the processes of a tensor parallel group, where all of them would keep
the same."""

from mica.autograd.graph import saved_tensors_hooks
from mica.distributed.tensor import DTensor, Replicate, Shard

__all__ = ["input_reshard"]


def _is_plain(tensor, mesh):
    return not isinstance(tensor, DTensor) and tensor.numel() >= mesh.size()


def input_reshard(module, tp_device_mesh, input_reshard_dim=None):
    """Let the tensors that forward saves be cut along a dimension, and come together again in backward."""
    if input_reshard_dim is None:
        return module
    mesh, cut = tp_device_mesh, [Shard(input_reshard_dim)]
    entered = []

    def fits(tensor):
        return -tensor.dim() <= input_reshard_dim < tensor.dim()

    def pack(tensor):
        if isinstance(tensor, DTensor) and all(each.is_replicate() for each in tensor.placements):
            return tensor.redistribute(mesh, cut), True
        if _is_plain(tensor, mesh) and fits(tensor):
            return DTensor.from_local(tensor, mesh, [Replicate()]).redistribute(mesh, cut), False
        return tensor, None

    def unpack(packed):
        tensor, spread = packed
        if spread is None:
            return tensor
        whole = tensor.redistribute(mesh, [Replicate()])
        return whole if spread else whole.to_local()

    def before(module, args):
        entered.append(saved_tensors_hooks(pack, unpack))
        entered[-1].__enter__()

    def after(module, args, output):
        entered.pop().__exit__(None, None, None)

    module.register_forward_pre_hook(before)
    module.register_forward_hook(after)
    return module
