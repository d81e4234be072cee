"""What parameters are called in checkpoints: by their place in the model, whatever wraps it."""

_WRAPPED = ("_checkpoint_wrapped_module.", "_fsdp_wrapped_module.")


def _wrappers():
    """Modules around a model, and the attribute in which each has it."""
    from mica._dynamo.optimized_module import OptimizedModule
    from mica.nn.parallel import DistributedDataParallel

    return {DistributedDataParallel: "module", OptimizedModule: "_orig_mod"}


def plain_name(model, name):
    """A name of the model's state_dict without the parts that wrappers add."""
    for wrapper in _WRAPPED:
        name = name.replace(wrapper, "")
    here, kept = model, []
    wrappers = _wrappers()
    for part in name.split("."):
        inside = next((inner for kind, inner in wrappers.items() if isinstance(here, kind)), None)
        if part != inside:
            kept.append(part)
        here = getattr(here, part, None)
    return ".".join(kept)


def names_of_parameters(model):
    """For each parameter its names: more than one where it is shared."""
    names = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(parameter, []).append(plain_name(model, name))
    return names
