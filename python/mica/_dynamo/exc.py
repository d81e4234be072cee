"""What compilation may raise: nothing here does."""


class TorchDynamoException(RuntimeError):
    pass


class Unsupported(TorchDynamoException):
    pass


class InternalTorchDynamoError(TorchDynamoException):
    pass


class BackendCompilerFailed(TorchDynamoException):
    pass


class RecompileError(TorchDynamoException):
    pass


class UserError(Unsupported):
    pass


class TorchRuntimeError(TorchDynamoException):
    pass
