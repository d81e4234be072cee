"""Records how torch prints tensors in printing.json, for tests/core/test_printing.py.

Run with a Python that has torch: `python tests/recorded/record_printing.py`. A record is
[expression, arguments of set_printoptions, the text of its repr()].
"""

import json
import math
import pathlib
import random
import warnings

import torch

FLOATING = ("float16", "bfloat16", "float32", "float64")
FLOAT8 = ("float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz")
COMPLEX = ("complex32", "complex64", "complex128")
INTEGERS = {
    "uint8": (0, 255),
    "int8": (-128, 127),
    "int16": (-(2**15), 2**15 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint16": (0, 2**16 - 1),
    "uint32": (0, 2**32 - 1),
    "uint64": (0, 2**63 - 1),
    "bool": (0, 1),
}

BY_HAND = [
    ("torch.tensor(5)", {}),
    ("torch.tensor(2.5)", {}),
    ("torch.tensor(-0.0)", {}),
    ("torch.tensor(True)", {}),
    ("torch.tensor(1 + 2j)", {}),
    ("torch.tensor(float('nan'))", {}),
    ("torch.tensor([])", {}),
    ("torch.tensor([], dtype=torch.int64)", {}),
    ("torch.empty(0, 3)", {}),
    ("torch.empty(2, 0, 3, dtype=torch.bool)", {}),
    ("torch.zeros(3, requires_grad=True)", {}),
    ("torch.zeros(2, 0, requires_grad=True)", {}),
    ("torch.ones(2, requires_grad=True) * torch.ones(2)", {}),
    ("torch.ones(2, dtype=torch.float64, requires_grad=True).sum()", {}),
    ("torch.ones(3, 3, requires_grad=True).t()", {}),
    ("torch.ones(2, 3, device='meta')", {}),
    ("torch.ones(2, dtype=torch.int32, device='meta')", {}),
    ("torch.ones(2, device='meta', requires_grad=True)", {}),
    ("torch.tensor([1., float('nan'), float('inf'), -float('inf')])", {}),
    ("torch.tensor([float('nan'), 0.])", {}),
    ("torch.tensor([0., -0.])", {}),
    ("torch.tensor([1e-5, 1.])", {}),
    ("torch.tensor([1e9, 1.])", {}),
    ("torch.tensor([1e9, 2e9])", {}),
    ("torch.tensor([1000., 1.])", {}),
    ("torch.tensor([1001., 1.])", {}),
    ("torch.tensor([1e-4])", {}),
    ("torch.tensor([0.9e-4])", {}),
    ("torch.tensor([-1e30, float('nan')])", {}),
    ("torch.tensor([1 + 2j, -3.5 - 0j])", {}),
    ("torch.tensor([complex('nan'), complex('inf')])", {}),
    ("torch.tensor([1 + 2j, 3 - 4j]).conj()", {}),
    ("torch.tensor([1 + 2j, 3 - 4j]).conj().imag", {}),
    ("torch.arange(1000)", {}),
    ("torch.arange(1001)", {}),
    ("torch.arange(1001.)", {}),
    ("torch.arange(40000).reshape(200, 200)", {}),
    ("torch.arange(8 * 9 * 100).reshape(8, 9, 100)", {}),
    ("torch.arange(2 * 3 * 4 * 100).reshape(2, 3, 4, 100).float()", {}),
    ("torch.arange(2000, dtype=torch.int16)", {"edgeitems": 0}),
    ("torch.arange(2000.).reshape(2, 1000)", {"edgeitems": 0}),
    ("torch.arange(30.)", {"edgeitems": 0}),
    ("torch.arange(30)", {"threshold": 10, "edgeitems": 2}),
    ("torch.arange(30.) / 7", {"precision": 2, "linewidth": 40}),
    ("torch.arange(30.) / 7", {"sci_mode": True}),
    ("torch.tensor([1e-9, 1e9])", {"sci_mode": False}),
    ("torch.arange(1500)", {"profile": "full"}),
    ("torch.arange(1500) / 7", {"profile": "short"}),
    ("torch.arange(60.)[::2]", {}),
    ("torch.arange(24).reshape(2, 3, 4).transpose(0, 2)", {}),
    ("torch.ones(1, 1).expand(2, 40)", {}),
]


def values(rng, kind, count):
    draw = {
        "whole": lambda: float(rng.randint(-20, 20)),
        "normal": lambda: round(rng.gauss(0, 1), 6),
        "scattered": lambda: float(f"{rng.gauss(0, 1) * 10 ** rng.randint(-6, 9):.5g}"),
        "large": lambda: float(rng.randint(-(10**9), 10**9)),
        "special": lambda: rng.choice([0.0, -0.0, math.nan, math.inf, -math.inf, 1.0, 2.5, 1000.0, 1e-5]),
        "small": lambda: round(rng.gauss(0, 1) * 1e-3, 8),
    }[kind]
    return [draw() for _ in range(count)]


def literal(numbers):
    return "[" + ", ".join(repr(n).replace("nan", "NAN").replace("inf", "INF") for n in numbers) + "]"


def random_cases():
    rng = random.Random(0)
    kinds = ("whole", "normal", "scattered", "large", "special", "small")
    for dtype in FLOATING + FLOAT8 + COMPLEX:
        for kind in kinds:
            shape = rng.choice([(3,), (8,), (25,), (2, 3), (2, 2, 2), ()])
            count = math.prod(shape)
            numbers = values(rng, kind, count)
            if dtype in COMPLEX:
                imaginary = values(rng, rng.choice(kinds[:4]), count)
                made = f"torch.complex(torch.tensor({literal(numbers)}), torch.tensor({literal(imaginary)}))"
            else:
                made = f"torch.tensor({literal(numbers)}, dtype=torch.float64)"
            options = {}
            if rng.random() < 0.3:
                options = {rng.choice(["precision", "edgeitems"]): rng.randint(1, 6), "threshold": 5}
            yield f"{made}.reshape({shape}).to(torch.{dtype})", options
    for dtype, (low, high) in INTEGERS.items():
        for bound in (high, 10):
            numbers = [rng.randint(max(low, -bound), min(high, bound)) for _ in range(12)]
            yield f"torch.tensor({numbers}).reshape(3, 4).to(torch.{dtype})", {}


def main():
    warnings.simplefilter("ignore")
    names = {"torch": torch, "NAN": math.nan, "INF": math.inf}
    records = []
    for expression, options in [*BY_HAND, *random_cases()]:
        torch.set_printoptions(profile="default")
        torch.set_printoptions(**options)
        records.append([expression, options, repr(eval(expression, names))])
    lines = ",\n".join(json.dumps(record) for record in records)
    pathlib.Path(__file__).with_name("printing.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
