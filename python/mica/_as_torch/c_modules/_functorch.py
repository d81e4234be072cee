"""Questions about tensors within torch.func's transforms: there are no special ones."""


def _no(tensor):
    return False


is_legacy_batchedtensor = is_batchedtensor = is_gradtrackingtensor = is_functionaltensor = (
    is_functorch_wrapped_tensor
) = _no


def maybe_current_level():
    """The level of the innermost transform: always None here."""


def get_unwrapped(tensor):
    return tensor
