"""How TorchScript compiles modules: nothing is compiled."""

import types as _types

concrete_type_store = _types.SimpleNamespace(type_store={})


def recursive_script(mod, *args, **kwargs):
    return mod
