"""Records torch's modules for the tests of the C++ ones: python record_cpp_modules.py, with torch.

Each case is constructed after manual_seed(0), so that C++ has to draw the same initial values in the same order (`next`
is what the stream gives afterwards), and run after manual_seed(1). The file is a checkpoint: C++ reads it as it would
read any other.
"""

import warnings
from pathlib import Path

import torch
from torch import nn

CASES = {}


def case(name, make, *inputs, run=None):
    torch.manual_seed(0)
    module = make()
    following = torch.rand(2)
    inputs = [x.clone().requires_grad_(i == 0 and x.is_floating_point()) for i, x in enumerate(inputs)]
    torch.manual_seed(1)
    run = run or (lambda m, *x: m(*x))
    state = {k: v.detach().clone() for k, v in module.state_dict().items()}
    outputs = run(module, *inputs)
    outputs = list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]
    loss = sum(y.sin().sum() for y in outputs if y.requires_grad)
    gradients = []
    if isinstance(loss, torch.Tensor):
        wanted = [t for t in (*inputs, *module.parameters()) if t.requires_grad]
        found = torch.autograd.grad(loss, wanted, allow_unused=True)
        gradients = [torch.zeros_like(t) if g is None else g for t, g in zip(wanted, found, strict=True)]
    CASES[name] = {
        "repr": repr(module),
        "state": state,
        "next": following,
        "inputs": [x.detach() for x in inputs],
        "outputs": [y.detach().clone() for y in outputs],
        "gradients": [g.detach().clone() for g in gradients],
    }


def draw(*sizes, seed=5):
    return torch.randn(sizes, generator=torch.Generator().manual_seed(seed))


def classes(count, *sizes, seed=6):
    return torch.randint(count, sizes, generator=torch.Generator().manual_seed(seed))


def flat(result):
    """Nested tuples as one list."""
    if isinstance(result, torch.Tensor):
        return [result]
    return [t for part in result if part is not None for t in flat(part)]


def linear():
    x = draw(3, 4)
    case("Identity", nn.Identity, x)
    case("Linear", lambda: nn.Linear(4, 2), x)
    case("Linear without bias", lambda: nn.Linear(4, 2, bias=False), x)
    case("Bilinear", lambda: nn.Bilinear(4, 3, 2), x, draw(3, 3))
    case("Embedding", lambda: nn.Embedding(5, 3), classes(5, 2, 4))
    case("Embedding padded", lambda: nn.Embedding(5, 3, padding_idx=-4, max_norm=1.5, norm_type=1.0), classes(5, 6))
    case("Embedding scaled", lambda: nn.Embedding(5, 3, scale_grad_by_freq=True), classes(5, 9))
    case("EmbeddingBag", lambda: nn.EmbeddingBag(5, 3), classes(5, 2, 4))
    bag = lambda: nn.EmbeddingBag(5, 3, mode="sum", padding_idx=1)  # noqa: E731
    case("EmbeddingBag of offsets", bag, classes(5, 7), torch.tensor([0, 3, 3]))
    case("Flatten", nn.Flatten, draw(2, 3, 2))
    case("Unflatten", lambda: nn.Unflatten(1, (2, 2)), x)
    case("Sequential", lambda: nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)), x)


def activations():
    x = draw(2, 6) * 3
    plain = "Sigmoid LogSigmoid Tanh Tanhshrink Softsign ReLU ReLU6 SELU SiLU Mish Hardsigmoid Hardswish ELU CELU"
    for name in (*plain.split(), "LeakyReLU", "Hardshrink", "Softshrink", "GELU", "GLU", "Hardtanh", "Softplus"):
        case(name, getattr(nn, name), x)
    case("GELU by tanh", lambda: nn.GELU("tanh"), x)
    case("ELU in place", lambda: nn.ELU(0.5, inplace=True), x, run=lambda m, x: m(x * 1))
    case("ReLU in place", lambda: nn.ReLU(inplace=True), x, run=lambda m, x: m(x * 1))
    case("Threshold", lambda: nn.Threshold(0.1, 20.0), x)
    case("PReLU", lambda: nn.PReLU(6), x)
    case("RReLU", nn.RReLU, x)
    for name in ("Softmax", "LogSoftmax", "Softmin"):
        case(name, lambda name=name: getattr(nn, name)(1), x)
    case("Softmax2d", nn.Softmax2d, draw(2, 3, 2, 2))
    case("Dropout", lambda: nn.Dropout(0.4), x)
    case("Dropout1d", nn.Dropout1d, draw(2, 3, 4))
    case("Dropout2d", nn.Dropout2d, draw(2, 3, 2, 2))
    case("Dropout3d", nn.Dropout3d, draw(2, 3, 1, 2, 2))
    case("AlphaDropout", nn.AlphaDropout, x)
    case("FeatureAlphaDropout", nn.FeatureAlphaDropout, draw(2, 3, 4))


