"""What the host pays for calls, eager and compiled: small models on a backend that fuses calls and whose kernels do nothing.

It needs tests/backends/stub/fusing_backend.cpp, which `make test` builds. Figures are microseconds of CPU time of one
call, the least of many. Run it from the root of the tree, with the build's Python folder in PYTHONPATH:

    python bench/host_costs.py [row ...]
"""

import os
import sys
import time
from pathlib import Path

os.environ["MICA_FUSING_IDLE"] = "1"

import mica as torch
from mica import nn
from mica.nn import functional as F

DEVICE = torch.backends.open(Path(torch._C.__file__).parents[2] / "tests" / "backends" / "libmica_fusing.so")


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(64), nn.Linear(64, 64)

    def forward(self, x):
        return F.gelu(self.linear(self.norm(x)))


class Block(nn.Module):
    def __init__(self, width=64, heads=4):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(self.first(x)).split(width, 2)
        q, k, v = (each.view(batch, length, self.heads, -1).transpose(1, 2) for each in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, width)
        x = x + self.out(y)
        return x + self.down(F.gelu(self.up(self.second(x))))


class Filters(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs)

    def forward(self, x):
        return F.silu(self.norm(self.convolution(x)))


def models():
    """Yield names, models, inputs and losses."""

    def total(y):
        return y.sum()

    yield "mlp", nn.Sequential(*(Layer() for _ in range(4))), torch.empty(64, 64), total
    tokens = torch.zeros(2, 64, dtype=torch.int64)
    blocks = (Block() for _ in range(4))
    gpt = nn.Sequential(nn.Embedding(128, 64), *blocks, nn.LayerNorm(64), nn.Linear(64, 128))
    yield (
        "gpt",
        gpt,
        tokens,
        lambda y: F.cross_entropy(y.view(-1, 128), y.new_zeros(y.numel() // 128, dtype=torch.int64)),
    )
    yield (
        "convnet",
        nn.Sequential(Filters(3, 16), *(Filters(16, 16) for _ in range(3))),
        torch.empty(4, 3, 16, 16),
        total,
    )


def functions():
    """Yield names and functions of no arguments."""

    def empty(*shape):
        return torch.empty(shape, device=DEVICE)

    lists = [[empty(64, 64) for _ in range(8)] for _ in range(4)]

    def adam():
        for p, g, m, v in zip(*lists, strict=True):
            m.mul_(0.9).add_(g, alpha=0.1)
            v.mul_(0.99).addcmul_(g, g, value=0.01)
            p.addcdiv_(m, v.sqrt().add_(1e-8), value=-1e-3)

    yield "adam_by_hand", adam
    x, w, u, b = empty(64, 64), empty(64, 256), empty(64, 256), empty(256)

    def lstm():
        h = c = x
        for _ in range(4):
            i, f, g, o = (x @ w + h @ u + b).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        return h

    yield "lstm_by_hand", lstm
    yield "three_operations", lambda: (x * 2 + 1).relu()

    def chain():
        a = x
        for _ in range(5):
            a = (a * w[:, :64] + x).sigmoid()
        return a

    yield "chain_of_15", chain


def rows():
    """Yield names, eager functions and compiled ones."""
    for name, model, x, loss in models():
        model, x = model.to(DEVICE), x.to(DEVICE)

        def infer(f, x=x):
            with torch.no_grad():
                return f(x)

        def train(f, model=model, x=x, loss=loss):
            loss(f(x)).backward()
            for p in model.parameters():
                p.grad = None

        compiled = torch.compile(model)
        for step in (infer, train):
            yield f"{name}_{step.__name__}", lambda s=step, m=model: s(m), lambda s=step, m=compiled: s(m)
        yield f"{name}_whole_step", lambda s=train, m=model: s(m), torch.compile(lambda s=train, m=model: s(m))
    for name, function in functions():
        yield name, function, torch.compile(function)


def measure(function, calls):
    begin = time.thread_time_ns()
    for _ in range(calls):
        function()
    return (time.thread_time_ns() - begin) / calls / 1e3


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(f"{'row':20}{'eager':>10}{'compiled':>10}{'eager / compiled':>18}")
    for name, eager, compiled in rows():
        if len(sys.argv) > 1 and name not in sys.argv[1:]:
            continue
        measure(compiled, 5)
        calls = max(3, int(3000 / measure(eager, 5)))
        least = [
            min(each)
            for each in zip(*((measure(eager, calls), measure(compiled, calls)) for _ in range(25)), strict=True)
        ]
        print(f"{name:20}{least[0]:10.2f}{least[1]:10.2f}{least[0] / least[1]:18.2f}", flush=True)
