"""The options of printing tensors. The printing itself is the engine's."""

import contextlib

from mica import _C

_PROFILES = {
    "default": {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80},
    "short": {"precision": 2, "threshold": 1000, "edgeitems": 2, "linewidth": 80},
    "full": {"precision": 4, "threshold": float("inf"), "edgeitems": 3, "linewidth": 80},
}


class _PrintOptions:
    """The options as attributes."""

    def __getattr__(self, name):
        try:
            return _C._get_print_options()[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name, value):
        options = _C._get_print_options()
        if name not in options:
            raise AttributeError(name)
        options[name] = value
        _C._set_print_options(*options.values())

    def __repr__(self):
        return f"PrintOptions({', '.join(f'{name}={value}' for name, value in _C._get_print_options().items())})"


PRINT_OPTS = _PrintOptions()


def set_printoptions(precision=None, threshold=None, edgeitems=None, linewidth=None, profile=None, sci_mode=None):
    """Set how tensors are printed.

    precision: digits after the decimal point (4 at first). threshold: tensors of more elements are summarised (1000).
    edgeitems: items shown at each end of a summarised dimension (3). linewidth: characters in a line (80).
    profile: "default", "short" or "full", under the options given beside it. sci_mode: scientific notation always
    (True), never (False) or where the numbers ask for it (None, also when it is not given).
    """
    options = _C._get_print_options()
    options.update(_PROFILES.get(profile, {}))
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    options.update({name: value for name, value in given.items() if value is not None})
    options["sci_mode"] = sci_mode
    _C._set_print_options(*options.values())


def get_printoptions():
    """The options as a dict, fit to be passed to set_printoptions()."""
    return _C._get_print_options()


@contextlib.contextmanager
def printoptions(**kwargs):
    """Print with other options within a `with` block."""
    before = get_printoptions()
    set_printoptions(**kwargs)
    try:
        yield
    finally:
        set_printoptions(**before)


def _tensor_str(self, indent):
    """The elements of a tensor as it prints them, each line but the first `indent` columns to the right."""
    if not self.numel():
        return "[]"
    text = repr(self.detach().to(_C.device("cpu")))
    elements = text[len("tensor(") : text.rindex("]") + 1] if self.dim() else text[len("tensor(") : -1].split(", ")[0]
    return elements.replace("\n" + " " * len("tensor("), "\n" + " " * indent)


def _str(tensor):
    return repr(tensor)