def convolutions():
    inputs = {1: draw(2, 2, 7), 2: draw(1, 2, 6, 5), 3: draw(1, 2, 4, 3, 4)}
    for n, x in inputs.items():
        case(f"Conv{n}d", lambda n=n: getattr(nn, f"Conv{n}d")(2, 4, 3, padding=1, stride=2), x)
        case(f"ConvTranspose{n}d", lambda n=n: getattr(nn, f"ConvTranspose{n}d")(2, 3, 2, stride=2), x)
    x = inputs[2]
    case("Conv2d in groups", lambda: nn.Conv2d(2, 4, (3, 1), groups=2, dilation=(2, 1), bias=False), x)
    case("Conv2d same", lambda: nn.Conv2d(2, 3, 3, padding="same"), x)
    case("Conv2d circular", lambda: nn.Conv2d(2, 3, 3, padding=(1, 2), padding_mode="circular"), x)
    case("Conv2d reflecting same", lambda: nn.Conv2d(2, 3, 2, padding="same", padding_mode="reflect"), x)
    case("ConvTranspose2d of a size", lambda: nn.ConvTranspose2d(2, 3, 3, stride=2, padding=1), x,
         run=lambda m, x: m(x, output_size=[12, 9]))  # fmt: skip
    case("ConvTranspose2d padded", lambda: nn.ConvTranspose2d(2, 4, 3, stride=2, output_padding=1, groups=2), x)


def pooling():
    inputs = {1: draw(2, 2, 7), 2: draw(1, 2, 6, 5), 3: draw(1, 2, 4, 5, 4)}
    for n, x in inputs.items():
        case(f"MaxPool{n}d", lambda n=n: getattr(nn, f"MaxPool{n}d")(2, stride=1, padding=1, return_indices=True), x)
        case(f"AvgPool{n}d", lambda n=n: getattr(nn, f"AvgPool{n}d")(2, ceil_mode=True), x)
        case(f"LPPool{n}d", lambda n=n: getattr(nn, f"LPPool{n}d")(2.0, 2), x)
        case(f"AdaptiveAvgPool{n}d", lambda n=n: getattr(nn, f"AdaptiveAvgPool{n}d")(3), x)
        case(f"AdaptiveMaxPool{n}d", lambda n=n: getattr(nn, f"AdaptiveMaxPool{n}d")(2, return_indices=True), x)
        pooled = getattr(nn.functional, f"max_pool{n}d")(x, 2, return_indices=True)
        back = lambda m, y, where, size=x.shape[2:]: m(y, where, output_size=size)  # noqa: E731
        case(f"MaxUnpool{n}d", lambda n=n: getattr(nn, f"MaxUnpool{n}d")(2), *pooled, run=back)
    case("MaxPool2d of tuples", lambda: nn.MaxPool2d((3, 2), dilation=(1, 2), ceil_mode=True), inputs[2])
    case("AvgPool2d divided", lambda: nn.AvgPool2d((2, 3), stride=(1, 2), divisor_override=4), inputs[2])
    case("LPPool2d of tuples", lambda: nn.LPPool2d(1.5, (2, 1), stride=(1, 1)), inputs[2].abs() + 0.1)
    case("AdaptiveAvgPool2d of tuples", lambda: nn.AdaptiveAvgPool2d((2, 3)), inputs[2])
    case("FractionalMaxPool2d", lambda: nn.FractionalMaxPool2d(2, output_size=3), inputs[2])
    case("FractionalMaxPool3d", lambda: nn.FractionalMaxPool3d(2, output_ratio=0.5), inputs[3])


