"""What a program says of its own modules when a traced model is joined, prepared and converted."""

from mica.ao.quantization.quant_type import QuantType, mappings_as_names, mappings_from

__all__ = ["ConvertCustomConfig", "FuseCustomConfig", "PrepareCustomConfig"]


class FuseCustomConfig:
    """Attributes of the model that the joined one keeps."""

    def __init__(self):
        self.preserved_attributes = []

    def set_preserved_attributes(self, attributes):
        """Names of attributes to keep, whether the graph uses them or not."""
        self.preserved_attributes = list(attributes)
        return self

    @classmethod
    def from_dict(cls, fuse_custom_config_dict):
        """From the older form, a dictionary."""
        return cls().set_preserved_attributes(fuse_custom_config_dict.get("preserved_attributes", []))

    def to_dict(self):
        """As a dictionary."""
        return {"preserved_attributes": self.preserved_attributes} if self.preserved_attributes else {}


class ConvertCustomConfig(FuseCustomConfig):
    """Attributes of the model that the converted one keeps, and the quantized forms of observed modules."""

    def __init__(self):
        super().__init__()
        self.observed_to_quantized_mapping = {}

    def set_observed_to_quantized_mapping(self, observed_class, quantized_class, quant_type=QuantType.STATIC):
        """What an observed module of a class becomes: quantized_class.from_observed(module)."""
        self.observed_to_quantized_mapping.setdefault(quant_type, {})[observed_class] = quantized_class
        return self

    @classmethod
    def from_dict(cls, convert_custom_config_dict):
        """From the older form, a dictionary."""
        made = super().from_dict(convert_custom_config_dict)
        kinds = convert_custom_config_dict.get("observed_to_quantized_custom_module_class", {})
        made.observed_to_quantized_mapping = mappings_from(kinds)
        return made

    def to_dict(self):
        """As a dictionary."""
        made = super().to_dict()
        if self.observed_to_quantized_mapping:
            kinds = mappings_as_names(self.observed_to_quantized_mapping)
            made["observed_to_quantized_custom_module_class"] = kinds
        return made


class PrepareCustomConfig(FuseCustomConfig):
    """Modules that are not traced, inputs and outputs that are quantized already, attributes to keep."""

    def __init__(self):
        super().__init__()
        self.float_to_observed_mapping = {}
        self.non_traceable_module_names = []
        self.non_traceable_module_classes = []
        self.input_quantized_indexes = []
        self.output_quantized_indexes = []

    def set_float_to_observed_mapping(self, float_class, observed_class, quant_type=QuantType.STATIC):
        """What a float module of a class becomes: observed_class.from_float(module)."""
        if quant_type != QuantType.STATIC:
            raise ValueError("set_float_to_observed_mapping is currently only supported for static quantization")
        self.float_to_observed_mapping.setdefault(quant_type, {})[float_class] = observed_class
        return self

    def set_non_traceable_module_names(self, module_names):
        """Names of modules that are called, and not traced into."""
        self.non_traceable_module_names = list(module_names)
        return self

    def set_non_traceable_module_classes(self, module_classes):
        """Classes of modules that are called, and not traced into."""
        self.non_traceable_module_classes = list(module_classes)
        return self

    def set_input_quantized_indexes(self, indexes):
        """Which inputs of the model come quantized."""
        self.input_quantized_indexes = list(indexes)
        return self

    def set_output_quantized_indexes(self, indexes):
        """Which outputs of the model stay quantized."""
        self.output_quantized_indexes = list(indexes)
        return self

    @classmethod
    def from_dict(cls, prepare_custom_config_dict):
        """From the older form, a dictionary."""
        given = prepare_custom_config_dict
        made = super().from_dict(given)
        made.set_non_traceable_module_names(given.get("non_traceable_module_name", []))
        made.set_non_traceable_module_classes(given.get("non_traceable_module_class", []))
        made.set_input_quantized_indexes(given.get("input_quantized_idxs", []))
        made.set_output_quantized_indexes(given.get("output_quantized_idxs", []))
        made.float_to_observed_mapping = mappings_from(given.get("float_to_observed_custom_module_class", {}))
        return made

    def to_dict(self):
        """As a dictionary."""
        made = super().to_dict()
        for key, value in (
            ("non_traceable_module_name", self.non_traceable_module_names),
            ("non_traceable_module_class", self.non_traceable_module_classes),
            ("input_quantized_idxs", self.input_quantized_indexes),
            ("output_quantized_idxs", self.output_quantized_indexes),
        ):
            if value:
                made[key] = value
        if self.float_to_observed_mapping:
            made["float_to_observed_custom_module_class"] = mappings_as_names(self.float_to_observed_mapping)
        return made
