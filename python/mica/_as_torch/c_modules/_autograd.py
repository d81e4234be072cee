"""What the engine of gradients is told, by the names of torch's engine."""

from mica import _C


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
    """Allow them again."""
    _C._disable_saved_tensor_hooks(None)


def _saved_tensors_hooks_get_disabled_error_message():
    """The message with which they are refused; None where they are allowed."""
    message = _C._disable_saved_tensor_hooks(None)
    if message is not None:
        _C._disable_saved_tensor_hooks(message)
    return message
