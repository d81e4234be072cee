"""Fusion of modules, by the older name: see mica.ao.quantization.fuse_modules."""

from mica.ao.quantization.fuse_modules import (  # noqa: F401
    fuse_conv_bn,
    fuse_conv_bn_relu,
    fuse_known_modules,
    fuse_modules,
    get_fuser_method,
)
