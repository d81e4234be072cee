"""Which part of a model is quantized how: qconfigs by name, by type, and for all the rest."""

import re
from collections import OrderedDict

from mica import _C, nn
from mica.ao.quantization import defaults
from mica.ao.quantization.fake_quantize import FakeQuantizeBase
from mica.ao.quantization.qconfig import QConfig, get_default_qat_qconfig, get_default_qconfig
from mica.nn import functional as F

__all__ = ["QConfigMapping", "get_default_qat_qconfig_mapping", "get_default_qconfig_mapping"]


class QConfigMapping:
    """Qconfigs for names, regular expressions of names, types (or functions), and globally.

    The most particular wins: the n-th module of a type within a module, a module's name or that of a module around it, a
    regular expression, a type, the global one.
    """

    def __init__(self):
        self.global_qconfig = None
        self.object_type_qconfigs = OrderedDict()
        self.module_name_regex_qconfigs = OrderedDict()
        self.module_name_qconfigs = OrderedDict()
        self.module_name_object_type_order_qconfigs = OrderedDict()

    def set_global(self, global_qconfig):
        """The qconfig of all that no other line names."""
        self.global_qconfig = global_qconfig
        return self

    def set_object_type(self, object_type, qconfig):
        """The qconfig of a module's class, of a function, or of a method by its name."""
        self.object_type_qconfigs[object_type] = qconfig
        return self

    def set_module_name_regex(self, module_name_regex, qconfig):
        """The qconfig of modules whose whole name a regular expression describes; the first that fits is taken."""
        self.module_name_regex_qconfigs[module_name_regex] = qconfig
        return self

    def set_module_name(self, module_name, qconfig):
        """The qconfig of one module and of those within it."""
        self.module_name_qconfigs[module_name] = qconfig
        return self

    def set_module_name_object_type_order(self, module_name, object_type, index, qconfig):
        """The qconfig of the index-th node of a type that a module runs."""
        self.module_name_object_type_order_qconfigs[(module_name, object_type, index)] = qconfig
        return self

    def to_dict(self):
        """The lines as a dictionary of lists."""
        return {
            "": self.global_qconfig,
            "object_type": list(self.object_type_qconfigs.items()),
            "module_name_regex": list(self.module_name_regex_qconfigs.items()),
            "module_name": list(self.module_name_qconfigs.items()),
            "module_name_object_type_order": [
                (*key, qconfig) for key, qconfig in self.module_name_object_type_order_qconfigs.items()
            ],
        }

    @classmethod
    def from_dict(cls, qconfig_dict):
        """The mapping that a dictionary of lists describes."""
        made = cls()
        if "" in qconfig_dict:
            made.set_global(qconfig_dict[""])
        for kind, put in (
            ("object_type", made.set_object_type),
            ("module_name_regex", made.set_module_name_regex),
            ("module_name", made.set_module_name),
            ("module_name_object_type_order", made.set_module_name_object_type_order),
        ):
            for line in qconfig_dict.get(kind, ()):
                put(*line)
        return made

    def __repr__(self):
        lines = [f" global_qconfig\n  {self.global_qconfig}"]
        for kind in ("object_type", "module_name_regex", "module_name", "module_name_object_type_order"):
            lines.append(f" {kind}_qconfigs")
            lines += [f"  {key}: {qconfig}" for key, qconfig in getattr(self, f"{kind}_qconfigs").items()]
        return f"{type(self).__name__} (\n" + "\n".join(lines) + "\n)"

    def _find(self, name, kinds, order=None):
        """The qconfig of a node: by the name of the module it stands in, its types, and (scope, type, index)."""
        for kind in kinds:
            if (
                order is not None
                and (order[0], kind, order[1].get(kind)) in self.module_name_object_type_order_qconfigs
            ):
                return self.module_name_object_type_order_qconfigs[(order[0], kind, order[1][kind])]
        place = name
        while place:
            if place in self.module_name_qconfigs:
                return self.module_name_qconfigs[place]
            place = place.rpartition(".")[0]
        for pattern, qconfig in self.module_name_regex_qconfigs.items():
            if name and re.match(pattern, name):
                return qconfig
        for kind in kinds:
            if kind in self.object_type_qconfigs:
                return self.object_type_qconfigs[kind]
        return self.global_qconfig


# Operations whose range is known beforehand.
_FROM_0_TO_1 = (
    nn.Hardsigmoid, F.hardsigmoid, "hardsigmoid", "hardsigmoid_", nn.Sigmoid, _C.sigmoid, "sigmoid", "sigmoid_",
    nn.Softmax, F.softmax, _C.softmax, "softmax",
)  # fmt: skip
_FROM_MINUS_1_TO_1 = (nn.Tanh, _C.tanh, "tanh", "tanh_")


def _default_mapping(qconfig, trained):
    mapping = QConfigMapping().set_global(qconfig)
    kind = "fake_quant" if trained else "observer"
    for kinds, span in ((_FROM_0_TO_1, "0to1"), (_FROM_MINUS_1_TO_1, "neg1to1")):
        activation = getattr(defaults, f"default_fixed_qparams_range_{span}_{kind}")
        for each in kinds:
            mapping.set_object_type(each, QConfig(activation, qconfig.weight))
    # Transposed convolutions have their outputs' channels in the second dimension: one scale for the weight.
    whole = defaults.default_weight_fake_quant if trained else defaults.default_weight_observer
    for each in (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d):
        mapping.set_object_type(each, QConfig(qconfig.activation, whole))
    for each in (nn.Embedding, nn.EmbeddingBag):
        mapping.set_object_type(each, None)
    return mapping


def get_default_qconfig_mapping(backend="x86", version=0):
    """The qconfigs of a model that is quantized after training."""
    return _default_mapping(get_default_qconfig(backend, version), False)


def get_default_qat_qconfig_mapping(backend="x86", version=1):
    """The qconfigs of a model that is trained further with rounded numbers."""
    return _default_mapping(get_default_qat_qconfig(backend, version), True)


def is_dynamic(qconfig):
    """Whether a qconfig leaves the scales of inputs to each call."""
    made = qconfig.activation()
    made = getattr(made, "activation_post_process", made) if isinstance(made, FakeQuantizeBase) else made
    return bool(getattr(made, "is_dynamic", False)) or getattr(made, "dtype", None) in (_C.float32, _C.float16)