def normalizations():
    inputs = {1: draw(3, 2, 4), 2: draw(2, 2, 3, 3), 3: draw(2, 2, 2, 3, 2)}

    def twice(m, x):
        y = m(x)
        m.eval()
        return y, m(x), *(b.float() for b in m.buffers())

    for n, x in inputs.items():
        case(f"BatchNorm{n}d", lambda n=n: getattr(nn, f"BatchNorm{n}d")(2), x, run=twice)
        case(f"InstanceNorm{n}d", lambda n=n: getattr(nn, f"InstanceNorm{n}d")(2, affine=True), x)
    case("BatchNorm1d of averages", lambda: nn.BatchNorm1d(2, momentum=None, bias=False), inputs[1], run=twice)
    case("BatchNorm2d plain", lambda: nn.BatchNorm2d(2, affine=False, track_running_stats=False), inputs[2], run=twice)
    case("InstanceNorm1d tracking", lambda: nn.InstanceNorm1d(2, track_running_stats=True), inputs[1], run=twice)
    case("InstanceNorm1d of one", lambda: nn.InstanceNorm1d(2), draw(2, 4))
    case("GroupNorm", lambda: nn.GroupNorm(2, 4, bias=False), draw(2, 4, 3))
    case("LayerNorm", lambda: nn.LayerNorm((2, 3)), draw(4, 2, 3))
    case("LayerNorm without bias", lambda: nn.LayerNorm(3, eps=1e-4, bias=False), draw(2, 3))
    case("RMSNorm", lambda: nn.RMSNorm(3), draw(2, 3))
    case("LocalResponseNorm", lambda: nn.LocalResponseNorm(2), draw(2, 4, 3))
    case("CrossMapLRN2d", lambda: nn.CrossMapLRN2d(3, alpha=0.1, k=1.0), draw(2, 4, 2, 2))


def images():
    for kind in ("Zero", "Reflection", "Replication", "Circular", "Constant"):
        value = (1.5,) if kind == "Constant" else ()
        for n, x in ((1, draw(2, 2, 4)), (2, draw(1, 2, 4, 3)), (3, draw(1, 1, 2, 3, 2))):
            case(f"{kind}Pad{n}d", lambda k=kind, n=n, v=value: getattr(nn, f"{k}Pad{n}d")(1, *v), x)
    case("ZeroPad2d of sides", lambda: nn.ZeroPad2d((1, 0, -1, 2)), draw(1, 2, 4, 3))
    x = draw(1, 4, 4, 3)
    case("Upsample", lambda: nn.Upsample(scale_factor=2), x)
    case("Upsample to a size", lambda: nn.Upsample(size=(5, 6), mode="bilinear", align_corners=True), x)
    case("UpsamplingNearest2d", lambda: nn.UpsamplingNearest2d(size=(3, 5)), x)
    case("UpsamplingBilinear2d", lambda: nn.UpsamplingBilinear2d(scale_factor=(1.5, 2.0)), x)
    case("PixelShuffle", lambda: nn.PixelShuffle(2), x)
    case("PixelUnshuffle", lambda: nn.PixelUnshuffle(2), draw(1, 2, 4, 2))
    case("ChannelShuffle", lambda: nn.ChannelShuffle(2), x)
    case("Unfold", lambda: nn.Unfold((2, 3), padding=1), x)
    case("Fold", lambda: nn.Fold((4, 5), 2, stride=(2, 1)), draw(1, 8, 8))
    case("CosineSimilarity", nn.CosineSimilarity, draw(3, 4), draw(3, 4, seed=7))
    case("PairwiseDistance", lambda: nn.PairwiseDistance(p=1.0, keepdim=True), draw(3, 4), draw(3, 4, seed=7))


