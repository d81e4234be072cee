"""Normalisation by the statistics of a batch."""

import sys

from mica import _C
from mica._C import Tensor
from mica._generated import modules as options

from .. import functional as F
from .. import init
from ..parameter import Parameter, UninitializedBuffer, UninitializedParameter
from .lazy import LazyModuleMixin

__all__ = [
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "LazyBatchNorm1d",
    "LazyBatchNorm2d",
    "LazyBatchNorm3d",
    "SyncBatchNorm",
]


class _NormBase(options._NormBase):
    """What the normalisations by channel share: parameters, running statistics and their place in a state dict."""

    _version = 2  # since 2, num_batches_tracked is saved

    def _make_parameters(self, bias, device, dtype):
        place = {"device": device, "dtype": dtype}
        for name, wanted in (("weight", self.affine), ("bias", self.affine and bias)):
            self.register_parameter(name, Parameter(_C.empty(self.num_features, **place)) if wanted else None)
        if self.track_running_stats:
            self.register_buffer("running_mean", _C.zeros(self.num_features, **place))
            self.register_buffer("running_var", _C.ones(self.num_features, **place))
            self.register_buffer("num_batches_tracked", _C.tensor(0, dtype=_C.long, device=device))
        else:
            for name in ("running_mean", "running_var", "num_batches_tracked"):
                self.register_buffer(name, None)
        self.reset_parameters()

    def reset_running_stats(self):
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self):
        self.reset_running_stats()
        if self.affine:
            init.ones_(self.weight)
            if self.bias is not None:
                init.zeros_(self.bias)

    def _check_input_dim(self, input):
        raise NotImplementedError

    def _load_from_state_dict(
        self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
    ):
        version = local_metadata.get("version", None)
        key = prefix + "num_batches_tracked"
        if (version is None or version < 2) and self.track_running_stats and key not in state_dict:
            count = self.num_batches_tracked
            state_dict[key] = _C.tensor(0, dtype=_C.long) if count is None or count.is_meta else count
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )


class _BatchNorm(_NormBase):
    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        training, momentum = self.training, self.momentum
        running_mean, running_var = self.running_mean, self.running_var
        count = None
        if training and self.track_running_stats:
            count = self.num_batches_tracked
            if count is not None and momentum is None:  # the average of all batches so far
                momentum = 1.0 / (float(count) + 1.0)
        elif training:
            running_mean = running_var = None  # they exist, but must not be changed
        output = F.batch_norm(
            input,
            running_mean,
            running_var,
            self.weight,
            self.bias,
            training or (running_mean is None and running_var is None),
            0.0 if momentum is None else momentum,
            self.eps,
        )
        if count is not None:
            count.add_(1)  # counted last, when nothing can fail any more
        return output


class _LazyNormBase(LazyModuleMixin, _NormBase):
    def __init__(
        self,
        eps=1e-5,
        momentum=0.1,
        affine=True,
        track_running_stats=True,
        device=None,
        dtype=None,
        *,
        bias=True,
    ):
        super().__init__(0, eps, momentum, False, False, device, dtype, bias=False)
        self.affine = affine
        self.track_running_stats = track_running_stats
        place = {"device": device, "dtype": dtype}
        if affine:
            self.weight = UninitializedParameter(**place)
            if bias:
                self.bias = UninitializedParameter(**place)
        if track_running_stats:
            self.running_mean = UninitializedBuffer(**place)
            self.running_var = UninitializedBuffer(**place)
            self.num_batches_tracked = _C.tensor(0, dtype=_C.long, device=device)

    def reset_parameters(self):
        if not self.has_uninitialized_params() and self.num_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input):
        if not self.has_uninitialized_params():
            return
        self.num_features = input.shape[1]
        members = [self.weight, self.bias] if self.affine else []
        members += [self.running_mean, self.running_var] if self.track_running_stats else []
        for tensor in members:
            if tensor is not None:
                tensor.materialize((self.num_features,))
        self.reset_parameters()


class BatchNorm1d(_BatchNorm):
    """Batch normalisation of (batch, channels) or (batch, channels, length). The arguments are those of BatchNorm2d."""

    def _check_input_dim(self, input):
        if input.dim() not in (2, 3):
            raise ValueError(f"expected 2D or 3D input (got {input.dim()}D input)")


