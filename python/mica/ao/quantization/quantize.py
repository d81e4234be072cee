"""Prepare a model, run it on examples, convert it."""

import copy

from mica import _C, nn
from mica.ao.nn import intrinsic as nni
from mica.ao.nn import qat
from mica.ao.nn import quantized as nnq
from mica.ao.nn.intrinsic import qat as nniqat
from mica.ao.nn.intrinsic import quantized as nniq
from mica.ao.nn.quantized.functional_modules import FloatFunctional
from mica.ao.quantization import qconfig as qconfigs
from mica.ao.quantization.fake_quantize import FakeQuantizeBase
from mica.ao.quantization.observer import ObserverBase
from mica.ao.quantization.stubs import DeQuantStub, QuantStub, QuantWrapper
from mica.nn import Conv2d, Embedding, Linear

__all__ = [
    "add_quant_dequant",
    "convert",
    "default_eval_fn",
    "get_default_custom_config_dict",
    "get_default_dynamic_quant_module_mappings",
    "get_default_qat_module_mappings",
    "get_default_static_quant_module_mappings",
    "get_dynamic_quant_module_class",
    "get_static_quant_module_class",
    "no_observer_set",
    "prepare",
    "prepare_qat",
    "quantize",
    "quantize_dynamic",
    "quantize_qat",
    "swap_module",
]

# The quantized modules that a static model has instead, by name. Modules that need no observer keep the scale of their
# input.
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
    **{made: _JOINED.get(joined) for joined, made in nniqat.TRAINED.items() if joined in _JOINED},
    **{getattr(nniqat, f"ConvBn{d}d"): getattr(nnq, f"Conv{d}d") for d in (1, 2, 3)},
    **{getattr(nniqat, f"ConvBnReLU{d}d"): getattr(nniq, f"ConvReLU{d}d") for d in (1, 2, 3)},
    nniqat.LinearBn1d: nnq.Linear,
}
_DYNAMIC = {
    **{getattr(nn, name): getattr(nnq.dynamic, name) for name in nnq.dynamic.__all__},
    Embedding: nnq.Embedding,
    nn.EmbeddingBag: nnq.EmbeddingBag,
}