def losses():
    x, y = draw(3, 4), draw(3, 4, seed=7)
    target = classes(4, 3)
    weight = torch.tensor([0.5, 1.0, 2.0, 1.5])
    case("L1Loss", nn.L1Loss, x, y)
    case("MSELoss", lambda: nn.MSELoss(reduction="sum"), x, y)
    case("SmoothL1Loss", lambda: nn.SmoothL1Loss(beta=0.5), x, y)
    case("HuberLoss", lambda: nn.HuberLoss(delta=0.7), x, y)
    case("CrossEntropyLoss", nn.CrossEntropyLoss, x, target)
    case(
        "CrossEntropyLoss weighted", lambda: nn.CrossEntropyLoss(weight, ignore_index=2, label_smoothing=0.1), x, target
    )
    case("NLLLoss", lambda: nn.NLLLoss(weight), x, target)
    case("BCELoss", nn.BCELoss, x.sigmoid(), y.sigmoid())
    case("BCEWithLogitsLoss", lambda: nn.BCEWithLogitsLoss(pos_weight=weight), x, y.sigmoid())
    case("KLDivLoss", lambda: nn.KLDivLoss(reduction="batchmean"), x.log_softmax(1), y.softmax(1))
    case("PoissonNLLLoss", lambda: nn.PoissonNLLLoss(full=True), x, y.exp())
    case("GaussianNLLLoss", lambda: nn.GaussianNLLLoss(full=True), x, y, y.exp())
    log_probs = draw(6, 2, 5).log_softmax(2)
    lengths = torch.tensor([6, 5]), torch.tensor([3, 2])
    case("CTCLoss", nn.CTCLoss, log_probs, classes(4, 2, 3) + 1, *lengths)
    sign = torch.tensor([1.0, -1.0, 1.0])
    case("HingeEmbeddingLoss", nn.HingeEmbeddingLoss, x, y.sign())
    case("CosineEmbeddingLoss", lambda: nn.CosineEmbeddingLoss(margin=0.1), x, y, sign)
    case("MarginRankingLoss", lambda: nn.MarginRankingLoss(margin=0.2), x[:, 0].clone(), y[:, 0].clone(), sign)
    case("MultiMarginLoss", lambda: nn.MultiMarginLoss(p=2, weight=weight), x, target)
    case(
        "MultiLabelMarginLoss", nn.MultiLabelMarginLoss, x, torch.tensor([[1, 2, -1, 0], [0, -1, 1, 1], [3, 0, 1, -1]])
    )
    case("MultiLabelSoftMarginLoss", nn.MultiLabelSoftMarginLoss, x, (y > 0).float())
    case("SoftMarginLoss", nn.SoftMarginLoss, x, y.sign())
    case("TripletMarginLoss", lambda: nn.TripletMarginLoss(swap=True), x, y, draw(3, 4, seed=8))
    distance = lambda a, b: (a - b).abs().amax(1)  # noqa: E731
    make = lambda: nn.TripletMarginWithDistanceLoss(distance_function=distance, margin=2.0)  # noqa: E731
    case("TripletMarginWithDistanceLoss", make, x, y, draw(3, 4, seed=8))
    adaptive = lambda: nn.AdaptiveLogSoftmaxWithLoss(8, 20, [4, 10], div_value=2.0, head_bias=True)  # noqa: E731
    both = lambda m, x, t: (*m(x, t), m.log_prob(x), m.predict(x))  # noqa: E731
    case("AdaptiveLogSoftmaxWithLoss", adaptive, draw(6, 8), classes(20, 6), run=both)


def sequences():
    x = draw(4, 2, 3)
    for name in ("RNN", "GRU", "LSTM"):
        layer = getattr(nn, name)
        case(name, lambda layer=layer: layer(3, 2), x, run=lambda m, x: flat(m(x)))
        case(
            f"{name} in layers",
            lambda layer=layer: layer(3, 2, 2, bidirectional=True, dropout=0.3, batch_first=True, bias=False),
            x,
            run=lambda m, x: flat(m(x)),
        )
        case(f"{name} of one", lambda layer=layer: layer(3, 2), x[:, 0].clone(), run=lambda m, x: flat(m(x)))

        def packed(m, x):
            sequence = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([2, 4]), enforce_sorted=False)
            out, state = m(sequence)
            return [*nn.utils.rnn.pad_packed_sequence(out), *flat(state)]

        case(f"{name} packed", lambda layer=layer: layer(3, 2), x, run=packed)
        cell = getattr(nn, f"{name}Cell")
        case(f"{name}Cell", lambda cell=cell: cell(3, 2), x[0].clone(), run=lambda m, x: flat(m(x)))
        case(f"{name}Cell of one", lambda cell=cell: cell(3, 2, bias=False), x[0, 0].clone(),
             run=lambda m, x: flat(m(x)))  # fmt: skip
    case("RNN relu", lambda: nn.RNN(3, 2, nonlinearity="relu"), x, run=lambda m, x: flat(m(x)))
    case("RNNCell relu", lambda: nn.RNNCell(3, 2, nonlinearity="relu"), x[0].clone())
    case("LSTM projected", lambda: nn.LSTM(3, 4, proj_size=2), x, run=lambda m, x: flat(m(x)))
    state = (draw(1, 2, 2), draw(1, 2, 2, seed=7))
    case("LSTM from a state", lambda: nn.LSTM(3, 2), x, *state, run=lambda m, x, h, c: flat(m(x, (h, c))))


