"""Settings of the engine of gradients, by the names of torch's engine."""

from mica import _C

SavedTensor = _C._SavedTensor
_make_saved_tensor = _C._make_saved_tensor
_get_current_graph_task_keep_graph = _C._current_graph_task_keeps_graph


def _unsafe_set_version_counter(tensors, versions):
    """Set the versions of tensors."""
    for tensor, version in zip(tensors, versions, strict=True):
        _C._set_version(tensor, version)


def _saved_tensors_hooks_is_enabled():
    """Whether hooks of saved tensors are allowed here."""
    message = _C._disable_saved_tensor_hooks(None)
    if message is not None:
        _C._disable_saved_tensor_hooks(message)
    return message is None


def _saved_tensors_hooks_disable(error_message):
    """Refuse hooks of saved tensors with a message."""
    _C._disable_saved_tensor_hooks(error_message)


def _saved_tensors_hooks_enable():
    """Allow hooks of saved tensors again."""
    _C._disable_saved_tensor_hooks(None)


def _saved_tensors_hooks_get_disabled_error_message():
    """The message with which hooks of saved tensors are refused; None where they are allowed."""
    message = _C._disable_saved_tensor_hooks(None)
    if message is not None:
        _C._disable_saved_tensor_hooks(message)
    return message
