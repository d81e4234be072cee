"""Which modules inside of a model become sharded modules of their own."""

import contextlib
import copy

from mica import nn

__all__ = [
    "CustomPolicy", "ModuleWrapPolicy", "always_wrap_policy", "enable_wrap", "lambda_auto_wrap_policy",
    "size_based_auto_wrap_policy", "transformer_auto_wrap_policy", "wrap",
]  # fmt: skip


def always_wrap_policy(*args, **kwargs):
    """Wrap every module."""
    return True


class _Policy:
    """Says which modules of a model are wrapped, and with which options."""

    def _run_policy(self, root_module, ignored_modules, root_kwargs):
        raise NotImplementedError


class ModuleWrapPolicy(_Policy):
    """Wraps modules of some classes, with the options of the root."""

    def __init__(self, module_classes):
        self._module_classes = set(module_classes)
        self._module_classes_str = str(self._module_classes)

    def _run_policy(self, root_module, ignored_modules, root_kwargs):
        classes = tuple(self._module_classes)
        return {
            module: copy.copy(root_kwargs)
            for module in root_module.modules()
            if module not in ignored_modules and isinstance(module, classes)
        }

    def __call__(self, module, recurse, *args, **kwargs):
        return _module_wrap_policy(module, recurse, nonwrapped_numel=-1, module_classes=self._module_classes)

    def __repr__(self):
        return f"{super().__repr__()}({self._module_classes_str})"


class CustomPolicy(_Policy):
    """Wraps modules for which a function gives True, or a dictionary of options that differ from the root's."""

    def __init__(self, lambda_fn):
        self._lambda_fn = lambda_fn

    def _run_policy(self, root_module, ignored_modules, root_kwargs):
        chosen = {}
        for module in root_module.modules():
            if module in ignored_modules:
                continue
            answer = self._lambda_fn(module)
            if not isinstance(answer, (dict, bool)):
                raise ValueError(
                    "The lambda_fn passed to CustomPolicy should return "
                    f"False/True or a kwarg dict, but it returned {answer}"
                )
            if answer:
                chosen[module] = {**root_kwargs, **(answer if isinstance(answer, dict) else {})}
        return chosen


def _module_wrap_policy(module, recurse, nonwrapped_numel, module_classes):
    return True if recurse else isinstance(module, tuple(module_classes))


def lambda_auto_wrap_policy(module, recurse, nonwrapped_numel, lambda_fn):
    """Wrap modules for which a function is true."""
    return True if recurse else lambda_fn(module)


def transformer_auto_wrap_policy(module, recurse, nonwrapped_numel, transformer_layer_cls):
    """Wrap modules of the classes of a model's layers."""
    return _module_wrap_policy(module, recurse, nonwrapped_numel, transformer_layer_cls)


def _wrap_module_cls_individually(module, module_classes, recurse, *args, **kwargs):
    return True if recurse else isinstance(module, tuple(module_classes))


def _or_policy(module, recurse, nonwrapped_numel, policies):
    """Wrap what any of several policies wraps."""
    return any(policy(module=module, recurse=recurse, nonwrapped_numel=nonwrapped_numel) for policy in policies)


def size_based_auto_wrap_policy(
    module, recurse, nonwrapped_numel, min_num_params=int(1e8), force_leaf_modules=None, exclude_wrap_modules=None
):
    """Wrap modules that have this many elements that no module inside has wrapped."""
    policy = size_based_auto_wrap_policy
    leaves = policy.FORCE_LEAF_MODULES if force_leaf_modules is None else force_leaf_modules
    excluded = policy.EXCLUDE_WRAP_MODULES if exclude_wrap_modules is None else exclude_wrap_modules
    return nonwrapped_numel >= min_num_params and not isinstance(module, tuple(leaves if recurse else excluded))


size_based_auto_wrap_policy.EXCLUDE_WRAP_MODULES = {nn.ModuleList, nn.ModuleDict}
size_based_auto_wrap_policy.FORCE_LEAF_MODULES = {nn.MultiheadAttention}


# ---- wrapping


