"""Writes .pt2 archives of torch's, with the values that torch computes, for tests/python/test_archives.py.

usage: python tests/recorded/record_archives.py   (any Python with torch 2.13)
"""

import json
import zipfile
from pathlib import Path

import torch
from torch import nn
from torch._higher_order_ops.map import map as mapped
from torch._higher_order_ops.scan import scan
from torch.export import Dim, export, save
from torch.utils._pytree import tree_map


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 3), nn.BatchNorm1d(3)
        self.register_buffer("shift", torch.ones(3), persistent=False)

    def forward(self, input, scale=2):
        h = self.norm(self.linear(input)) + self.shift
        first, second = h.chunk(3, 1)[:2]
        y = torch.cond(h.sum() > 0, lambda h: h * 2, lambda h: h - 1, (h,))
        return {
            "flat": y.view(-1) * scale,
            "cat": torch.cat([first, second, input[:, :1]], 1),
            "rows": input.shape[0] * 2,
        }


class Mixed(nn.Module):
    """A linear map under autocast, and the same one without."""

    def __init__(self):
        super().__init__()
        self.l = nn.Linear(4, 4)
        self.l.weight.data.copy_(torch.arange(16.0).view(4, 4) / 7)
        nn.init.constant_(self.l.bias, 0.3)

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.l(x)
        return y.float(), self.l(x)


@torch.library.custom_op("mylib::scale", mutates_args=())
def scale(x: torch.Tensor, factor: float = 2.0, shift: int = 0) -> torch.Tensor:
    return x * factor + shift


@scale.register_fake
def _(x, factor=2.0, shift=0):
    return torch.empty_like(x)


class Own(nn.Module):
    def forward(self, x):
        return torch.ops.mylib.scale(x, 3.0) + torch.ops.mylib.scale(x, shift=1)


class Loops(nn.Module):
    """A map and a scan, with a parameter that both read."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))

    def forward(self, x):
        rows = mapped(lambda row, shift: row * shift + self.weight, x, x[0] + 1)
        last, steps = scan(lambda carry, row: (carry + row, (carry * row * self.weight, row.sum())), x[0] + 1, x)
        return rows, last, steps


changing = torch.library.Library("changing", "DEF")
changing.define("multiply(Tensor(a!)[] xs, Tensor(b!)? z, float k=2.0) -> Tensor")
changing.define("add(Tensor(a!) x, Tensor y) -> ()")


@torch.library.impl(changing, "multiply", "CompositeExplicitAutograd")
def multiply(xs, z, k=2.0):
    for x in xs:
        x.mul_(k)
    return xs[0] + 1


@torch.library.impl(changing, "add", "CompositeExplicitAutograd")
def add(x, y):
    x.add_(y)


class Changes(nn.Module):
    """Operators that change views of tensors and an input: after run_decompositions they run on copies."""

    def forward(self, x, y):
        z = x.clone()
        torch.ops.changing.add(z[1:3], x[0])
        made = torch.ops.changing.multiply([z[1], z.view(3, 4), y.t()], None, 3.0)
        return made, z


def strip(path):
    """Leave out what says where the program was written: the lines of its source."""

    def plain(value):
        if isinstance(value, dict):
            return {key: {} if key == "metadata" else plain(each) for key, each in value.items()}
        return [plain(each) for each in value] if isinstance(value, list) else value

    with zipfile.ZipFile(path) as archive:
        records = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in records.items():
            archive.writestr(name, json.dumps(plain(json.loads(data))) if name.endswith("model.json") else data)


def record_loops_and_changes(folder):
    x, y = torch.arange(12.0).view(4, 3) / 4, torch.arange(4.0).view(2, 2)
    save(export(Loops(), (x,)), folder / "program_loops.pt2")
    save(export(Changes(), (x, y.clone())).run_decompositions(), folder / "program_changes.pt2")
    for name in ("program_loops.pt2", "program_changes.pt2"):
        strip(folder / name)
    changed = y.clone()
    values = {"x": x, "y": y, "loops": Loops()(x), "changes": Changes()(x, changed), "changed": changed}
    torch.save(tree_map(torch.Tensor.detach, values), folder / "program_loops_values.pt")


def main():
    torch.manual_seed(0)
    folder = Path(__file__).parent / "files"
    module = Small().eval()
    example = torch.randn(4, 4)
    program = export(module, (example,), dynamic_shapes={"input": {0: Dim("n", min=3, max=64)}})
    save(program, folder / "program.pt2", extra_files={"note.txt": "hello"})
    save(program.run_decompositions(), folder / "program_decomposed.pt2")
    strip(folder / "program.pt2")
    strip(folder / "program_decomposed.pt2")
    for name, other, given in (
        ("program_autocast.pt2", Mixed(), torch.linspace(-1, 1, 8).view(2, 4)),
        ("program_own_operator.pt2", Own(), torch.arange(4.0)),
    ):
        save(export(other, (given,)), folder / name)
        strip(folder / name)
    record_loops_and_changes(folder)
    inputs = [torch.randn(5, 4) + 1, torch.randn(7, 4) - 3]
    torch.save([(x, module(x)) for x in inputs], folder / "program_values.pt")


if __name__ == "__main__":
    main()
