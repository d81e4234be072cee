"""What can be done with the dtypes of blocks, pairs and bits: the same calls for torch, whose answers are recorded, and for mica."""

import copy
import io

DTYPES = ["float8_e8m0fnu", "float4_e2m1fn_x2", "bits8", "bits16", "bits1x8", "bits2x4", "bits4x2"]
SMALL_INTEGERS = [f"{sign}int{bits}" for sign in ("u", "") for bits in range(1, 8)]
BYTES = [0, 1, 2, 3, 126, 127, 128, 254, 255, 64, 17, 90]
NUMBERS = [0.0, -0.0, 1.0, -1.0, 1.25, 1.4999, 1.5, 3.0, -6.0, 100.0, 1e-45, 2.0**-128, 2.0**-127, 1.5 * 2.0**-127]
NUMBERS += [
    1.75 * 2.0**-127,
    2.0**-126,
    1.5 * 2.0**-126,
    2.0**127,
    1.5 * 2.0**127,
    3.4e38,
    *map(float, ("inf", "-inf", "nan")),
]


def example(lib, dtype):
    """A matrix of three rows over BYTES."""
    return lib.tensor(BYTES, dtype=lib.uint8).view(getattr(lib, dtype)).reshape(3, -1)


def _saved(lib, x):
    file = io.BytesIO()
    lib.save(x, file)
    file.seek(0)
    return lib.load(file)


def _with_row(x):
    x[0] = x[1].clone()
    return x


# name -> the call, of the library and a matrix
CASES = {
    "clone": lambda lib, x: x.clone(),
    "clone of a transpose": lambda lib, x: x.t().clone(),
    "contiguous": lambda lib, x: x.t().contiguous(),
    "copy_": lambda lib, x: lib.zeros_like(x).copy_(x),
    "copy_ of one row": lambda lib, x: lib.empty_like(x).copy_(x[1]),
    "zeros": lambda lib, x: lib.zeros(2, dtype=x.dtype),
    "new_zeros": lambda lib, x: x.new_zeros(2),
    "zero_": lambda lib, x: x.zero_(),
    "deepcopy": lambda lib, x: copy.deepcopy(x),
    "view": lambda lib, x: x.view(lib.int16),
    "view back": lambda lib, x: lib.tensor([1, 2], dtype=lib.int32).view(x.dtype),
    "slices": lambda lib, x: x[::2, 1:].contiguous(),
    "expand": lambda lib, x: x[None].expand(2, *x.shape).contiguous(),
    "cat": lambda lib, x: lib.cat([x, x]),
    "stack": lambda lib, x: lib.stack([x, x]),
    "index_select": lambda lib, x: x.index_select(0, lib.tensor([1, 0])),
    "embedding": lambda lib, x: lib.nn.functional.embedding(lib.tensor([2, 0]), x),
    "a row is set": lambda lib, x: _with_row(x),
    "where": lambda lib, x: lib.where(lib.tensor([[True], [False], [True]]), x, x.flip(0)),
    "flip": lambda lib, x: x.flip(0),
    "roll": lambda lib, x: x.roll(1),
    "repeat": lambda lib, x: x.repeat(2, 1),
    "repeat_interleave": lambda lib, x: x.repeat_interleave(2, 0),
    "resize_": lambda lib, x: x.resize_(2, 2),
    "diag_embed": lambda lib, x: x[0].diag_embed(),
    "to meta": lambda lib, x: x.to("meta"),
    "frombuffer": lambda lib, x: lib.frombuffer(bytearray(b"abcd"), dtype=x.dtype),
    "save": lambda lib, x: _saved(lib, x),
    "save of a slice": lambda lib, x: _saved(lib, x[1:]),
    "vmap": lambda lib, x: lib.vmap(lambda row: row.clone())(x),
    "set_": lambda lib, x: lib.empty(0, dtype=x.dtype).set_(x),
}

# name -> a call that every dtype but the scale of blocks refuses
REFUSED = {
    "ones": lambda lib, x: lib.ones(2, dtype=x.dtype),
    "fill_": lambda lib, x: x.fill_(2),
    "tensor": lambda lib, x: lib.tensor([1], dtype=x.dtype),
    "item": lambda lib, x: x[0, 0].item(),
    "tolist": lambda lib, x: x.tolist(),
    "numpy": lambda lib, x: x.numpy(),
    "add": lambda lib, x: x + x,
    "neg": lambda lib, x: -x,
    "exp": lambda lib, x: x.exp(),
    "lt": lambda lib, x: x < x,
    "sum": lambda lib, x: x.sum(),
    "max": lambda lib, x: x.max(),
    "argmax": lambda lib, x: x.argmax(),
    "any": lambda lib, x: x.any(),
    "sort": lambda lib, x: x.sort(),
    "mm": lambda lib, x: x @ x.t(),
    "softmax": lambda lib, x: x.softmax(0),
    "arange": lambda lib, x: lib.arange(4, dtype=x.dtype),
    "rand": lambda lib, x: lib.rand(2, dtype=x.dtype),
    "randn": lambda lib, x: lib.randn(2, dtype=x.dtype),
    "eye": lambda lib, x: lib.eye(2, dtype=x.dtype),
    "to float": lambda lib, x: x.float(),
    "from float": lambda lib, x: lib.ones(2).to(x.dtype),
    "to bool": lambda lib, x: x.bool(),
    "promote": lambda lib, x: lib.promote_types(x.dtype, lib.complex64),
    "finfo": lambda lib, x: lib.finfo(x.dtype).eps,
    "iinfo": lambda lib, x: lib.iinfo(x.dtype),
    "to_complex": lambda lib, x: x.dtype.to_complex(),
    "default": lambda lib, x: lib.set_default_dtype(x.dtype),
}


def described(lib, result):
    """A tensor as dtype, sizes and bytes."""
    if result.is_meta:
        return [str(result.dtype), list(result.shape)]
    return [str(result.dtype), list(result.shape), result.contiguous().view(lib.uint8).flatten().tolist()]


def answer(lib, dtype, case):
    """What a case of CASES gives."""
    return described(lib, CASES[case](lib, example(lib, dtype)))


def refusal(lib, dtype, case):
    """The kind of error of a case of REFUSED; None where it is none."""
    try:
        REFUSED[case](lib, example(lib, dtype))
    except (RuntimeError, TypeError) as error:  # NotImplementedError is a RuntimeError
        return type(error).__name__
    return None


def casts(lib):
    """NUMBERS as scales of blocks, from several dtypes, and all scales as other dtypes."""
    scale = lib.float8_e8m0fnu
    every = lib.arange(256, dtype=lib.int32).to(lib.uint8).view(scale)
    out = {}
    for name in ("float32", "float64", "bfloat16", "float16", "float8_e4m3fn"):
        out[f"from {name}"] = described(lib, lib.tensor(NUMBERS).to(getattr(lib, name)).to(scale))[2]
    for name in ("int64", "uint8", "bool"):
        out[f"from {name}"] = described(lib, lib.tensor([0, 1, 2, 3, 5, 6, 100]).to(getattr(lib, name)).to(scale))[2]
    out["to float32"] = every.float().view(lib.int32).tolist()
    for name in ("bfloat16", "float16"):
        out[f"to {name}"] = every[:255].to(getattr(lib, name)).view(lib.int16).tolist()
    out["to float64"] = every[:255].double().tolist()
    out["to bool"] = every.bool().tolist()
    return out
