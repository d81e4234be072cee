"""Trainings of spread models, which every process of a grid runs: their losses are those of one process."""

import copy

import mica as torch
from mica import nn
from mica.distributed.tensor import DTensor, Replicate, Shard, distribute_module, distribute_tensor, init_device_mesh
from mica.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from ranks import same_losses, steps

F = nn.functional
DTYPES = (torch.float64, torch.float32)
STEPS = steps(6)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def attend(self, x):
        batch, length, _ = x.shape
        size = self.norm1.weight.shape[0] // self.heads
        q, k, v = (
            layer(x).view(batch, length, -1, size).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, -1))

    def forward(self, x):
        x = x + self.attend(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self, words=20, width=16, heads=4):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(2)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def data(step):
    tokens = torch.randint(0, 20, (4, 9), generator=torch.Generator().manual_seed(step))
    return tokens[:, :-1], tokens[:, 1:]


def trained(model, options, loss_of=None, make=None, clip=None):
    optimizer = (make or torch.optim.AdamW)(model.parameters(), **options)
    losses = []
    for step in range(STEPS):
        inputs, targets = data(step % 5)
        optimizer.zero_grad()
        if loss_of is None:
            loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
            loss.backward()
        else:
            loss = loss_of(model, inputs, targets)
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        losses.append(loss.full_tensor().item() if isinstance(loss, DTensor) else loss.item())
    return losses


def fresh(dtype):
    torch.manual_seed(0)
    return Model().to(dtype)


def close(got, wanted, dtype):
    same_losses(got, wanted, single=dtype == torch.float32)


def layers(rank, size):
    """Column and row parallel layers, an embedding by rows, the head by columns."""
    mesh = init_device_mesh("cpu", (size,))
    for dtype in DTYPES:
        model = fresh(dtype)
        plan = {
            "embed": RowwiseParallel(input_layouts=Replicate()),
            "head": ColwiseParallel(output_layouts=Replicate()),
            **{f"blocks.*.{name}": ColwiseParallel() for name in ("query", "key", "value", "up")},
            **{f"blocks.*.{name}": RowwiseParallel() for name in ("out", "down")},
        }
        parallelize_module(model, mesh, plan)
        assert model.blocks[0].up.weight.to_local().shape == (32 // size, 16)
        close(trained(model, {"lr": 1e-2}), trained(fresh(dtype), {"lr": 1e-2}), dtype)


def sequences(rank, size):
    """Norms of parts of the sequence, and a loss of scores that are split by classes."""
    mesh = init_device_mesh("cpu", (size,))

    def split_loss(model, inputs, targets):
        targets = distribute_tensor(targets.flatten(), mesh, [Replicate()])
        with loss_parallel():
            loss = F.cross_entropy(model(inputs).flatten(0, 1), targets)
            loss.backward()
        return loss

    for dtype in DTYPES:
        model = fresh(dtype)
        wanted = trained(copy.deepcopy(model), {"lr": 1e-2}, clip=0.5)
        plan = {
            "embed": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1), use_local_output=False),
            "norm": SequenceParallel(),
            "head": ColwiseParallel(input_layouts=Shard(1), use_local_output=False),
        }
        for name in ("query", "key", "value"):
            plan[f"blocks.*.{name}"] = ColwiseParallel(use_local_output=False)
        plan |= {
            "blocks.*.norm1": SequenceParallel(),
            "blocks.*.norm2": SequenceParallel(),
            "blocks.*.out": RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
            "blocks.*.up": ColwiseParallel(input_layouts=Shard(1), use_local_output=False),
            "blocks.*.down": RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
        }
        for block in model.blocks:
            for layer in (block.query, block.key, block.value):
                parallelize_module(
                    layer, mesh,
                    PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Replicate()),
                )  # fmt: skip
        parallelize_module(model, mesh, plan)
        assert all(isinstance(p, DTensor) for p in model.parameters())
        close(trained(model, {"lr": 1e-2}, split_loss, clip=0.5), wanted, dtype)


def whole_modules(rank, size):
    """Every parameter split by its first dimension, the examples split too; several optimizers."""
    mesh = init_device_mesh("cpu", (size,))

    def split(name, module, mesh):
        for key, parameter in list(module.named_parameters(recurse=False)):
            module.register_parameter(key, nn.Parameter(distribute_tensor(parameter, mesh, [Shard(0)])))

    def split_loss(model, inputs, targets):
        inputs, targets = (distribute_tensor(t, mesh, [Shard(0)]) for t in (inputs, targets))
        loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
        loss.backward()
        return loss

    for make, options in (
        (torch.optim.AdamW, {"lr": 1e-2}),
        (torch.optim.SGD, {"lr": 0.3, "momentum": 0.5}),
    ):
        model = fresh(torch.float64)
        wanted = trained(copy.deepcopy(model), options, make=make)
        distribute_module(model, mesh, split)
        close(trained(model, options, split_loss, make), wanted, torch.float64)


CASES = [layers, sequences, whole_modules]
