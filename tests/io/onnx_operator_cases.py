"""Calls of torch.onnx.ops as functions of a library that speaks torch; what they compute is recorded."""

import importlib
import math


def _x(t, *sizes):
    return (t.arange(math.prod(sizes)) * 29 % 19 - 9).reshape(sizes) / 7


def _caches(t, half=3):
    return _x(t, 10, half), _x(t, 10, half) + 0.1


def _places(t):
    return t.tensor([[0, 1, 2, 3], [4, 3, 2, 9]])


def _qkv(t, heads=3):
    return _x(t, 2, 3, 4, 6), _x(t, 2, heads, 5, 6) * 0.7, _x(t, 2, heads, 5, 6) + 0.2


def _mask(t):
    return t.tensor([[True] * 3 + [False] * 2] * 4)


def _flat(t):
    return _x(t, 2, 4, 24), _x(t, 2, 5, 12), _x(t, 2, 5, 12)


# name -> function(torch, torch.onnx.ops)
CASES = {
    "halves": lambda t, o: o.rotary_embedding(_x(t, 2, 3, 4, 6), *_caches(t), _places(t)),
    "neighbours": lambda t, o: o.rotary_embedding(_x(t, 2, 3, 4, 6), *_caches(t), _places(t), interleaved=True),
    "a part": lambda t, o: o.rotary_embedding(_x(t, 2, 3, 4, 6), *_caches(t, 2), _places(t), rotary_embedding_dim=4),
    "flat": lambda t, o: o.rotary_embedding(_x(t, 2, 4, 18), *_caches(t), _places(t), num_heads=3),
    "rows of each example": lambda t, o: o.rotary_embedding(
        _x(t, 2, 3, 4, 6), *(cache[_places(t)] for cache in _caches(t))
    ),
    "attention": lambda t, o: o.attention(*_qkv(t)),
    "causal": lambda t, o: o.attention(*_qkv(t), is_causal=True),
    "causal scores": lambda t, o: o.attention(*_qkv(t), is_causal=True, qk_matmul_output_mode=1),
    "causal and capped": lambda t, o: o.attention(*_qkv(t), is_causal=True, softcap=2.0),
    "a mask of bools": lambda t, o: o.attention(*_qkv(t), _mask(t), qk_matmul_output_mode=3),
    **{
        f"mode {mode}": lambda t, o, mode=mode: o.attention(
            *_qkv(t), _x(t, 4, 5), softcap=2.0, qk_matmul_output_mode=mode
        )
        for mode in (0, 1, 2, 3)
    },
    "a past": lambda t, o: o.attention(*_qkv(t), None, _x(t, 2, 3, 2, 6), _x(t, 2, 3, 2, 6) / 2, is_causal=True),
    "shared keys": lambda t, o: o.attention(*_qkv(t, 1)),
    "flat heads": lambda t, o: o.attention(*_flat(t), q_num_heads=4, kv_num_heads=2, scale=0.3),
    "another precision": lambda t, o: o.attention(*(each.half() for each in _qkv(t)), softmax_precision=1),
}


def result(t, name):
    made = CASES[name](t, importlib.import_module(f"{t.__name__}.onnx.ops"))
    made = made if isinstance(made, tuple) else (made,)
    return [
        {"dtype": str(each.dtype), "shape": list(each.shape), "values": each.float().clamp(-1e9).reshape(-1).tolist()}
        for each in made
    ]
