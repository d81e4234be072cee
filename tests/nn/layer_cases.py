"""Losses, normalisations, distances and bags as (constructor, inputs): run in any library, with all gradients."""

import warnings

from sample_runner import Evaluator, tensors_of

F64 = "dtype=torch.float64"

LOSSES = [
    ("nn.L1Loss()", "T(3, 4), T(3, 4)"),
    ("nn.L1Loss(reduction='none')", "T(3, 4), T(3, 4)"),
    ("nn.MSELoss()", "T(3, 4), T(3, 4)"),
    ("nn.MSELoss(reduction='sum')", "T(9, 7), T(9, 7)"),
    ("nn.MSELoss(size_average=False)", "T(3, 4), T(3, 4)"),
    ("nn.MSELoss(reduce=False)", "T(3, 4), T(3, 4)"),
    ("nn.SmoothL1Loss()", "T(3, 4), T(3, 4)"),
    ("nn.SmoothL1Loss(beta=0.3, reduction='none')", "T(3, 4), T(3, 4)"),
    ("nn.HuberLoss()", "T(3, 4), T(3, 4)"),
    ("nn.HuberLoss(delta=0.3, reduction='sum')", "T(3, 4), T(3, 4)"),
    ("nn.NLLLoss()", "T(3, 4), X(3, high=4)"),
    ("nn.NLLLoss(torch.arange(1.0, 5.0).double(), reduction='sum')", "T(3, 4), X(3, high=4)"),
    ("nn.NLLLoss(torch.arange(1.0, 5.0).double(), ignore_index=2)", "T(2, 4, 3), X(2, 3, high=4)"),
    ("nn.NLLLoss2d(reduction='none')", "T(2, 4, 3, 2), X(2, 3, 2, high=4)"),
    ("nn.CrossEntropyLoss()", "T(5, 4), X(5, high=4)"),
    ("nn.CrossEntropyLoss(label_smoothing=0.1, ignore_index=1)", "T(3, 40), X(3, high=3)"),
    ("nn.CrossEntropyLoss(torch.arange(1.0, 5.0).double(), label_smoothing=0.3)", "T(2, 4, 3), X(2, 3, high=4)"),
    ("nn.CrossEntropyLoss(torch.arange(1.0, 5.0).double(), reduction='none')", "T(2, 4, 3, 2), X(2, 3, 2, high=4)"),
    ("nn.CrossEntropyLoss(torch.arange(1.0, 5.0).double(), reduction='sum')", "T(3, 4), P(3, 4)"),
    ("nn.CrossEntropyLoss()", "T(4), X(high=4)"),
    ("nn.BCELoss()", "T(3, 4).sigmoid(), T(3, 4).sigmoid()"),
    ("nn.BCELoss(torch.arange(1.0, 5.0).double(), reduction='sum')", "T(3, 4).sigmoid(), T(3, 4).sigmoid()"),
    ("nn.BCEWithLogitsLoss()", "T(3, 4) * 5, T(3, 4).sigmoid()"),
    (
        "nn.BCEWithLogitsLoss(torch.arange(1.0, 5.0).double(), pos_weight=torch.arange(2.0, 6.0).double())",
        "T(3, 4) * 5, T(3, 4).sigmoid()",
    ),
    ("nn.KLDivLoss(reduction='batchmean')", "T(3, 4).log_softmax(1), T(3, 4).softmax(1)"),
    ("nn.KLDivLoss(log_target=True)", "T(3, 4).log_softmax(1), T(3, 4).log_softmax(1)"),
    ("nn.PoissonNLLLoss()", "T(3, 4), P(3, 4)"),
    ("nn.PoissonNLLLoss(log_input=False, full=True, reduction='none')", "P(3, 4), P(3, 4) * 4"),
    ("nn.GaussianNLLLoss(full=True)", "T(3, 4), T(3, 4), P(3, 1)"),
    ("nn.GaussianNLLLoss(reduction='none')", "T(3, 4), T(3, 4), 0.7"),
    ("nn.HingeEmbeddingLoss(margin=0.5)", "T(3, 4), B(3, 4) * 2 - 1"),
    ("nn.CosineEmbeddingLoss(margin=0.2)", "T(3, 4), T(3, 4), B(3) * 2 - 1"),
    ("nn.MarginRankingLoss(margin=0.2)", "T(3), T(3), B(3) * 2 - 1"),
    ("nn.MultiMarginLoss()", "T(3, 4), X(3, high=4)"),
    ("nn.MultiMarginLoss(2, 0.6, torch.arange(1.0, 5.0).double(), reduction='none')", "T(3, 4), X(3, high=4)"),
    ("nn.MultiLabelMarginLoss()", "T(3, 4), X(3, 4, high=5) - 1"),
    ("nn.MultiLabelMarginLoss(reduction='none')", "T(6), X(6, high=6)"),
    ("nn.MultiLabelSoftMarginLoss(torch.arange(1.0, 5.0).double())", "T(3, 4), B(3, 4) * 1.0"),
    ("nn.SoftMarginLoss()", "T(3, 4), B(3, 4) * 2.0 - 1"),
    ("nn.TripletMarginLoss()", "T(3, 4), T(3, 4), T(3, 4)"),
    ("nn.TripletMarginLoss(2.0, 1.0, swap=True, reduction='none')", "T(3, 4), T(3, 4), T(3, 4)"),
    (
        "nn.TripletMarginWithDistanceLoss(distance_function=nn.CosineSimilarity(), swap=True)",
        "T(3, 4), T(3, 4), T(3, 4)",
    ),
    ("nn.CTCLoss()", "T(8, 2, 4).log_softmax(2), X(2, 3, high=3) + 1, (8, 7), (2, 3)"),
    ("nn.CTCLoss(blank=3, reduction='sum')", "T(8, 2, 4).log_softmax(2), X(5, high=3), (8, 8), (2, 3)"),
    (
        "nn.CTCLoss(zero_infinity=True, reduction='none')",
        "T(5, 3, 4).log_softmax(2), X(3, 4, high=3) + 1, (5, 2, 4), (1, 4, 0)",
    ),
    (
        "nn.CTCLoss()",
        "T(8, 2, 4).log_softmax(2), X(2, 3, high=3) + 1, torch.tensor([8, 7]), torch.tensor([2, 3], dtype=torch.int32)",
    ),
    ("nn.CTCLoss()", "T(8, 4).log_softmax(1), X(2, high=3) + 1, torch.tensor(8), torch.tensor(2)"),
    (f"nn.AdaptiveLogSoftmaxWithLoss(8, 12, [3, 7], 2.0, True, {F64})", "T(5, 8), X(5, high=12)"),
]

