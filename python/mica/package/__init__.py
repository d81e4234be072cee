"""Packages: models with the code that they need, in one file, in torch's format.

A package is a program. Opening one reads its table of contents; importing a module from it or loading a pickle runs the
code within, as the caller asks for it: do that with packages of people you trust. mica.load runs no code.
"""

from mica.package.analyze import is_from_package
from mica.package.file_structure_representation import Directory
from mica.package.glob_group import GlobGroup
from mica.package.importer import Importer, ObjMismatchError, ObjNotFoundError, OrderedImporter, sys_importer
from mica.package.package_exporter import EmptyMatchError, PackageExporter, PackagingError
from mica.package.package_importer import PackageImporter

__all__ = [
    "Directory",
    "EmptyMatchError",
    "GlobGroup",
    "Importer",
    "ObjMismatchError",
    "ObjNotFoundError",
    "OrderedImporter",
    "PackageExporter",
    "PackageImporter",
    "PackagingError",
    "is_from_package",
    "sys_importer",
]
