"""Records the graphs that torch's make_fx makes of gradients: python tests/recorded/record_passes.py (any Python with torch 2.13).

tests/python/test_graphs_of_passes.py compares Mica's with them. Each case is an expression of tensors, and their sizes.
"""

import json
from pathlib import Path

CASES = {
    "silu": ("F.silu(x)", (3, 4)),
    "relu": ("F.relu(x)", (3, 4)),
    "relu6": ("F.relu6(x)", (3, 4)),
    "threshold": ("F.threshold(x, 0.1, 2.0)", (3, 4)),
    "sigmoid": ("torch.sigmoid(x)", (3, 4)),
    "tanh": ("torch.tanh(x)", (3, 4)),
    "softmax": ("F.softmax(x, -1)", (3, 4)),
    "log_softmax": ("F.log_softmax(x, -1)", (3, 4)),
    "gelu": ("F.gelu(x)", (3, 4)),
    "gelu_tanh": ("F.gelu(x, approximate='tanh')", (3, 4)),
    "elu": ("F.elu(x, 0.7)", (3, 4)),
    "selu": ("F.selu(x)", (3, 4)),
    "leaky_relu": ("F.leaky_relu(x, 0.2)", (3, 4)),
    "prelu": ("F.prelu(x, y)", (3, 4), (4,)),
    "hardswish": ("F.hardswish(x)", (3, 4)),
    "hardsigmoid": ("F.hardsigmoid(x)", (3, 4)),
    "hardtanh": ("F.hardtanh(x)", (3, 4)),
    "mish": ("F.mish(x)", (3, 4)),
    "softplus": ("F.softplus(x)", (3, 4)),
    "glu": ("F.glu(x)", (3, 4)),
    "layer_norm": ("F.layer_norm(x, (4,), y, z)", (3, 4), (4,), (4,)),
    "group_norm": ("F.group_norm(x, 2, y, z)", (3, 4, 5), (4,), (4,)),
    "max_pool1d": ("F.max_pool1d(x, 2)", (2, 3, 6)),
    "max_pool2d": ("F.max_pool2d(x, 3, 2, 1)", (2, 3, 6, 6)),
    "max_pool3d": ("F.max_pool3d(x, 2)", (2, 3, 4, 4, 4)),
    "avg_pool1d": ("F.avg_pool1d(x, 2)", (2, 3, 6)),
    "avg_pool2d": ("F.avg_pool2d(x, 2)", (2, 3, 6, 6)),
    "avg_pool3d": ("F.avg_pool3d(x, 2)", (2, 3, 4, 4, 4)),
    "adaptive_avg_pool1d": ("F.adaptive_avg_pool1d(x, 2)", (2, 3, 6)),
    "adaptive_avg_pool2d": ("F.adaptive_avg_pool2d(x, 2)", (2, 3, 6, 6)),
    "adaptive_avg_pool3d": ("F.adaptive_avg_pool3d(x, 2)", (2, 3, 4, 4, 4)),
    "adaptive_max_pool1d": ("F.adaptive_max_pool1d(x, 2)", (2, 3, 6)),
    "adaptive_max_pool2d": ("F.adaptive_max_pool2d(x, 2)", (2, 3, 6, 6)),
    "convolution": ("F.conv2d(x, y, z, padding=1)", (2, 3, 6, 6), (4, 3, 3, 3), (4,)),
    "embedding": ("F.embedding(torch.tensor([1, 3, 0]), x)", (5, 3)),
    "nll_loss": ("F.nll_loss(x, torch.tensor([1, 3, 0]))", (3, 5)),
    "cross_entropy": ("F.cross_entropy(x, torch.tensor([1, 3, 0]))", (3, 5)),
    "mse_loss": ("F.mse_loss(x, y)", (3, 4), (3, 4)),
    "l1_loss": ("F.l1_loss(x, y)", (3, 4), (3, 4)),
    "smooth_l1_loss": ("F.smooth_l1_loss(x, y)", (3, 4), (3, 4)),
    "huber_loss": ("F.huber_loss(x, y)", (3, 4), (3, 4)),
    "nearest": ("F.interpolate(x, scale_factor=2)", (2, 3, 4, 4)),
    "nearest_size": ("F.interpolate(x, size=(7, 7))", (2, 3, 4, 4)),
    "bilinear": ("F.interpolate(x, scale_factor=2, mode='bilinear')", (2, 3, 4, 4)),
    "bicubic": ("F.interpolate(x, size=(7, 7), mode='bicubic')", (2, 3, 4, 4)),
    "linear_interpolation": ("F.interpolate(x, size=7, mode='linear')", (2, 3, 4)),
    "trilinear": ("F.interpolate(x, size=(5, 5, 5), mode='trilinear')", (1, 2, 3, 3, 3)),
    "nearest_exact": ("F.interpolate(x, size=(7, 7), mode='nearest-exact')", (2, 3, 4, 4)),
    "antialias": ("F.interpolate(x, size=(3, 3), mode='bilinear', antialias=True)", (2, 3, 4, 4)),
    "attention": ("F.scaled_dot_product_attention(x, y, z)", (2, 2, 5, 8), (2, 2, 5, 8), (2, 2, 5, 8)),
    "reflection": ("F.pad(x, (1, 1), mode='reflect')", (2, 3, 4)),
    "replication": ("F.pad(x, (1, 1, 1, 1), mode='replicate')", (2, 3, 4, 4)),
    "grid_sample": ("F.grid_sample(x, y, align_corners=False)", (2, 3, 4, 4), (2, 3, 3, 2)),
    "index_select": ("x.index_select(0, torch.tensor([1, 3, 0]))", (5, 3)),
    "index": ("x[torch.tensor([1, 3, 0])]", (5, 3)),
    "gather": ("x.gather(1, torch.tensor([[1, 3], [0, 2], [4, 4]]))", (3, 5)),
    "unfold": ("x.unfold(1, 2, 1)", (3, 4)),
    "linear": ("F.linear(x, y, z)", (3, 4), (5, 4), (5,)),
}
NAMES = ("x", "y", "z")


def gradients(torch, text):
    """A function of the gradient of an expression's value, and of its tensors, that returns their gradients."""
    code = compile(text, text, "eval")

    def function(upstream, *given):
        given = [each.requires_grad_() for each in given]
        space = {"torch": torch, "F": torch.nn.functional, **dict(zip(NAMES, given, strict=False))}
        return torch.autograd.grad(eval(code, space), given, upstream, allow_unused=True)

    return function


def lines(graph):
    """The nodes of a graph, one in a line."""
    found = []
    for node in graph.nodes:
        given = [*map(str, node.args), *(f"{key}={value}" for key, value in node.kwargs.items())]
        if node.op != "placeholder":
            found.append(f"{node.name} = {node.target}({', '.join(given)})")
    return found


def main():
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    recorded = {}
    for name, (text, *sizes) in CASES.items():
        given = [torch.randn(size) for size in sizes]
        value = eval(text, {"torch": torch, "F": torch.nn.functional, **dict(zip(NAMES, given, strict=False))})
        graph = make_fx(gradients(torch, text))(torch.randn_like(value), *given).graph
        recorded[name] = {"text": text, "sizes": sizes, "upstream": list(value.shape), "graph": lines(graph)}
    rows = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in recorded.items()]
    Path(__file__).with_name("passes.json").write_text("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    main()
