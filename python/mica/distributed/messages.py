"""Messages from one process to another."""

from mica._functions.wrapping import asks_as_called
from mica.distributed.collectives import _check_tensor, _outside
from mica.distributed.world import _group, _rank_not_in_group, get_global_rank, get_group_rank

__all__ = ["P2POp", "batch_isend_irecv", "irecv", "isend", "recv", "send"]


def _peer(group, rank, group_rank, kind):
    if rank is not None and group_rank is not None:
        raise ValueError("Can't specify both group_rank and global_rank")
    if rank is None and group_rank is None:
        raise ValueError("Must specify global_rank or group_rank")
    peer = group_rank if group_rank is not None else get_group_rank(group, rank)
    if peer == group.rank():
        raise ValueError(f"Invalid {kind} rank: {kind} rank should not be the same as the rank of the current process.")
    return peer


@asks_as_called
def isend(tensor, dst=None, group=None, tag=0, group_dst=None):
    """Start to send a tensor to a process."""
    group = _group(group)
    _check_tensor(tensor, "tensor")
    if _outside("isend", group):
        return None
    peer = _peer(group, dst, group_dst, "destination")
    return group.send([tensor], peer, tag)


@asks_as_called
def irecv(tensor, src=None, group=None, tag=0, group_src=None):
    """Start to receive a tensor from a process, or from any."""
    _check_tensor(tensor, "tensor")
    group = _group(group)
    if _outside("irecv", group):
        return None
    if src is None and group_src is None:
        return group.recv_anysource([tensor], tag)
    return group.recv([tensor], _peer(group, src, group_src, "source"), tag)


@asks_as_called
def send(tensor, dst=None, group=None, tag=0, group_dst=None):
    """Send a tensor to a process."""
    work = isend(tensor, dst, group, tag, group_dst)
    if work is not None:
        work.wait()


@asks_as_called
def recv(tensor, src=None, group=None, tag=0, group_src=None):
    """Receive a tensor from a process, or from any: returns its rank."""
    work = irecv(tensor, src, group, tag, group_src)
    if work is None:
        return -1
    work.wait()
    group = _group(group)
    if src is None and group_src is None:
        return get_global_rank(group, work._source_rank())
    return get_global_rank(group, group_src) if src is None else src


class P2POp:
    """Something to send or receive, for batch_isend_irecv."""

    def __init__(self, op, tensor, peer=None, group=None, tag=0, group_peer=None):
        if op not in (isend, irecv):
            raise ValueError(
                "Invalid ``op``. Expected ``op`` to be of type ``torch.distributed.isend`` or ``torch.distributed.irecv``."
            )
        _check_tensor(tensor, "tensor")
        self.op, self.tensor, self.tag = op, tensor, tag
        self.group = _group(group)
        if not _rank_not_in_group(self.group):
            self.group_peer = _peer(self.group, peer, group_peer, "peer" if op is isend else "source")
            self.peer = get_global_rank(self.group, self.group_peer)

    def __repr__(self):
        return f"P2POp({self.op.__name__} pg={self.group.group_desc}, peer={self.peer}, tensor.size={tuple(self.tensor.shape)})"


def batch_isend_irecv(p2p_op_list):
    """Start several messages; wait for each of the works."""
    if not isinstance(p2p_op_list, list) or not all(isinstance(each, P2POp) for each in p2p_op_list):
        raise ValueError("Invalid ``p2p_op_list``. Each op is expected to to be of type ``torch.distributed.P2POp``.")
    first = p2p_op_list[0].group
    if any(each.group is not first for each in p2p_op_list):
        raise ValueError("All ops need to use the same group.")
    works = []
    for each in p2p_op_list:
        peer = {"group_dst" if each.op is isend else "group_src": each.group_peer}
        work = each.op(each.tensor, group=each.group, tag=each.tag, **peer)
        if work is not None:
            works.append(work)
    return works
