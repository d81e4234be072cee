"""The parameters and buffers of a module on all processes: whether they are the same, and how they are made so."""

import mica

BROADCAST_BYTES = 250 * 2**20


def check_same_parameters(parameters, names, group):
    """Raises on every process if one has other parameters than rank 0 of the group."""
    from mica.distributed import ReduceOp, all_reduce, broadcast_object_list, get_global_rank, get_rank

    mine = [(name, tuple(p.shape), str(p.dtype)) for name, p in zip(names, parameters, strict=True)]
    device = parameters[0].device
    theirs = [mine]
    broadcast_object_list(theirs, get_global_rank(group, 0), group, device)
    first = theirs[0]
    same = len(first) == len(mine) and all(a[1:] == b[1:] for a, b in zip(first, mine, strict=True))
    flag = mica.tensor([1 if same else 0], dtype=mica.int32, device=device)
    all_reduce(flag, ReduceOp.MIN, group)
    if flag.item():
        return
    rank = get_rank(group)
    if same:
        raise RuntimeError(
            f"DDP expects same model across all ranks, but another rank than {rank} has other parameters."
        )
    if len(first) != len(mine):
        raise RuntimeError(
            f"DDP expects same model across all ranks, but Rank {rank} has {len(mine)} params, while rank 0 has "
            f"inconsistent {len(first)} params."
        )
    name, shape, dtype = next(a for a, b in zip(mine, first, strict=True) if a[1:] != b[1:])
    other = next(b for a, b in zip(mine, first, strict=True) if a[1:] != b[1:])
    raise RuntimeError(
        f"DDP expects same model across all ranks: [{rank}]: params[{mine.index((name, shape, dtype))}] in this process "
        f"with sizes {list(shape)} and dtype {dtype} appears not to match sizes of the same param in process 0: "
        f"{list(other[1])}, {other[2]}. The parameter is {name}."
    )


def broadcast_coalesced(tensors, source, group, most=BROADCAST_BYTES):
    """Gives every process the values of the process `source` of the group; few large messages instead of many."""
    from mica.distributed import broadcast, get_global_rank

    source = get_global_rank(group, source)
    by_kind = {}
    for tensor in tensors:
        by_kind.setdefault((tensor.dtype, tensor.device), []).append(tensor)
    with mica.no_grad():
        for alike in by_kind.values():
            for piece in _pieces(alike, most):
                if len(piece) == 1 and piece[0].is_contiguous():
                    broadcast(piece[0].detach(), source, group)
                    continue
                flat = mica.cat([tensor.detach().reshape(-1) for tensor in piece])
                broadcast(flat, source, group)
                parts = flat.split([tensor.numel() for tensor in piece])
                for tensor, part in zip(piece, parts, strict=True):
                    tensor.detach().copy_(part.view(tensor.shape))


def _broadcast_coalesced(process_group, tensors, buffer_size, src=0):
    """Broadcast tensors in a few messages, with torch's order of arguments."""
    broadcast_coalesced(tensors, src, process_group, buffer_size)


def _verify_params_across_processes(process_group, params, logger=None):
    """check_same_parameters, which names parameters by their numbers."""
    params = list(params)
    check_same_parameters(params, [str(number) for number in range(len(params))], process_group)


def _pieces(tensors, most):
    piece, nbytes = [], 0
    for tensor in tensors:
        size = tensor.numel() * tensor.element_size()
        if piece and nbytes + size > most:
            yield piece
            piece, nbytes = [], 0
        piece.append(tensor)
        nbytes += size
    if piece:
        yield piece


def sync_module(module, group, source, ignored=(), parameters=True):
    """Gives every process the parameters and buffers of one."""
    states, seen = [], set()
    named = list(module.named_parameters()) if parameters else []
    for name, tensor in named + list(module.named_buffers()):
        if name not in ignored and id(tensor) not in seen:
            seen.add(id(tensor))
            states.append(tensor)
    broadcast_coalesced(states, source, group)
