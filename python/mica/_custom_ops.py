"""The older place of torch.library's tools for operators of one's own."""

from mica.library import get_ctx  # noqa: F401
