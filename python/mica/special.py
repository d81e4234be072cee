"""Special functions: those of the table, and torch's other names of operations that stand in the package itself."""

from mica import _C

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mica._special import *  # noqa: F403

_OTHER_NAMES = {
    "expit": "sigmoid",
    "gammainc": "igamma",
    "gammaincc": "igammac",
    "gammaln": "lgamma",
    "multigammaln": "mvlgamma",
    "psi": "digamma",
}
_SAME_NAMES = (
    "digamma", "erf", "erfc", "erfinv", "exp2", "expm1", "i0", "log1p", "log_softmax", "logit", "logsumexp",
    "polygamma", "round", "sinc", "softmax", "xlogy",
)  # fmt: skip

globals().update({name: value for name, value in vars(_C._special).items() if not name.startswith("__")})
globals().update({name: getattr(_C, old) for name, old in _OTHER_NAMES.items()})
globals().update({name: getattr(_C, name) for name in _SAME_NAMES})

__all__ = sorted(name for name in globals() if not name.startswith("_") and name != "TYPE_CHECKING")