def transformers():
    q, k = draw(2, 3, 4), draw(2, 5, 4, seed=7)
    same = lambda m, x: flat(m(x, x, x))  # noqa: E731
    case("MultiheadAttention", lambda: nn.MultiheadAttention(4, 2), q, run=same)
    case("MultiheadAttention batch first", lambda: nn.MultiheadAttention(4, 2, batch_first=True, dropout=0.5), q, k,
         run=lambda m, q, k: flat(m(q, k, k, average_attn_weights=False)))  # fmt: skip
    odd = lambda: nn.MultiheadAttention(4, 2, kdim=3, vdim=2, add_bias_kv=True, add_zero_attn=True, bias=False)  # noqa: E731
    case("MultiheadAttention of sizes", odd, q, draw(2, 3, 3), draw(2, 3, 2), run=lambda m, *x: flat(m(*x)))
    layer = lambda **o: nn.TransformerEncoderLayer(4, 2, 6, **o)  # noqa: E731
    case("TransformerEncoderLayer", layer, q)
    case("TransformerEncoderLayer norm first", lambda: layer(norm_first=True, activation="gelu", bias=False,
         batch_first=True, dropout=0.0), q)  # fmt: skip
    case("TransformerDecoderLayer", lambda: nn.TransformerDecoderLayer(4, 2, 6, batch_first=True), q, k)
    mask = nn.Transformer.generate_square_subsequent_mask
    stack = lambda: nn.TransformerEncoder(layer(dropout=0.0), 2, nn.LayerNorm(4))  # noqa: E731
    case("TransformerEncoder", stack, q, run=lambda m, x: m(x, mask(2)))
    padding = torch.tensor([[False, False], [False, True], [False, False]])
    case("TransformerEncoder padded", stack, q, run=lambda m, x: m(x, src_key_padding_mask=padding))
    decoder = lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(4, 2, 6, dropout=0.0), 2)  # noqa: E731
    case("TransformerDecoder", decoder, q.transpose(0, 1).contiguous(), k.transpose(0, 1).contiguous(),
         run=lambda m, x, y: m(x, y, tgt_mask=mask(3)))  # fmt: skip
    whole = lambda: nn.Transformer(4, 2, 2, 1, 6, batch_first=True)  # noqa: E731
    case("Transformer", whole, q, k)


def in_few_storages(cases):
    """The same with the tensors of each dtype as parts of one, which makes the file small."""
    tensors = []

    def each(value, change):
        if isinstance(value, torch.Tensor):
            return change(value)
        if isinstance(value, dict):
            return {k: each(v, change) for k, v in value.items()}
        return [each(v, change) for v in value] if isinstance(value, list) else value

    each(cases, tensors.append)
    parts = {}
    for dtype in {t.dtype for t in tensors}:
        same = [t.contiguous() for t in tensors if t.dtype == dtype]
        parts[dtype] = iter(torch.cat([t.flatten() for t in same]).split([t.numel() for t in same]))
    return each(cases, lambda t: next(parts[t.dtype]).view(t.shape))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for family in (
        linear, activations, convolutions, pooling, normalizations, images, losses, sequences, transformers,
    ):  # fmt: skip
        family()
    path = Path(__file__).resolve().parent / "files" / "cpp_modules.pt"
    torch.save(in_few_storages(CASES), path)
    print(f"{len(CASES)} cases, {path.stat().st_size:,} bytes")
