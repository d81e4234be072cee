#!/usr/bin/env python3
"""Writes the small checkpoints of files/ with torch. Run it with a Python that has torch 2.13."""

import collections
from pathlib import Path

import torch

FOLDER = Path(__file__).parent / "files"
DTYPES = [
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "bool",
    "complex128",
    "complex64",
    "complex32",
    "uint16",
    "uint32",
    "uint64",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
]


def values():
    x = torch.arange(12.0).reshape(3, 4)
    tagged = torch.tensor([1.0, 2.0])
    tagged.note = "kept"
    return {
        "matrix": x,
        "transposed": x.t(),
        "row": x[1],
        "expanded": torch.tensor([5.0]).expand(3),
        "scalar": torch.tensor(2.5),
        "empty": torch.empty(0, 3),
        "parameter": torch.nn.Parameter(torch.tensor([1.0, -1.0])),
        "needs grad": torch.ones(2, requires_grad=True),
        "conjugated": torch.tensor([1 + 2j, 3 - 4j]).conj(),
        "meta": torch.empty(2, 3, device="meta"),
        "tagged": tagged,
        "ordered": collections.OrderedDict(a=1, b=[2, (3, None)]),
        "plain": [
            True,
            False,
            None,
            7,
            -(2**40),
            2**100,
            0.1,
            "t\u00e9xt",
            b"\x00\xff",
            bytearray(b"ab"),
            {1, 2},
            1 + 2j,
        ],
        "types": [torch.float32, torch.bfloat16, torch.Size([2, 3]), torch.device("cuda", 1), torch.strided],
        "dtypes": {name: torch.tensor([0, 1, 1, 0]).to(getattr(torch, name)) for name in DTYPES},
    }


def training():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    model(torch.ones(5, 3)).sum().backward()
    optimizer.step()
    return {
        "epoch": 3,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "rng": torch.get_rng_state()[:40],
    }


def main():
    FOLDER.mkdir(exist_ok=True)
    torch.save(values(), FOLDER / "values.pt")
    old = values()
    for name in ("meta", "dtypes"):  # torch cannot read these back from the old format itself
        del old[name]
    torch.save(old, FOLDER / "values_legacy.pt", _use_new_zipfile_serialization=False)
    torch.save(values(), FOLDER / "values_protocol4.pt", pickle_protocol=4)
    torch.save(training(), FOLDER / "training.pt")
    torch.manual_seed(0)
    torch.save(torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Tanh()), FOLDER / "module.pt")
    torch.serialization.set_crc32_options(False)
    torch.save(torch.arange(5), FOLDER / "without_checksums.pt")


if __name__ == "__main__":
    main()
