"""Operations that have no counterpart in ONNX, as others that have."""

import mica
from mica.nn import functional as F
from mica.onnx.decompositions_of_attention import multi_head_attention_forward, scaled_dot_product_attention


def _normalized(x, dims, eps):
    centred = x - x.mean(dims, keepdim=True)
    return centred / mica.sqrt((centred * centred).mean(dims, keepdim=True) + eps)


def group_norm(input, num_groups, weight=None, bias=None, eps=1e-5):
    grouped = input.reshape(input.shape[0], num_groups, -1)
    out = _normalized(grouped, [2], eps).reshape(*input.shape)
    shape = [1, -1] + [1] * (input.dim() - 2)
    if weight is not None:
        out = out * weight.reshape(shape)
    return out if bias is None else out + bias.reshape(shape)


def instance_norm(
    input, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True, momentum=0.1, eps=1e-5
):
    if use_input_stats:
        return group_norm(input, input.shape[1], weight, bias, eps)
    shape = (1, -1) + (1,) * (input.dim() - 2)
    out = (input - running_mean.reshape(shape)) / mica.sqrt(running_var.reshape(shape) + eps)
    if weight is not None:
        out = out * weight.reshape(shape)
    return out if bias is None else out + bias.reshape(shape)


def rms_norm(input, normalized_shape, weight=None, eps=None):
    dims = [-1 - i for i in range(len(normalized_shape))]
    eps = mica.finfo(input.dtype).eps if eps is None else eps
    out = input / mica.sqrt((input * input).mean(dims, keepdim=True) + eps)
    return out if weight is None else out * weight


def glu(input, dim=-1):
    a, b = input.chunk(2, dim)
    return a * mica.sigmoid(b)


def mish(input, inplace=False):
    return input * mica.tanh(F.softplus(input))


def logsigmoid(input):
    return mica.log(mica.sigmoid(input))


def square(input):
    return input * input


def normalize(input, p=2.0, dim=1, eps=1e-12, out=None):
    return input / mica.clamp(norm(input, p, dim, keepdim=True), min=eps)


def var(input, dim=None, unbiased=None, keepdim=False, *, correction=1):
    correction = correction if unbiased is None else int(unbiased)
    dims = list(range(input.dim())) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    centred = input - input.mean(dims, keepdim=True)
    if not correction:
        return (centred * centred).mean(dims, keepdim=keepdim)
    count = mica.ones_like(input).sum(dims, keepdim=keepdim)  # a size may be a dynamic one
    return (centred * centred).sum(dims, keepdim=keepdim) / (count - correction)


def std(input, dim=None, unbiased=None, keepdim=False, *, correction=1):
    return mica.sqrt(var(input, dim, unbiased, keepdim, correction=correction))


def norm(input, p=2, dim=None, keepdim=False, dtype=None):
    input = input if dtype is None else input.to(dtype)
    if p in (mica.inf, -mica.inf):
        dims = list(range(input.dim())) if dim is None else dim
        return (input.abs().amax if p > 0 else input.abs().amin)(dims, keepdim=keepdim)
    if p == 0:
        counted = (input != 0).to(input.dtype)
        return counted.sum() if dim is None else counted.sum(dim, keepdim=keepdim)
    if p in (2, "fro", None, 2.0):
        squares = input * input
        return mica.sqrt(squares.sum() if dim is None else squares.sum(dim, keepdim=keepdim))
    if p == 1:
        return input.abs().sum() if dim is None else input.abs().sum(dim, keepdim=keepdim)
    powers = input.abs() ** p
    return (powers.sum() if dim is None else powers.sum(dim, keepdim=keepdim)) ** (1 / p)


def vector_norm(x, ord=2, dim=None, keepdim=False, *, dtype=None):
    return norm(x, ord, dim, keepdim, dtype)


def logsumexp(input, dim, keepdim=False):
    largest = input.amax(dim, keepdim=True)
    total = mica.log(mica.exp(input - largest).sum(dim, keepdim=True)) + largest
    return total if keepdim else total.squeeze(dim)


def log1p(input):
    return mica.log(input + 1)


def expm1(input):
    return mica.exp(input) - 1


def exp2(input):
    return mica.exp(input * 0.6931471805599453)


def log2(input):
    return mica.log(input) * 1.4426950408889634


def log10(input):
    return mica.log(input) * 0.4342944819032518


def sinc(input):
    angle = input * 3.141592653589793
    return mica.where(input == 0, mica.ones_like(input), mica.sin(angle) / angle)


def roll(input, shifts, dims=None):
    if dims is None:
        return roll(input.reshape(-1), shifts, 0).reshape(input.shape)
    shifts = [shifts] if isinstance(shifts, int) else shifts
    for shift, dim in zip(shifts, [dims] if isinstance(dims, int) else dims, strict=True):
        size = input.shape[dim]
        if shift % size:
            shift = shift if abs(shift) < size else shift % size
            before = (slice(None),) * (dim % input.dim())
            input = mica.cat([input[*before, slice(-shift, None)], input[*before, slice(None, -shift)]], dim)
    return input


