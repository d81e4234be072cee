"""Copies between the GPUs of one process."""

import mica


def broadcast(tensor, devices=None, *, out=None):
    """The tensor on every one of the devices."""
    if (devices is None) == (out is None):
        raise RuntimeError(
            f"Exactly one of 'devices' and 'out' must be specified, but got devices={devices} and out={out}"
        )
    if out is not None:
        return tuple(t.copy_(tensor, non_blocking=True) for t in out)
    return tuple(tensor.to(mica.device("cuda", d) if isinstance(d, int) else d, non_blocking=True) for d in devices)


def broadcast_coalesced(tensors, devices, buffer_size=10485760):
    """Several tensors on every one of the devices."""
    return [list(copies) for copies in zip(*(broadcast(t, devices) for t in tensors), strict=True)]


def reduce_add(inputs, destination=None):
    """The sum of tensors of several GPUs, on one."""
    for i, each in enumerate(inputs):
        if each.device.type == "cpu":
            raise AssertionError(f"reduce_add expects all inputs to be on GPUs, but input {i} is on CPU")
    target = mica.device("cuda", destination) if isinstance(destination, int) else destination or inputs[0].device
    total = inputs[0].to(target)
    for t in inputs[1:]:
        total = total + t.to(target)
    return total


def reduce_add_coalesced(inputs, destination=None, buffer_size=10485760):
    """The sums of the first, the second ... tensors of lists, one list of each GPU: a tuple, on one GPU."""
    return tuple(reduce_add(tensors, destination) for tensors in zip(*inputs, strict=True))


def scatter(tensor, devices=None, chunk_sizes=None, dim=0, streams=None, *, out=None):
    """Parts of a tensor, each on one of the devices."""
    if out is not None:
        sizes = [t.size(dim) for t in out]
        return tuple(o.copy_(part) for o, part in zip(out, tensor.split(sizes, dim), strict=True))
    parts = tensor.split(list(chunk_sizes), dim) if chunk_sizes is not None else tensor.chunk(len(devices), dim)
    return tuple(p.to(mica.device("cuda", d) if isinstance(d, int) else d) for p, d in zip(parts, devices, strict=True))


def gather(tensors, dim=0, destination=None, *, out=None):
    """Tensors of several GPUs, joined on one."""
    target = out.device if out is not None else mica.device("cuda", destination) if isinstance(destination, int) else (
        destination or tensors[0].device
    )  # fmt: skip
    joined = mica.cat([t.to(target) for t in tensors], dim)
    return joined if out is None else out.copy_(joined)
