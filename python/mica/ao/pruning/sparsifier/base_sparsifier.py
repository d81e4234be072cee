"""The base of sparsifiers."""

import abc
import copy
from collections import defaultdict

from mica import nn, no_grad, ones, ones_like
from mica.ao.pruning.sparsifier.utils import (
    FakeSparsity,
    get_arg_info_from_tensor_fqn,
    module_contains_param,
    module_to_fqn,
    swap_module,
)
from mica.nn.utils import parametrize

__all__ = ["BaseSparsifier"]

SUPPORTED_MODULES = {nn.Linear}
KEYS_NOT_IN_STATE_DICT = ("module", "module_fqn", "tensor_name")


class BaseSparsifier(abc.ABC):
    """Keeps a mask for each tensor named in a configuration; a subclass gives `update_mask(module, tensor_name, ...)`.

    sparsifier.prepare(model, [{"tensor_fqn": "layer.weight", "sparsity_level": 0.7}]); after each optimizer step
    sparsifier.step(); at the end sparsifier.squash_mask().
    """

    def __init__(self, defaults=None):
        super().__init__()
        self.defaults = defaults or {}
        self.state = defaultdict(dict)
        self.groups = []
        self.enable_mask_update = True

    def __getstate__(self):
        return {"defaults": self.defaults, "state": self.state, "groups": self.groups}

    def __setstate__(self, state):
        self.__dict__.update(state)

    def __repr__(self):
        text = f"{type(self).__name__} ("
        for i, group in enumerate(self.groups):
            text += f"\n\tGroup {i}\n\t    module: {group['module']}\n"
            text += "".join(f"\t    {key}: {group[key]}\n" for key in sorted(group) if key != "module")
        return text + ")"

    def state_dict(self):
        """The masks and the configuration, without the modules."""
        groups = [{k: v for k, v in group.items() if k not in KEYS_NOT_IN_STATE_DICT} for group in self.groups]
        return {"state": self.state, "groups": groups}

    def load_state_dict(self, state_dict, strict=True):
        """Put masks and configuration of another run into the prepared model."""
        groups, states = copy.deepcopy(state_dict["groups"]), state_dict["state"]
        for tensor_fqn, state in states.items():
            info = get_arg_info_from_tensor_fqn(self.model, tensor_fqn)
            module, name = info["module"], info["tensor_name"]
            if module is None:
                if strict:
                    raise RuntimeError(f"Error loading {tensor_fqn} into the model")
                continue
            chain = module.parametrizations[name] if parametrize.is_parametrized(module, name) else ()
            masked = next((p for p in chain if isinstance(p, FakeSparsity)), None)
            if masked is None:
                masked = FakeSparsity(ones(getattr(module, name).shape))
                parametrize.register_parametrization(module, name, masked)
            if state.get("mask") is not None:
                masked.mask = state.pop("mask")
            for group in groups:
                if group["tensor_fqn"] == tensor_fqn:
                    group.update(info)
        self.__setstate__({"state": states, "groups": groups})

    def make_config_from_model(self, model, SUPPORTED_MODULES=SUPPORTED_MODULES):
        """The weights of all linear layers."""
        self.config, stack = [], [model]
        while stack:
            for child in stack.pop().children():
                if type(child) in SUPPORTED_MODULES:
                    self.config.append({"tensor_fqn": f"{module_to_fqn(model, child)}.weight"})
                else:
                    stack.append(child)

    def prepare(self, model, config):
        """Give every tensor of the configuration a mask of ones. The model is changed."""
        self.model, self.config = model, config
        if config is None:
            self.make_config_from_model(model)
        for given in self.config:
            if not isinstance(given, dict):
                raise AssertionError(
                    "config elements should be dicts not modules i.e.:"
                    "[{`tensor_fqn`: `foo.bar.weight`}, {`tensor_fqn`: ... }, ...]"
                )
            group = {**copy.deepcopy(self.defaults), **given}
            tensor_fqn = group.get("tensor_fqn")
            if tensor_fqn is None:
                raise AssertionError(
                    "tensor_fqn is a required argument in the sparsity config which "
                    "replaces previous `module` and [module]`fqn` arguments"
                )
            info = get_arg_info_from_tensor_fqn(model, tensor_fqn)
            for key, value in info.items():
                if key in group and value != group[key]:
                    raise AssertionError(
                        f"Given both `{key}` and `tensor_fqn` in the config, it is expected them to agree!"
                    )
            self.groups.append({**group, **info})
        self._prepare()

    def _prepare(self, *args, **kwargs):
        for group in self.groups:
            module, name = group["module"], group["tensor_name"]
            mask = group.get("mask")
            mask = ones_like(getattr(module, name)) if mask is None else mask
            self.state[group["tensor_fqn"]]["mask"] = mask
            made = group.get("parametrization", FakeSparsity)(mask)
            parametrize.register_parametrization(module, name, made)

    def squash_mask(self, params_to_keep=None, params_to_keep_per_layer=None, *args, **kwargs):
        """Multiply the masks into the tensors for good. `sparse_params` of a module keeps what is asked for."""
        for group in self.groups:
            module = group["module"]
            parametrize.remove_parametrizations(module, group["tensor_name"], leave_parametrized=True)
            names = (*(params_to_keep or ()), *(params_to_keep_per_layer or {}).get(group["module_fqn"], ()))
            if names:
                module.sparse_params = {name: group[name] for name in names}

    def convert(self, module, mapping=None, inplace=False, parameterization=FakeSparsity):
        """Replace masked modules by `mapping[their class].from_dense`."""
        if mapping is None:
            raise NotImplementedError("Need to auto generate mapping ")
        module = module if inplace else copy.deepcopy(module)
        for name, child in list(module.named_children()):
            masked = module_contains_param(child, parameterization)
            if masked and parametrize.type_before_parametrizations(child) in mapping:
                module._modules[name] = swap_module(child, mapping)
            else:
                module._modules[name] = self.convert(child, mapping, True, parameterization)
        return module

    def step(self, use_path=True):
        """Renew the masks."""
        if self.enable_mask_update:
            with no_grad():
                for group in self.groups:
                    self.update_mask(**group)

    @abc.abstractmethod
    def update_mask(self, module, tensor_name, **kwargs):
        """Renew the mask of one tensor in place."""
