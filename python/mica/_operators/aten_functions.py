"""Functions of operators that torch.ops.aten has beside the table's: other names, and small compositions."""

import math

import mica
from mica._operators import passes
from mica._operators.resizing import resized
from mica._operators.traced import OF_LENGTHS, current_trace
from mica.nn import functional as F

_REDUCTIONS = ("none", "mean", "sum")
# Operators that are methods of tensors, or functions of a namespace, under their own name.
_METHODS = frozenset(
    [
        "dim",
        "element_size",
        "is_complex",
        "is_conj",
        "is_contiguous",
        "is_floating_point",
        "is_inference",
        "is_leaf",
        "is_neg",
        "is_nonzero",
        "is_pinned",
        "is_signed",
        "numel",
        "pin_memory",
        "requires_grad_",
        "retain_grad",
        "size",
        "storage_offset",
        "stride",
        "__and__",
        "__iand__",
        "__ior__",
        "__ixor__",
        "__lshift__",
        "__ilshift__",
        "__irshift__",
        "__or__",
        "__rshift__",
        "__xor__",
        "detach_",
        "get_device",
    ]
)
_FUNCTIONS = frozenset(
    [
        "atleast_1d",
        "atleast_2d",
        "atleast_3d",
        "block_diag",
        "broadcast_tensors",
        "can_cast",
        "cartesian_prod",
        "chain_matmul",
        "einsum",
        "histogramdd",
        "meshgrid",
        "nuclear_norm",
        "promote_types",
        "result_type",
        "segment_reduce",
        "sparse_bsc_tensor",
        "sparse_bsr_tensor",
        "sparse_compressed_tensor",
        "sparse_coo_tensor",
        "sparse_csc_tensor",
        "sparse_csr_tensor",
        "unique_consecutive",
    ]
)
_PROPERTIES = {"data": "data", "mH": "mH", "mT": "mT", "matrix_H": "H", "numpy_T": "T"}


def find(name):
    """The function of an operator; None if there is none."""
    own = globals().get(f"op_{name}") or getattr(passes, f"op_{name}", None)
    if own is not None:
        return own
    if name in _METHODS:
        return getattr(mica.Tensor, name, None)
    if name.startswith("_foreach_") or name in _FUNCTIONS:
        return getattr(mica, name, None)
    if name.startswith("special_"):
        return getattr(mica.special, name.removeprefix("special_"), None)
    if name in _PROPERTIES:
        return lambda self: getattr(self, _PROPERTIES[name])
    if name.startswith(("reflection_pad", "replication_pad")) and not name.endswith("backward"):
        return _padding("reflect" if name.startswith("reflection") else "replicate", 2 * int(name[-2]))
    if name.startswith(("upsample_", "_upsample_")):
        return passes.of_upsampling(_upsampling(name)) if name.endswith("_backward") else _upsampling(name)
    return None


def _padding(mode, count):
    def pad(self, padding):
        if len(padding) != count:
            raise RuntimeError(f"padding size is expected to be {count}, but got: {len(padding)}")
        return F.pad(self, padding, mode)

    return pad


def _upsampling(name):
    modes = ("nearest_exact", "nearest", "bilinear", "bicubic", "trilinear", "linear")
    mode = next((m for m in modes if m in name), None)
    if mode is None:
        return None
    name = name.removesuffix("_backward")
    corners = mode in ("bilinear", "bicubic", "trilinear", "linear")

    def upsample(input, output_size, align_corners=None, *scales, out=None, **named):
        made = upsampled(input, output_size, align_corners, *scales, **named)
        return made if out is None else _written(name, made, out)

    def upsampled(
        input, output_size, align_corners=None, *scales, scales_d=None, scales_h=None, scales_w=None, scale_factors=None
    ):
        if not corners:
            scales, align_corners = (align_corners, *scales), None
        if scale_factors is not None:
            scales = (scale_factors,)
        if any(scale is not None for scale in (scales_d, scales_h, scales_w)):
            scales = (scales_d, scales_h, scales_w)[5 - input.dim() :]
        # Scales without a size come as one list. Beside a size they only say how places are found.
        if output_size is None:
            return F.interpolate(input, None, list(scales[0]), mode.replace("_", "-"), align_corners)
        return resized(input, output_size, mode.replace("_", "-"), align_corners, name.endswith("_aa"), scales)

    return upsample


def op_tensordot(self, other, dims_self, dims_other, *, out=None):
    return mica.tensordot(self, other, (dims_self, dims_other), out=out)


def _written(name, made, out):
    """Write the result of an operator that has no form with out= to `out`, which keeps its strides if it has the shape."""
    if mica.is_grad_enabled() and (made.requires_grad or out.requires_grad):
        raise RuntimeError(
            f"{name}(): functions with out=... arguments don't support automatic differentiation, but one of the "
            "arguments requires grad."
        )
    if out.dtype != made.dtype:
        raise RuntimeError(f"Expected out tensor to have dtype {made.dtype} but got {out.dtype} instead")
    if out.device != made.device:
        raise RuntimeError(
            f"Attempting to copy from device {made.device} to device {out.device}, but cross-device copies are not allowed!"
        )
    return mica.mul(made, 1, out=out)  # mul warns where it has to resize a tensor with elements