def get_default_custom_config_dict():
    """Which modules have an observed form of their own, made of parts that can be observed, and what becomes of it."""
    from mica.ao.nn import quantizable

    return {
        "float_to_observed_custom_module_class": {
            nn.LSTM: quantizable.LSTM,
            nn.MultiheadAttention: quantizable.MultiheadAttention,
        },
        "observed_to_quantized_custom_module_class": {
            quantizable.LSTM: nnq.LSTM,
            quantizable.MultiheadAttention: nnq.MultiheadAttention,
        },
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


def _has_observer(module):
    """Whether something observes the module's result. A FloatFunctional has an Identity until then."""
    return not isinstance(getattr(module, "activation_post_process", None), nn.Identity | None)


def _put_observer(module, qconfig):
    module.qconfig = qconfig
    module.activation_post_process = qconfig.activation()
    if not isinstance(module, FloatFunctional):
        module.register_forward_hook(_observe)


def _prepare_one(module, qconfig, kinds):
    """Put an observer behind one module, if it is to have one; whether it has."""
    wanted = qconfig is not None and isinstance(module, kinds) and not _has_observer(module)
    if wanted:
        _put_observer(module, qconfig)
    return wanted


def _is_joined(module):
    return isinstance(module, nni._FusedModule) or getattr(module, "_is_joined", False)


def _prepare_below(module, qconfig, kinds, custom):
    found = False
    for name, child in list(module.named_children()):
        own = getattr(child, "qconfig", qconfig)
        observed = custom.get(type(child)) if own is not None else None
        if observed is not None:
            child.qconfig = own
            made = observed.from_float(child)
            setattr(module, name, made)
            if not issubclass(observed, tuple(no_observer_set())):
                _put_observer(made, own)
            found = True
            continue
        if not _is_joined(child):  # a joined module has the observer, not its parts
            found |= _prepare_below(child, own, kinds, custom)
        found |= _prepare_one(child, own, kinds)
    return found


def prepare(model, inplace=False, allow_list=None, observer_non_leaf_module_list=None, prepare_custom_config_dict=None):
    """Put observers behind the modules that have a qconfig; then run the model on examples.

    LSTM and MultiheadAttention become their quantizable forms. `prepare_custom_config_dict` names others.
    """
    custom = get_default_custom_config_dict() if prepare_custom_config_dict is None else prepare_custom_config_dict
    custom = custom.get("float_to_observed_custom_module_class", {})
    kinds = (*(_OBSERVED if allow_list is None else allow_list), *(observer_non_leaf_module_list or ()))
    model = model if inplace else copy.deepcopy(model)
    qconfig = getattr(model, "qconfig", None)
    found = _prepare_below(model, qconfig, kinds, custom)
    if not (_prepare_one(model, qconfig, kinds) or found):
        import warnings

        warnings.warn("None of the submodule got qconfig applied. Set model.qconfig before prepare().", stacklevel=2)
    return model


_TRAINED = {getattr(nn, name): getattr(qat, name) for name in ("Conv1d", "Conv2d", "Conv3d", "Linear")}
_FLOAT = {trained: kind for kind, trained in _TRAINED.items()}
_TRAINED |= nniqat.TRAINED


def prepare_qat(model, mapping=None, inplace=False):
    """As prepare, with weights rounded during training."""
    if not model.training:
        raise AssertionError("prepare_qat only works on models in training mode")
    model = model if inplace else copy.deepcopy(model)
    mapping = _TRAINED if mapping is None else mapping
    _train_below(model, getattr(model, "qconfig", None), mapping)
    return prepare(model, inplace=True)


def _train_below(module, qconfig, mapping):
    """Give the layers below a module that have a qconfig the rounding of their weights."""
    for name, child in list(module.named_children()):
        own = getattr(child, "qconfig", qconfig)
        trained = mapping.get(type(child)) if own is not None else None
        if trained is None:
            _train_below(child, own, mapping)
        elif isinstance(child, nni._FusedModule):
            setattr(module, name, trained_form(child, own, trained))
        else:
            _draw_weights(child)
            child.qconfig, child.weight_fake_quant = own, own.weight()
            child.__class__ = trained


def trained_form(joined, qconfig, kind):
    """The trained form of a joined module. Numbers are drawn as where torch makes a new one first."""
    joined.qconfig = qconfig
    first = joined[0]
    if issubclass(kind, nniqat._WithNorm):
        _draw_weights(first, with_bias=isinstance(first, nn.Linear))
        _C.empty_like(joined[1].weight).uniform_()
        if first.bias is not None and not isinstance(first, nn.Linear):
            _C.empty_like(first.bias).uniform_()
    else:
        _draw_weights(first)
    made = kind.from_float(joined)
    for hooks in ("_forward_hooks", "_forward_pre_hooks"):
        getattr(made, hooks).update(getattr(joined, hooks))
    return made


def _draw_weights(layer, with_bias=True):
    """Draw the random numbers that a new layer of this kind would draw. torch makes one here, so that later draws agree."""
    like = copy.copy(layer)
    like._parameters = {n: None if p is None else nn.Parameter(_C.empty_like(p)) for n, p in layer._parameters.items()}
    if not with_bias:
        like._parameters["bias"] = None
    like.reset_parameters()


def _swap_below(module, mapping, custom):
    for name, child in list(module.named_children()):
        kind = _FLOAT.get(type(child), type(child))
        if kind in custom:
            setattr(module, name, custom[kind].from_observed(child))
            continue
        if not _is_joined(child):
            _swap_below(child, mapping, custom)
        quantized = mapping.get(kind)
        unseen = kind in _OBSERVED and not _has_observer(child)
        unasked = kind in (Embedding, nn.EmbeddingBag) and getattr(child, "qconfig", None) is None
        if quantized is not None and not unseen and not unasked:
            setattr(module, name, quantized.from_float(child))


def _remove_qconfig(module):
    """Remove observers and qconfigs from a model, so that it can be prepared anew."""
    _forget(module, True)


def _forget(module, and_qconfigs):
    """Remove remaining observers and the qconfigs from a converted model."""
    for part in module.modules():
        observer = part._modules.get("activation_post_process")
        if isinstance(observer, ObserverBase | FakeQuantizeBase):
            del part.activation_post_process
            for number, hook in list(part._forward_hooks.items()):
                if hook is _observe:
                    del part._forward_hooks[number]
        if and_qconfigs:
            part.__dict__.pop("qconfig", None)


def convert(
    module,
    mapping=None,
    inplace=False,
    remove_qconfig=True,
    is_reference=False,
    convert_custom_config_dict=None,
    use_precomputed_fake_quant=False,
):
    """Replace observed modules by quantized ones, with the scales that the observers have found."""
    if use_precomputed_fake_quant:
        raise NotImplementedError("convert(use_precomputed_fake_quant=True): weights are looked at again here")
    if is_reference:
        raise NotImplementedError("convert makes quantized modules, not torch's reference ones: is_reference=False")
    custom = get_default_custom_config_dict() if convert_custom_config_dict is None else convert_custom_config_dict
    module = module if inplace else copy.deepcopy(module)
    mapping = _STATIC if mapping is None else mapping
    _swap_below(module.eval(), mapping, custom.get("observed_to_quantized_custom_module_class", {}))
    _forget(module, remove_qconfig)
    return module


def quantize(model, run_fn, run_args, mapping=None, inplace=False):
    """prepare, run_fn(model, *run_args), convert."""
    model = prepare(model.eval(), inplace)
    run_fn(model, *run_args)
    return convert(model, mapping, inplace=True)


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
    """Class of a module -> the class that convert makes of it."""
    return dict(_STATIC)


def get_default_dynamic_quant_module_mappings():
    """Class of a module -> the class that quantize_dynamic makes of it."""
    return dict(_DYNAMIC)


def get_default_qat_module_mappings():
    """Class of a module -> the class that prepare_qat makes of it."""
    return dict(_TRAINED)


def _class_of(kind, mapping):
    found = mapping.get(kind)
    if found is None:
        raise AssertionError(f"Floating point module class {kind} does not have a corresponding quantized module class")
    return found


def get_static_quant_module_class(float_module_class, additional_static_quant_mapping=None, is_custom_module=False):
    """The class that convert makes of a module of this class."""
    return _class_of(float_module_class, {**_STATIC, **(additional_static_quant_mapping or {})})


def get_dynamic_quant_module_class(float_module_class, additional_dynamic_quant_mapping=None):
    """The class that quantize_dynamic makes of a module of this class."""
    return _class_of(float_module_class, {**_DYNAMIC, **(additional_dynamic_quant_mapping or {})})


def no_observer_set():
    """The modules whose parts are observed, and not they."""
    from mica.ao.nn import quantizable

    return {quantizable.LSTM, quantizable.MultiheadAttention}


def swap_module(mod, mapping, custom_module_class_mapping=None, use_precomputed_fake_quant=False):
    """The quantized form of one observed module, or the module itself where the mapping has none."""
    if use_precomputed_fake_quant:
        raise NotImplementedError("swap_module(use_precomputed_fake_quant=True): weights are looked at again here")
    kind = _FLOAT.get(type(mod), type(mod))
    if kind in (custom_module_class_mapping or {}):
        return custom_module_class_mapping[kind].from_observed(mod)
    made = mapping.get(kind)
    return mod if made is None or getattr(mod, "qconfig", None) is None else made.from_float(mod)


def quantize_dynamic(model, qconfig_spec=None, dtype=None, mapping=None, inplace=False):
    """Replace layers by ones with qint8 or float16 weights, which quantize their input as it comes.

    `qconfig_spec` says which: a set of classes or names of submodules, or a dict from them to qconfigs. Without it they are
    the linear and recurrent layers, for quint8 the embeddings.
    """
    dtype = _C.qint8 if dtype is None else dtype
    if not isinstance(qconfig_spec, dict):
        chosen = {
            _C.qint8: qconfigs.default_dynamic_qconfig,
            _C.float16: qconfigs.float16_dynamic_qconfig,
            _C.quint8: qconfigs.float_qparams_weight_only_qconfig,
        }.get(dtype)
        if chosen is None and qconfig_spec is None:
            raise ValueError(
                f"Don't know how to quantize with default settings for {dtype}. Provide full qconfig please"
            )
        if chosen is None:
            raise RuntimeError("Unknown dtype specified for quantize_dynamic: ", str(dtype))
        if qconfig_spec is None:
            qconfig_spec = (Embedding, nn.EmbeddingBag) if dtype == _C.quint8 else _DYNAMIC_BY_DEFAULT
        qconfig_spec = dict.fromkeys(qconfig_spec, chosen)
    mapping = _DYNAMIC if mapping is None else mapping
    unknown = [kind for kind in qconfig_spec if not isinstance(kind, str) and kind not in mapping]
    if unknown:
        raise NotImplementedError(f"quantize_dynamic knows {[k.__name__ for k in mapping]}, not {unknown}")
    model = model if inplace else copy.deepcopy(model)
    model.eval()
    qconfigs.propagate_qconfig_(model, qconfig_spec)
    for parent, name, child, qconfig in list(_children(model)):
        made = mapping.get(type(child))
        if made is not None and qconfig is not None:
            setattr(parent, name, made.from_float(child))
    _forget(model, and_qconfigs=True)
    return model


_DYNAMIC_BY_DEFAULT = (Linear, nn.LSTM, nn.GRU, nn.LSTMCell, nn.RNNCell, nn.GRUCell)
