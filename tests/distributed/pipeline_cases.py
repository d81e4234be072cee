"""What each process of a pipeline does, and checks."""

import mica as torch
import pytest
from mica import nn
from mica.distributed import pipelining
from mica.distributed.fsdp import fully_shard
from mica.distributed.pipelining import _orders, microbatch, schedules
from mica.nn.attention.flex_attention import create_block_mask, flex_attention
from ranks import same_losses, steps

dist = torch.distributed
SINGLE = [schedules.ScheduleGPipe, schedules.Schedule1F1B]
MULTI = [schedules.ScheduleLoopedBFS, schedules.ScheduleInterleaved1F1B, schedules.ScheduleInterleavedZeroBubble]


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(x)))


def layers(count, dtype=torch.float64):
    torch.manual_seed(0)
    return nn.Sequential(*(Layer(5) for _ in range(count))).to(dtype)


def batches(count, rows=16, dtype=torch.float64):
    generator = torch.Generator().manual_seed(3)
    for _ in range(count):
        x = torch.randn(rows, 5, generator=generator, dtype=torch.float64)
        yield x.to(dtype), x.flip(1).tanh().to(dtype)


def mean_square(output, target):
    return (output - target).square().mean()


def alone(count, passes, dtype=torch.float64):
    model = layers(count, dtype)
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=0.01), []
    for x, y in batches(passes, dtype=dtype):
        optimizer.zero_grad()
        loss = mean_square(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, model


def through(schedule, stages, passes, rank, size, dtype=torch.float64):
    """The mean losses of steps, which the last process has."""
    optimizer = torch.optim.AdamW([p for stage in stages for p in stage.submod.parameters()], lr=0.01)
    found = []
    for x, y in batches(passes, dtype=dtype):
        optimizer.zero_grad()
        losses = []
        given = (x,) if rank == 0 else ()
        last = {"target": y, "losses": losses} if rank == size - 1 else {}
        output = schedule.step(*given, **last)
        assert (output is not None) == (rank == size - 1)
        optimizer.step()
        found.append(torch.stack(losses).mean().item() if losses else None)
    return found


def stages_of(model, rank, size, per_rank, wrap=lambda module: module):
    count = size * per_rank
    return [pipelining.PipelineStage(wrap(model[i]), i, count, "cpu") for i in range(rank, count, size)]


def losses_of_one_process(rank, size):
    for kinds, per_rank in ((SINGLE, 1), (MULTI, 2)):
        expected, trained = alone(size * per_rank, steps(12))
        for kind in kinds:
            for chunks in (size, 2 * size):
                stages = stages_of(layers(size * per_rank), rank, size, per_rank)
                schedule = kind(stages if per_rank > 1 else stages[0], chunks, loss_fn=mean_square)
                seen = through(schedule, stages, steps(12), rank, size)
                if rank == size - 1:
                    same_losses(seen, expected, (kind, chunks))
                for stage in stages:
                    for ours, theirs in zip(
                        stage.submod.parameters(), trained[stage.stage_index].parameters(), strict=True
                    ):
                        assert torch.allclose(ours, theirs, rtol=1e-9, atol=1e-12), (kind, chunks)
    stages = stages_of(layers(size, torch.float32), rank, size, 1)
    seen = through(schedules.Schedule1F1B(stages[0], 4, loss_fn=mean_square), stages, 50, rank, size, torch.float32)
    if rank == size - 1:
        same_losses(seen, alone(size, 50, torch.float32)[0], single=True)


def stages_laid_out_as_a_v(rank, size):
    expected, trained = alone(2 * size, steps(12))
    mine = (rank, 2 * size - 1 - rank)
    zero, dual = pipelining.ScheduleZBVZeroBubble, pipelining.ScheduleDualPipeV
    for kind, chunks in ((zero, 1), (zero, size), (zero, 4 * size), (dual, 2 * size), (dual, 4 * size)):
        if chunks > 16:  # more microbatches than rows
            continue
        model = layers(2 * size)
        stages = [pipelining.PipelineStage(model[i], i, 2 * size, "cpu") for i in mine]
        schedule = kind(stages, chunks, loss_fn=mean_square)
        seen = through(schedule, stages, steps(12), rank, 1 if rank == 0 else -1)
        if rank == 0:
            same_losses(seen, expected, (kind, chunks))
            for i in mine:
                for ours, theirs in zip(model[i].parameters(), trained[i].parameters(), strict=True):
                    assert torch.allclose(ours, theirs, rtol=1e-9, atol=1e-12)
    orders = _orders.v_shaped(2 * size, size)
    for place, order in orders.items():
        assert len(order) == len(set(order)) == 12 * size and {each[1] for each in order} == {
            place,
            2 * size - 1 - place,
        }
    with pytest.raises(ValueError, match="as many microbatches as stages"):
        dual(stages, 2 * size - 1)
    assert schedules.get_schedule_class("dualpipev") is dual
    with pytest.raises(ValueError, match="two stages for each process"):
        pipelining.ScheduleZBVZeroBubble([pipelining.PipelineStage(model[rank], rank, size, "cpu")], 2)


def forward_without_loss(rank, size):
    model = layers(size)
    x, y = next(batches(1))
    stage = pipelining.PipelineStage(model[rank], rank, size, "cpu")
    schedule = pipelining.ScheduleGPipe(stage, 4)
    for run in (schedule.step, schedule.eval):
        output = run(*((x,) if rank == 0 else ()))
        if rank == size - 1:
            assert torch.allclose(output, model(x), rtol=1e-12)
    losses = []
    schedule = pipelining.Schedule1F1B(stage, 4, loss_fn=mean_square)
    if rank == size - 1:
        schedule.eval(target=y, losses=losses)
        assert torch.stack(losses).mean().item() == pytest.approx(mean_square(model(x), y).item())
    else:
        schedule.eval(*((x,) if rank == 0 else ()))
    assert all(p.grad is None for p in model.parameters())
    with pytest.raises(RuntimeError, match=r"call eval\(\)"), torch.no_grad():
        schedule.step()


class Two(nn.Module):
    """Gives two tensors, one of integers, and takes a named argument on every stage."""

    def __init__(self, last):
        super().__init__()
        self.layer, self.last = nn.Linear(5, 5), last

    def forward(self, x, counts, scale=1.0):
        x, counts = self.layer(x) * scale, counts + 1
        return x if self.last else (x, counts)


def several_tensors_between_stages(rank, size):
    torch.manual_seed(0)
    parts = nn.ModuleList(Two(i == size - 1) for i in range(size)).double()
    x, y = next(batches(1, rows=8))
    counts = torch.arange(8)
    whole = nn.ModuleList(Two(i == size - 1) for i in range(size)).double()
    whole.load_state_dict(parts.state_dict())
    value = (x, counts)
    for part in whole:
        value = part(*value, scale=0.5)
    mean_square(value, y).backward()
    stage = pipelining.PipelineStage(parts[rank], rank, size, "cpu")
    schedule = pipelining.Schedule1F1B(stage, 4, loss_fn=mean_square)
    last = {"target": y} if rank == size - 1 else {}
    schedule.step(*((x, counts) if rank == 0 else ()), scale=0.5, **last)
    for ours, theirs in zip(parts[rank].parameters(), whole[rank].parameters(), strict=True):
        assert torch.allclose(ours.grad, theirs.grad, rtol=1e-11)


def with_data_parallel(rank, size):
    """Two stages, each on half of the processes: the copies of a stage see parts of the batch."""
    if size != 4:
        return
    mesh = dist.device_mesh.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "pp"))
    place, number = mesh.get_local_rank("dp"), mesh.get_local_rank("pp")
    whole = layers(2)
    x, y = next(batches(1, rows=32))
    mean_square(whole(x), y).backward()
    mine = slice(place * 16, place * 16 + 16)

    def replicated(module):
        return nn.parallel.DistributedDataParallel(module, process_group=mesh["dp"].get_group())

    for wrap in (replicated, lambda module: fully_shard(module, mesh=mesh["dp"])):
        module = wrap(layers(2)[number])
        stage = pipelining.PipelineStage(module, number, 2, "cpu", group=mesh["pp"].get_group())
        schedule = pipelining.Schedule1F1B(stage, 4, loss_fn=mean_square)
        schedule.step(*((x[mine],) if number == 0 else ()), **({"target": y[mine]} if number == 1 else {}))
        for ours, theirs in zip(module.parameters(), whole[number].parameters(), strict=True):
            gradient = ours.grad.full_tensor() if hasattr(ours.grad, "full_tensor") else ours.grad
            assert torch.allclose(gradient, theirs.grad, rtol=1e-11)