def repeat_interleave(input, repeats, dim=None, *, output_size=None):
    if dim is None:
        input, dim = input.reshape(-1), 0
    dim %= input.dim()
    size = input.shape[dim]
    counts = repeats.tolist() if isinstance(repeats, mica.Tensor) else [repeats] * size
    index = [i for i, count in enumerate(counts * (size // len(counts))) for _ in range(count)]
    return input.index_select(dim, mica.tensor(index))


def nan_to_num(input, nan=0.0, posinf=None, neginf=None):
    limits = mica.finfo(input.dtype)
    input = mica.where(mica.isnan(input), mica.full_like(input, nan or 0.0), input)
    return mica.clamp(input, limits.min if neginf is None else neginf, limits.max if posinf is None else posinf)


def clamp_min(input, min):
    return mica.clamp(input, min=min)


def clamp_max(input, max):
    return mica.clamp(input, max=max)


def diff(input, n=1, dim=-1, prepend=None, append=None):
    parts = [part for part in (prepend, input, append) if part is not None]
    input = mica.cat(parts, dim) if len(parts) > 1 else input
    for _ in range(n):
        size = input.shape[dim]
        input = input.narrow(dim, 1, size - 1) - input.narrow(dim, 0, size - 1)
    return input


def any(input, dim=None, keepdim=False):
    found = (input != 0).float()
    return (found.sum() if dim is None else found.sum(dim, keepdim=keepdim)) > 0


def all(input, dim=None, keepdim=False):
    missing = (input == 0).float()
    return (missing.sum() if dim is None else missing.sum(dim, keepdim=keepdim)) == 0


def one_hot(tensor, num_classes=-1):
    if num_classes < 0:
        raise ValueError("one_hot without num_classes depends on the values: say how many classes there are")
    return (tensor.unsqueeze(-1) == mica.arange(num_classes)).long()


def unfold(input, kernel_size, dilation=1, padding=0, stride=1):
    """F.unfold: columns of patches."""
    kernel, dilation, padding, stride = (
        (v, v) if isinstance(v, int) else tuple(v) for v in (kernel_size, dilation, padding, stride)
    )
    input = F.pad(input, (padding[1], padding[1], padding[0], padding[0]))
    batch, channels, height, width = input.shape
    rows = (height - dilation[0] * (kernel[0] - 1) - 1) // stride[0] + 1
    columns = (width - dilation[1] * (kernel[1] - 1) - 1) // stride[1] + 1
    parts = [
        input[:, :, i * dilation[0] : i * dilation[0] + (rows - 1) * stride[0] + 1 : stride[0],
              j * dilation[1] : j * dilation[1] + (columns - 1) * stride[1] + 1 : stride[1]]
        for i in range(kernel[0]) for j in range(kernel[1])
    ]  # fmt: skip
    return mica.stack(parts, 2).reshape(batch, channels * kernel[0] * kernel[1], rows * columns)


def softplus(input, beta=1.0, threshold=20.0):
    scaled = input if beta == 1 else input * beta
    made = mica.log(1 + mica.exp(-mica.abs(scaled))) + mica.clamp(scaled, min=0)
    made = made if beta == 1 else made / beta
    # From the default on the curve and the line have the same numbers in float32.
    return made if threshold >= 20 else mica.where(scaled > threshold, input, made)


def unfold_of_a_tensor(input, dimension, size, step):
    """x.unfold: windows of a dimension, as a last one."""
    dim = dimension % input.dim()
    starts = range(0, input.shape[dim] - size + 1, step)
    return mica.stack([input.narrow(dim, i, size).movedim(dim, -1) for i in starts], dim)


def floor_divide(input, other):
    return (
        mica.floor(input / other) if input.is_floating_point() else (mica.floor(input.double() / other)).to(input.dtype)
    )


def remainder(input, other):
    return input - floor_divide(input, other) * other


def addcmul(input, tensor1, tensor2, *, value=1):
    return input + tensor1 * tensor2 * value


def addcdiv(input, tensor1, tensor2, *, value=1):
    return input + tensor1 / tensor2 * value


def lerp(input, end, weight):
    return input + (end - input) * weight


def celu(input, alpha=1.0, inplace=False):
    return mica.clamp(input, min=0) + mica.clamp(alpha * (mica.exp(input / alpha) - 1), max=0)


def tanhshrink(input):
    return input - mica.tanh(input)


def threshold(input, threshold, value, inplace=False):
    return mica.where(input > threshold, input, mica.full_like(input, value))


def softmin(input, dim=None, _stacklevel=3, dtype=None):
    return mica.softmax(-(input if dtype is None else input.to(dtype)), dim)


def cosine_similarity(x1, x2, dim=1, eps=1e-8):
    lengths = mica.clamp(norm(x1, 2, dim), min=eps) * mica.clamp(norm(x2, 2, dim), min=eps)
    return (x1 * x2).sum(dim) / lengths


def outer(input, vec2):
    return input.unsqueeze(1) * vec2.unsqueeze(0)


def mv(input, vec):
    return mica.matmul(input, vec.unsqueeze(1)).squeeze(1)


def dot(input, tensor):
    return (input * tensor).sum()


def isfinite(input):
    return ~(mica.isnan(input) | mica.isinf(input))


def channel_shuffle(input, groups):
    batch, channels, *rest = input.shape
    return input.reshape(batch, groups, channels // groups, *rest).transpose(1, 2).reshape(batch, channels, *rest)


def bucketize(input, boundaries, *, out_int32=False, right=False):
    place = input.unsqueeze(-1)
    made = ((place >= boundaries) if right else (place > boundaries)).to(mica.int64).sum(-1)
    return made.to(mica.int32) if out_int32 else made


def atan2(input, other):
    turned = mica.where(input < 0, -mica.pi, mica.pi)
    made = mica.atan(input / other) + mica.where(other < 0, turned, 0.0)
    return mica.where((input == 0) & (other == 0), 0.0, made)


def logaddexp(input, other):
    return mica.maximum(input, other) + mica.log(1 + mica.exp(-mica.abs(input - other)))


def hypot(input, other):
    return mica.sqrt(input * input + other * other)


def xlogy(input, other):
    return mica.where(input == 0, 0.0, input * mica.log(other))


def trunc(input):
    return mica.sign(input) * mica.floor(mica.abs(input))


def frac(input):
    return input - trunc(input)


def fmod(input, other):
    return input - trunc(input / other) * other


def deg2rad(input):
    return input * (mica.pi / 180)


def rad2deg(input):
    return input * (180 / mica.pi)


def erfc(input):
    return 1 - mica.erf(input)


def std_mean(input, dim=None, **options):
    return std(input, dim, **options), input.mean(dim, keepdim=options.get("keepdim", False))


def var_mean(input, dim=None, **options):
    return var(input, dim, **options), input.mean(dim, keepdim=options.get("keepdim", False))


def aminmax(input, *, dim=None, keepdim=False):
    dims = list(range(input.dim())) if dim is None else [dim]
    return input.amin(dims, keepdim), input.amax(dims, keepdim)


def count_nonzero(input, dim=None):
    counted = (input != 0).to(mica.int64)
    return counted.sum() if dim is None else counted.sum(dim)


def hardshrink(input, lambd=0.5):
    return mica.where(mica.abs(input) > lambd, input, 0.0)


def hstack(tensors):
    tensors = [each.reshape(1) if each.dim() == 0 else each for each in tensors]
    return mica.cat(tensors, 0 if tensors[0].dim() == 1 else 1)


def vstack(tensors):
    return mica.cat([each.reshape(1, -1) if each.dim() < 2 else each for each in tensors], 0)


def addmv(input, mat, vec, *, beta=1, alpha=1):
    return input * beta + mv(mat, vec) * alpha


def baddbmm(input, batch1, batch2, *, beta=1, alpha=1):
    return input * beta + mica.matmul(batch1, batch2) * alpha


DECOMPOSED = {
    function.__name__: function
    for function in (
        nan_to_num, clamp_min, clamp_max, diff, any, all, one_hot, softplus,
        multi_head_attention_forward, group_norm, instance_norm, rms_norm, glu, mish, logsigmoid, square, normalize, var, std,
        norm, vector_norm, logsumexp, log1p, expm1, exp2, log2, log10, sinc, roll, repeat_interleave, floor_divide, remainder,
        addcmul, addcdiv, lerp, celu, tanhshrink, threshold, softmin, cosine_similarity, outer, mv, dot, isfinite,
        channel_shuffle, scaled_dot_product_attention, bucketize, atan2, logaddexp, hypot, xlogy, trunc, frac, fmod, deg2rad,
        rad2deg, addmv, baddbmm, erfc, std_mean, var_mean, aminmax, count_nonzero, hardshrink, hstack, vstack,
    )
}  # fmt: skip
# Two operations have one name: F.unfold takes pictures apart, x.unfold a dimension.
DECOMPOSED["unfold"] = lambda input, *args, **kwargs: (
    unfold_of_a_tensor(input, *args)
    if len(args) == 3 and isinstance(args[0], int) and not kwargs
    else unfold(input, *args, **kwargs)
)
DECOMPOSED["__floordiv__"], DECOMPOSED["__mod__"] = floor_divide, remainder
DECOMPOSED["fix"] = trunc
