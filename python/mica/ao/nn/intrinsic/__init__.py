"""Layers joined with what follows them, as `fuse_modules` makes them: one module, with one observer behind it."""

from mica import nn

__all__ = [
    "BNReLU2d", "BNReLU3d", "ConvAdd2d", "ConvAddReLU2d", "ConvBn1d", "ConvBn2d", "ConvBn3d", "ConvBnReLU1d",
    "ConvBnReLU2d", "ConvBnReLU3d", "ConvReLU1d", "ConvReLU2d", "ConvReLU3d", "LinearBn1d", "LinearLeakyReLU",
    "LinearReLU", "LinearTanh",
]  # fmt: skip


class _FusedModule(nn.Sequential):
    """Modules one after the other, of these classes."""

    _kinds = ()

    def __init__(self, *modules):
        if len(modules) != len(self._kinds):
            raise TypeError(f"{type(self).__name__} takes {len(self._kinds)} modules, got {len(modules)}")
        if not all(map(isinstance, modules, self._kinds)):
            raise AssertionError(
                f"Incorrect types for input modules: {' and '.join(type(m).__name__ for m in modules)}; expected "
                f"{' and '.join(kind.__name__ for kind in self._kinds)}"
            )
        super().__init__(*modules)


def _fused(name, *kinds):
    text = f"{', '.join(kind.__name__ for kind in kinds[:-1])} and {kinds[-1].__name__}, joined."
    return type(name, (_FusedModule,), {"_kinds": kinds, "__doc__": text, "__module__": __name__})


ConvReLU1d = _fused("ConvReLU1d", nn.Conv1d, nn.ReLU)
ConvReLU2d = _fused("ConvReLU2d", nn.Conv2d, nn.ReLU)
ConvReLU3d = _fused("ConvReLU3d", nn.Conv3d, nn.ReLU)
LinearReLU = _fused("LinearReLU", nn.Linear, nn.ReLU)
ConvBn1d = _fused("ConvBn1d", nn.Conv1d, nn.BatchNorm1d)
ConvBn2d = _fused("ConvBn2d", nn.Conv2d, nn.BatchNorm2d)
ConvBn3d = _fused("ConvBn3d", nn.Conv3d, nn.BatchNorm3d)
ConvBnReLU1d = _fused("ConvBnReLU1d", nn.Conv1d, nn.BatchNorm1d, nn.ReLU)
ConvBnReLU2d = _fused("ConvBnReLU2d", nn.Conv2d, nn.BatchNorm2d, nn.ReLU)
ConvBnReLU3d = _fused("ConvBnReLU3d", nn.Conv3d, nn.BatchNorm3d, nn.ReLU)
BNReLU2d = _fused("BNReLU2d", nn.BatchNorm2d, nn.ReLU)
BNReLU3d = _fused("BNReLU3d", nn.BatchNorm3d, nn.ReLU)
LinearBn1d = _fused("LinearBn1d", nn.Linear, nn.BatchNorm1d)
LinearLeakyReLU = _fused("LinearLeakyReLU", nn.Linear, nn.LeakyReLU)
LinearTanh = _fused("LinearTanh", nn.Linear, nn.Tanh)


class ConvAdd2d(_FusedModule):
    """A convolution, and a sum with another input."""

    def __init__(self, conv, add):
        nn.Sequential.__init__(self, conv)
        self.add = add

    def forward(self, x1, x2):
        return self.add(self[0](x1), x2)


class ConvAddReLU2d(_FusedModule):
    """A convolution, a sum with another input, and relu."""

    def __init__(self, conv, add, relu):
        nn.Sequential.__init__(self, conv)
        self.add, self.relu = add, relu

    def forward(self, x1, x2):
        return self.relu(self.add(self[0](x1), x2))


def __getattr__(name):
    if name in ("qat", "quantized"):
        import importlib

        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
