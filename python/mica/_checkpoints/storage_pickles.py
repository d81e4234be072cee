"""Plain pickles of storages as torch writes and reads them: a file within."""

import io

from mica._methods.untyped_storage import reduce_untyped
from mica.serialization import load, save


def _load_from_bytes(b):
    """The storage in a plain pickle of torch's, which holds it as a whole checkpoint file."""
    return load(io.BytesIO(b), weights_only=False)


def reduce_as_torch(self, protocol=2):
    """The content of plain pickles where torch is Mica: a file of the storage, as in torch's pickles."""
    if self.device.type == "meta":
        return reduce_untyped(self, protocol)
    file = io.BytesIO()
    save(self, file, _use_new_zipfile_serialization=False)
    return _load_from_bytes, (file.getvalue(),)


_load_from_bytes.__module__ = "mica.storage"  # the name in pickles
