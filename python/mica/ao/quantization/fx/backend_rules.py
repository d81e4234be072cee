"""What a backend's configuration allows in a graph."""

from mica import _C
from mica.ao.quantization.backend_config import BackendConfig, ObservationType
from mica.ao.quantization.fake_quantize import FakeQuantizeBase, FixedQParamsFakeQuantize
from mica.ao.quantization.fx.operations import CAT, OWN_SCALE, SAME_SCALE, kind_of
from mica.ao.quantization.observer import FixedQParamsObserver
from mica.ao.quantization.qconfig_mapping import is_dynamic

__all__ = ["BackendRules", "rules_of"]


def rules_of(backend_config):
    """The rules of a configuration, of its dictionary, or None where no backend is named."""
    if backend_config is None:
        return None
    if isinstance(backend_config, dict):
        backend_config = BackendConfig.from_dict(backend_config)
    if not isinstance(backend_config, BackendConfig):
        raise ValueError(f"backend_config: a BackendConfig was expected, got {type(backend_config).__name__}")
    return BackendRules(backend_config)


def _within(observer, wanted):
    """Whether the integers and the scale of an observer are those that a backend takes."""
    if wanted.quant_min_lower_bound is not None and wanted.quant_max_upper_bound is not None:
        least, greatest = getattr(observer, "quant_min", None), getattr(observer, "quant_max", None)
        if least is None or greatest is None:
            return False
        if least < wanted.quant_min_lower_bound or greatest > wanted.quant_max_upper_bound:
            return False
    if wanted.scale_min_lower_bound is not None:
        least = getattr(observer, "eps", None)
        if least is None or least < wanted.scale_min_lower_bound:
            return False
    if wanted.scale_exact_match is not None and wanted.zero_point_exact_match is not None:
        if not isinstance(observer, FixedQParamsObserver | FixedQParamsFakeQuantize):
            return False
        return (
            float(observer.scale) == wanted.scale_exact_match
            and int(observer.zero_point) == wanted.zero_point_exact_match
        )
    return True


class _Asked:
    """The dtypes that a qconfig asks for."""

    def __init__(self, qconfig):
        self.observer, self.weight = qconfig.activation(), qconfig.weight()
        inner = self.observer.activation_post_process if isinstance(self.observer, FakeQuantizeBase) else self.observer
        self.input_dtype = getattr(self.observer, "dtype", None)
        self.dynamic = bool(getattr(inner, "is_dynamic", False))
        self.output_dtype = _C.float32 if is_dynamic(qconfig) else self.input_dtype

    def fits(self, dtypes, has_weight):
        """Whether one of a backend's sets of dtypes is what is asked for."""
        if dtypes.input_dtype is not None and (
            dtypes.input_dtype != self.input_dtype
            or bool(dtypes.is_dynamic) != self.dynamic
            or not _within(self.observer, dtypes.input_dtype_with_constraints)
        ):
            return False
        if dtypes.output_dtype is not None and (
            dtypes.output_dtype != self.output_dtype
            or (not self.dynamic and not _within(self.observer, dtypes.output_dtype_with_constraints))
        ):
            return False
        return not has_weight or dtypes.weight_dtype in (None, getattr(self.weight, "dtype", None))


class BackendRules:
    """A configuration as the flow asks it."""

    def __init__(self, config):
        self._by_pattern = dict(config._pattern_complex_format_to_config)
        self._methods = {}
        for each in config.configs:
            if each.fuser_method is not None and each.pattern is not None:
                self._methods[tuple(each.pattern) if isinstance(each.pattern, tuple) else (each.pattern,)] = each
            elif each.fuser_method is not None:
                raise NotImplementedError(
                    "backend_config: chains of modules are joined, one behind the other; "
                    f"the pattern {each._pattern_complex_format} has branches"
                )

    def fuser(self, kinds):
        """The function that joins nodes of these classes and functions, or None."""
        found = self._methods.get(tuple(kinds))
        return None if found is None else found.fuser_method

    def joins(self, *pattern):
        """Whether two nodes that follow each other are one pattern."""
        first, second = pattern
        return (second, first) in self._by_pattern

    def entry(self, node, modules):
        """The configuration of a node, or None."""
        if node.op == "call_module":
            return self._by_pattern.get(type(modules[node.target]))
        return self._by_pattern.get(node.target) if node.op in ("call_function", "call_method") else None

    def allows(self, entry, qconfig):
        """Whether the backend takes the dtypes that a qconfig asks for."""
        asked, has_weight = _Asked(qconfig), entry.root_module is not None or entry.qat_module is not None
        return any(asked.fits(dtypes, has_weight) for dtypes in entry.dtype_configs)

    def reference(self, kind):
        """The class of the reference form of a module's class, or None."""
        entry = self._by_pattern.get(kind)
        return None if entry is None else entry.reference_quantized_module

    def kind(self, node, modules, entry):
        """What becomes of a node: the word that `kind_of` has for it, where the configuration observes it as that does."""
        known, observation = kind_of(node, modules), entry.observation_type
        has_weight_beside = known is None and "weight" in entry._input_type_to_index
        if observation == ObservationType.INPUT_OUTPUT_NOT_OBSERVED or has_weight_beside:
            return None
        if observation == ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT:
            return OWN_SCALE if known is None else known
        return OWN_SCALE if known in (None, SAME_SCALE) else known

    @staticmethod
    def shares(entry, kind, tensors):
        """Whether the output of a node has the observer of its input."""
        by_number = entry._num_tensor_args_to_observation_type
        observation = by_number.get(tensors, entry.observation_type) if kind != CAT else entry.observation_type
        return observation == ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT
