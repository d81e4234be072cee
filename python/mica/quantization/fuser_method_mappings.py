"""How layers are fused, by the older name: see mica.ao.quantization.fuser_method_mappings."""

from mica.ao.quantization.fuser_method_mappings import (  # noqa: F401
    fuse_conv_bn,
    fuse_conv_bn_relu,
    fuse_linear_bn,
    get_fuser_method,
)
