"""Random numbers of spread tensors: every process draws those of the whole tensor, and keeps its own.

So a tensor has the same numbers however it is spread, and as on one process. All processes must have drawn alike
before; the first draw on a grid gives all of them the state of its first process.
"""

import mica
from mica import distributed
from mica.distributed.tensor._utils import compute_local_shape_and_global_offset

_synchronized = set()


def manual_seed(seed, device_mesh):
    """Set the seed from which spread tensors draw. Every process gives the same."""
    if not isinstance(device_mesh, distributed.device_mesh.DeviceMesh):
        raise AssertionError(f"Expect DeviceMesh, got {type(device_mesh)}")
    mica.manual_seed(seed)
    _synchronized.add(device_mesh)


def is_rng_supported_mesh(device_mesh):
    return True


def synchronized(mesh):
    """Give all processes of a grid the state of its first one, once."""
    if mesh in _synchronized or mesh.size() == 1:
        return
    _synchronized.add(mesh)
    generator = mica if mesh.device_type == "cpu" else getattr(mica, mesh.device_type)
    state = generator.get_rng_state()
    for dim in range(mesh.ndim):
        distributed.broadcast(state, group=mesh.get_group(dim), group_src=0)
    generator.set_rng_state(state)


def part_of(whole, mesh, placements):
    """This process's part of a tensor that all processes have."""
    shape, offset = compute_local_shape_and_global_offset(whole.shape, mesh, placements)
    for dim, (size, start) in enumerate(zip(shape, offset, strict=True)):
        if size != whole.shape[dim]:
            whole = whole.narrow(dim, min(start, whole.shape[dim]), size)
    return whole


def on_parts(plan):
    """The operator on the parts: numbers are drawn for tensors of the whole's sizes."""
    call = plan.call
    func = call.func

    def run(args, kwargs):
        mine, *rest = args
        meta = call.specs[0].tensor_meta
        if call.name.removesuffix("_") in ("dropout",):
            probability, train = rest[0], rest[1]
            if not train or probability == 0:
                return func(*args, **kwargs)
            factors = func(mica.ones(meta.shape, dtype=mine.dtype, device=mine.device), probability, True)
            factors = part_of(factors, plan.mesh, plan.outputs[0])
            return mine.mul_(factors) if call.in_place else mine * factors
        whole = func(mica.empty(meta.shape, dtype=mine.dtype, device=mine.device), *rest, **kwargs)
        part = part_of(whole, plan.mesh, plan.outputs[0])
        return mine.copy_(part) if call.in_place else part.contiguous()

    return run


def initialized(function, args, kwargs):
    """A function of torch.nn.init on a spread tensor: it sees the whole one, of which each process keeps its part."""
    name = getattr(function, "__name__", "")
    if getattr(mica.nn.init, name, None) is not function or not name.endswith("_"):
        return NotImplemented
    args = list(args)
    tensor = args[0] if args else kwargs["tensor"]
    synchronized(tensor.device_mesh)
    with mica.no_grad():
        whole = mica.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
        if args:
            args[0] = whole
        else:
            kwargs = {**kwargs, "tensor": whole}
        whole = function(*args, **kwargs)
        tensor._local_tensor.copy_(part_of(whole, tensor.device_mesh, tensor.placements))
    return tensor
