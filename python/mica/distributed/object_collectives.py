"""Collectives and messages of Python objects, which travel pickled."""

import io

import mica
from mica.distributed import process_group as _process_group
from mica.distributed.collectives import _check_tensor, _outside, _root, all_gather, broadcast, gather, scatter  # noqa: F401
from mica.distributed.messages import recv, send
from mica.distributed.world import _group, get_world_size

__all__ = [
    "all_gather_object", "broadcast_object_list", "gather_object", "recv_object_list", "scatter_object_list",
    "send_object_list",
]  # fmt: skip


def _to_tensor(obj):
    buffer = io.BytesIO()
    _process_group._pickler(buffer).dump(obj)
    return mica.frombuffer(bytearray(buffer.getvalue()), dtype=mica.uint8)


def _from_tensor(tensor, size, weights_only=False):
    data = io.BytesIO(bytes(tensor[:size].clone().untyped_storage()))
    if weights_only:
        return mica.load(data, weights_only=True)
    return _process_group._unpickler(data).load()


def _object_to_tensor(obj, device, group):
    data = _to_tensor(obj)
    return data.to(device), mica.tensor([data.numel()], device=device)


def _tensor_to_object(tensor, tensor_size, group):
    return _from_tensor(tensor.cpu(), int(tensor_size))


def _sizes(tensor, group):
    """The sizes of all ranks' tensors."""
    size = mica.tensor([tensor.numel()])
    sizes = [mica.zeros(1, dtype=mica.int64) for _ in range(get_world_size(group))]
    all_gather(sizes, size, group)
    return [int(each) for each in sizes]


def _padded(tensor, length):
    whole = mica.zeros(length, dtype=mica.uint8)
    whole[: tensor.numel()] = tensor
    return whole


def all_gather_object(object_list, obj, group=None):
    """Every process gets all objects."""
    group = _group(group)
    if _outside("all_gather_object", group):
        return
    if len(object_list) != group.size():
        raise ValueError(f"expected a list of {group.size()} for the objects of all ranks, but got {len(object_list)}")
    given = _to_tensor(obj)
    sizes = _sizes(given, group)
    taken = [mica.empty(max(sizes), dtype=mica.uint8) for _ in sizes]
    all_gather(taken, _padded(given, max(sizes)), group)
    for index, (tensor, size) in enumerate(zip(taken, sizes, strict=True)):
        object_list[index] = _from_tensor(tensor, size)


def gather_object(obj, object_gather_list=None, dst=None, group=None, group_dst=None):
    """One process gets all objects."""
    group = _group(group)
    if _outside("gather_object", group):
        return
    root = _root(group, dst, group_dst, default=0)
    if group.rank() == root and not object_gather_list:
        raise ValueError("Argument ``gather_list`` must be specified on destination rank.")
    if group.rank() != root and object_gather_list:
        raise ValueError("Argument ``gather_list`` must NOT be specified on non-destination ranks.")
    given = _to_tensor(obj)
    sizes = _sizes(given, group)
    taken = [mica.empty(max(sizes), dtype=mica.uint8) for _ in sizes] if group.rank() == root else None
    gather(_padded(given, max(sizes)), taken, group=group, group_dst=root)
    for index, tensor in enumerate(taken or ()):
        object_gather_list[index] = _from_tensor(tensor, sizes[index])


def broadcast_object_list(object_list, src=None, group=None, device=None, group_src=None, weights_only=False):
    """Every process gets the objects of one, in its own list."""
    group = _group(group)
    if _outside("broadcast_object_list", group):
        return
    root = _root(group, src, group_src, default=0)
    sizes = mica.zeros(len(object_list), dtype=mica.int64)
    data = []
    if group.rank() == root:
        data = [_to_tensor(each) for each in object_list]
        sizes = mica.tensor([each.numel() for each in data], dtype=mica.int64)
    broadcast(sizes, group=group, group_src=root)
    whole = mica.cat(data) if data else mica.empty(int(sizes.sum()), dtype=mica.uint8)
    broadcast(whole, group=group, group_src=root)
    if group.rank() != root:
        for index, part in enumerate(whole.split(sizes.tolist())):
            object_list[index] = _from_tensor(part, part.numel(), weights_only)


def scatter_object_list(
    scatter_object_output_list, scatter_object_input_list=None, src=None, group=None, group_src=None
):
    """Every process gets one of the objects of one."""
    group = _group(group)
    if _outside("scatter_object_list", group):
        return
    if not isinstance(scatter_object_output_list, list) or len(scatter_object_output_list) < 1:
        raise ValueError("Expected argument scatter_object_output_list to be a list of size at least 1.")
    root = _root(group, src, group_src, default=0)
    sizes, parts = mica.zeros(group.size(), dtype=mica.int64), None
    if group.rank() == root:
        if scatter_object_input_list is None or len(scatter_object_input_list) != group.size():
            given = None if scatter_object_input_list is None else len(scatter_object_input_list)
            raise ValueError(f"expected a list of {group.size()} objects on the source rank, but got {given}")
        parts = [_to_tensor(each) for each in scatter_object_input_list]
        sizes = mica.tensor([each.numel() for each in parts], dtype=mica.int64)
    broadcast(sizes, group=group, group_src=root)
    most = int(sizes.max())
    taken = mica.empty(most, dtype=mica.uint8)
    scatter(taken, [_padded(each, most) for each in parts] if parts else None, group=group, group_src=root)
    scatter_object_output_list[0] = _from_tensor(taken, int(sizes[group.rank()]))


def send_object_list(object_list, dst=None, group=None, device=None, group_dst=None, use_batch=False):
    """Send a list of objects to a process."""
    group = _group(group)
    if _outside("send_object_list", group):
        return
    data = [_to_tensor(each) for each in object_list]
    send(mica.tensor([each.numel() for each in data], dtype=mica.int64), dst, group, 0, group_dst)
    send(mica.cat(data), dst, group, 0, group_dst)


def recv_object_list(
    object_list, src=None, group=None, device=None, group_src=None, use_batch=False, weights_only=False
):
    """Receive as many objects as the list has: returns the sender's rank."""
    group = _group(group)
    if _outside("recv_object_list", group):
        return -1
    sizes = mica.zeros(len(object_list), dtype=mica.int64)
    sender = recv(sizes, src, group, 0, group_src)
    whole = mica.empty(int(sizes.sum()), dtype=mica.uint8)
    recv(whole, sender, group)
    for index, part in enumerate(whole.split(sizes.tolist())):
        object_list[index] = _from_tensor(part, part.numel(), weights_only)
    return sender