NORMS = [
    (f"nn.BatchNorm1d(3, {F64})", "T(4, 3)"),
    (f"nn.BatchNorm1d(3, momentum=None, {F64})", "T(4, 3, 5)"),
    (f"nn.BatchNorm1d(40, {F64})", "T(7, 40)"),
    (f"nn.BatchNorm2d(3, eps=1e-3, momentum=0.3, {F64})", "T(4, 3, 2, 5)"),
    (f"nn.BatchNorm2d(3, {F64})", "T(4, 3, 2, 5).to(memory_format=torch.channels_last)"),
    (f"nn.BatchNorm2d(3, {F64}).eval()", "T(4, 3, 2, 5)"),
    (f"nn.BatchNorm2d(20, {F64}).eval()", "T(2, 20, 2, 3).to(memory_format=torch.channels_last)"),
    (f"nn.BatchNorm2d(3, affine=False, {F64})", "T(4, 3, 2, 5)"),
    (f"nn.BatchNorm2d(3, bias=False, {F64})", "T(4, 3, 2, 5)"),
    (f"nn.BatchNorm3d(3, track_running_stats=False, {F64})", "T(2, 3, 2, 2, 3)"),
    (f"nn.BatchNorm3d(3, track_running_stats=False, {F64}).eval()", "T(2, 3, 2, 2, 3)"),
    (f"nn.SyncBatchNorm(3, {F64})", "T(4, 3, 2)"),
    (f"nn.LazyBatchNorm2d({F64})", "T(4, 3, 2, 5)"),
    (f"nn.InstanceNorm1d(3, {F64})", "T(4, 3, 5)"),
    (f"nn.InstanceNorm1d(3, {F64})", "T(3, 5)"),
    (f"nn.InstanceNorm2d(3, affine=True, track_running_stats=True, {F64})", "T(4, 3, 2, 5)"),
    (f"nn.InstanceNorm2d(3, affine=True, track_running_stats=True, {F64}).eval()", "T(4, 3, 2, 5)"),
    (f"nn.InstanceNorm3d(3, affine=True, {F64})", "T(2, 3, 2, 2, 3)"),
    (f"nn.LazyInstanceNorm2d(affine=True, {F64})", "T(4, 3, 2, 5)"),
    (f"nn.GroupNorm(2, 4, {F64})", "T(3, 4, 5)"),
    (f"nn.GroupNorm(2, 6, affine=False, {F64})", "T(3, 6)"),
    (f"nn.GroupNorm(2, 6, {F64})", "T(3, 6, 2, 3).to(memory_format=torch.channels_last)"),
    (f"nn.LayerNorm((3, 4), {F64})", "T(2, 3, 4)"),
    (f"nn.LayerNorm(4, bias=False, {F64})", "T(2, 3, 4)"),
    (f"nn.RMSNorm(4, {F64})", "T(2, 3, 4)"),
]

