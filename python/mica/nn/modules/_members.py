"""Walking through a module: its parameters, buffers and submodules, with or without their names."""


class ModuleMembers:
    """The part of Module that lists what it consists of."""

    __slots__ = ()

    def _named_members(self, get_members_fn, prefix="", recurse=True, remove_duplicate=True):
        """(full name, member) for what get_members_fn gives of each module; each member once unless told otherwise."""
        seen = set()
        modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for module_prefix, module in modules:
            dotted = f"{module_prefix}." if module_prefix else ""
            for name, member in get_members_fn(module):
                if member is None or member in seen:
                    continue
                if remove_duplicate:
                    seen.add(member)
                yield dotted + name, member

    def parameters(self, recurse=True):
        """All parameters, of the submodules too with recurse."""
        kind, own = type(self), self.__dict__
        if (
            not recurse
            or kind.named_parameters is not _named_parameters
            or kind._named_members is not _named_members
            or "named_parameters" in own
        ):
            for _, parameter in self.named_parameters(recurse=recurse):
                yield parameter
            return
        # The same without names. Programs ask for the first parameter alone, to learn a model's device.
        modules, seen, found = [self], set(), set()
        while modules:
            module = modules.pop()
            own = module.__dict__
            if type(module).named_modules is not _named_modules or "named_modules" in own:
                lists = [below._parameters for _, below in module.named_modules(seen)]
            elif module in seen:
                continue
            else:
                seen.add(module)
                lists = (module._parameters,)
                children = module._modules
                if children:
                    modules.extend([below for below in reversed(children.values()) if below is not None])
            for each in lists:
                for parameter in each.values():
                    if parameter is not None and parameter not in found:
                        found.add(parameter)
                        yield parameter

    def named_parameters(self, prefix="", recurse=True, remove_duplicate=True):
        """(full name, parameter) for all parameters."""
        yield from self._named_members(_parameters_of, prefix, recurse, remove_duplicate)

    def buffers(self, recurse=True):
        """All buffers, of the submodules too with recurse."""
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    def named_buffers(self, prefix="", recurse=True, remove_duplicate=True):
        """(full name, buffer) for all buffers."""
        yield from self._named_members(_buffers_of, prefix, recurse, remove_duplicate)

    def children(self):
        """The direct submodules, each once."""
        for _, module in self.named_children():
            yield module

    def named_children(self):
        """(name, module) for the direct submodules, each once."""
        seen = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def modules(self, remove_duplicate=True):
        """The module itself and all below it."""
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def named_modules(self, memo=None, prefix="", remove_duplicate=True):
        """(full name, module) for the module itself and all below it, each once unless told otherwise."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module.named_modules(memo, f"{prefix}.{name}" if prefix else name, remove_duplicate)

    def apply(self, fn):
        """Call fn with every submodule, the innermost first, and with the module itself."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self


# Module's own methods, to tell those of other classes from.
_named_parameters, _named_modules, _named_members = (
    ModuleMembers.named_parameters, ModuleMembers.named_modules, ModuleMembers._named_members,
)  # fmt: skip


def _parameters_of(module):
    return module._parameters.items()


def _buffers_of(module):
    return module._buffers.items()
