"""Decodes the contents of files by their extensions."""

from typing import Any

from mica.utils.data.datapipes._decorator import functional_datapipe
from mica.utils.data.datapipes.datapipe import IterDataPipe
from mica.utils.data.datapipes.iter._lengths import length_of
from mica.utils.data.datapipes.utils.common import _deprecation_warning
from mica.utils.data.datapipes.utils.decoder import Decoder, basichandlers, extension_extract_fn, imagehandler

__all__ = ["RoutedDecoderIterDataPipe"]


@functional_datapipe("routed_decode")
class RoutedDecoderIterDataPipe(IterDataPipe[tuple[str, Any]]):
    """(path, decoded content) of each (path, stream), by the first handler that knows the extension."""

    def __init__(self, datapipe, *handlers, key_fn=extension_extract_fn):
        super().__init__()
        self.datapipe = datapipe
        self.decoder = Decoder(*(handlers or (basichandlers, imagehandler("torch"))), key_fn=key_fn)
        _deprecation_warning(
            type(self).__name__,
            deprecation_version="1.12",
            removal_version="1.13",
            old_functional_name="routed_decode",
        )

    def add_handler(self, *handler):
        """Ask these handlers before the others."""
        self.decoder.add_handler(*handler)

    def __iter__(self):
        for data in self.datapipe:
            yield data[0], self.decoder(data)[data[0]]

    def __len__(self):
        return length_of(self, self.datapipe)[0]
