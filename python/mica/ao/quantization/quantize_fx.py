"""The flow by graphs: trace a model and join its layers, put observers in, run it on examples, convert it.

prepared = prepare_fx(model.eval(), get_default_qconfig_mapping("x86"), example_inputs)
for batch in examples:
    prepared(batch)
quantized = convert_fx(prepared)
"""

import copy

from mica.ao.nn import intrinsic as nni
from mica.ao.quantization.fx.backend_rules import rules_of
from mica.ao.quantization.fx.convert import convert
from mica.ao.quantization.fx.custom_config import ConvertCustomConfig, FuseCustomConfig, PrepareCustomConfig
from mica.ao.quantization.fx.fuse import fuse
from mica.ao.quantization.fx.prepare import prepare
from mica.ao.quantization.qconfig_mapping import QConfigMapping
from mica.fx import GraphModule, Tracer

__all__ = ["QuantizationTracer", "convert_fx", "convert_to_reference_fx", "fuse_fx", "prepare_fx", "prepare_qat_fx"]


class QuantizationTracer(Tracer):
    """Traces into the program's own modules; those of nn, joined ones and the ones named stay whole."""

    def __init__(self, skipped_module_names, skipped_module_classes):
        super().__init__()
        self.skipped_module_names = list(skipped_module_names)
        self.skipped_module_classes = list(skipped_module_classes)

    def is_leaf_module(self, m, module_qualified_name):
        skipped = module_qualified_name in self.skipped_module_names or type(m) in self.skipped_module_classes
        return skipped or isinstance(m, nni._FusedModule) or super().is_leaf_module(m, module_qualified_name)


def _config(given, kind):
    if given is None:
        return kind()
    return kind.from_dict(given) if isinstance(given, dict) else given


def _keep(made, model, names):
    for name in names:
        setattr(made, name, getattr(model, name))
    return made


def _traced(model, names=(), classes=()):
    if isinstance(model, GraphModule):
        return copy.deepcopy(model)
    model = copy.deepcopy(model)
    graph = QuantizationTracer(names, classes).trace(model)
    return GraphModule(model, graph)


def fuse_fx(model, fuse_custom_config=None, backend_config=None):
    """A traced model with convolutions, linear maps, batch normalizations and relus joined. For models in use."""
    config = _config(fuse_custom_config, FuseCustomConfig)
    rules = rules_of(backend_config)
    return _keep(fuse(_traced(model), is_qat=False, rules=rules), model, config.preserved_attributes)


def _prepare(model, mapping, is_qat, config, backend_config):
    config, rules = _config(config, PrepareCustomConfig), rules_of(backend_config)
    mapping = QConfigMapping.from_dict(mapping) if isinstance(mapping, dict) else mapping
    if not isinstance(mapping, QConfigMapping):
        raise ValueError(f"a QConfigMapping was expected, got {type(mapping).__name__}")
    custom = [kind for classes in config.float_to_observed_mapping.values() for kind in classes]
    traced = _traced(model, config.non_traceable_module_names, [*config.non_traceable_module_classes, *custom])
    traced = fuse(traced, is_qat, rules)
    made = prepare(traced, mapping, is_qat, config, rules)
    made._qconfig_mapping = mapping
    return _keep(made, model, config.preserved_attributes)


def prepare_fx(
    model, qconfig_mapping, example_inputs, prepare_custom_config=None, _equalization_config=None, backend_config=None
):
    """A traced model with observers where it is to be quantized; then run it on examples.

    A `backend_config` says what can be quantized, instead of what Mica's kernels take.
    """
    if _equalization_config is not None:
        raise NotImplementedError("_equalization_config: ranges of inputs and weights are not equalized; leave it out")
    return _prepare(model, qconfig_mapping, False, prepare_custom_config, backend_config)


def prepare_qat_fx(model, qconfig_mapping, example_inputs, prepare_custom_config=None, backend_config=None):
    """A traced model whose weights and results are rounded as they will be when it is quantized; then train it."""
    return _prepare(model, qconfig_mapping, True, prepare_custom_config, backend_config)


def _check_mapping(graph_module, mapping):
    if mapping is None:
        return
    given = QConfigMapping.from_dict(mapping) if isinstance(mapping, dict) else mapping
    known = getattr(graph_module, "_qconfig_mapping", None)
    if known is not None and str(known.to_dict()) != str(given.to_dict()):
        raise NotImplementedError("convert_fx(qconfig_mapping=...) other than that of prepare_fx is not in Mica")


def _convert(graph_module, config, backend_config, is_reference):
    if not hasattr(graph_module, "_quantization_plan"):
        raise AssertionError("incoming model must be produced by prepare_fx")
    config, rules = _config(config, ConvertCustomConfig), rules_of(backend_config)
    copied = copy.deepcopy(graph_module).eval()
    copied.__dict__.pop("_qconfig_mapping", None)
    made = convert(copied, config.observed_to_quantized_mapping, rules, is_reference)
    return _keep(made, graph_module, config.preserved_attributes)


def convert_fx(
    graph_module,
    convert_custom_config=None,
    _remove_qconfig=True,
    qconfig_mapping=None,
    backend_config=None,
    keep_original_weights=False,
):
    """The quantized model of a prepared one that has seen examples.

    What is quantized, and how, was decided by prepare_fx: another `qconfig_mapping` is refused.
    """
    if keep_original_weights:
        raise NotImplementedError("convert_fx(keep_original_weights=True): a quantized model has its quantized weights")
    _check_mapping(graph_module, qconfig_mapping)
    return _convert(graph_module, convert_custom_config, backend_config, is_reference=False)


def convert_to_reference_fx(
    graph_module, convert_custom_config=None, _remove_qconfig=True, qconfig_mapping=None, backend_config=None
):
    """The reference form of a prepared model that has seen examples: float32 between roundings, for a backend to read."""
    _check_mapping(graph_module, qconfig_mapping)
    return _convert(graph_module, convert_custom_config, backend_config, is_reference=True)
