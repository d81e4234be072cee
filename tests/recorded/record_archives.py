"""Writes .pt2 archives of torch's, with the values that torch computes, for tests/python/test_archives.py.

usage: python tests/recorded/record_archives.py   (any Python with torch 2.13)
"""

import json
import zipfile
from pathlib import Path

import torch
from torch import nn
from torch.export import Dim, export, save


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
    inputs = [torch.randn(5, 4) + 1, torch.randn(7, 4) - 3]
    torch.save([(x, module(x)) for x in inputs], folder / "program_values.pt")


if __name__ == "__main__":
    main()
