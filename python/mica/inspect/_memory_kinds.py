"""What memory is held for."""

KINDS = ("parameters", "buffers", "gradients", "optimizer state", "activations", "temporaries", "other")