class _ConfigAutoWrap:
    """The settings of enable_wrap."""

    in_autowrap_context = False
    wrapper_cls = None
    kwargs = None


@contextlib.contextmanager
def enable_wrap(*, wrapper_cls, **wrapper_kwargs):
    """Let `wrap` wrap modules with this class and these options."""
    now = _ConfigAutoWrap
    if now.in_autowrap_context:
        raise NotImplementedError(
            "You are already within an autowrap context and we currently do not supported nested autowrap."
        )
    now.in_autowrap_context, now.wrapper_cls, now.kwargs = True, wrapper_cls, wrapper_kwargs
    try:
        yield
    finally:
        now.in_autowrap_context, now.wrapper_cls, now.kwargs = False, None, None


def wrap(module, **wrap_overrides):
    """The module, wrapped if this is within `enable_wrap`."""
    if not _ConfigAutoWrap.in_autowrap_context:
        return module
    return _wrap(module, _ConfigAutoWrap.wrapper_cls, **{**_ConfigAutoWrap.kwargs, **wrap_overrides})


def _wrap(module, wrapper_cls, **kwargs):
    return wrapper_cls(module, **{**kwargs, **getattr(module, "_wrap_overrides", {})})


def _recursive_wrap(
    module, auto_wrap_policy, wrapper_cls, ignored_modules, ignored_params, only_wrap_children=False, **kwargs
):
    """(the module with what a policy function chooses wrapped, how many elements are wrapped)"""
    for inside in module.modules():
        if inside not in ignored_modules and isinstance(wrapper_cls, type) and isinstance(inside, wrapper_cls):
            raise AssertionError(f"Child module {inside} is already wrapped by {wrapper_cls}")
    here = sum(parameter.numel() for parameter in module.parameters() if parameter not in ignored_params)
    if not auto_wrap_policy(module=module, recurse=True, nonwrapped_numel=here):
        return module, 0
    wrapped = 0
    for name, child in list(module.named_children()):
        if child in ignored_modules:
            continue
        made, count = _recursive_wrap(child, auto_wrap_policy, wrapper_cls, ignored_modules, ignored_params, **kwargs)
        setattr(module, name, made)
        wrapped += count
    if not only_wrap_children and auto_wrap_policy(module=module, recurse=False, nonwrapped_numel=here - wrapped):
        return _wrap(module, wrapper_cls, **kwargs), here
    return module, wrapped


def _replaced(module, make, seen):
    """Puts `make(child)` in the place of each module inside for which it gives one: inner modules first."""
    for name, child in list(module.named_children()):
        if child not in seen:
            seen.add(child)
            _replaced(child, make, seen)
            made = make(child)
            if made is not None:
                setattr(module, name, made)


def _auto_wrap(root_module, policy, ignored_modules, ignored_params, root_kwargs, wrapper_cls):
    """Wraps the modules inside of `root_module` that a policy chooses."""
    mixed = root_kwargs["mixed_precision"]
    kept = tuple(mixed._module_classes_to_ignore) if mixed is not None else ()
    if isinstance(policy, _Policy):
        chosen = policy._run_policy(root_module, ignored_modules, {**root_kwargs, "auto_wrap_policy": None})
        for module in root_module.modules():
            if kept and module not in ignored_modules and isinstance(module, kept):
                chosen[module] = {**chosen.get(module, root_kwargs), "mixed_precision": None}
        chosen.pop(root_module, None)
        _replaced(
            root_module, lambda module: wrapper_cls(module, **chosen[module]) if module in chosen else None, set()
        )
        return
    if kept:
        for module in root_module.modules():
            if isinstance(module, kept):
                module._wrap_overrides = {"mixed_precision": None}
        inner = policy

        def policy(module, recurse, nonwrapped_numel, **options):
            if isinstance(module, kept):
                return True
            return inner(module=module, recurse=recurse, nonwrapped_numel=nonwrapped_numel, **options)

    _recursive_wrap(
        root_module, policy, wrapper_cls, ignored_modules, ignored_params, only_wrap_children=True, **root_kwargs
    )
