"""Products of 8-bit floats whose every step is exact in float32: what torch gives for them is recorded, and compared bit by bit."""

E4, E5 = "float8_e4m3fn", "float8_e5m2"

# name -> ((rows, inner, columns), dtype of self, of mat2, the scales, further arguments)
CASES = {
    "tensorwise": ((32, 16, 48), E4, E4, "tensor", {}),
    "e5m2": ((16, 32, 16), E5, E5, "tensor", {"out_dtype": "float32"}),
    "mixed": ((16, 32, 16), E5, E4, "tensor", {}),
    "fnuz": ((16, 16, 16), "float8_e4m3fnuz", "float8_e5m2fnuz", "tensor", {"out_dtype": "float32"}),
    "odd sizes": ((3, 5, 7), E4, E4, "tensor", {"out_dtype": "float32"}),
    "one row": ((1, 16, 32), E4, E4, "rows", {"out_dtype": "bfloat16"}),
    "rowwise": ((32, 16, 48), E4, E4, "rows", {"out_dtype": "bfloat16"}),
    "rowwise, 8-bit result": ((8, 64, 24), E4, E5, "rows", {"out_dtype": E4}),
    "rowwise, bias": ((8, 64, 24), E4, E4, "rows", {"out_dtype": "bfloat16", "bias": "bfloat16"}),
    "float16": ((16, 16, 16), E4, E4, "tensor", {"out_dtype": "float16", "bias": "float16"}),
    "float64": ((4, 3, 2), E4, E4, "tensor", {"out_dtype": "float64", "bias": "float64"}),
    "int32": ((4, 3, 2), E4, E4, "tensor", {"out_dtype": "int32"}),
    "bias of float32": ((16, 16, 16), E4, E4, "tensor", {"out_dtype": "bfloat16", "bias": "float32"}),
    "saturating": ((16, 64, 16), E4, E4, "large", {}),
    "infinite": ((16, 64, 16), E5, E4, "large", {"out_dtype": E5}),
    "scale_result": ((16, 32, 16), E4, E4, "tensor", {"out_dtype": E4, "scale_result": 4.0}),
    "scale_result without out_dtype": ((16, 32, 16), E4, E4, "tensor", {"scale_result": 4.0}),
    "scale_result of a wide result": ((16, 32, 16), E4, E4, "tensor", {"out_dtype": "float16", "scale_result": 4.0}),
    "nothing to sum": ((4, 0, 3), E4, E4, "tensor", {"out_dtype": "float32", "bias": "float32"}),
    "no rows": ((0, 16, 16), E4, E4, "tensor", {}),
    "fast": ((16, 32, 16), E4, E4, "tensor", {"out_dtype": "bfloat16", "use_fast_accum": True}),
}

# What is refused: name -> (rows, inner, columns), dtypes, scales, further arguments
REFUSED = {
    "one dimension": ("vector", E4, E4, "tensor", {}),
    "sizes that do not meet": ("unequal", E4, E4, "tensor", {}),
    "float32": ((4, 16, 16), "float32", E4, "tensor", {}),
    "scales of rows in one dimension": ((4, 16, 16), E4, E4, "vectors", {}),
    "scales that are too few": ((4, 16, 16), E4, E4, "few", {}),
    "scales of float64": ((4, 16, 16), E4, E4, "doubles", {}),
    "short bias": ((4, 16, 16), E4, E4, "tensor", {"bias": "short"}),
    "scale_result of two": ((4, 16, 16), E4, E4, "tensor", {"scale_result": [1.0, 2.0]}),
}


def matrices(torch, sizes, first, second):
    """Small whole numbers; the second matrix is a transposed one."""
    if sizes == "vector":
        return torch.zeros(16).to(getattr(torch, first)), torch.zeros(16, 16).to(getattr(torch, second))
    if sizes == "unequal":
        return torch.zeros(4, 16).to(getattr(torch, first)), torch.zeros(8, 16).to(getattr(torch, second))
    m, k, n = sizes
    a = (torch.arange(m * k) % 7 - 3.0).reshape(m, k).to(getattr(torch, first))
    b = (torch.arange(n * k) % 5 - 2.0).reshape(n, k).to(getattr(torch, second)).t()
    return a, b


def scales(torch, kind, m, n):
    if kind == "tensor":
        return torch.tensor(3.0), torch.tensor([0.5])
    if kind == "large":
        return torch.tensor(3.0), torch.tensor([[2.0**16]])
    if kind == "rows":
        return (torch.arange(m) % 3 + 0.5).reshape(m, 1), (torch.arange(n) % 4 + 0.25).reshape(1, n)
    if kind == "vectors":
        return torch.ones(m), torch.ones(n)
    if kind == "few":
        return torch.ones(m - 1, 1), torch.ones(1, n)
    return torch.ones(m, 1).double(), torch.ones(1, n).double()


def arguments(torch, case):
    """Positional and named arguments of _scaled_mm."""
    sizes, first, second, kind, more = case
    a, b = matrices(torch, sizes, first, second)
    n = b.shape[1]
    named = dict(more)
    if "out_dtype" in named:
        named["out_dtype"] = getattr(torch, named["out_dtype"])
    if "bias" in named:
        of = named["bias"]
        named["bias"] = torch.ones(3) if of == "short" else (torch.arange(n) % 3 - 1.0).to(getattr(torch, of))
    if "scale_result" in named:
        named["scale_result"] = torch.tensor(named["scale_result"])
    return (a, b, *scales(torch, kind, a.shape[0], n)), named


def result(torch, case):
    positional, named = arguments(torch, case)
    out = torch._scaled_mm(*positional, **named)
    return [str(out.dtype).rpartition(".")[2], list(out.shape), out.to(torch.float64).flatten().tolist()]


def refusal(torch, case):
    positional, named = arguments(torch, case)
    try:
        torch._scaled_mm(*positional, **named)
    except (RuntimeError, ValueError) as error:
        return [type(error).__name__, str(error).split("\nException raised")[0]]
    return None
