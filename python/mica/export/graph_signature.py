"""What the inputs and outputs of an exported graph are."""

import dataclasses
import enum

__all__ = ["ArgumentSpec", "ConstantArgument", "CustomObjArgument", "ExportBackwardSignature", "ExportGraphSignature", "InputKind", "InputSpec",
           "OutputKind", "OutputSpec", "SymBoolArgument", "SymFloatArgument", "SymIntArgument", "TensorArgument"]  # fmt: skip


@dataclasses.dataclass
class TensorArgument:
    """A tensor, by the name of its node."""

    name: str


@dataclasses.dataclass
class SymIntArgument:
    """A whole number that a node computes, by the node's name."""

    name: str


@dataclasses.dataclass
class SymFloatArgument:
    """A number that a node computes, by the node's name."""

    name: str


@dataclasses.dataclass
class SymBoolArgument:
    """A truth that a node computes, by the node's name."""

    name: str


@dataclasses.dataclass
class ConstantArgument:
    """A value that is the same in every call."""

    name: str
    value: object


@dataclasses.dataclass
class CustomObjArgument:
    """An object of a class of TorchScript. No program of Mica's has one; programs ask whether an argument is one."""

    name: str
    class_fqn: str
    fake_val: object = None


ArgumentSpec = (
    TensorArgument | SymIntArgument | SymFloatArgument | SymBoolArgument | ConstantArgument | CustomObjArgument
)


class InputKind(enum.Enum):
    """Where the value of a placeholder comes from."""

    USER_INPUT = enum.auto()
    PARAMETER = enum.auto()
    BUFFER = enum.auto()
    CONSTANT_TENSOR = enum.auto()
    CUSTOM_OBJ = enum.auto()
    TOKEN = enum.auto()


@dataclasses.dataclass
class InputSpec:
    """One placeholder: its kind, its name, and what of the module it stands for."""

    kind: InputKind
    arg: object
    target: str | None
    persistent: bool | None = None

    def __str__(self):
        target = "" if self.target is None else f" target='{self.target}'"
        persistent = "" if self.persistent is None else f" persistent={self.persistent}"
        return f"{self.arg.name}: {self.kind.name}{target}{persistent}"


class OutputKind(enum.Enum):
    """What a result is for."""

    USER_OUTPUT = enum.auto()
    LOSS_OUTPUT = enum.auto()
    BUFFER_MUTATION = enum.auto()
    PARAMETER_MUTATION = enum.auto()
    GRADIENT_TO_PARAMETER = enum.auto()
    GRADIENT_TO_USER_INPUT = enum.auto()
    USER_INPUT_MUTATION = enum.auto()
    TOKEN = enum.auto()


@dataclasses.dataclass
class OutputSpec:
    """One result."""

    kind: OutputKind
    arg: object
    target: str | None

    def __str__(self):
        target = "" if self.target is None else f" target='{self.target}'"
        return f"{self.arg.name}: {self.kind.name}{target}"


@dataclasses.dataclass
class ExportBackwardSignature:
    """The gradients that a graph computes: exported graphs compute none."""

    gradients_to_parameters: dict
    gradients_to_user_inputs: dict
    loss_output: str


def _of_kind(kind, what):
    """A property: the names or targets of the inputs of a kind."""
    return property(lambda self: tuple(what(each) for each in self.input_specs if each.kind is kind))


@dataclasses.dataclass
class ExportGraphSignature:
    """The placeholders of a graph and its results, in order."""

    input_specs: list
    output_specs: list

    parameters = _of_kind(InputKind.PARAMETER, lambda each: each.target)
    buffers = _of_kind(InputKind.BUFFER, lambda each: each.target)
    lifted_tensor_constants = _of_kind(InputKind.CONSTANT_TENSOR, lambda each: each.target)

    def _input_map(self, kind):
        return {each.arg.name: each.target for each in self.input_specs if each.kind is kind}

    inputs_to_parameters = property(lambda self: self._input_map(InputKind.PARAMETER))
    inputs_to_buffers = property(lambda self: self._input_map(InputKind.BUFFER))
    inputs_to_lifted_tensor_constants = property(lambda self: self._input_map(InputKind.CONSTANT_TENSOR))
    non_persistent_buffers = property(
        lambda self: {each.target for each in self.input_specs if each.persistent is False}
    )

    def _output_map(self, kind):
        return {each.arg.name: each.target for each in self.output_specs if each.kind is kind}

    buffers_to_mutate = property(lambda self: self._output_map(OutputKind.BUFFER_MUTATION))
    parameters_to_mutate = property(lambda self: self._output_map(OutputKind.PARAMETER_MUTATION))
    user_inputs_to_mutate = property(lambda self: self._output_map(OutputKind.USER_INPUT_MUTATION))
    backward_signature = None
    assertion_dep_token = None

    @staticmethod
    def _value(argument):
        return argument.value if isinstance(argument, ConstantArgument) else argument.name

    @property
    def user_inputs(self):
        return tuple(self._value(each.arg) for each in self.input_specs if each.kind is InputKind.USER_INPUT)

    @property
    def user_outputs(self):
        return tuple(self._value(each.arg) for each in self.output_specs if each.kind is OutputKind.USER_OUTPUT)

    def __str__(self):
        inputs = "\n".join(map(str, self.input_specs))
        outputs = "\n".join(map(str, self.output_specs))
        return f"\n# inputs\n{inputs}\n\n# outputs\n{outputs}\n"
