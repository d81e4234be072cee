"""The eager flow: give a model a qconfig, prepare it, run it on examples, convert it."""

import copy
from collections import namedtuple

from mica import _C
from mica.ao.nn import quantized as nnq
from mica.ao.quantization.observer import (
    FakeQuantize,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    ObserverBase,
    PerChannelMinMaxObserver,
    PlaceholderObserver,
    default_fake_quant,
    default_observer,
    default_per_channel_weight_observer,
    default_weight_fake_quant,
    default_weight_observer,
)
from mica.nn import BatchNorm2d, Conv2d, Embedding, Identity, Linear, Module

__all__ = [
    "DeQuantStub",
    "FakeQuantize",
    "FloatFunctional",
    "MinMaxObserver",
    "MovingAverageMinMaxObserver",
    "MovingAveragePerChannelMinMaxObserver",
    "ObserverBase",
    "PerChannelMinMaxObserver",
    "PlaceholderObserver",
    "QConfig",
    "QuantStub",
    "QuantWrapper",
    "convert",
    "default_dynamic_qconfig",
    "default_fake_quant",
    "default_observer",
    "default_per_channel_weight_observer",
    "default_qat_qconfig",
    "default_qconfig",
    "default_weight_fake_quant",
    "default_weight_observer",
    "fuse_modules",
    "get_default_qat_qconfig",
    "get_default_qconfig",
    "prepare",
    "prepare_qat",
    "quantize",
    "quantize_dynamic",
]

QConfig = namedtuple("QConfig", ["activation", "weight"])
default_qconfig = QConfig(default_observer, default_weight_observer)
default_qat_qconfig = QConfig(default_fake_quant, default_weight_fake_quant)
default_dynamic_qconfig = QConfig(PlaceholderObserver, default_weight_observer)


def get_default_qconfig(backend="x86"):
    """Activations per tensor in quint8, weights per channel in qint8; the same for every backend."""
    return QConfig(MinMaxObserver.with_args(dtype=_C.quint8), default_per_channel_weight_observer)


def get_default_qat_qconfig(backend="x86"):
    """As get_default_qconfig, for training."""
    weight = FakeQuantize.with_args(
        observer=MovingAveragePerChannelMinMaxObserver,
        dtype=_C.qint8,
        qscheme=default_per_channel_weight_observer.keywords["qscheme"],
    )
    return QConfig(default_fake_quant, weight)


class QuantStub(Module):
    """Marks where numbers become quantized: an observer in the prepared model, Quantize in the converted one."""

    def __init__(self, qconfig=None):
        super().__init__()
        if qconfig is not None:
            self.qconfig = qconfig

    def forward(self, x):
        return x


class DeQuantStub(Module):
    """Marks where numbers become float32 again."""

    def forward(self, x):
        return x


class FloatFunctional(Module):
    """Sums and products that are to be observed."""

    def add(self, x, y):
        """x + y"""
        return self._observed(x + y)

    def add_relu(self, x, y):
        """relu(x + y)"""
        return self._observed((x + y).relu())

    def mul(self, x, y):
        """x * y"""
        return self._observed(x * y)

    def cat(self, tensors, dim=0):
        """The tensors joined."""
        return self._observed(_C.cat(tensors, dim))

    def _observed(self, x):
        observer = getattr(self, "activation_post_process", None)
        return x if observer is None else observer(x)


class QuantWrapper(Module):
    """A module between a QuantStub and a DeQuantStub."""

    def __init__(self, module):
        super().__init__()
        if hasattr(module, "qconfig"):
            self.qconfig = module.qconfig
        self.quant, self.dequant = QuantStub(), DeQuantStub()
        self.module = module

    def forward(self, x):
        return self.dequant(self.module(self.quant(x)))


_OBSERVED = (Linear, Conv2d, QuantStub, FloatFunctional)
_STATIC = {
    Linear: nnq.Linear,
    Conv2d: nnq.Conv2d,
    QuantStub: nnq.Quantize,
    DeQuantStub: nnq.DeQuantize,
    FloatFunctional: nnq.QFunctional,
    Embedding: nnq.Embedding,
}
_DYNAMIC = {Linear: nnq.dynamic.Linear, Embedding: nnq.Embedding}


def _children(module, qconfig=None):
    """(parent, name, child, its qconfig) of every module below, the outermost first."""
    qconfig = getattr(module, "qconfig", qconfig)
    for name, child in list(module.named_children()):
        own = getattr(child, "qconfig", qconfig)
        yield module, name, child, own
        yield from _children(child, own)


