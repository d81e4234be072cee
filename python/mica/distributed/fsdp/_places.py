"""Where modules have their parameters."""


def put(module, name, tensor):
    """Lets the module compute with this tensor in a parameter's place, without what assigning it would check."""
    module._parameters[name] = tensor
    _follow(module, name, tensor)


def hide(module, name, tensor):
    """Lets the module compute with this tensor without registering it as a parameter."""
    module._parameters.pop(name, None)
    module.__dict__[name] = tensor
    _follow(module, name, tensor)


def _follow(module, name, tensor):
    """Recurrent layers have their parameters in a list too."""
    names = module.__dict__.get("_flat_weights_names")
    if names is not None and name in names and "_flat_weights" in module.__dict__:
        module._flat_weights[names.index(name)] = tensor
