"""What a backend can quantize, said pattern by pattern: which dtypes it takes, and how inputs and outputs are observed."""

import dataclasses
import enum

from mica import _C

__all__ = ["BackendConfig", "BackendPatternConfig", "DTypeConfig", "DTypeWithConstraints", "ObservationType"]


class ObservationType(enum.Enum):
    """How the output of a pattern is observed."""

    OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT = 0
    """Inputs and output have observers of their own."""
    OUTPUT_SHARE_OBSERVER_WITH_INPUT = 1
    """The output has the scale of the input."""
    INPUT_OUTPUT_NOT_OBSERVED = 2
    """Neither is observed."""


@dataclasses.dataclass
class DTypeWithConstraints:
    """A dtype, the integers and scales that a backend takes of it, or the one scale and zero point that it takes."""

    dtype: _C.dtype | None = None
    quant_min_lower_bound: int | float | None = None
    quant_max_upper_bound: int | float | None = None
    scale_min_lower_bound: int | float | None = None
    scale_max_upper_bound: int | float | None = None
    scale_exact_match: float | None = None
    zero_point_exact_match: int | None = None


def _constrained(given):
    return given if isinstance(given, DTypeWithConstraints) else DTypeWithConstraints(dtype=given)


@dataclasses.dataclass
class DTypeConfig:
    """The dtypes of a pattern's input, output, weight and bias that go together, and whether scales come with each call."""

    input_dtype_with_constraints: DTypeWithConstraints
    output_dtype_with_constraints: DTypeWithConstraints
    weight_dtype_with_constraints: DTypeWithConstraints
    bias_dtype: _C.dtype | None
    is_dynamic: bool | None

    def __init__(self, input_dtype=None, output_dtype=None, weight_dtype=None, bias_dtype=None, is_dynamic=None):
        self.input_dtype_with_constraints = _constrained(input_dtype)
        self.output_dtype_with_constraints = _constrained(output_dtype)
        self.weight_dtype_with_constraints = _constrained(weight_dtype)
        self.bias_dtype, self.is_dynamic = bias_dtype, is_dynamic

    @property
    def input_dtype(self):
        """The dtype of the input, without its constraints."""
        return self.input_dtype_with_constraints.dtype

    @property
    def output_dtype(self):
        """The dtype of the output, without its constraints."""
        return self.output_dtype_with_constraints.dtype

    @property
    def weight_dtype(self):
        """The dtype of the weight, without its constraints."""
        return self.weight_dtype_with_constraints.dtype

    @classmethod
    def from_dict(cls, dtype_config_dict):
        """From a dictionary with the arguments' names."""
        for key in ("input_dtype", "output_dtype", "weight_dtype"):
            given = dtype_config_dict.get(key)
            if given is not None and not isinstance(given, (_C.dtype, DTypeWithConstraints)):
                raise ValueError(f"Expected {key} to be a torch.dtype or DTypeWithConstraints, got {type(given)}")
        keys = ("input_dtype", "output_dtype", "weight_dtype", "bias_dtype", "is_dynamic")
        return cls(*(dtype_config_dict.get(key) for key in keys))

    def to_dict(self):
        """As a dictionary; what is not said is left out."""
        made = {}
        for key in ("input_dtype", "output_dtype", "weight_dtype"):
            value = getattr(self, f"{key}_with_constraints")
            if value.dtype is not None:
                made[key] = value
        if self.bias_dtype:
            made["bias_dtype"] = self.bias_dtype
        if self.is_dynamic:
            made["is_dynamic"] = self.is_dynamic
        return made


class BackendConfig:
    """The patterns that a backend can quantize."""

    def __init__(self, name=""):
        self.name = name
        self._pattern_complex_format_to_config = {}  # torch's name, which repr shows

    def __repr__(self):
        return f"BackendConfig({self.__dict__})"

    def set_name(self, name):
        """Another name."""
        self.name = name
        return self

    def set_backend_pattern_config(self, config):
        """Set the configuration of a pattern, in the place of an earlier one of the same pattern."""
        self._pattern_complex_format_to_config[config._key()] = config
        return self

    def set_backend_pattern_configs(self, configs):
        """Set the configurations of several patterns."""
        for config in configs:
            self.set_backend_pattern_config(config)
        return self

    @property
    def configs(self):
        """The configuration of each pattern."""
        return list(self._pattern_complex_format_to_config.values())

    @classmethod
    def from_dict(cls, backend_config_dict):
        """From a dictionary with a name and a list of patterns."""
        made = cls(backend_config_dict.get("name", ""))
        for each in backend_config_dict.get("configs", []):
            if isinstance(each, dict):
                each = BackendPatternConfig.from_dict(each)
            if not isinstance(each, BackendPatternConfig):
                raise ValueError("Expected backend_config_dict['configs'] to be a dictionary")
            made.set_backend_pattern_config(each)
        return made

    def to_dict(self):
        """As a dictionary."""
        return {"name": self.name, "configs": [each.to_dict() for each in self.configs]}


