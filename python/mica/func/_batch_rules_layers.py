"""Rules for layers: convolution, pooling, normalization, embeddings and losses."""

import mica
from mica import _C
from mica.func._batch_dims import padded
from mica.func._batched import rule

Tensor = _C.Tensor


def _folded(call, value, rank, operation):
    """An operation on (N, C, ...) or (C, ...) of examples: the batch joins N, or takes its place."""
    if value.dim() - 1 < rank:  # an example without N
        return operation(value)
    size = value.shape[:2]
    result = operation(value.flatten(0, 1))
    unfold = lambda x: x.unflatten(0, size) if isinstance(x, Tensor) else x  # noqa: E731
    if isinstance(result, tuple):
        parts = [unfold(x) for x in result]
        return type(result)(*parts) if hasattr(type(result), "_make") else type(result)(parts)
    return unfold(result)


def _others_are_plain(call, start=1):
    return not any(call.is_batched(x) for x in (*call.args[start:], *call.kwargs.values()))


# ------------------------------------------------------------------------------------------------ convolution, pooling
@rule("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def _convolution(call):
    names = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
    transposed = "transpose" in call.name
    if transposed:
        names = ("input", "weight", "bias", "stride", "padding", "output_padding", "groups", "dilation")
    given = dict(zip(names, call.args, strict=False)) | call.kwargs
    x, w, b = given.pop("input"), given.pop("weight"), given.pop("bias", None)
    rank = w.dim()
    if not call.is_batched(w):
        bias = None if call.is_batched(b) else b
        y = (
            _folded(call, call.value(x), rank, lambda v: call.func(v, w, bias, **given))
            if call.is_batched(x)
            else (call.full(call.func(x, w, bias, **given)))
        )
    else:
        y = _convolution_of_each(call, x, w, rank, given, transposed)
        bias = None
    if b is not None and bias is None:
        b = call.full(b)
        y = y + b.view(b.shape[0], *[1] * (y.dim() - rank), -1, *[1] * (rank - 2))
    return y


def _convolution_of_each(call, x, w, rank, given, transposed):
    """A convolution in which every example has its own weight: each example becomes a group."""
    weight = call.value(w)
    size, groups = call.size, given.pop("groups", 1)
    alone = x.dim() < rank  # an example without N
    value = call.full(x)
    value = value.unsqueeze(1) if alone else value
    value = value.transpose(0, 1).flatten(1, 2)  # (N, examples * channels, ...)
    y = call.func(value, weight.flatten(0, 1), None, groups=size * groups, **given)
    y = y.unflatten(1, (size, -1)).transpose(0, 1)
    return y.squeeze(1) if alone else y


_SPATIAL = {"1d": 3, "2d": 4, "3d": 5}


@rule(
    *(
        f"{name}{d}"
        for d in _SPATIAL
        for name in ("max_pool", "avg_pool", "adaptive_avg_pool", "adaptive_max_pool", "lp_pool")
    ),
    *(f"max_pool{d}_with_indices" for d in _SPATIAL),
    *(f"adaptive_max_pool{d}_with_indices" for d in _SPATIAL),
    *(f"_adaptive_max_pool{d}" for d in _SPATIAL),
)
def _pool(call):
    if not _others_are_plain(call):
        return NotImplemented
    rank = next(rank for d, rank in _SPATIAL.items() if d in call.name)
    value = call.value(call.args[0])
    return _folded(call, value, rank, lambda v: call.func(v, *call.rest(), **call.kwargs))


@rule("channel_shuffle", "native_channel_shuffle")
@rule("interpolate", "upsample", "local_response_norm", "fold", "unfold", space="functional")
def _with_n(call):
    value = call.value(call.args[0])
    if not call.is_batched(call.args[0]) or not _others_are_plain(call):
        return NotImplemented
    if value.dim() < (5 if call.name == "unfold" else 4):
        return NotImplemented
    return _folded(call, value, value.dim() - 1, lambda v: call.func(v, *call.rest(), **call.kwargs))


@rule("grid_sample", "grid_sampler_2d", "grid_sampler_3d")
def _grid_sample(call):
    x, grid = call.full(call.args[0]), call.full(call.args[1])
    y = call.func(x.flatten(0, 1), grid.flatten(0, 1), *call.rest(2), **call.kwargs)
    return y.unflatten(0, x.shape[:2])


@rule("pad")
def _pad(call):
    value = call.value(call.args[0])
    mode = call.argument(2, "mode", "constant")
    if mode == "constant":
        return call.func(value, *call.rest(), **call.kwargs)
    rank = len(call.argument(1, "pad")) // 2 + 2
    return _folded(call, value, rank, lambda v: call.func(v, *call.rest(), **call.kwargs))


# ------------------------------------------------------------------------------------------------ normalization
def _affine(call, y, weight, bias, axis):
    """y * weight + bias, with the channels of an example at `axis`, counted from the end."""

    def placed(p):
        rank = y.dim() - 1
        p = call.value(p) if call.is_batched(p) else p.unsqueeze(0)
        return p.view(p.shape[0], *[1] * (rank + axis), -1, *[1] * (-axis - 1))

    y = y if weight is None else y * placed(weight)
    return y if bias is None else y + placed(bias)


@rule("layer_norm", "rms_norm")
def _layer_norm(call):
    names = ("input", "normalized_shape", "weight", "bias", "eps")
    if call.name == "rms_norm":
        names = ("input", "normalized_shape", "weight", "eps")
    given = dict(zip(names, call.args, strict=False)) | call.kwargs
    x, w, b = given.pop("input"), given.pop("weight", None), given.pop("bias", None)
    y = call.func(call.full(x), **given)
    rank = y.dim() - 1
    y = y if w is None else y * padded(call, w, rank)
    return y if b is None else y + padded(call, b, rank)


@rule("group_norm")
def _group_norm(call):
    names = ("input", "num_groups", "weight", "bias", "eps")
    given = dict(zip(names, call.args, strict=False)) | call.kwargs
    x, w, b = given.pop("input"), given.pop("weight", None), given.pop("bias", None)
    value = call.full(x)
    y = call.func(value.flatten(0, 1), **given).unflatten(0, value.shape[:2])
    return _affine(call, y, w, b, -(value.dim() - 2))


@rule("batch_norm", "instance_norm", space="functional")
def _batch_norm(call):
    names = ["input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps"]
    if call.name == "instance_norm":
        names[5] = "use_input_stats"
    given = dict(zip(names, call.args, strict=False)) | call.kwargs
    x, w, b = given.pop("input"), given.pop("weight", None), given.pop("bias", None)
    training = given.get("training", False) or given.get("use_input_stats", False)
    for name in ("running_mean", "running_var"):
        statistic = given.get(name)
        if statistic is None:
            continue
        if not call.is_batched(statistic):
            if training:
                raise RuntimeError(
                    "Batch norm got a batched tensor as input while the running_mean or running_var, which will be "
                    "updated in place, were not batched.\nIf you are using a module and do not need eval mode, please "
                    "set `track_running_stats` to be False. If you are using a prebuilt module and do not need eval "
                    "mode, please see the functorch website for resources on how to patch your module to work with vmap"
                )
            given[name] = statistic.repeat(call.size)
        else:
            given[name] = call.value(statistic).reshape(-1)
    value = call.full(x)
    # Each channel of each example becomes a channel of its own.
    y = call.func(value.transpose(0, 1).flatten(1, 2), **given)
    y = y.unflatten(1, (call.size, -1)).transpose(0, 1)
    return _affine(call, y, w, b, -(value.dim() - 2))


@rule("embedding", space="functional")
def _embedding(call):
    names = ("input", "weight", "padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse")
    given = dict(zip(names, call.args, strict=False)) | call.kwargs
    index, weight = given.pop("input"), given.pop("weight")
    if not call.is_batched(weight):
        return call.func(call.value(index), weight, **given)
    if given.get("max_norm") is not None or given.get("padding_idx") is not None or given.get("sparse"):
        return NotImplemented
    table = call.value(weight)
    rows = table.shape[1]
    start = mica.arange(call.size, device=table.device).view(-1, *[1] * index.dim()) * rows
    return call.func(call.full(index) + start, table.flatten(0, 1), **given)


# ------------------------------------------------------------------------------------------------ losses
def _reduced(call, each, reduction):
    """A loss of every element, summed or averaged over each example."""
    if reduction == "none" or each.dim() == 1:
        return each
    each = each.flatten(1)
    if reduction not in ("mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return each.mean(1) if reduction == "mean" else each.sum(1)


@rule("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits",
      "soft_margin_loss", "hinge_embedding_loss", "poisson_nll_loss", space="functional")  # fmt: skip
def _loss(call):
    names = [name for name, x in call.kwargs.items() if isinstance(x, Tensor)]
    args = list(call.args)
    places = [i for i, x in enumerate(args) if isinstance(x, Tensor)]
    if any(x is not None for x in (call.kwargs.get("size_average"), call.kwargs.get("reduce"))) or len(args) > 3:
        return NotImplemented
    if "weight" in names and not call.name.startswith("binary_cross_entropy"):
        return NotImplemented  # a mean by weights
    tensors = [args[i] for i in places] + [call.kwargs[n] for n in names]
    rank = max(x.dim() for x in tensors)
    for i in places:
        args[i] = padded(call, args[i], rank)
    kwargs = dict(call.kwargs) | {n: padded(call, call.kwargs[n], rank) for n in names}
    reduction = kwargs.pop("reduction", "mean")
    shape = mica.broadcast_shapes(*(x.shape for x in tensors))
    first, second = places[:2] if len(places) > 1 else (0, None)
    full = (call.size, *shape)
    args[first] = args[first].expand(full)
    if second is not None:
        args[second] = args[second].expand(full)
    elif "target" in kwargs:
        kwargs["target"] = kwargs["target"].expand(full)
    return _reduced(call, call.func(*args, **kwargs, reduction="none"), reduction)


@rule("kl_div", space="functional")
def _kl_div(call):
    if call.kwargs.get("reduction") == "batchmean" or len(call.args) > 2:
        return NotImplemented
    return _loss(call)


@rule("cross_entropy", "nll_loss", space="functional")
def _cross_entropy(call):
    names = ("input", "target", "weight", "size_average", "ignore_index", "reduce", "reduction")
    given = dict(zip(names, call.args, strict=False)) | call.kwargs
    x, target, weight = given.pop("input"), given.pop("target"), given.pop("weight", None)
    reduction, ignored = given.pop("reduction", "mean"), given.pop("ignore_index", -100)
    if given.pop("size_average", None) is not None or given.pop("reduce", None) is not None:
        return NotImplemented
    if call.is_batched(weight) or x.dim() == 0:
        return NotImplemented
    scores, wanted = call.full(x), call.full(target)
    alone = x.dim() == 1  # an example without N
    by_index = not wanted.is_floating_point()
    options = dict(given, weight=weight, reduction="none")
    if by_index:
        options["ignore_index"] = ignored
    size = scores.shape[:1] if alone else scores.shape[:2]
    if not alone:
        scores, wanted = scores.flatten(0, 1), wanted.flatten(0, 1)
    each = call.func(scores, wanted, **options)
    each = each if alone else each.unflatten(0, size)
    if reduction == "none":
        return each
    total = each if each.dim() == 1 else each.flatten(1).sum(1)
    if reduction == "sum":
        return total
    if reduction != "mean":
        raise ValueError(f"{reduction} is not a valid value for reduction")
    if not by_index:
        return total / (each.numel() // call.size if call.size else 1)
    counted = wanted != ignored
    share = counted.to(total.dtype)
    if weight is not None:
        share = share * weight[wanted.clamp(0, weight.shape[0] - 1)].to(total.dtype)
    share = share if alone else share.unflatten(0, size).flatten(1).sum(1)
    return total / share
