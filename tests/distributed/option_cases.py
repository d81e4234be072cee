"""Trainings with options that change what ranks compute: their losses are those of one process that does the same.

Where a number is rounded on its way (16 bits, a model computed in another dtype), one process that computes the parts of
all ranks, one after the other, and rounds where they do, has the same losses.
"""

import mica as torch
import pytest
from data_parallel_cases import DDP, batches, loss_of, make, train_alone, train_together
from mica import nn
from mica.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from mica.distributed.algorithms.model_averaging import averagers
from mica.distributed.algorithms.model_averaging.hierarchical_model_averager import HierarchicalModelAverager
from mica.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from mica.distributed.optim import PostLocalSGDOptimizer, ZeroRedundancyOptimizer
from mica.distributed.optim import _apply_optimizer_in_backward as apply_in_backward
from mica.distributed.optim import _get_in_backward_optimizers as optimizers_in_backward
from mica.distributed.tensor.parallel.input_reshard import input_reshard
from mica.func import functional_call
from mica.nn.parallel.distributed import _MixedPrecision
from ranks import same_losses, steps
from sharded_cases import deep, shard, train

dist = torch.distributed
DTYPES = (torch.float64, torch.float32)
FEW = 6


def single(dtype):
    return dtype is torch.float32


def mean(terms, size, dtype=None):
    """The mean of ranks' gradients, divided by each rank, sent in a dtype and added in the order of ranks."""
    terms = [term.to(dtype or term.dtype) / size for term in terms]
    wide = terms[0].float() if dtype in (torch.float16, torch.bfloat16) else terms[0]
    for term in terms[1:]:
        wide = wide + term
    return wide.to(dtype or wide.dtype)


def train_parts(model, size, count, average, compute=None, ranks_of=None):
    """The losses of all ranks in each step, of one process that computes their parts one after the other."""
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=0.01), []
    names = dict(model.named_parameters())
    dtype = next(model.parameters()).dtype
    for step, (x, y) in enumerate(batches(count, 8 * size, dtype)):
        parts, found = [], []
        for rank in range(size) if ranks_of is None else ranks_of(step):
            mine = slice(rank * 8, rank * 8 + 8)
            if compute is None:
                loss = loss_of(model, x[mine], y[mine])
            else:
                cast = {name: parameter.to(compute) for name, parameter in names.items()}
                output = functional_call(model, cast, (x[mine].to(compute),), tie_weights=True)["out"][0]
                loss = (output - y[mine]).square().mean()
            parts.append(torch.autograd.grad(loss, list(names.values())))
            found.append(loss.item())
        for parameter, *terms in zip(names.values(), *parts, strict=True):
            parameter.grad = average(terms).to(dtype)
        optimizer.step()
        losses.append(found)
    return losses


def means(losses):
    return [sum(each) / len(each) for each in losses]


def several_passes_for_a_step(rank, size):
    """Gradients of two passes add up, of which the first is not reduced."""

    def go(model, parts, before):
        optimizer, losses = torch.optim.AdamW(model.parameters(), lr=0.01), []
        data = list(batches(2 * steps(FEW), 8 * size, next(model.parameters()).dtype))
        for number, (x, y) in enumerate(data):
            mine = slice(rank * 8, rank * 8 + 8) if parts else slice(None)
            with before(number % 2 == 0):
                loss = loss_of(model, x[mine], y[mine])
                loss.backward()
            if number % 2:
                optimizer.step()
                optimizer.zero_grad()
            total = loss.detach().clone()
            if parts:
                dist.all_reduce(total)
            losses.append(total.item() / (size if parts else 1))
        return losses

    class Sync:
        """Whether gradients are reduced, as a context for each library."""

        def __init__(self, model=None):
            self.model = model

        def __call__(self, first):
            if isinstance(self.model, DDP) and first:
                return self.model.no_sync()
            if hasattr(self.model, "set_requires_gradient_sync"):
                self.model.set_requires_gradient_sync(not first)
            return torch.enable_grad()

    for dtype in DTYPES:
        for build, wrap in ((make, DDP), (deep, shard)):
            model = wrap(build(dtype))
            same_losses(go(model, True, Sync(model)), go(build(dtype), False, Sync()), wrap, single(dtype))


def hooks_that_send_all(rank, size):
    def power(model):
        # As many columns as the matrix has: nothing is left out, and what is sent is a product of two matrices.
        state = powerSGD_hook.PowerSGDState(None, 32, start_powerSGD_iter=2, min_compression_rate=0.01)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)

    for dtype in DTYPES:
        expected = train_alone(make(dtype), steps(FEW), 8 * size)
        for register in (lambda model: model.register_comm_hook(None, default_hooks.allreduce_hook), power):
            model = DDP(make(dtype))
            register(model)
            same_losses(train_together(rank, size, model, steps(FEW), 8 * size), expected, register, single(dtype))


