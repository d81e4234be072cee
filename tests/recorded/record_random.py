"""Records torch's CPU random stream in random.json, for tests/core/generator_test.cpp.

Run with a Python that has torch: `python tests/recorded/record_random.py`. A record is
[op, dtype, size, seed, arguments, digest of the result's bytes, digest of the generator's state afterwards].
Digests are 64-bit FNV-1a in hexadecimal. Parameters given per element (probabilities, rates, weights) are
`scale * uniform` in the record's dtype, drawn from a generator with the seed PARAMETER_SEED; so the test can make them.
"""

import json
import pathlib
import warnings

import torch

PARAMETER_SEED = 3
SEEDS = (0, 2**40)
FLOATING = ("float16", "bfloat16", "float32", "float64")
COMPLEX = ("complex32", "complex64", "complex128")
INTEGRAL = ("uint8", "int8", "int16", "int32", "int64")
WIDE = ("uint16", "uint32", "uint64")


def digest(tensor):
    value = 0xCBF29CE484222325
    if tensor.numel():
        for byte in tensor.contiguous().view(torch.uint8).flatten().numpy().tobytes():
            value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def parameters(dtype, size, scale):
    generator = torch.Generator().manual_seed(PARAMETER_SEED)
    return torch.empty(size, dtype=dtype).uniform_(0, scale, generator=generator)


def strided_normal(dtype, size, mean, std):
    return torch.empty(size, 2, dtype=dtype)[:, 0].normal_(mean, std).clone(memory_format=torch.contiguous_format)


OPS = {
    "uniform": lambda d, n, a, b: torch.empty(n, dtype=d).uniform_(a, b),
    "normal": lambda d, n, a, b: torch.empty(n, dtype=d).normal_(a, b),
    "strided_normal": strided_normal,
    "random": lambda d, n: torch.empty(n, dtype=d).random_(),
    "random_range": lambda d, n, a, b: torch.empty(n, dtype=d).random_(a, b),
    "randperm": lambda d, n: torch.randperm(n, dtype=d),
    "bernoulli": lambda d, n, p: torch.empty(n, dtype=d).bernoulli_(p),
    "bernoulli_each": lambda d, n: torch.bernoulli(parameters(d, n, 1)),
    "exponential": lambda d, n, a: torch.empty(n, dtype=d).exponential_(a),
    "cauchy": lambda d, n, a, b: torch.empty(n, dtype=d).cauchy_(a, b),
    "log_normal": lambda d, n, a, b: torch.empty(n, dtype=d).log_normal_(a, b),
    "geometric": lambda d, n, p: torch.empty(n, dtype=d).geometric_(p),
    "poisson": lambda d, n, scale: torch.poisson(parameters(d, n, scale)),
    "binomial": lambda d, n, count: torch.binomial(torch.full((n,), count, dtype=d), parameters(d, n, 1)),
    "standard_gamma": lambda d, n, scale: torch._standard_gamma(parameters(d, n, scale)),
    # The size is the number of categories; three rows.
    "multinomial": lambda d, n, k, again: torch.multinomial(parameters(d, 3 * n, 1).view(3, n), int(k), bool(again)),
}


def cases():
    for size in (0, 5, 15, 16, 17, 32, 1003):
        for dtype in FLOATING + COMPLEX:
            yield "uniform", dtype, size, (-1.25, 2.7)
            yield "normal", dtype, size, (1.25, 2.7)
        for dtype in FLOATING:
            yield "strided_normal", dtype, size, (1.25, 2.7)
    for dtype in FLOATING + COMPLEX:
        yield "uniform", dtype, 100003, (0, 1)
        yield "normal", dtype, 100003, (0, 1)
    yield "uniform", "float16", 1003, (0, 1e-7)
    yield "uniform", "bfloat16", 1003, (-1e-7, 0)
    for dtype in FLOATING + INTEGRAL + ("bool",):
        yield "random", dtype, 1003, ()
        yield "bernoulli", dtype, 1003, (0.3,)
    for dtype in FLOATING + INTEGRAL + WIDE:
        yield "random_range", dtype, 1003, (0, 100)
        yield "random_range", dtype, 1003, (5, 120)
    for dtype in ("int64", "float64", "float32", "bfloat16"):
        yield "random_range", dtype, 1003, (-(2**28), 7)
        yield "random_range", dtype, 1003, (0, 2**40 + 3)
        yield "random_range", dtype, 1003, (-(2**63), None)
        yield "random_range", dtype, 1003, (1, None)
    for dtype in FLOATING + INTEGRAL:
        yield "randperm", dtype, 100, ()
    for dtype in ("int32", "int64", "float32", "float64"):
        yield "randperm", dtype, 10007, ()
    for dtype in FLOATING:
        yield "bernoulli_each", dtype, 1003, ()
        yield "exponential", dtype, 1003, (1.3,)
        yield "cauchy", dtype, 1003, (0.3, 1.7)
        yield "log_normal", dtype, 1003, (0.3, 1.7)
        for scale in (1, 9, 200):
            yield "poisson", dtype, 1003, (scale,)
        for category_count, samples in ((1, 1), (5, 1), (5, 3), (1000, 2), (1000, 600)):
            yield "multinomial", dtype, category_count, (samples, 0)
            yield "multinomial", dtype, category_count, (samples, 1)
    for dtype in FLOATING + INTEGRAL:
        yield "geometric", dtype, 1003, (0.1,)
        yield "geometric", dtype, 1003, (1e-12,)
    for dtype in ("float32", "float64"):
        for count in (10, 1000):
            yield "binomial", dtype, 1003, (count,)
        for scale in (0.5, 30):
            yield "standard_gamma", dtype, 1003, (scale,)


def main():
    warnings.simplefilter("ignore")
    records = []
    for op, dtype, size, arguments in cases():
        for seed in SEEDS:
            torch.manual_seed(seed)
            result = OPS[op](getattr(torch, dtype), size, *arguments)
            records.append([op, dtype, size, seed, arguments, digest(result), digest(torch.get_rng_state())])
    lines = ",\n".join(json.dumps(record) for record in records)
    path = pathlib.Path(__file__).with_name("random.json")
    path.write_text(f"[\n{lines}\n]\n")
    print(f"{len(records)} records of torch {torch.__version__} in {path.name}")


if __name__ == "__main__":
    main()
