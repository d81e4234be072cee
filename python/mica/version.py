"""The version, in torch's terms."""

mica = "0.1.0"
__version__ = mica  # where torch is Mica: the version of torch whose behaviour it has
debug = False
cuda = None
hip = None
rocm = None
xpu = None
git_version = "unknown"
