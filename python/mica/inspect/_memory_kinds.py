"""The purposes for which memory is held."""

KINDS = ("parameters", "buffers", "gradients", "optimizer state", "activations", "temporaries", "other")