OTHERS = [
    ("nn.CosineSimilarity()", "T(3, 4), T(3, 4)"),
    ("nn.CosineSimilarity(0, 1.0)", "T(3, 4) * 0.1, T(3, 4)"),
    ("nn.PairwiseDistance()", "T(3, 4), T(3, 4)"),
    ("nn.PairwiseDistance(3, keepdim=True)", "T(3, 4), T(3, 4)"),
    (f"nn.EmbeddingBag(6, 3, {F64})", "X(2, 4, high=6)"),
    (f"nn.EmbeddingBag(6, 3, mode='sum', padding_idx=2, {F64})", "X(7, high=6), torch.tensor([0, 3, 3, 6])"),
    (f"nn.EmbeddingBag(6, 3, mode='sum', {F64})", "X(2, 4, high=6), None, T(2, 4)"),
    (
        f"nn.EmbeddingBag(6, 3, mode='max', include_last_offset=True, padding_idx=-1, {F64})",
        "X(7, high=6), torch.tensor([0, 3, 3, 7])",
    ),
    (f"nn.EmbeddingBag(6, 3, max_norm=1.0, {F64})", "X(2, 4, high=3)"),
    (f"nn.EmbeddingBag(6, 3, padding_idx=1, {F64})", "X(2, 4, high=3), None"),
]


def flat(t):
    return [list(t.shape), t.detach().reshape(-1).tolist()]


def run(library, constructor, inputs, dtype="float64"):
    """The output, the gradients of all that has one, and the buffers after the call."""
    evaluator = Evaluator(library, dtype=dtype, requires_grad=True)
    constructor = constructor.replace("torch.float64", f"torch.{dtype}").replace(".double()", f".to(torch.{dtype})")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library.manual_seed(1)
        layer = evaluator.run(constructor)
        given = evaluator.run(f"({inputs},)")
        if "Lazy" in constructor:
            layer(*given)
        with library.no_grad():
            for p in layer.parameters():
                p += library.linspace(-0.3, 0.4, p.numel(), dtype=library.float64).reshape(p.shape).to(p.dtype)
        outputs = tensors_of(layer(*given))
        total = 0
        for o in outputs:
            total = (
                total
                + (o * library.linspace(-1, 1, o.numel(), dtype=library.float64).reshape(o.shape).to(o.dtype)).sum()
                + o.sum()
            )
        leaves = [*evaluator.leaves, *layer.parameters()]
        total.backward()
    return {
        "outputs": [flat(o) for o in outputs],
        "gradients": [flat(t.grad) if t.grad is not None else None for t in leaves],
        "buffers": {name: flat(b) for name, b in layer.named_buffers() if b is not None},
    }
