"""What each process of a data-parallel training does, and checks: functions of a rank and a number of processes."""

import copy

import mica as torch
import pytest
from mica import nn
from mica.nn.parallel import DistributedDataParallel as DDP
from ranks import same_losses, steps

dist = torch.distributed


class Net(nn.Module):
    """Layers of several sizes, so that gradients come in several buckets; one branch may be left out."""

    def __init__(self, norm=False):
        super().__init__()
        self.first = nn.Linear(6, 32)
        self.norm = nn.BatchNorm1d(32) if norm else nn.Identity()
        self.middle = nn.Linear(32, 32)
        self.branch = nn.Linear(32, 32)
        self.last = nn.Linear(32, 3, bias=False)

    def forward(self, x, with_branch=True):
        x = self.norm(self.first(x)).tanh()
        y = self.middle(x).relu()
        if with_branch:
            y = y + self.branch(x).tanh()
        return {"out": [self.last(y)]}


def make(dtype=torch.float64, **options):
    torch.manual_seed(0)
    return Net(**options).to(dtype)


def batches(count, rows, dtype=torch.float64):
    generator = torch.Generator().manual_seed(7)
    for _ in range(count):
        x = torch.randn(rows, 6, generator=generator, dtype=torch.float64)
        yield x.to(dtype), torch.tanh(x[:, :3]).to(dtype)


def loss_of(model, x, y, **options):
    return (model(x, **options)["out"][0] - y).square().mean()


def train_alone(model, count, rows, branch=lambda step: True):
    """The losses of one process with the whole batch."""
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=0.01), []
    for step, (x, y) in enumerate(batches(count, rows, next(model.parameters()).dtype)):
        optimizer.zero_grad()
        loss = loss_of(model, x, y, with_branch=branch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def train_together(rank, size, model, count, rows, set_to_none=True, branch=lambda step: True):
    """The losses of the whole batch, of which this process has its part."""
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=0.01), []
    part = rows // size
    for step, (x, y) in enumerate(batches(count, rows, next(model.parameters()).dtype)):
        optimizer.zero_grad(set_to_none=set_to_none)
        mine = slice(rank * part, (rank + 1) * part)
        loss = loss_of(model, x[mine], y[mine], with_branch=branch(step))
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        losses.append(total.item() / size)
    return losses


def same_on_all(model):
    for tensor in model.state_dict().values():
        seen = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
        dist.all_gather(seen, tensor.contiguous())
        assert all(torch.equal(other, tensor) for other in seen)


def options_give_the_losses_of_one_process(rank, size):
    expected = train_alone(make(), 50, 8 * size)
    for options in (
        {},
        {"bucket_cap_mb": 0.001},
        {"gradient_as_bucket_view": True},
        {"gradient_as_bucket_view": True, "bucket_cap_mb": 0.001, "set_to_none": False},
        {"static_graph": True},
        {"static_graph": True, "gradient_as_bucket_view": True, "bucket_cap_mb": 0.004},
        {"find_unused_parameters": True},
        {"broadcast_buffers": False},
    ):
        set_to_none = options.pop("set_to_none", True)
        model = make()
        if rank:  # all start from rank 0's parameters
            for p in model.parameters():
                p.data.add_(rank)
        model = DDP(model, **options)
        losses = train_together(rank, size, model, 50, 8 * size, set_to_none)
        same_losses(losses, expected, options)
        same_on_all(model)


def single_precision_too(rank, size):
    expected = train_alone(make(torch.float32), 50, 8 * size)
    losses = train_together(rank, size, DDP(make(torch.float32)), 50, 8 * size)
    same_losses(losses, expected, single=True)


def parameters_that_are_not_used(rank, size):
    # No process uses the branch in odd steps, and then it keeps its gradient. In even steps all do.
    def branch(step):
        return step % 2 == 0

    expected = train_alone(make(), steps(20), 8 * size, branch)
    model = DDP(make(), find_unused_parameters=True, bucket_cap_mb=0.001)
    same_losses(train_together(rank, size, model, steps(20), 8 * size, branch=branch), expected)
    # One process uses it and others do not, and these get its part of the mean.
    model = DDP(make(), find_unused_parameters=True)
    x, y = next(batches(1, 4))
    loss_of(model, x, y, with_branch=rank == 0).backward()
    alone = make()
    loss_of(alone, x, y).backward()
    assert torch.allclose(model.module.branch.weight.grad, alone.branch.weight.grad / size, rtol=1e-12, atol=0)
    # A static graph finds out by itself which parameters are never used.
    model = DDP(make(), static_graph=True)
    expected = train_alone(make(), steps(5), 8 * size, lambda step: False)
    same_losses(train_together(rank, size, model, steps(5), 8 * size, branch=lambda step: False), expected)
    assert model.module.branch.weight.grad is None
    # Without either it is an error that names them, at the next forward.
    model = DDP(make())
    loss_of(model, x, y, with_branch=False).backward()
    with pytest.raises(RuntimeError, match=r"Expected to have finished reduction[\s\S]*branch.weight, branch.bias"):
        model(x)


