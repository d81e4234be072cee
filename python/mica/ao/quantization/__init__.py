"""The eager flow: give a model a qconfig, prepare it, run it on examples, convert it."""

import copy

from mica import _C, nn
from mica.ao.nn import intrinsic as nni
from mica.ao.nn import qat
from mica.ao.nn import quantized as nnq
from mica.ao.nn.intrinsic import quantized as nniq
from mica.ao.nn.quantized.functional_modules import FloatFunctional
from mica.ao.quantization import defaults as _defaults
from mica.ao.quantization import qconfig as _qconfig
from mica.ao.quantization.defaults import *  # noqa: F403
from mica.ao.quantization.fake_quantize import (
    FakeQuantize,
    FakeQuantizeBase,
    FixedQParamsFakeQuantize,
    FusedMovingAvgObsFakeQuantize,
    disable_fake_quant,
    disable_observer,
    enable_fake_quant,
    enable_observer,
)
from mica.ao.quantization.fuse_modules import (
    fuse_conv_bn,
    fuse_conv_bn_relu,
    fuse_convtranspose_bn,
    fuse_linear_bn,
    fuse_modules,
    fuse_modules_qat,
    get_fuser_method,
)
from mica.ao.quantization.histogram import HistogramObserver
from mica.ao.quantization.observer import (
    FixedQParamsObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    NoopObserver,
    ObserverBase,
    PerChannelMinMaxObserver,
    PlaceholderObserver,
    RecordingObserver,
    ReuseInputObserver,
    UniformQuantizationObserverBase,
    get_observer_state_dict,
    load_observer_state_dict,
)
from mica.ao.quantization.qconfig import *  # noqa: F403
from mica.ao.quantization.qconfig import QConfig
from mica.nn import Conv2d, Embedding, Linear, Module

__all__ = [
    "DeQuantStub",
    "FakeQuantize",
    "FakeQuantizeBase",
    "FixedQParamsFakeQuantize",
    "FixedQParamsObserver",
    "FloatFunctional",
    "FusedMovingAvgObsFakeQuantize",
    "HistogramObserver",
    "MinMaxObserver",
    "MovingAverageMinMaxObserver",
    "MovingAveragePerChannelMinMaxObserver",
    "NoopObserver",
    "ObserverBase",
    "PerChannelMinMaxObserver",
    "PlaceholderObserver",
    "QConfig",
    "QuantStub",
    "QuantWrapper",
    "RecordingObserver",
    "ReuseInputObserver",
    "UniformQuantizationObserverBase",
    "add_quant_dequant",
    "convert",
    "default_eval_fn",
    "disable_fake_quant",
    "disable_observer",
    "enable_fake_quant",
    "enable_observer",
    "fuse_conv_bn",
    "fuse_conv_bn_relu",
    "fuse_convtranspose_bn",
    "fuse_linear_bn",
    "fuse_modules",
    "fuse_modules_qat",
    "get_dynamic_quant_module_class",
    "get_fuser_method",
    "get_static_quant_module_class",
    "no_observer_set",
    "get_default_dynamic_quant_module_mappings",
    "get_default_qat_module_mappings",
    "get_default_static_quant_module_mappings",
    "get_observer_state_dict",
    "load_observer_state_dict",
    "prepare",
    "prepare_qat",
    "quantize",
    "quantize_dynamic",
    "quantize_qat",
    "swap_module",
    *(
        name
        for module in (_defaults, _qconfig)
        for name in vars(module)
        if "qconfig" in name or "default_" in name or name.endswith("neg_127_to_127")
    ),
]


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


# What a static model has instead, by name. Modules that need no observer keep the scale of their input.
_SAME_NAME = (
    "BatchNorm2d", "BatchNorm3d", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d",
    "ELU", "GroupNorm", "Hardswish", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "LayerNorm", "LeakyReLU",
    "Linear", "PReLU",
)  # fmt: skip
_UNOBSERVED = ("Dropout", "Embedding", "EmbeddingBag", "ReLU6")
_JOINED = {getattr(nni, name): getattr(nniq, name) for name in nniq.__all__}
_OBSERVED = (*(getattr(nn, name) for name in _SAME_NAME), *_JOINED, QuantStub, FloatFunctional)
_STATIC = {
    **{getattr(nn, name): getattr(nnq, name) for name in (*_SAME_NAME, *_UNOBSERVED)},
    QuantStub: nnq.Quantize,
    DeQuantStub: nnq.DeQuantize,
    FloatFunctional: nnq.QFunctional,
    **_JOINED,
}
_DYNAMIC = {
    **{getattr(nn, name): getattr(nnq.dynamic, name) for name in nnq.dynamic.__all__},
    Embedding: nnq.Embedding,
    nn.EmbeddingBag: nnq.EmbeddingBag,
}


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
    for parent, _, child, qconfig in [*_children(model), (None, "", model, getattr(model, "qconfig", None))]:
        if isinstance(parent, nni._FusedModule):
            continue  # the joined module has the observer
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


_TRAINED = {getattr(nn, name): getattr(qat, name) for name in ("Conv1d", "Conv2d", "Conv3d", "Linear")}
_FLOAT = {trained: kind for kind, trained in _TRAINED.items()}


