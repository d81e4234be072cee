"""What a module consists of: registering parameters, buffers and submodules, and finding them by their full names."""

from mica._C import Tensor, _ModuleBase
from mica._functions.settings import typename
from mica.nn.modules._hooks import (
    _global_buffer_registration_hooks,
    _global_module_registration_hooks,
    _global_parameter_registration_hooks,
)
from mica.nn.parameter import Buffer, Parameter


def _through_hooks(hooks, module, name, value):
    """What registration hooks make of a value that a module gets."""
    for hook in hooks.values():
        changed = hook(module, name, value)
        if changed is not None:
            value = changed
    return value


def _takes_persistent(register_buffer):
    import inspect

    return "persistent" in inspect.signature(register_buffer).parameters


class ModuleRegistration:
    """The part of Module that takes members in and gives them out."""

    __slots__ = ()

    def _check_name(self, kind, name, registered):
        if not isinstance(name, str):
            raise TypeError(f"{kind} name should be a string. Got {typename(name)}")
        if "." in name:
            raise KeyError(f'{kind} name can\'t contain "."')
        if name == "":
            raise KeyError(f'{kind} name can\'t be empty string ""')
        if name not in registered and hasattr(self, name):
            raise KeyError(f"attribute '{name}' already exists")

    def register_buffer(self, name, tensor, persistent=True):
        """Add a tensor that moves with the module but is not trained; state_dict has it if it is persistent."""
        if "_buffers" not in self.__dict__:
            raise AttributeError("cannot assign buffer before Module.__init__() call")
        self._check_name("buffer", name, self._buffers)
        if tensor is not None and not (isinstance(tensor, Tensor) or hasattr(tensor, "__torch_function__")):
            raise TypeError(
                f"cannot assign '{typename(tensor)}' object to buffer '{name}' (torch Tensor or None required)"
            )
        self._buffers[name] = _through_hooks(_global_buffer_registration_hooks, self, name, tensor)
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def register_parameter(self, name, param):
        """Add a parameter, or None in the place of one."""
        if "_parameters" not in self.__dict__:
            raise AttributeError("cannot assign parameter before Module.__init__() call")
        self._check_name("parameter", name, self._parameters)
        if param is None:
            self._parameters[name] = None
            return
        if not isinstance(param, Parameter):
            raise TypeError(
                f"cannot assign '{typename(param)}' object to parameter '{name}' (torch.nn.Parameter or None required)"
            )
        if param.grad_fn:
            raise ValueError(
                f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be created explicitly. To "
                f"express '{name}' as a function of another Tensor, compute the value in the forward() method."
            )
        self._parameters[name] = _through_hooks(_global_parameter_registration_hooks, self, name, param)

    def add_module(self, name, module):
        """Add a submodule, or None in the place of one."""
        if not isinstance(module, _ModuleBase) and module is not None:
            raise TypeError(f"{typename(module)} is not a Module subclass")
        if not isinstance(name, str):
            raise TypeError(f"module name should be a string. Got {typename(name)}")
        if name not in self._modules and hasattr(self, name):
            raise KeyError(f"attribute '{name}' already exists")
        if "." in name:
            raise KeyError(f'module name can\'t contain ".", got: {name}')
        if name == "":
            raise KeyError('module name can\'t be empty string ""')
        self._modules[name] = _through_hooks(_global_module_registration_hooks, self, name, module)

    def register_module(self, name, module):
        """Another name of add_module."""
        self.add_module(name, module)

    def _set_registered(self, name, value):
        """Assign an attribute that is, or takes the place of, a parameter, a buffer or a submodule.

        NotImplemented says that it is a plain attribute.
        """
        own = self.__dict__
        parameters, modules, buffers = own.get("_parameters"), own.get("_modules"), own.get("_buffers")
        if isinstance(value, Parameter):
            if parameters is None:
                raise AttributeError("cannot assign parameters before Module.__init__() call")
            self._forget(name, own, self._buffers, self._modules)
            self.register_parameter(name, value)
        elif parameters is not None and name in parameters:
            if value is not None:
                raise TypeError(
                    f"cannot assign '{typename(value)}' as parameter '{name}' (torch.nn.Parameter or None expected)"
                )
            self.register_parameter(name, value)
        elif isinstance(value, _ModuleBase):
            if modules is None:
                raise AttributeError("cannot assign module before Module.__init__() call")
            self._forget(name, own, self._parameters, self._buffers)
            modules[name] = _through_hooks(_global_module_registration_hooks, self, name, value)
        elif modules is not None and name in modules:
            if value is not None:
                raise TypeError(
                    f"cannot assign '{typename(value)}' as child module '{name}' (torch.nn.Module or None expected)"
                )
            modules[name] = _through_hooks(_global_module_registration_hooks, self, name, value)
        elif isinstance(value, Buffer) or (buffers is not None and name in buffers):
            self._set_buffer(name, value)
        else:
            return NotImplemented
        return None

    def _forget(self, name, *dicts):
        for each in dicts:
            each.pop(name, None)
        self._non_persistent_buffers_set.discard(name)

    def _set_buffer(self, name, value):
        if value is not None and not (isinstance(value, Tensor) or hasattr(value, "__torch_function__")):
            raise TypeError(
                f"cannot assign '{typename(value)}' as buffer '{name}' (torch.nn.Buffer, torch.Tensor or None expected)"
            )
        persistent = value.persistent if isinstance(value, Buffer) else name not in self._non_persistent_buffers_set
        register = self.register_buffer
        if getattr(register, "__func__", None) is ModuleRegistration.register_buffer or _takes_persistent(register):
            register(name, value, persistent)
        elif not persistent:
            raise RuntimeError(
                "Registering a non-persistent buffer on a Module subclass that implements register_buffer() without "
                "the persistent argument is not allowed."
            )
        else:
            register(name, value)

    def __delattr__(self, name):
        if name in self._parameters:
            del self._parameters[name]
        elif name in self._buffers:
            del self._buffers[name]
            self._non_persistent_buffers_set.discard(name)
        elif name in self._modules:
            del self._modules[name]
        else:
            super().__delattr__(name)

    # ---- by full name

    def get_submodule(self, target):
        """The submodule of a name with dots; the module itself for the empty name."""
        module = self
        for name in target.split(".") if target else ():
            if not hasattr(module, name):
                raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
            module = getattr(module, name)
            if not isinstance(module, _ModuleBase):
                raise AttributeError(f"`{name}` is not an nn.Module")
        return module

    def set_submodule(self, target, module, strict=False):
        """Put a module at a name with dots; with strict, there must be one already."""
        if target == "":
            raise ValueError("Cannot set the submodule without a target name!")
        if not isinstance(module, _ModuleBase):
            raise ValueError(f"`module` is not an nn.Module, found {type(module)}")
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if hasattr(parent, name):
            if not isinstance(getattr(parent, name), _ModuleBase):
                raise AttributeError(f"`{name}` is not an nn.Module")
        elif strict:
            raise AttributeError(f"{parent._get_name()} has no attribute `{name}`")
        setattr(parent, name, module)

    def _get_member(self, target):
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if not hasattr(module, name):
            raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
        return module, name, getattr(module, name)

    def get_parameter(self, target):
        """The parameter of a name with dots."""
        _, name, value = self._get_member(target)
        if not isinstance(value, Parameter):
            raise AttributeError(f"`{name}` is not an nn.Parameter")
        return value

    def get_buffer(self, target):
        """The buffer of a name with dots."""
        module, name, value = self._get_member(target)
        if name not in module._buffers:
            raise AttributeError(f"`{name}` is not a buffer")
        return value
