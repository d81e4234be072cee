"""Losses."""

import warnings

from mica._C import Tensor
from mica._generated import modules as options

from .. import functional as F
from ._loss_bases import _Loss, _WeightedLoss
from .distance import PairwiseDistance

__all__ = [
    "BCELoss",
    "BCEWithLogitsLoss",
    "CTCLoss",
    "CosineEmbeddingLoss",
    "CrossEntropyLoss",
    "GaussianNLLLoss",
    "HingeEmbeddingLoss",
    "HuberLoss",
    "KLDivLoss",
    "L1Loss",
    "MSELoss",
    "MarginRankingLoss",
    "MultiLabelMarginLoss",
    "MultiLabelSoftMarginLoss",
    "MultiMarginLoss",
    "NLLLoss",
    "NLLLoss2d",
    "PoissonNLLLoss",
    "SmoothL1Loss",
    "SoftMarginLoss",
    "TripletMarginLoss",
    "TripletMarginWithDistanceLoss",
]

for _class in (_Loss, _WeightedLoss):
    _class.__module__ = __name__  # as torch has it


class L1Loss(_Loss):
    """The absolute differences of input and target; `reduction` takes their mean, their sum or, with "none", each."""

    __constants__ = ["reduction"]

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.l1_loss(input, target, None, None, self.reduction)


class MSELoss(_Loss):
    """The squared differences of input and target; `reduction` takes their mean, their sum or, with "none", each."""

    __constants__ = ["reduction"]

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(input, target, None, None, self.reduction)


class SmoothL1Loss(options.SmoothL1Loss):
    """Absolute differences, rounded to a parabola below beta."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.smooth_l1_loss(input, target, None, None, self.reduction, self.beta)


class HuberLoss(options.HuberLoss):
    """Half the squares of differences up to delta, straight lines beyond."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.huber_loss(input, target, self.reduction, self.delta)


class PoissonNLLLoss(options.PoissonNLLLoss):
    """The negative log-likelihood of counts under Poisson distributions."""

    def forward(self, log_input: Tensor, target: Tensor) -> Tensor:
        return F.poisson_nll_loss(
            log_input, target, log_input=self.log_input, full=self.full, eps=self.eps, reduction=self.reduction
        )


class GaussianNLLLoss(options.GaussianNLLLoss):
    """The negative log-likelihood of numbers under normal distributions."""

    def forward(self, input: Tensor, target: Tensor, var: Tensor) -> Tensor:
        return F.gaussian_nll_loss(input, target, var, full=self.full, eps=self.eps, reduction=self.reduction)


class KLDivLoss(options.KLDivLoss):
    """The Kullback-Leibler divergence of probabilities from log-probabilities."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.kl_div(input, target, reduction=self.reduction, log_target=self.log_target)


class NLLLoss(options.NLLLoss):
    """The negated log-probabilities of target classes: CrossEntropyLoss after LogSoftmax.

    Args:
        weight: a factor for each class
        ignore_index: targets of this number do not count
        reduction: "mean", "sum" or "none"; the mean is by the weights of the targets
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.nll_loss(input, target, self.weight, None, self.ignore_index, None, self.reduction)


