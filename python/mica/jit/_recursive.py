"""How TorchScript compiles modules: what is asked for is what torch.jit.script returns."""

import types as _types

concrete_type_store = _types.SimpleNamespace(type_store={})


def recursive_script(mod, *args, **kwargs):
    from mica.jit import script

    return script(mod)