def gradients_add_up_without_sync(rank, size):
    model, alone = DDP(make()), make()
    for number, (x, y) in enumerate(batches(4, 4 * size)):
        loss_of(alone, x, y).backward()
        mine = slice(rank * 4, rank * 4 + 4)
        if number < 3:
            with model.no_sync():
                loss_of(model, x[mine], y[mine]).backward()
        else:
            loss_of(model, x[mine], y[mine]).backward()
    for ours, theirs in zip(model.parameters(), alone.parameters(), strict=True):
        assert torch.allclose(ours.grad, theirs.grad, rtol=1e-12, atol=1e-15)


def buffers_are_rank_zeros(rank, size):
    model = DDP(make(norm=True))
    for x, y in batches(3, 4 * size):
        loss_of(model, x[rank * 4 : rank * 4 + 4] + rank, y[rank * 4 : rank * 4 + 4]).backward()
    model.eval()
    with torch.no_grad():
        model(x)  # begins with rank 0's
    model.train()
    model(x)
    mean = model.module.norm.running_mean
    assert mean.dtype is torch.float64
    same_on_all(model)


def hooks_of_communication(rank, size):
    from mica.distributed.algorithms.ddp_comm_hooks import DDPCommHookType, default_hooks, powerSGD_hook
    from mica.distributed.algorithms.ddp_comm_hooks import register_ddp_comm_hook as register

    expected = train_alone(make(), 10, 8 * size)
    model = DDP(make(), bucket_cap_mb=0.001)
    model.register_comm_hook(None, default_hooks.allreduce_hook)
    assert train_together(rank, size, model, 10, 8 * size) == pytest.approx(expected, rel=1e-12)
    with pytest.raises(RuntimeError, match="only be called once"):
        model.register_comm_hook(None, default_hooks.allreduce_hook)
    for hook in (default_hooks.fp16_compress_hook, default_hooks.bf16_compress_wrapper(default_hooks.allreduce_hook)):
        model = DDP(make())
        model.register_comm_hook(None, hook)
        assert train_together(rank, size, model, 10, 8 * size) == pytest.approx(expected, rel=2e-2)
        same_on_all(model)
    for kind in (DDPCommHookType.POWER_SGD_RANK2, DDPCommHookType.BATCHED_POWER_SGD):
        model = DDP(make())
        state = powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2)
        register(kind, model, state)
        losses = train_together(rank, size, model, 40, 8 * size)
        assert losses[-1] < 0.5 * losses[0] and state.compression_stats()[0] > 1
        same_on_all(model)


def different_models_are_refused(rank, size):
    with pytest.raises(RuntimeError, match="DDP expects same model across all ranks"):
        DDP(nn.Linear(3, 4 if rank else 5))
    with pytest.raises(RuntimeError, match="DDP expects same model across all ranks"):
        DDP(nn.Linear(3, 4, bias=bool(rank)))


def processes_with_more_inputs(rank, size):
    model = DDP(make())
    alone = copy.deepcopy(model.module)
    optimizer, other = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, alone))
    data = list(batches(2 + 3 * (size - 1), 4))
    mine = data[: 2 + 3 * rank]
    with model.join(divide_by_initial_world_size=False):
        for x, y in mine:
            optimizer.zero_grad()
            loss_of(model, x, y).backward()
            optimizer.step()
    # The same by hand: in each step, the mean over the processes that still have inputs, which are the same for all.
    for x, y in data:
        other.zero_grad()
        loss_of(alone, x, y).backward()
        other.step()
    for ours, theirs in zip(model.parameters(), alone.parameters(), strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-12, atol=1e-14)
    with pytest.raises(RuntimeError, match="exhausted"), model.join(throw_on_early_termination=True):
        for x, y in mine:
            loss_of(model, x, y).backward()


def sparse_gradients(rank, size):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Embedding(20, 4, sparse=True), nn.Linear(4, 1)).double()
    dense = copy.deepcopy(model)
    dense[0].sparse = False
    model = DDP(model)
    words = torch.arange(size * 3).remainder(5)
    model(words[rank * 3 : rank * 3 + 3]).mean().backward()
    dense(words).mean().backward()
    gradient = model.module[0].weight.grad
    assert gradient.is_sparse and torch.allclose(gradient.to_dense(), dense[0].weight.grad, rtol=1e-12)
    assert torch.allclose(model.module[1].weight.grad, dense[1].weight.grad, rtol=1e-12)


