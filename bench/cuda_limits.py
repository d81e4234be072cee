"""How far rows of bench/workloads.py on an H200 are from what the machine can do: python bench/cuda_limits.py MINE.json [THEIRS.json].

A row's limit is the largest of three times: its bytes at the speed of a copy on the device, its arithmetic at the speed
of the largest product, and the driver's time for its launches, each as measured on that machine.
"""

import argparse
import json
import re

COPY = 4.2e12  # bytes a second, read and written
PRODUCTS = {"bfloat16": 780e12, "float32": 51e12, "tf32": 390e12}  # floating-point operations a second
LAUNCH = 3.7e-6  # seconds of the host for one kernel
SIDE = 8192  # of the square matrices in the rows that name no size


def pointwise(elements, read, written, kernels=1):
    return {"bytes": elements * (read + written), "kernels": kernels}


def limits():
    """What each row has to move, compute and launch."""
    found = {}
    for n in (10_000, 1_000_000, 64_000_000):
        for name, cost in {
            "add": pointwise(n, 8, 4),
            "add_out": pointwise(n, 8, 4),
            "exp": pointwise(n, 4, 4),
            "sigmoid": pointwise(n, 4, 4),
            "tanh": pointwise(n, 4, 4),
            "gelu": pointwise(n, 4, 4),
            "bf16_add": pointwise(n, 4, 2),
            "cast_f32_bf16": pointwise(n, 4, 2),
            "int32_add": pointwise(n, 8, 4),
            "where": pointwise(n, 8 + 9, 1 + 4, kernels=2),
            "chain": pointwise(n, 4 + 4 + 4 + 8 + 4, 5 * 4, kernels=5),
        }.items():
            found[f"elementwise/{name}_{n // 1000}k"] = cost
    square = SIDE * SIDE * 4
    for name, total in {
        "broadcast_row": 2 * square,
        "broadcast_col": 2 * square,
        "transpose_contiguous": 2 * square,
        "add_transposed": 3 * square,
        "permute_nhwc_contiguous": 2 * 16 * 224 * 224 * 3 * 4,
        "cat": 2 * square,
    }.items():
        found[f"layout/{name}"] = {"bytes": total, "kernels": 1}
    for name in ["sum", "sum_dim0", "sum_dim1", "mean_dim1", "max", "argmax_dim1", "var_dim1", "norm", "logsumexp"]:
        found[f"reduce/{name}"] = {"bytes": square, "kernels": 1}
    for name in ["cumsum_dim1", "softmax", "log_softmax", "layer_norm"]:
        found[f"reduce/{name}"] = {"bytes": 2 * square, "kernels": 1}
    found["sort/sort_1m"] = {"bytes": 1_000_000 * (4 + 12 + 4 * 16), "kernels": 6}  # four digits of keys and numbers
    found["sort/topk_50_of_128k"] = {"bytes": 16 * 128_000 * 4, "kernels": 3}
    found["index/embedding"] = {"bytes": 8 * 512 * (768 * 8 + 8), "kernels": 1}
    found["index/index_select"] = {"bytes": 2 * square, "kernels": 1}
    found["index/gather"] = {"bytes": 4 * square, "kernels": 1}
    # Half of the elements, at random: all of the memory that they lie in is read.
    found["index/masked_select"] = {"bytes": SIDE * SIDE * (1 + 4 + 2), "kernels": 2}
    found["index/index_add"] = {"bytes": 2 * SIDE * 512 * 4 + 4 * SIDE * 512 * 4, "kernels": 2}
    for n in (64, 256, 1024, 4096, 8192):
        for tag, size, dtype in (("matmul", 4, "float32"), ("matmul_bf16", 2, "bfloat16")):
            found[f"{tag}/{n}"] = {"bytes": 3 * n * n * size, "flops": 2 * n**3, "dtype": dtype, "kernels": 1}
    for name, (n, c, h, k, f, s) in {
        "resnet_stem": (8, 3, 224, 7, 64, 2),
        "resnet_3x3": (8, 64, 56, 3, 64, 1),
        "resnet_1x1": (8, 256, 14, 1, 1024, 1),
    }.items():
        out = (h // s) ** 2 * n
        cost = {
            "bytes": 4 * (n * c * h * h + f * c * k * k + out * f),
            "flops": 2 * out * f * c * k * k,
            "dtype": "tf32",
            "kernels": 1,
        }
        found[f"conv/{name}"] = found[f"conv/{name}_channels_last"] = cost
    found["conv/max_pool"] = {"bytes": 8 * 64 * 4 * (112 * 112 + 56 * 56), "kernels": 1}
    found["optim/adam_10m"] = {"bytes": 10_000_000 * 4 * 7, "kernels": 1}
    return found


def limit_of(cost):
    arithmetic = cost.get("flops", 0) / PRODUCTS[cost["dtype"]] if "flops" in cost else 0
    return max(cost["bytes"] / COPY, arithmetic, cost["kernels"] * LAUNCH)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("mine")
    parser.add_argument("theirs", nargs="?")
    parser.add_argument("--only", default="", help="a regular expression")
    arguments = parser.parse_args()
    with open(arguments.mine) as file:
        mine = json.load(file)
    theirs = {}
    if arguments.theirs:
        with open(arguments.theirs) as file:
            theirs = json.load(file)
    print(f"{'row':40} {'limit':>10} {'mine':>10} {'of limit':>9} {'theirs':>10} {'of limit':>9}  microseconds")
    for name, cost in limits().items():
        if not isinstance(mine.get(name), float) or not re.search(arguments.only, name):
            continue
        limit, time, other = limit_of(cost), mine[name], theirs.get(name)
        peer = f"{other * 1e6:10.2f} {limit / other:9.0%}" if isinstance(other, float) else ""
        print(f"{name:40} {limit * 1e6:10.2f} {time * 1e6:10.2f} {limit / time:9.0%} {peer}")


if __name__ == "__main__":
    main()