def _observe(module, arguments, output):
    return module.activation_post_process(output)


def prepare(model, inplace=False):
    """Put observers behind the modules that have a qconfig; then run the model on examples."""
    model = model if inplace else copy.deepcopy(model)
    found = False
    for _, _, child, qconfig in [*_children(model), (None, "", model, getattr(model, "qconfig", None))]:
        if qconfig is None or not isinstance(child, _OBSERVED) or hasattr(child, "activation_post_process"):
            continue
        found = True
        child.qconfig = qconfig
        child.activation_post_process = qconfig.activation()
        if not isinstance(child, FloatFunctional):
            child.register_forward_hook(_observe)
    if not found:
        import warnings

        warnings.warn("None of the submodule got qconfig applied. Set model.qconfig before prepare().", stacklevel=2)
    return model


class _TrainedLinear(Linear):
    """A linear layer whose weight is rounded as it will be when quantized."""

    def forward(self, x):
        return _C._nn_functional.linear(x, self.weight_fake_quant(self.weight), self.bias)


class _TrainedConv2d(Conv2d):
    """A convolution whose weight is rounded as it will be when quantized."""

    def forward(self, x):
        return self._conv_forward(x, self.weight_fake_quant(self.weight), self.bias)


def prepare_qat(model, inplace=False):
    """As prepare, with weights rounded during training."""
    model = prepare(model, inplace)
    for _, _, child, qconfig in _children(model):
        trained = {Linear: _TrainedLinear, Conv2d: _TrainedConv2d}.get(type(child))
        if trained is not None and qconfig is not None:
            child.weight_fake_quant = qconfig.weight()
            child.__class__ = trained
    return model


def _swap(model, mapping, static):
    for parent, name, child, _ in list(_children(model)):
        kind = {_TrainedLinear: Linear, _TrainedConv2d: Conv2d}.get(type(child), type(child))
        quantized = mapping.get(kind)
        needs_observer = static and kind in _OBSERVED
        if quantized is None or (needs_observer and not hasattr(child, "activation_post_process")):
            continue
        if kind is Embedding and static and getattr(child, "qconfig", None) is None:
            continue
        setattr(parent, name, quantized.from_float(child))
    return model


def convert(module, inplace=False):
    """Replace observed modules by quantized ones, with the scales that the observers have found."""
    module = module if inplace else copy.deepcopy(module)
    return _swap(module.eval(), _STATIC, static=True)


def quantize(model, run_fn, run_args, inplace=False):
    """prepare, run_fn(model, *run_args), convert."""
    model = prepare(model.eval(), inplace)
    run_fn(model, *run_args)
    return convert(model, inplace=True)


def quantize_dynamic(model, qconfig_spec=None, dtype=None, inplace=False):
    """Replace linear layers (or the given types) by ones with qint8 weights that quantize their input as it comes."""
    if dtype not in (None, _C.qint8):
        raise NotImplementedError(f"quantize_dynamic makes qint8 weights, not {dtype}")
    wanted = {Linear} if qconfig_spec is None else set(qconfig_spec)
    unknown = [kind for kind in wanted if kind not in _DYNAMIC]
    if unknown:
        raise NotImplementedError(f"quantize_dynamic knows {[k.__name__ for k in _DYNAMIC]}, not {unknown}")
    model = model if inplace else copy.deepcopy(model)
    return _swap(model.eval(), {kind: _DYNAMIC[kind] for kind in wanted}, static=False)


def fuse_modules(model, modules_to_fuse, inplace=False):
    """Fold batch normalization into the convolution before it; activations stay modules, which quantized tensors pass."""
    from mica.nn.utils.fusion import fuse_conv_bn_eval

    model = model if inplace else copy.deepcopy(model)
    groups = [modules_to_fuse] if isinstance(modules_to_fuse[0], str) else modules_to_fuse
    for names in groups:
        first, *rest = (model.get_submodule(name) for name in names)
        if isinstance(first, Conv2d) and rest and isinstance(rest[0], BatchNorm2d):
            _set_submodule(model, names[0], fuse_conv_bn_eval(first, rest[0]))
            _set_submodule(model, names[1], Identity())
    return model


def _set_submodule(model, name, module):
    parent, _, last = name.rpartition(".")
    setattr(model.get_submodule(parent) if parent else model, last, module)
