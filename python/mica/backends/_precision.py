"""How exact float32 products, convolutions and recurrent layers have to be: torch's settings, by library and operation.

On CUDA they decide whether the inputs of float32 products, convolutions and recurrent layers may be rounded to TF32. The
CPU's kernels compute float32 in float32 whatever the settings say.
"""

from mica import _C

_WORDS = ("none", "ieee", "tf32", "bf16")
# "none" leaves the choice to the library's setting for all operations, and that leaves it to the setting for all
# libraries.
_settings = {
    ("generic", "all"): "none",
    **{("cuda", operation): "none" for operation in ("all", "matmul", "conv", "rnn")},
    **{("mkldnn", operation): "none" for operation in ("all", "matmul", "conv", "rnn")},
}
# Until someone sets them, cuDNN's convolutions and recurrent layers may round, if no wider setting says otherwise.
_by_default = {("cuda", "conv"): "tf32", ("cuda", "rnn"): "tf32"}
# What the older functions were set to. They refuse to answer where settings were made in another way.
_older = {"matmul": "highest", "cudnn": True}


def _takes(library, word):
    return library != "cuda" or word != "bf16"


def get(library, operation="all"):
    """The setting that holds for an operation of a library."""
    for key in ((library, operation), (library, "all")):
        if _settings[key] != "none":
            return _settings[key]
    everywhere = _settings["generic", "all"]
    if everywhere != "none":
        return everywhere if _takes(library, everywhere) else "none"
    return _by_default.get((library, operation), "none")


def set(library, operation, word):
    """Change one setting and tell the CUDA backend what follows from it."""
    if word not in _WORDS:
        raise RuntimeError(f"Unknown precision: {word}")
    if not _takes(library, word):
        raise RuntimeError(f"backend '{library}' does not support precision '{word}'")
    _settings[library, operation] = word
    _by_default.pop((library, operation), None)
    if library != "mkldnn" and _C._device_count("cuda") > 0:
        _C._set_backend_flag("cuda", "matmul_tf32", get("cuda", "matmul") == "tf32")
        # One flag serves both, so a program that wants only one of them exact gets both exact.
        _C._set_backend_flag("cuda", "convolution_tf32", get("cuda", "conv") == get("cuda", "rnn") == "tf32")


class Precision:
    """The setting of one library, or of one of its operations, as its attribute `fp32_precision`."""

    def __init__(self, library, operation="all"):
        object.__setattr__(self, "_place", (library, operation))

    def __setattr__(self, name, value):
        if name == "fp32_precision":
            set(*self._place, value)
        else:
            raise AttributeError("Unknown attribute " + name)

    @property
    def fp32_precision(self):
        """One of "none", "ieee", "tf32" and "bf16"."""
        return get(*self._place)


def _refuse(what):
    raise RuntimeError(
        f"the {what} was set by `fp32_precision` and by an older function, and this older function cannot tell what "
        "holds now. Ask `fp32_precision`, or set it by one of the two only."
    )


def set_products(word):
    """What set_float32_matmul_precision does: "highest", "high" or "medium"."""
    _older["matmul"] = word
    set("cuda", "matmul", "ieee" if word == "highest" else "tf32")
    set("mkldnn", "matmul", {"highest": "ieee", "high": "tf32", "medium": "bf16"}[word])


def products():
    """The word for set_float32_matmul_precision."""
    narrower = get("cuda", "matmul") == "tf32" or get("mkldnn", "matmul") in ("tf32", "bf16")
    if _older["matmul"] == "highest" and narrower:
        _refuse("precision of products")
    return _older["matmul"]


def allow_products(allowed):
    """What `torch.backends.cuda.matmul.allow_tf32 = ...` does."""
    _older["matmul"] = "high" if allowed else "highest"
    set("cuda", "matmul", "tf32" if allowed else "ieee")


def products_allowed():
    """Whether the inputs of products may be rounded on CUDA."""
    allowed = _older["matmul"] != "highest"
    if allowed != (get("cuda", "matmul") == "tf32"):
        _refuse("precision of products")
    return allowed


def allow_layers(allowed):
    """What `torch.backends.cudnn.allow_tf32 = ...` does, for convolutions and recurrent layers."""
    _older["cudnn"] = bool(allowed)
    set("cuda", "conv", "tf32" if allowed else "none")
    set("cuda", "rnn", "tf32" if allowed else "none")


def layers_allowed():
    """Whether the inputs of convolutions and recurrent layers may be rounded on CUDA."""
    if _older["cudnn"] != (get("cuda", "conv") == get("cuda", "rnn") == "tf32"):
        _refuse("precision of convolutions and recurrent layers")
    return _older["cudnn"]