def hooks_that_send_sixteen_bits(rank, size):
    for dtype in DTYPES:
        for hook, sent in (
            (default_hooks.fp16_compress_hook, torch.float16),
            (default_hooks.bf16_compress_hook, torch.bfloat16),
            (default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook), torch.float16),
            (default_hooks.bf16_compress_wrapper(default_hooks.allreduce_hook), torch.bfloat16),
        ):
            model = DDP(make(dtype))
            model.register_comm_hook(None, hook)
            seen = train_together(rank, size, model, steps(FEW), 8 * size)
            expected = train_parts(make(dtype), size, steps(FEW), lambda terms, sent=sent: mean(terms, size, sent))
            same_losses(seen, means(expected), (hook, sent), single(dtype))


def computed_in_another_dtype(rank, size):
    for dtype, narrow in ((torch.float32, torch.bfloat16), (torch.float64, torch.float32)):
        expected = train_parts(make(dtype), size, steps(FEW), lambda terms: mean(terms, size), narrow)
        model = DDP(make(dtype), mixed_precision=_MixedPrecision(narrow, dtype))
        seen = train_together(rank, size, model, steps(FEW), 8 * size)
        same_losses(seen, means(expected), ("DDP", narrow), single(dtype))
        expected = train_parts(deep(dtype), size, steps(FEW), lambda terms: mean(terms, size), narrow)
        for options in ({}, {"offload_policy": CPUOffloadPolicy()}, {"reshard_after_forward": False}):
            model = shard(deep(dtype), mp_policy=MixedPrecisionPolicy(narrow, dtype), **options)
            seen = train(rank, size, model, steps(FEW))
            same_losses(seen, means(expected), ("fully_shard", narrow, options), single(dtype))


def ranks_that_end_early(rank, size):
    for dtype in DTYPES:
        for whole in (True, False):
            count = steps(4 + 2 * size)

            def alive(step, count=count):
                return [r for r in range(size) if step < count - 2 * (size - 1 - r)]

            def average(terms, whole=whole):
                return mean(terms, size if whole else len(terms))

            expected = train_parts(make(dtype), size, count, average, ranks_of=alive)
            model, seen, wanted = DDP(make(dtype)), [], []
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
            with model.join(divide_by_initial_world_size=whole):
                for step, (x, y) in enumerate(batches(count, 8 * size, dtype)):
                    if rank not in alive(step):
                        break
                    optimizer.zero_grad()
                    loss = loss_of(model, x[rank * 8 : rank * 8 + 8], y[rank * 8 : rank * 8 + 8])
                    loss.backward()
                    optimizer.step()
                    seen.append(loss.item())
                    wanted.append(expected[step][alive(step).index(rank)])
            same_losses(seen, wanted, ("join", whole), single(dtype))


def batch_norm_over_all_ranks(rank, size):
    for dtype in DTYPES:
        expected = train_alone(make(dtype, norm=True), steps(FEW), 8 * size)
        model = DDP(nn.SyncBatchNorm.convert_sync_batchnorm(make(dtype, norm=True)))
        same_losses(train_together(rank, size, model, steps(FEW), 8 * size), expected, "norm", single(dtype))


def states_of_the_optimizer_on_one_rank_each(rank, size):
    for dtype in DTYPES:
        expected = train_alone(make(dtype), steps(FEW), 8 * size)
        for options in ({}, {"parameters_as_bucket_view": True}):
            model, losses = DDP(make(dtype)), []
            optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=0.01, **options)
            for x, y in batches(steps(FEW), 8 * size, dtype):
                optimizer.zero_grad()
                loss = loss_of(model, x[rank * 8 : rank * 8 + 8], y[rank * 8 : rank * 8 + 8])
                loss.backward()
                optimizer.step()
                total = loss.detach().clone()
                dist.all_reduce(total)
                losses.append(total.item() / size)
            same_losses(losses, expected, options, single(dtype))


def gradients_of_sharded_models_clipped(rank, size):
    def go(model, parts):
        optimizer, losses = torch.optim.AdamW(model.parameters(), lr=0.01), []
        for x, y in batches(steps(FEW), 8 * size, next(model.parameters()).dtype):
            mine = slice(rank * 8, rank * 8 + 8) if parts else slice(None)
            optimizer.zero_grad()
            loss = loss_of(model, x[mine], y[mine])
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            total = loss.detach().clone()
            if parts:
                dist.all_reduce(total)
            losses.append(total.item() / (size if parts else 1))
        return losses

    for dtype in DTYPES:
        same_losses(go(shard(deep(dtype)), True), go(deep(dtype), False), "clipped", single(dtype))


