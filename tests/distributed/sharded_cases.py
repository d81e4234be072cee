"""What each process of a training with sharded parameters does, and checks."""

import copy
import functools
import shutil
import tempfile

import mica as torch
import mica.distributed.checkpoint as dcp
import pytest
from data_parallel_cases import batches, loss_of, make, train_alone
from mica import nn
from mica.distributed import _functional_collectives as functional_collectives
from mica.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    apply_activation_checkpointing,
    checkpoint_wrapper,
    offload_wrapper,
)
from mica.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from mica.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, fully_shard, share_comm_ctx
from mica.distributed.tensor import DTensor, Shard, distribute_tensor
from mica.distributed.tensor.debug import CommDebugMode
from mica.distributed.tensor.experimental import local_map
from mica.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from ranks import same_losses, steps

dist = torch.distributed


class Deep(nn.Module):
    """Blocks, tied weights and a parameter of a size that no number of processes divides."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 13)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(13, 20), nn.Tanh(), nn.Linear(20, 13)) for _ in range(3))
        self.last = nn.Linear(13, 3)
        self.again = nn.Linear(13, 3, bias=False)
        self.again.weight = self.last.weight

    def forward(self, x, with_branch=True):
        x = self.first(x)
        for block in self.blocks:
            x = x + block(x)
        return {"out": [self.last(x) + self.again(x)]}


def deep(dtype=torch.float64):
    torch.manual_seed(0)
    return Deep().to(dtype)


def shard(model, root=True, **options):
    for block in model.blocks:
        fully_shard(block, **options)
    return fully_shard(model, **options) if root else model


def train(rank, size, model, count, optimizer_class=torch.optim.AdamW, **options):
    rows = 8 * size
    optimizer, losses = optimizer_class(model.parameters(), lr=0.01, **options), []
    for x, y in batches(count, rows, next(model.parameters()).dtype):
        optimizer.zero_grad()
        mine = slice(rank * 8, rank * 8 + 8)
        loss = loss_of(model, x[mine], y[mine])
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        losses.append(total.item() / size)
    return losses


def losses_of_one_process(rank, size):
    expected = train_alone(deep(), steps(12), 8 * size)
    for options in ({}, {"reshard_after_forward": False}, {"reshard_after_forward": True},
                    {"offload_policy": CPUOffloadPolicy()}):  # fmt: skip
        model = shard(deep(), **options)
        assert isinstance(model, FSDPModule) and isinstance(model, Deep) and type(model).__name__ == "FSDPDeep"
        assert all(isinstance(p, DTensor) for p in model.parameters())
        same_losses(train(rank, size, model, steps(12)), expected, options)
        assert model.last.weight is model.again.weight


def single_precision(rank, size):
    expected = train_alone(deep(torch.float32), steps(12), 8 * size)
    same_losses(train(rank, size, shard(deep(torch.float32)), steps(12)), expected, single=True)
    expected = train_alone(deep(torch.float32), 20, 8 * size)
    seen = []
    model = deep(torch.float32)
    model.blocks[1][0].register_forward_hook(lambda module, args, out: seen.append(out.dtype))
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    model = shard(model, root=False, mp_policy=policy)
    fully_shard(model, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32, torch.float32))
    assert train(rank, size, model, 20) == pytest.approx(expected, rel=0.1) and set(seen) == {torch.bfloat16}
    assert all(p.dtype is torch.float32 for p in model.parameters())


def memory_is_given_back(rank, size):
    model = shard(deep())
    x, y = next(batches(1, 8))
    held = []

    def whole(block):
        return sum(p.full is not None and p.full.untyped_storage().nbytes() for p in block._fsdp_state.group.parameters)

    for i, block in enumerate(model.blocks):
        block.register_forward_pre_hook(lambda *_, i=i: held.append([bool(whole(b)) for b in model.blocks][:i]))
    loss = loss_of(model, x, y)
    assert held == [[], [False], [False, False]] and not any(whole(b) for b in model.blocks)
    loss.backward()
    assert not any(whole(b) for b in model.blocks) and not whole(model)
    pieces = sum(p.to_local().numel() for p in model.parameters())
    assert pieces <= sum(-(-p.shape[0] // size) * p[0].numel() for p in deep().parameters())
    assert all(p.grad.to_local().shape == p.to_local().shape for p in model.parameters())


def gradients_add_up_without_sync(rank, size):
    model, alone = shard(deep()), deep()
    model.set_requires_gradient_sync(False)
    for number, (x, y) in enumerate(batches(3, 8 * size)):
        if number == 2:
            model.set_requires_gradient_sync(True)
        loss_of(alone, x, y).backward()
        loss_of(model, x[rank * 8 : rank * 8 + 8], y[rank * 8 : rank * 8 + 8]).backward()
    for ours, theirs in zip(model.parameters(), alone.parameters(), strict=True):
        assert torch.allclose(ours.grad.full_tensor(), theirs.grad, rtol=1e-11, atol=1e-13)


def states_go_between_processes(rank, size):
    model = shard(deep())
    train(rank, size, model, 3)
    state = model.state_dict()
    assert all(isinstance(value, DTensor) for value in state.values())
    full = {name: value.full_tensor() for name, value in state.items()}
    alone = deep()
    alone.load_state_dict(full)
    x, _ = next(batches(1, 4))
    with torch.no_grad():
        assert torch.allclose(alone(x)["out"][0], model(x)["out"][0], rtol=1e-12)
    other = shard(deep())
    other.load_state_dict(state)
    with torch.no_grad():
        assert torch.equal(other(x)["out"][0], model(x)["out"][0])


def with_checkpointing(rank, size):
    from mica.utils.checkpoint import checkpoint

    class Recomputed(Deep):
        def forward(self, x, with_branch=True):
            x = self.first(x)
            for block in self.blocks:
                x = x + checkpoint(block, x, use_reentrant=False)
            return {"out": [self.last(x) + self.again(x)]}

    torch.manual_seed(0)
    model = shard(Recomputed().double())
    same_losses(train(rank, size, model, steps(10)), train_alone(deep(), steps(10), 8 * size))


def clipped(rank, size):
    model, alone = shard(deep()), deep()
    x, y = next(batches(1, 8 * size))
    loss_of(alone, x, y).backward()
    loss_of(model, x[rank * 8 : rank * 8 + 8], y[rank * 8 : rank * 8 + 8]).backward()
    ours = nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    theirs = nn.utils.clip_grad_norm_(alone.parameters(), 0.01)
    ours = ours.full_tensor() if isinstance(ours, DTensor) else ours
    assert torch.allclose(ours, theirs, rtol=1e-11)
    for a, b in zip(model.parameters(), alone.parameters(), strict=True):
        assert torch.allclose(a.grad.full_tensor(), b.grad, rtol=1e-10, atol=1e-14)


def replicas_of_shards(rank, size):
    if size % 2:
        return
    mesh = dist.device_mesh.init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("replicate", "shard"))
    model = shard(deep(), mesh=mesh)
    same_losses(train(rank, size, model, steps(10)), train_alone(deep(), steps(10), 8 * size))


def other_dimensions(rank, size):
    def columns(parameter):
        return Shard(parameter.dim() - 1)

    expected = train_alone(deep(), steps(12), 8 * size)
    model = shard(deep(), shard_placement_fn=columns)
    assert model.first.weight.placements == (Shard(1),) and model.first.bias.placements == (Shard(0),)
    same_losses(train(rank, size, model, steps(12)), expected)
    full = {name: value.full_tensor() for name, value in model.state_dict().items()}
    assert full["first.weight"].shape == (13, 6)
    again = shard(deep(), shard_placement_fn=columns)
    again.load_state_dict(model.state_dict())
    assert all(torch.equal(value.full_tensor(), full[name]) for name, value in again.state_dict().items())


def parameters_kept_by_few(rank, size):
    expected = train_alone(deep(), steps(12), 8 * size)
    for few in {2, size} if size == 4 else {1}:
        model = shard(deep(), reshard_after_forward=few)
        same_losses(train(rank, size, model, steps(12)), expected, few)
    if size == 4:
        model = shard(deep(), reshard_after_forward=2)
        group = model.blocks[0]._fsdp_state.group
        x, y = next(batches(1, 8))
        loss = loss_of(model, x, y)
        kept = sum(each.numel() for each in group._kept.values())
        assert not group.is_whole and kept == 2 * sum(p.rows * p.row for p in group.parameters)
        loss.backward()
        assert not group._kept and not group.is_whole


def of_tensor_parallel_modules(rank, size):
    """Parameters that are split over one dimension of a grid are cut over the other."""
    if size % 2:
        return
    mesh = dist.device_mesh.init_device_mesh("cpu", (size // 2, 2), mesh_dim_names=("dp", "tp"))
    copies = size // 2

    def parallel(reshard=True, **options):
        model = deep()
        for block in model.blocks:
            parallelize_module(block, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
            fully_shard(block, mesh=mesh["dp"], reshard_after_forward=reshard, **options)
        return fully_shard(model, mesh=mesh["dp"], **options)

    def go(model, count, skip=0, optimizer=None):
        optimizer, losses = optimizer or torch.optim.AdamW(model.parameters(), lr=0.01), []
        place = mesh.get_local_rank("dp")
        for number, (x, y) in enumerate(batches(skip + count, 8 * copies)):
            if number < skip:
                continue
            optimizer.zero_grad()
            loss = loss_of(model, x[place * 8 : place * 8 + 8], y[place * 8 : place * 8 + 8])
            loss.backward()
            optimizer.step()
            total = loss.detach().clone()
            dist.all_reduce(total)
            losses.append(total.item() / size)
        return losses, optimizer

    expected = train_alone(deep(), steps(8), 8 * copies)
    for options in ({}, {"reshard": False}, {"shard_placement_fn": lambda p: Shard(p.dim() - 1)}):
        same_losses(go(parallel(**options), steps(8))[0], expected, options)
    model = parallel()
    weight = model.blocks[0][0].weight
    assert [str(p) for p in weight.placements] == ["_S(0, 2)", "S(0)"] and weight.device_mesh.mesh_dim_names == (
        "dp",
        "tp",
    )
    assert torch.equal(weight.full_tensor(), deep().blocks[0][0].weight)
    assert torch.equal(model.blocks[0][2].weight.full_tensor(), deep().blocks[0][2].weight)
    _, optimizer = go(model, 3)
    folder = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(folder)
    states = get_state_dict(model, optimizer)
    dcp.save({"model": states[0], "optim": states[1]}, checkpoint_id=folder[0])
    other = parallel()
    fresh = torch.optim.AdamW(other.parameters(), lr=0.01)
    wanted = dict(zip(("model", "optim"), get_state_dict(other, fresh), strict=True))
    dcp.load(wanted, checkpoint_id=folder[0])
    set_state_dict(other, fresh, model_state_dict=wanted["model"], optim_state_dict=wanted["optim"])
    assert go(other, 3, 3, fresh)[0] == pytest.approx(go(model, 3, 3, optimizer)[0], rel=1e-12)
    plain, cut = deep(), shard(deep())  # loaded by one process, and by fully_shard alone
    for target in (plain, cut):
        state = {"model": target.state_dict()}
        dcp.load(state, checkpoint_id=folder[0])
        target.load_state_dict(state["model"])
    whole = {name: value.full_tensor() for name, value in cut.state_dict().items()}
    assert all(torch.equal(whole[name], value) for name, value in plain.state_dict().items())
    dist.barrier()
    if rank == 0:
        shutil.rmtree(folder[0])


def lists_of_modules(rank, size):
    """Modules that are sharded together are gathered together."""
    expected = train_alone(deep(), steps(10), 8 * size)
    model = deep()
    fully_shard([model.blocks[0], model.blocks[1]])
    fully_shard([model.last, model.again])  # which share a weight
    model = fully_shard(model)
    assert model.blocks[0]._fsdp_state is model.blocks[1]._fsdp_state and model.last.weight is model.again.weight
    same_losses(train(rank, size, model, steps(10)), expected)
    assert not model.blocks[0]._fsdp_state.group.is_whole
    with pytest.raises(AssertionError, match="deepcopy"):
        copy.deepcopy(model)
    seen = []
    model.blocks[0].set_all_reduce_hook(lambda gradient: seen.append(gradient.numel()))
    model.blocks[1].set_unshard_in_backward(True)
    share_comm_ctx([model])
    train(rank, size, model, 2)
    assert len(seen) == 2
    loss_of(model, *next(batches(1, 8)))  # a pass that never comes to backward
    model.reset_iter_state()
    train(rank, size, model, 1)


def activations_computed_again(rank, size):
    expected = train_alone(deep(), steps(10), 8 * size)
    for kind in (CheckpointImpl.NO_REENTRANT, CheckpointImpl.REENTRANT):
        model = deep()
        names = list(model.state_dict())
        wrap = functools.partial(checkpoint_wrapper, checkpoint_impl=kind)
        apply_activation_checkpointing(model, wrap, lambda module: isinstance(module, nn.Sequential))
        assert next(name for name, _ in model.blocks[0].named_parameters()) == "0.weight"
        assert list(model.state_dict()) == names
        model.load_state_dict(deep().state_dict())
        for block in model.blocks:
            fully_shard(block)
        same_losses(train(rank, size, fully_shard(model), steps(10)), expected, kind)
    model = deep()
    apply_activation_checkpointing(model, offload_wrapper, lambda module: isinstance(module, nn.Sequential))
    same_losses(train(rank, size, shard(model), steps(10)), expected)


def collectives_counted(rank, size):
    mesh = dist.device_mesh.init_device_mesh("cpu", (size,))
    tensor = distribute_tensor(torch.randn(8, 8), mesh, [Shard(0)])
    functional, plain = torch.ops.c10d_functional, torch.ops.c10d
    with CommDebugMode() as counted:
        tensor.full_tensor()
        tensor.redistribute(placements=[Shard(1)])
        tensor.sum().full_tensor()
        dist.all_reduce(torch.ones(3))
    assert counted.get_comm_counts() == {
        functional.all_gather_into_tensor: 1, torch.ops._dtensor.shard_dim_alltoall: 1, functional.all_reduce: 1,
        plain.allreduce_: 1,
    }  # fmt: skip
    assert counted.get_total_counts() == 4
    model = shard(deep())
    with counted:
        loss_of(model, *next(batches(1, 8))).backward()
    # The root's parameters stay whole between forward and backward; those of the blocks are gathered twice.
    assert counted.get_comm_counts() == {plain._allgather_base_: 7, plain._reduce_scatter_base_: 4}
    dist.all_reduce(torch.ones(3))
    assert counted.get_total_counts() == 11
    summed = functional_collectives.all_reduce(torch.ones(3), "sum", mesh)
    assert type(summed + 1) is torch.Tensor and summed.wait().tolist() == [size] * 3
    same = local_map(lambda a, b: a.equal(b), out_placements=None)
    assert same(tensor, tensor) is True


def optimizers_of_replaced_parameters(rank, size):
    """A program may make the optimizer first, and put the pieces in the place of the parameters it knows."""
    model = deep()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model = shard(model)
    optimizer.param_groups[0]["params"] = list(model.parameters())
    losses = []
    for x, y in batches(steps(3), 8):
        optimizer.zero_grad()
        loss = loss_of(model, x, y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    same_losses(losses, train_alone(deep(), steps(3), 8))


def refusals(rank, size):
    with pytest.raises(ValueError, match="containers"):
        fully_shard(nn.ModuleList([nn.Linear(2, 2)]))
    model = nn.Module()
    model.scale = nn.Parameter(torch.tensor(1.0))
    with pytest.raises(ValueError, match="scalar parameters"):
        fully_shard(model)
    with pytest.raises(ValueError, match="no dimension 3"):
        fully_shard(make(), shard_placement_fn=lambda p: Shard(3))
    with pytest.raises(ValueError, match="factor of"):
        fully_shard(make(), reshard_after_forward=3)
    mesh = dist.device_mesh.init_device_mesh("cpu", (size,))
    model = nn.Linear(4, 4)
    model.weight = nn.Parameter(distribute_tensor(model.weight, mesh, [Shard(0)]))
    with pytest.raises(ValueError, match="slice of the same root mesh"):
        fully_shard(model)


CASES = [
    losses_of_one_process, single_precision, memory_is_given_back, gradients_add_up_without_sync,
    states_go_between_processes, with_checkpointing, clipped, replicas_of_shards, other_dimensions,
    parameters_kept_by_few, of_tensor_parallel_modules,
    lists_of_modules, activations_computed_again, collectives_counted, optimizers_of_replaced_parameters, refusals,
]  # fmt: skip
