"""How TorchScript's exporter writes operators: there is no TorchScript, so its functions are names."""

from mica._as_torch.absent import placeholder as _placeholder


def __getattr__(name):
    if name.startswith("_"):
        raise AttributeError(name)
    return _placeholder("onnx." + __name__.rpartition(".")[2], name, "function")