class NLLLoss2d(NLLLoss):
    """NLLLoss, which takes images too."""

    def __init__(self, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean"):
        warnings.warn(
            "`NLLLoss2d` has been deprecated. Please use `NLLLoss` instead as a drop-in replacement and see "
            "https://pytorch.org/docs/main/nn.html#torch.nn.NLLLoss for more details.",
            FutureWarning,
            stacklevel=2,
        )
        super().__init__(weight, size_average, ignore_index, reduce, reduction)


class CrossEntropyLoss(options.CrossEntropyLoss):
    """The cross entropy of the softmax of logits with class indices or probabilities.

    Args:
        weight: a factor for each class
        ignore_index: targets of this number do not count
        reduction: "mean", "sum" or "none"; the mean is by the weights of the targets
        label_smoothing: the share of each target that is spread evenly over all classes

    The input is (batch, classes), (batch, classes, ...) or (classes,). The target has no dimension of classes, and holds
    their numbers; or it has the shape of the input, and holds probabilities.

    Example::

        loss = nn.CrossEntropyLoss()
        loss(torch.randn(3, 5, requires_grad=True), torch.tensor([1, 0, 4])).backward()
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(
            input, target, self.weight, None, self.ignore_index, None, self.reduction, self.label_smoothing
        )


class BCELoss(_WeightedLoss):
    """The cross entropy of probabilities with targets between 0 and 1."""

    __constants__ = ["reduction"]

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy(input, target, self.weight, None, None, self.reduction)


class BCEWithLogitsLoss(options.BCEWithLogitsLoss):
    """The cross entropy of the sigmoid of logits with targets between 0 and 1.

    It is exact for large logits, where BCELoss of a sigmoid is not.

    Args:
        weight: a factor for each element of the batch
        reduction: "mean", "sum" or "none"
        pos_weight: a factor for the targets that are one, for each class
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(
            input, target, self.weight, None, None, self.reduction, self.pos_weight
        )


class CTCLoss(options.CTCLoss):
    """Connectionist temporal classification: the negative log-likelihood of label sequences without an alignment.

    The input holds log-probabilities, (time, batch, classes). `blank` is the number of the class that stands for no
    label; `zero_infinity` makes losses that are infinite, because an input is too short, zero.
    """

    def forward(self, log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor) -> Tensor:
        return F.ctc_loss(
            log_probs, targets, input_lengths, target_lengths, self.blank, self.reduction, self.zero_infinity
        )


class HingeEmbeddingLoss(options.HingeEmbeddingLoss):
    """The input for targets of 1, and max(0, margin - input) for targets of -1."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.hinge_embedding_loss(input, target, margin=self.margin, reduction=self.reduction)


class CosineEmbeddingLoss(options._MarginLoss):
    """One minus the cosine for targets of 1, the cosine above the margin for targets of -1."""

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return F.cosine_embedding_loss(input1, input2, target, margin=self.margin, reduction=self.reduction)


class MarginRankingLoss(options._MarginLoss):
    """What lacks for one input to be ranked above or below the other."""

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return F.margin_ranking_loss(input1, input2, target, margin=self.margin, reduction=self.reduction)


class MultiMarginLoss(options.MultiMarginLoss):
    """How far other classes come within a margin of the target class."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multi_margin_loss(
            input, target, p=self.p, margin=self.margin, weight=self.weight, reduction=self.reduction
        )


class MultiLabelMarginLoss(_Loss):
    """How far classes come within one of the target classes."""

    __constants__ = ["reduction"]

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multilabel_margin_loss(input, target, reduction=self.reduction)


class MultiLabelSoftMarginLoss(_WeightedLoss):
    """The cross entropy of the sigmoid of logits with targets 0 and 1, averaged over the classes."""

    __constants__ = ["reduction"]

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multilabel_soft_margin_loss(input, target, weight=self.weight, reduction=self.reduction)


class SoftMarginLoss(_Loss):
    """log(1 + exp(-target * input)) for targets of 1 and -1."""

    __constants__ = ["reduction"]

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.soft_margin_loss(input, target, reduction=self.reduction)


class TripletMarginLoss(options.TripletMarginLoss):
    """What lacks for the anchor to be nearer to the positive than to the negative."""

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return F.triplet_margin_loss(
            anchor,
            positive,
            negative,
            margin=self.margin,
            p=self.p,
            eps=self.eps,
            swap=self.swap,
            reduction=self.reduction,
        )


class TripletMarginWithDistanceLoss(_Loss):
    """TripletMarginLoss in any distance."""

    __constants__ = ["margin", "swap", "reduction"]
    margin: float
    swap: bool

    def __init__(self, *, distance_function=None, margin=1.0, swap=False, reduction="mean"):
        super().__init__(None, None, reduction)
        if margin <= 0:
            raise ValueError(
                f"TripletMarginWithDistanceLoss: expected margin to be greater than 0, got {margin} instead"
            )
        self.distance_function = PairwiseDistance() if distance_function is None else distance_function
        self.margin = margin
        self.swap = swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return F.triplet_margin_with_distance_loss(
            anchor,
            positive,
            negative,
            distance_function=self.distance_function,
            margin=self.margin,
            swap=self.swap,
            reduction=self.reduction,
        )