class Model(nn.Module):
    """Values that skip stages, and a mark in forward."""

    def __init__(self):
        super().__init__()
        self.embed, self.layers, self.head = nn.Linear(5, 5), nn.ModuleList(Layer(5) for _ in range(3)), nn.Linear(5, 5)
        self.scale = nn.Parameter(torch.ones(5))

    def forward(self, x, extra=None):
        first = self.embed(x)
        y = first
        for layer in self.layers:
            y = layer(y) * self.scale
        return self.head(y + first)


class Marked(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(5, 5), nn.Linear(5, 5)

    def forward(self, x):
        x = self.first(x)
        pipelining.pipe_split()
        return self.second(x)


def models_cut_by_their_graph(rank, size):
    torch.manual_seed(0)
    model = Model().double()
    x, y = next(batches(1))
    points = {f"layers.{i}": pipelining.SplitPoint.BEGINNING for i in range(1, min(size, 3))}
    if size == 4:
        points["head"] = pipelining.SplitPoint.BEGINNING
    pipe = pipelining.pipeline(model, (x[:4],), split_spec=points)
    assert pipe.num_stages == size and pipe.info().num_stages == size
    assert torch.allclose(pipe(x)[0], model(x), rtol=1e-12)
    names = {name for i in range(size) for name in pipe.get_stage_module(i).state_dict()}
    assert names == set(model.state_dict())
    stage = pipe.build_stage(rank, "cpu")
    losses, last = [], {}
    if rank == size - 1:
        last = {"target": y, "losses": losses}
    pipelining.ScheduleGPipe(stage, 4, loss_fn=mean_square).step(*((x,) if rank == 0 else ()), **last)
    gradients = {name: p.grad for name, p in stage.submod.named_parameters()}
    model.zero_grad()
    mean_square(model(x), y).backward()
    for name, parameter in model.named_parameters():
        if name in gradients and name != "scale":  # every stage has its term of what they share
            assert torch.allclose(gradients[name], parameter.grad, rtol=1e-10), name
    marked = pipelining.pipeline(Marked().double(), (x,))
    assert marked.num_stages == 2 and marked(x)[0].shape == x.shape
    after = pipelining.pipeline(model, (x,), split_spec={"layers.0": pipelining.SplitPoint.END})
    assert next(iter(after.get_stage_module(0).state_dict())).startswith(("embed", "scale"))
    with pytest.raises(AttributeError, match="nothing"):
        pipelining.pipeline(model, (x,), split_spec={"nothing": pipelining.SplitPoint.END})


NOTHING = torch.zeros(1)


class WithDefault(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 5)

    def forward(self, x, y=NOTHING):
        x = self.layer(x) + y
        pipelining.pipe_split()
        return self.layer(x)


def arguments_with_defaults(rank, size):
    x, y = next(batches(1))
    model = WithDefault().double()
    pipe = pipelining.pipeline(model, (x,), {"y": y})
    assert torch.allclose(pipe(x, y)[0], model(x, y)) and torch.allclose(pipe(x, y=y)[0], model(x, y))
    assert torch.allclose(pipelining.pipeline(model, (x,))(x)[0], model(x))


def microbatches(rank, size):
    x, mask = torch.arange(12.0).reshape(6, 2), torch.ones(3)
    args, _kwargs = microbatch.split_args_kwargs_into_chunks((x, 3), {"mask": mask}, 3)
    assert [part[0].tolist() for part in args] == [part.tolist() for part in x.chunk(3)] and args[1][1] == 3
    spec = microbatch.TensorChunkSpec.from_tuple((1,))
    args, _ = microbatch.split_args_kwargs_into_chunks((x,), None, 2, spec)
    assert args[0][0].shape == (6, 1)
    assert torch.equal(microbatch.merge_chunks([part[0] for part in args], microbatch.TensorChunkSpec(1)), x)
    total = microbatch.merge_chunks([torch.tensor(1.0), torch.tensor(2.0)], microbatch.sum_reducer)
    assert total.item() == 3
    with pytest.raises(ValueError, match="smaller than the number of chunks"):
        microbatch.split_args_kwargs_into_chunks((x,), None, 7)
    mask = create_block_mask(lambda b, h, q, kv: q >= kv + b, 4, 1, 128, 128, device="cpu")
    q = torch.randn(4, 1, 128, 8)
    parts, _ = microbatch.split_args_kwargs_into_chunks((q, mask), None, 2)
    out = torch.cat([flex_attention(part, part, part, block_mask=its) for part, its in parts])
    assert torch.allclose(out, flex_attention(q, q, q, block_mask=mask))
    one = create_block_mask(lambda b, h, q, kv: q >= kv, 1, 1, 128, 128, device="cpu")
    assert microbatch.split_args_kwargs_into_chunks((one,), None, 2)[0][1][0] is one
    assert schedules.get_schedule_class("1f1b") is pipelining.Schedule1F1B
    with pytest.raises(ValueError, match="Unknown schedule"):
        schedules.get_schedule_class("none")
    with pytest.raises(ValueError, match="out of range"):
        pipelining.PipelineStage(nn.Linear(1, 1), size, size, "cpu")


CASES = [
    losses_of_one_process, stages_laid_out_as_a_v, forward_without_loss, several_tensors_between_stages, with_data_parallel,
    models_cut_by_their_graph, arguments_with_defaults, microbatches,
]  # fmt: skip