def prepare_qat(model, mapping=None, inplace=False):
    """As prepare, with weights rounded during training."""
    model = prepare(model, inplace)
    mapping = _TRAINED if mapping is None else mapping
    for _, _, child, qconfig in _children(model):
        trained = mapping.get(type(child))
        if trained is not None and qconfig is not None:
            child.qconfig, child.weight_fake_quant = qconfig, qconfig.weight()
            child.__class__ = trained
    return model


def _swap(model, mapping, static):
    for parent, name, child, _ in list(_children(model)):
        kind = _FLOAT.get(type(child), type(child))
        quantized = mapping.get(kind)
        needs_observer = static and kind in _OBSERVED
        if quantized is None or (needs_observer and not hasattr(child, "activation_post_process")):
            continue
        if kind in (Embedding, nn.EmbeddingBag) and static and getattr(child, "qconfig", None) is None:
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


def quantize_qat(model, run_fn, run_args, inplace=False):
    """prepare_qat, run_fn(model, *run_args), convert."""
    model = prepare_qat((model if inplace else copy.deepcopy(model)).train(), inplace=True)
    run_fn(model, *run_args)
    return convert(model, inplace=True)


def default_eval_fn(model, calib_data):
    """Run a model on (input, target) pairs."""
    for data, _ in calib_data:
        model(data)


def add_quant_dequant(module):
    """Put a QuantWrapper around every module that has a qconfig and is to be observed."""
    for name, child in list(module.named_children()):
        setattr(module, name, add_quant_dequant(child))
    is_leaf = isinstance(module, Linear | Conv2d) and getattr(module, "qconfig", None) is not None
    return QuantWrapper(module) if is_leaf else module


def get_default_static_quant_module_mappings():
    """What convert makes of which module."""
    return dict(_STATIC)


def get_default_dynamic_quant_module_mappings():
    """What quantize_dynamic makes of which module."""
    return dict(_DYNAMIC)


def get_default_qat_module_mappings():
    """What prepare_qat makes of which module."""
    return dict(_TRAINED)


def _class_of(kind, mapping):
    found = mapping.get(kind)
    if found is None:
        raise AssertionError(f"Floating point module class {kind} does not have a corresponding quantized module class")
    return found


def get_static_quant_module_class(float_module_class, additional_static_quant_mapping=None, is_custom_module=False):
    """What convert makes of a module of this class."""
    return _class_of(float_module_class, {**_STATIC, **(additional_static_quant_mapping or {})})


def get_dynamic_quant_module_class(float_module_class, additional_dynamic_quant_mapping=None):
    """What quantize_dynamic makes of a module of this class."""
    return _class_of(float_module_class, {**_DYNAMIC, **(additional_dynamic_quant_mapping or {})})


def no_observer_set():
    """The modules that need no observer behind them."""
    return {nnq.Quantize, nnq.DeQuantize, *(getattr(nn, name) for name in _UNOBSERVED)}


def swap_module(mod, mapping, custom_module_class_mapping=None, use_precomputed_fake_quant=False):
    """The quantized form of one observed module, or the module itself where the mapping has none."""
    kind = _FLOAT.get(type(mod), type(mod))
    made = mapping.get(kind)
    return mod if made is None or getattr(mod, "qconfig", None) is None else made.from_float(mod)


def quantize_dynamic(model, qconfig_spec=None, dtype=None, mapping=None, inplace=False):
    """Replace layers by ones with qint8 or float16 weights, which quantize their input as it comes.

    `qconfig_spec` says which: a set of classes or names of submodules, or a dict from them to qconfigs. Without it they are
    the linear and recurrent layers, for quint8 the embeddings.
    """
    dtype = _C.qint8 if dtype is None else dtype
    linear = {Linear, nn.LSTM, nn.GRU}
    usual = {
        _C.qint8: linear | {nn.LSTMCell, nn.RNNCell, nn.GRUCell},
        _C.float16: linear,
        _C.quint8: {Embedding, nn.EmbeddingBag},
    }
    if qconfig_spec is None and dtype not in usual:
        raise ValueError(f"Don't know how to quantize with default settings for {dtype}. Provide full qconfig please")
    mapping = _DYNAMIC if mapping is None else mapping
    wanted = usual[dtype] if qconfig_spec is None else set(qconfig_spec)
    unknown = [kind for kind in wanted if not isinstance(kind, str) and kind not in mapping]
    if unknown:
        raise NotImplementedError(f"quantize_dynamic knows {[k.__name__ for k in mapping]}, not {unknown}")
    model = model if inplace else copy.deepcopy(model)
    model.eval()
    for name, parent, last, child in _named_children(model):
        made = mapping.get(type(child))
        if made is None or not ({type(child), name} & wanted):
            continue
        halves = {"dtype": dtype} if dtype == _C.float16 and made in _HALVES else {}
        setattr(parent, last, made.from_float(child, **halves))
    return model


_HALVES = {getattr(nnq.dynamic, name) for name in nnq.dynamic.__all__ if not name.startswith("Conv")}


def _named_children(model, prefix=""):
    """(full name, parent, name there, module) of every module below."""
    for name, child in list(model.named_children()):
        full = f"{prefix}.{name}" if prefix else name
        yield full, model, name, child
        yield from _named_children(child, full)