class BatchNorm2d(_BatchNorm):
    """Batch normalisation of (batch, channels, height, width): each channel gets mean zero and variance one.

    In training the mean and the variance are those of the batch, and running averages of them are kept. In evaluation the
    running averages are used.

    Args:
        num_features: the number of channels
        eps: is added to the variance, so that nothing is divided by zero
        momentum: the weight of the batch in the running averages; None takes the plain mean of all batches
        affine: whether each channel is then multiplied by a trained `weight` and shifted by a trained `bias`
        track_running_stats: whether running averages are kept; without them, evaluation uses the batch too
        device, dtype: of the parameters and the averages

    Example::

        layer = nn.BatchNorm2d(16)
        layer(torch.randn(8, 16, 32, 32)).shape  # (8, 16, 32, 32)
    """

    def _check_input_dim(self, input):
        if input.dim() != 4:
            raise ValueError(f"expected 4D input (got {input.dim()}D input)")


class BatchNorm3d(_BatchNorm):
    """Batch normalisation of (batch, channels, depth, height, width). The arguments are those of BatchNorm2d."""

    def _check_input_dim(self, input):
        if input.dim() != 5:
            raise ValueError(f"expected 5D input (got {input.dim()}D input)")


class LazyBatchNorm1d(_LazyNormBase, _BatchNorm):
    """BatchNorm1d that takes its number of channels from the first input."""

    cls_to_become = BatchNorm1d
    _check_input_dim = BatchNorm1d._check_input_dim


class LazyBatchNorm2d(_LazyNormBase, _BatchNorm):
    """BatchNorm2d that takes its number of channels from the first input."""

    cls_to_become = BatchNorm2d
    _check_input_dim = BatchNorm2d._check_input_dim


class LazyBatchNorm3d(_LazyNormBase, _BatchNorm):
    """BatchNorm3d that takes its number of channels from the first input."""

    cls_to_become = BatchNorm3d
    _check_input_dim = BatchNorm3d._check_input_dim


class SyncBatchNorm(_BatchNorm):
    """Batch normalisation over the batches of all processes. With one process it is BatchNorm."""

    def __init__(
        self,
        num_features,
        eps=1e-5,
        momentum=0.1,
        affine=True,
        track_running_stats=True,
        process_group=None,
        device=None,
        dtype=None,
        *,
        bias=True,
    ):
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)
        self.process_group = process_group

    def _check_input_dim(self, input):
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")
        if input.size(1) == 0:
            raise ValueError("SyncBatchNorm number of input channels should be non-zero")

    def forward(self, input):
        world = sys.modules.get("mica.distributed.world")  # only a program of several processes has loaded it
        size = world.get_world_size(self.process_group) if world is not None and world.is_initialized() else 1
        if not self.training or size == 1:
            return super().forward(input)
        from mica.nn.modules._functions import SyncBatchNorm as Synchronised

        self._check_input_dim(input)
        momentum, count = self.momentum, None
        if self.track_running_stats:
            count = self.num_batches_tracked
            if momentum is None:  # the average of all batches so far
                momentum = 1.0 / (float(count) + 1.0)
        running = (self.running_mean, self.running_var) if self.track_running_stats else (None, None)
        output = Synchronised.apply(
            input, self.weight, self.bias, *running, self.eps, momentum or 0.0, self.process_group, size,
        )  # fmt: skip
        if count is not None:
            count.add_(1)
        return output

    @classmethod
    def convert_sync_batchnorm(cls, module, process_group=None):
        """The module with every BatchNorm in it replaced; parameters and statistics are shared, not copied."""
        result = module
        if isinstance(module, _BatchNorm):
            result = SyncBatchNorm(
                module.num_features,
                module.eps,
                module.momentum,
                module.affine,
                module.track_running_stats,
                process_group,
                bias=module.bias is not None,
            )
            if module.affine:
                result.weight = module.weight
                result.bias = module.bias
            result.running_mean = module.running_mean
            result.running_var = module.running_var
            result.num_batches_tracked = module.num_batches_tracked
            result.training = module.training
            if hasattr(module, "qconfig"):
                result.qconfig = module.qconfig
        for name, child in module.named_children():
            result.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return result
