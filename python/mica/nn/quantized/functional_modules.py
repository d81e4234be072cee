"""Functions as modules, by their older name: see mica.ao.nn.quantized."""


def __getattr__(name):
    from mica.ao.nn.quantized import functional_modules

    return getattr(functional_modules, name)