def options_of_sharded_models(rank, size):
    def prefetch(model):
        model.blocks[0].set_modules_to_forward_prefetch([model.blocks[1], model.blocks[2]])
        model.blocks[2].set_modules_to_backward_prefetch([model.blocks[1], model.blocks[0]])

    for dtype in DTYPES:
        expected = train_alone(deep(dtype), steps(FEW), 8 * size)
        for options in ({}, {"reshard_after_forward": False}, {"offload_policy": CPUOffloadPolicy()}):
            model = shard(deep(dtype), **options)
            if not options:
                prefetch(model)
            same_losses(train(rank, size, model, steps(FEW)), expected, options, single(dtype))
        same_losses(train(rank, size, fully_shard(deep(dtype)), steps(FEW)), expected, "one group", single(dtype))


def optimizers_that_step_in_backward(rank, size):
    alone, model = make(), make()
    for each in (alone, model):
        apply_in_backward(torch.optim.AdamW, each.parameters(), {"lr": 0.01})
    assert len(optimizers_in_backward(alone)) == len(list(alone.parameters()))
    model, losses, expected = DDP(model, bucket_cap_mb=0.001), [], []
    for x, y in batches(steps(FEW), 8 * size):
        loss = loss_of(alone, x, y)
        loss.backward()
        expected.append(loss.item())
        loss = loss_of(model, x[rank * 8 : rank * 8 + 8], y[rank * 8 : rank * 8 + 8])
        loss.backward()
        assert all(p.grad is None for p in [*alone.parameters(), *model.parameters()])
        dist.all_reduce(loss.detach(), dist.ReduceOp.AVG)
        losses.append(loss.item())
    same_losses(losses, expected)
    same_losses(expected, train_alone(make(), steps(FEW), 8 * size))


def models_averaged_now_and_then(rank, size):
    """Each process trains by itself, and parameters are averaged: as one process does that trains all models."""

    def parts(count, period_of):
        models = [make() for _ in range(size)]
        optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
        losses = []
        for step, (x, y) in enumerate(batches(count, 8 * size)):
            losses.append([])
            for r, (model, optimizer) in enumerate(zip(models, optimizers, strict=True)):
                optimizer.zero_grad()
                loss = loss_of(model, x[r * 8 : r * 8 + 8], y[r * 8 : r * 8 + 8])
                loss.backward()
                optimizer.step()
                losses[-1].append(loss.item())
            width = period_of(step)
            for begin in range(0, size, width):
                members = [list(model.parameters()) for model in models[begin : begin + width]]
                for each in zip(*members, strict=True):
                    total = mean([parameter.detach() for parameter in each], width)
                    for parameter in each:
                        parameter.data.copy_(total)
        return [each[rank] for each in losses]

    def train_apart(averager):
        model, losses = make(), []
        optimizer = PostLocalSGDOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), averager)
        for x, y in batches(steps(FEW), 8 * size):
            optimizer.zero_grad()
            loss = loss_of(model, x[rank * 8 : rank * 8 + 8], y[rank * 8 : rank * 8 + 8])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert optimizer.state_dict()["step"] == steps(FEW)
        return losses

    seen = train_apart(averagers.PeriodicModelAverager(period=2, warmup_steps=1))
    same_losses(seen, parts(steps(FEW), lambda step: size if step >= 1 and (step - 1) % 2 == 0 else 1))
    levels = {2: 2, 4: size} if size > 2 else {2: 2}
    seen = train_apart(HierarchicalModelAverager(levels))
    same_losses(seen, parts(steps(FEW), lambda step: size if step % 4 == 0 else 2 if step % 2 == 0 else 1))
    with pytest.raises(ValueError, match="must be equal to the size"):
        HierarchicalModelAverager({2: size + 1})
    with pytest.raises(ValueError, match="non-negative"):
        averagers.PeriodicModelAverager(2, -1)


def inputs_kept_in_parts(rank, size):
    mesh = dist.device_mesh.init_device_mesh("cpu", (size,))
    x, y = next(batches(1, 8))
    alone, model = make(), input_reshard(make(), mesh, 0)
    for each in (alone, model):
        loss_of(each, x, y).backward()
    for ours, theirs in zip(model.parameters(), alone.parameters(), strict=True):
        assert torch.equal(ours.grad, theirs.grad)
    assert input_reshard(alone, mesh) is alone


CASES = [
    several_passes_for_a_step, hooks_that_send_all, hooks_that_send_sixteen_bits, computed_in_another_dtype, ranks_that_end_early,
    batch_norm_over_all_ranks, states_of_the_optimizer_on_one_rank_each, gradients_of_sharded_models_clipped,
    options_of_sharded_models, optimizers_that_step_in_backward, models_averaged_now_and_then, inputs_kept_in_parts,
]  # fmt: skip