def op__to_copy(self, *, dtype=None, layout=None, device=None, pin_memory=None, non_blocking=False, memory_format=None):
    made = self.to(
        device=self.device if device is None else device,
        dtype=self.dtype if dtype is None else dtype,
        non_blocking=non_blocking,
        copy=True,
        memory_format=mica.preserve_format if memory_format is None else memory_format,
    )
    return made.pin_memory() if pin_memory else made


def op_to(self, *args, layout=None, pin_memory=None, **kwargs):
    if layout not in (None, self.layout):
        raise NotImplementedError(f"aten.to cannot make a tensor of {layout} of one of {self.layout}")
    kwargs = {name: value for name, value in kwargs.items() if value is not None}
    made = self.to(*args, **kwargs) if args or kwargs else self
    return made.pin_memory() if pin_memory else made


def op_alias(self):
    return self.view(self.shape) if self.layout == mica.strided else self


op_lift = op_lift_fresh = lambda self: self
op_lift_fresh_copy = mica.clone


def op_copy(self, src, non_blocking=False):
    return self.clone().copy_(src)


def op_resize(self, size, *, memory_format=None):
    """A copy with another size. It has the elements in the order in which they lie in memory; further ones have no value
    yet."""
    made = mica.empty(size, dtype=self.dtype, device=self.device, memory_format=memory_format or mica.contiguous_format)
    return _with_first_elements(made, self)


def op_resize_as(self, the_template, *, memory_format=None):
    """A copy with the size of another tensor: see op_resize."""
    if memory_format is not mica.preserve_format:
        return op_resize(self, the_template.shape, memory_format=memory_format)
    made = mica.empty_like(the_template, dtype=self.dtype, device=self.device)
    return _with_first_elements(made, self)


def _with_first_elements(made, source):
    """A tensor with the elements of another, as many as it has room for, both in their order in memory."""
    count = min(made.numel(), source.numel())
    if count:
        kept = source.clone().as_strided((count,), (1,))
        made.as_strided((count,), (1,)).copy_(kept)
    return made


def op_slice(self, dim=0, start=None, end=None, step=1):
    index = [slice(None)] * self.dim()
    index[dim] = slice(start, None if end is not None and end >= 2**62 else end, step)
    return self[tuple(index)]


def op_index(self, indices):
    return self[tuple(slice(None) if index is None else index for index in indices)]


op__unsafe_index = op_index
op__reshape_alias = lambda self, size, stride: self.as_strided(size, stride)  # noqa: E731


def op__local_scalar_dense(self):
    if self.numel() == 0:
        raise RuntimeError("_local_scalar_dense: Empty tensor not supported")
    return self.item()


def op_item(self):
    return self.item()


def op__assert_scalar(self, assert_msg):
    if isinstance(self, mica.SymBool):
        self.node.shape_env.assume(self.node._expr)
    elif not self:
        raise RuntimeError(assert_msg)


def op__assert_async(self, assert_msg=None):
    trace = current_trace()
    if trace is not None:
        packet, given = mica.ops.aten._assert_async, () if assert_msg is None else (assert_msg,)
        trace.record_call(packet.msg if given else packet.default, (self, *given), None, "_assert_async")
        with trace.within_operator():
            return _raise_unless(self, assert_msg)
    _raise_unless(self, assert_msg)


def _raise_unless(condition, message):
    has_values = not isinstance(condition, mica._subclasses.FakeTensor) and condition.device.type != "meta"
    if has_values and not bool(condition):
        raise RuntimeError("Expected Tensor with single nonzero value, but got zero" if message is None else message)


def _of_all_examples(x):
    """For an example under vmap, the values of all examples: a number is asked for, which all share."""
    while hasattr(x, "_batch_value"):
        x = x._batch_value
    return x


op__is_all_true = lambda self: _of_all_examples(self).all()  # noqa: E731
op__is_any_true = lambda self: _of_all_examples(self).any()  # noqa: E731
op__shape_as_tensor = lambda self: mica.tensor(self.shape, dtype=mica.int64)  # noqa: E731
# Uses the tensor's own methods, since sizes of a fake tensor may be open.
op_sym_size = lambda self, dim=None: self.size(dim)  # noqa: E731
op_sym_stride = lambda self, dim=None: self.stride(dim)  # noqa: E731
op_sym_numel = lambda self: self.numel()  # noqa: E731
op_sym_storage_offset = mica.Tensor.storage_offset


def op__softmax(self, dim, half_to_float=False):
    return self.softmax(dim, mica.float32 if half_to_float else None)


def op__log_softmax(self, dim, half_to_float=False):
    return self.log_softmax(dim, mica.float32 if half_to_float else None)


def op__safe_softmax(self, dim, dtype=None):
    hidden = (self == -math.inf).all(dim, keepdim=True)
    return self.softmax(dim, dtype).masked_fill(hidden, 0)


