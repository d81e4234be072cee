"""Names of modules that come from packages: "<torch_package_0>.my.module", which no other module has."""

import itertools
import re

_numbers = itertools.count()
_PREFIX = re.compile(r"<torch_package_\d+>")


class PackageMangler:
    """The names of one package's modules."""

    def __init__(self):
        self._parent = f"<torch_package_{next(_numbers)}>"

    def mangle(self, name):
        return f"{self._parent}.{name}"

    def demangle(self, mangled):
        """The name within the package; a name that is not of this package stays as it is."""
        return mangled.removeprefix(self._parent + ".")

    def parent_name(self):
        return self._parent


def is_mangled(name):
    return bool(_PREFIX.match(name))


def demangle(name):
    """The name within whatever package it is of."""
    return name.partition(".")[2] if is_mangled(name) else name


def get_mangle_prefix(name):
    return name.partition(".")[0] if is_mangled(name) else name