# The attributes of a pattern's configuration and their names in dictionaries.
_KEYS = {
    "root_module": "root_module",
    "qat_module": "qat_module",
    "reference_quantized_module": "reference_quantized_module_for_root",
    "fused_module": "fused_module",
    "fuser_method": "fuser_method",
    "_root_node_getter": "root_node_getter",
    "_extra_inputs_getter": "extra_inputs_getter",
    "_num_tensor_args_to_observation_type": "num_tensor_args_to_observation_type",
    "_input_type_to_index": "input_type_to_index",
    "_pattern_complex_format": "pattern_complex_format",
}


class BackendPatternConfig:
    """The configuration of one pattern: a module's class, a function, a method's name, or a tuple of them that follow
    each other."""

    def __init__(self, pattern=None):
        self.pattern = pattern
        self.observation_type = ObservationType.OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT
        self.dtype_configs = []
        self.root_module = self.qat_module = self.reference_quantized_module = None
        self.fused_module = self.fuser_method = None
        self._root_node_getter = self._extra_inputs_getter = None
        self._num_tensor_args_to_observation_type, self._input_type_to_index = {}, {}
        self._pattern_complex_format = None

    def __repr__(self):
        said = {key: value for key, value in self.__dict__.items() if not isinstance(value, (list, dict)) or value}
        kept = {key: value for key, value in said.items() if value is not None}
        return f"BackendPatternConfig({kept})"

    def _key(self):
        """The pattern from its end to its beginning, in pairs, which is the form that joins all others."""
        if self._pattern_complex_format is not None:
            return self._pattern_complex_format
        if self.pattern is None:
            raise ValueError("Either 'pattern' or 'pattern_complex_format' must be specified")
        if not isinstance(self.pattern, tuple):
            return self.pattern
        if len(self.pattern) not in (2, 3):
            raise ValueError(f"Expected a tuple with 2 or 3 elements, got: {self.pattern}")
        key = self.pattern[0]
        for each in self.pattern[1:]:
            key = (each, key)
        return key

    def set_pattern(self, pattern):
        """Another pattern."""
        if self._pattern_complex_format is not None:
            raise ValueError("Only one of 'pattern' or 'pattern_complex_format' can be set")
        self.pattern = pattern
        return self

    def set_observation_type(self, observation_type):
        """How the output is observed."""
        self.observation_type = observation_type
        return self

    def add_dtype_config(self, dtype_config):
        """One more set of dtypes that the backend takes."""
        self.dtype_configs.append(dtype_config)
        return self

    def set_dtype_configs(self, dtype_configs):
        """All sets of dtypes that the backend takes."""
        self.dtype_configs = dtype_configs
        return self

    def set_root_module(self, root_module):
        """The class of the module with the weight, for a pattern whose module holds others."""
        self.root_module = root_module
        return self

    def set_qat_module(self, qat_module):
        """The class that the module has in training."""
        self.qat_module = qat_module
        return self

    def set_reference_quantized_module(self, reference_quantized_module):
        """The class of the reference form of the module with the weight."""
        self.reference_quantized_module = reference_quantized_module
        return self

    def set_fused_module(self, fused_module):
        """The class of the module that the pattern's modules are joined into."""
        self.fused_module = fused_module
        return self

    def set_fuser_method(self, fuser_method):
        """fuser_method(is_qat, *modules) joins the pattern's modules, the first one first."""
        self.fuser_method = fuser_method
        return self

    def _set_root_node_getter(self, root_node_getter):
        self._root_node_getter = root_node_getter
        return self

    def _set_extra_inputs_getter(self, extra_inputs_getter):
        self._extra_inputs_getter = extra_inputs_getter
        return self

    def _set_num_tensor_args_to_observation_type(self, num_tensor_args_to_observation_type):
        self._num_tensor_args_to_observation_type = num_tensor_args_to_observation_type
        return self

    def _set_input_type_to_index(self, input_type_to_index):
        self._input_type_to_index = input_type_to_index
        return self

    def _set_pattern_complex_format(self, pattern):
        if self.pattern is not None:
            raise ValueError("Only one of 'pattern' or 'pattern_complex_format' can be set")
        self._pattern_complex_format = pattern
        return self

    @classmethod
    def from_dict(cls, backend_pattern_config_dict):
        """From a dictionary, as to_dict makes it."""
        given, made = backend_pattern_config_dict, cls()
        if "pattern" in given:
            made.set_pattern(given["pattern"])
        if "observation_type" in given:
            made.set_observation_type(given["observation_type"])
        for each in given.get("dtype_configs", []):
            if isinstance(each, dict):
                each = DTypeConfig.from_dict(each)
            if not isinstance(each, DTypeConfig):
                raise ValueError(
                    f"Expected a list of DTypeConfigs in "
                    f"backend_pattern_config_dict[\"dtype_configs\"], got '{type(each)}'"
                )
            made.add_dtype_config(each)
        for attribute, key in _KEYS.items():
            if key in given:
                setattr(made, attribute, given[key])
        return made

    def to_dict(self):
        """As a dictionary; what is not said is left out."""
        made = {
            "observation_type": self.observation_type,
            "dtype_configs": [each.to_dict() for each in self.dtype_configs],
        }
        if self.pattern is not None:
            made["pattern"] = self.pattern
        for attribute, key in _KEYS.items():
            value = getattr(self, attribute)
            if value is not None and value != {}:
                made[key] = value
        return made