def op_native_dropout(input, p, train=True):
    if not train:
        return input.clone(), mica.ones_like(input, dtype=mica.bool)
    kept = mica.empty_like(input).bernoulli_(1 - p)
    return input * kept * (0.0 if p == 1 else 1 / (1 - p)), kept.bool()


def op_native_dropout_backward(grad_output, mask, scale):
    return grad_output * mask * scale


def _drawn(name):
    """Random numbers of a tensor's shape and dtype, by the method that draws them in place."""

    def draw(self, *args, **kwargs):
        return getattr(mica.empty_like(self), name)(*args, **kwargs)

    return draw


op_normal_functional = _drawn("normal_")
op_exponential = _drawn("exponential_")
op_geometric = _drawn("geometric_")
op_log_normal = _drawn("log_normal_")
op_cauchy = _drawn("cauchy_")
op_random = _drawn("random_")
OF_OVERLOADS = {"bernoulli.Tensor": _drawn("bernoulli_"), **OF_LENGTHS}


def op_embedding_renorm(self, indices, max_norm, norm_type):
    return mica.embedding_renorm_(self.clone(), indices, max_norm, norm_type)


def _loss(function, middle=()):
    """A loss whose reduction is a number: 0 none, 1 mean, 2 sum."""

    def loss(self, target, *args, **kwargs):
        values = dict(zip((*middle, "reduction", *_AFTER.get(function, ())), args, strict=False)) | kwargs
        values["reduction"] = _REDUCTIONS[values.get("reduction", 1)]
        return function(self, target, **values)

    return loss


_AFTER = {F.nll_loss: ("ignore_index",), F.cross_entropy: ("ignore_index", "label_smoothing"), F.huber_loss: ("delta",),
          F.smooth_l1_loss: ("beta",)}  # fmt: skip
op_mse_loss = _loss(F.mse_loss)
op_l1_loss = _loss(F.l1_loss)
op_huber_loss = _loss(F.huber_loss)
op_smooth_l1_loss = _loss(F.smooth_l1_loss)
op_soft_margin_loss = _loss(F.soft_margin_loss)
op_multilabel_margin_loss = _loss(F.multilabel_margin_loss)
op_multi_margin_loss = _loss(F.multi_margin_loss, ("p", "margin", "weight"))
op_binary_cross_entropy = _loss(F.binary_cross_entropy, ("weight",))
op_nll_loss = op_nll_loss_nd = op_nll_loss2d = _loss(F.nll_loss, ("weight",))
op_cross_entropy_loss = _loss(F.cross_entropy, ("weight",))


def op_max_pool2d_with_indices(self, kernel_size, stride=(), padding=0, dilation=1, ceil_mode=False):
    return F.max_pool2d(self, kernel_size, stride or None, padding, dilation, ceil_mode, return_indices=True)


def op_max_pool3d_with_indices(self, kernel_size, stride=(), padding=0, dilation=1, ceil_mode=False):
    return F.max_pool3d(self, kernel_size, stride or None, padding, dilation, ceil_mode, return_indices=True)


op__adaptive_avg_pool2d = F.adaptive_avg_pool2d
op__adaptive_avg_pool3d = F.adaptive_avg_pool3d
op_unique_dim = lambda self, dim, sorted=True, return_inverse=False, return_counts=False: mica.unique(  # noqa: E731
    self, sorted, return_inverse, return_counts, dim
)
op__unique2 = mica._C._unique2


def op__unique(self, sorted=True, return_inverse=False):
    return mica._C._unique2(self, sorted, return_inverse, False)[:2]


def op_unique_dim_consecutive(self, dim, return_inverse=False, return_counts=False):
    return mica._C._unique_consecutive(self, True, True, dim)


def op__assert_tensor_metadata(a, size=None, stride=None, dtype=None, *, device=None, layout=None):
    """Raises if a tensor is not what a program was made for."""
    for what, wanted, given in (
        ("sizes", None if size is None else list(size), list(a.shape)),
        ("strides", None if stride is None else list(stride), list(a.stride()) if a.layout is mica.strided else None),
        ("dtype", dtype, a.dtype),
        ("device type", None if device is None else mica.device(device).type, a.device.type),
        ("layout", layout, a.layout),
    ):
        if wanted is not None and wanted != given:
            raise RuntimeError(f"Tensor {what} mismatch! Expected: {wanted}, Got: {given}")


def op__native_batch_norm_legit(input, weight, bias, *rest, **named):
    """native_batch_norm; without running statistics, training, momentum and eps follow the bias at once."""
    if len(rest) + len(named) == 3 and "running_mean" not in named:
        rest = (None, None, *rest)
    return mica.native_batch_norm(input, weight, bias, *rest, **named)


def op__native_batch_norm_legit_functional(input, weight, bias, running_mean, running_var, training, momentum, eps):
    """native_batch_norm that leaves the running statistics as they are, and returns the new ones."""
    mean, var = running_mean.clone(), running_var.clone()
    return (*mica.native_batch_norm(input, weight, bias, mean, var, training, momentum, eps), mean, var)


def op__native_batch_norm_legit_no_training(input, weight, bias, running_mean, running_var, momentum, eps):
    return mica.native_batch_norm(input, weight, bias, running_mean, running_var, False, momentum, eps)
