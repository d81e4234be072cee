"""Rules for losses and for old names of interpolation, in terms of other operations."""

import mica
from mica.func._batch_rules_composed import composed
from mica.func._batched import RULES, Plain


def _reduced(loss, reduction):
    reduction = {0: "none", 1: "mean", 2: "sum"}.get(reduction, reduction)  # the engine's own functions have numbers
    return loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss


@composed("multilabel_soft_margin_loss", space="functional")
def _multilabel_soft_margin_loss(input, target, weight=None, size_average=None, reduce=None, reduction="mean"):
    if size_average is not None or reduce is not None:
        return NotImplemented
    log_sigmoid = mica.nn.functional.logsigmoid
    loss = -(target * log_sigmoid(input) + (1 - target) * log_sigmoid(-input))
    loss = (loss if weight is None else loss * weight).mean(-1)
    return _reduced(loss, reduction)


@composed("cosine_embedding_loss", space="functional")
def _cosine_embedding_loss(input1, input2, target, margin=0, size_average=None, reduce=None, reduction="mean"):
    if size_average is not None or reduce is not None or input1.dim() != input2.dim():
        return NotImplemented
    tiny = 1e-12
    product = (input1 * input2).sum(-1)
    size = ((input1 * input1).sum(-1) + tiny) * ((input2 * input2).sum(-1) + tiny)
    cosine = product / size.sqrt()
    apart = (cosine - margin).clamp_min(0)
    loss = mica.where(target == 1, 1 - cosine, 0) + mica.where(target == -1, apart, 0)
    return _reduced(loss, reduction)


_MODES = {"upsample_nearest": {"mode": "nearest"}, "upsample_bilinear": {"mode": "bilinear", "align_corners": True}}
for _name, _options in _MODES.items():

    def _through_interpolate(call, options=_options):
        names = ("input", "size", "scale_factor")
        given = {**dict(zip(names, call.args, strict=False)), **call.kwargs}
        return Plain(mica.nn.functional.interpolate(given.pop("input"), **given, **options))

    RULES[_name] = RULES["functional", _name] = _through_interpolate