def mixed_precision(rank, size):
    from mica.nn.parallel.distributed import _MixedPrecision

    seen = []
    model = make(torch.float32)
    model.middle.register_forward_hook(lambda module, args, out: seen.append(out.dtype))
    model = DDP(model, mixed_precision=_MixedPrecision(torch.bfloat16, torch.float32))
    expected = train_alone(make(torch.float32), 20, 8 * size)
    losses = train_together(rank, size, model, 20, 8 * size)
    assert set(seen) == {torch.bfloat16} and losses == pytest.approx(expected, rel=0.1)
    assert all(p.dtype is p.grad.dtype is torch.float32 for p in model.parameters())
    same_on_all(model)


def batch_norm_over_all_processes(rank, size):
    for norm in (nn.BatchNorm1d(5), nn.BatchNorm2d(5, affine=False, momentum=None)):
        norm = norm.double()
        together = nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(norm))
        generator = torch.Generator().manual_seed(3)
        shape = (6 * size, 5) if norm.affine else (6 * size, 5, 3, 2)
        whole = torch.randn(shape, generator=generator, dtype=torch.float64) * 3 + 100
        weights = torch.randn(shape, generator=generator, dtype=torch.float64)
        # Parts of different sizes.
        cuts = [0, *(2 + 6 * i for i in range(1, size)), 6 * size]
        mine = slice(cuts[rank], cuts[rank + 1])
        a, b = whole.clone().requires_grad_(), whole[mine].clone().requires_grad_()
        for _ in range(2):
            out, ours = norm(a), together(b)
        (out * weights).sum().backward()
        (ours * weights[mine]).sum().backward()
        assert torch.allclose(ours, out[mine], rtol=1e-10) and torch.allclose(
            b.grad, a.grad[mine], rtol=1e-9, atol=1e-12
        )
        assert torch.allclose(together.running_mean, norm.running_mean, rtol=1e-12)
        assert torch.allclose(together.running_var, norm.running_var, rtol=1e-10)
        if norm.affine:
            gradient = together.weight.grad.clone()
            dist.all_reduce(gradient)
            assert torch.allclose(gradient, norm.weight.grad, rtol=1e-10)


def states_of_an_optimizer_spread_out(rank, size):
    from mica.distributed.optim import ZeroRedundancyOptimizer

    model, alone = DDP(make()), make()
    groups = [{"params": [*model.module.first.parameters()]}]
    rest = [p for p in model.parameters() if p is not model.module.first.weight and p is not model.module.first.bias]
    groups.append({"params": rest, "lr": 0.02})
    optimizer = ZeroRedundancyOptimizer(groups, torch.optim.Adam, lr=0.01)
    rest = [p for p in alone.parameters() if p is not alone.first.weight and p is not alone.first.bias]
    other = torch.optim.Adam([{"params": [*alone.first.parameters()]}, {"params": rest, "lr": 0.02}], lr=0.01)
    for number, (x, y) in enumerate(batches(6, 4 * size)):
        mine = slice(rank * 4, rank * 4 + 4)
        for m, o, inputs in ((model, optimizer, (x[mine], y[mine])), (alone, other, (x, y))):
            o.zero_grad()
            loss_of(m, *inputs).backward()
            o.step()
        if number == 2:  # a state goes to another optimizer, and a setting changes
            optimizer.consolidate_state_dict()
            state = [optimizer.state_dict() if rank == 0 else None]
            dist.broadcast_object_list(state)
            optimizer = ZeroRedundancyOptimizer(groups_of(optimizer), torch.optim.Adam, lr=0.5)
            optimizer.load_state_dict(state[0])
            for o in (optimizer, other):
                o.param_groups[1]["lr"] = 0.005
    for ours, theirs in zip(model.parameters(), alone.parameters(), strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-12, atol=1e-14)
    held = [torch.zeros(1) for _ in range(size)]
    dist.all_gather(held, torch.tensor([float(sum(s["exp_avg"].numel() for s in optimizer.state.values()))]))
    assert sum(held).item() == sum(p.numel() for p in alone.parameters()) and max(held) < 0.8 * sum(held)


def groups_of(optimizer):
    return [{"params": group["params"]} for group in optimizer.param_groups]


CASES = [
    options_give_the_losses_of_one_process, single_precision_too, parameters_that_are_not_used,
    gradients_add_up_without_sync, buffers_are_rank_zeros, hooks_of_communication, different_models_are_refused,
    processes_with_more_inputs, sparse_gradients, mixed_precision, batch_norm_over_all_processes, states_of_an_optimizer_spread_out,
]  # fmt: skip
