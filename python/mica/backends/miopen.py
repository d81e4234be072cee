"""AMD's library of layers: not used. Its settings are kept."""

from mica.backends._flags import setter_and_context

immediate = False
set_flags, flags = setter_and_context(__name__, immediate=False)
