"""Pickles of a package: in torch's names, with the names that classes from other packages have within those."""

import copyreg
import io
import pickle
import types

from mica import _C
from mica._checkpoints.names import name_in_file
from mica._checkpoints.writer import _PLAIN, _REDUCERS
from mica.package.importer import sys_importer
from mica.storage import TypedStorage, UntypedStorage


def pickled(obj, importer, protocol, storage_id, exporter):
    """The pickle of an object whose classes and functions the importer finds."""
    kept = {}  # by id: the objects live as long as the pickler does

    def name_of(each):
        name = name_in_file(each)
        if name is None and importer is not sys_importer and isinstance(each, (type, types.FunctionType)):
            module, name = importer.get_name(each)
            return None if "." in name else f"{module}\n{name}"
        return name

    class Pickler(pickle.Pickler):
        dispatch_table = {**copyreg.dispatch_table, **_REDUCERS}  # noqa: RUF012 - pickle's own attribute

        def persistent_id(self, each):
            if isinstance(each, (TypedStorage, UntypedStorage)):
                return storage_id(each)
            if type(each) in _PLAIN:
                return None
            if hasattr(type(each), "__reduce_package__"):
                if id(each) not in kept:
                    kept[id(each)] = (("reduce_package", id(each), *each.__reduce_package__(exporter)), each)
                return kept[id(each)][0]
            if id(each) not in kept:
                kept[id(each)] = (name_of(each), each)
            return kept[id(each)][0]

    buffer = io.BytesIO()
    Pickler(buffer, protocol=protocol).dump(obj)
    return _C._resolve_named_globals(buffer.getvalue())
