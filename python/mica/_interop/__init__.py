"""Other libraries that work on Mica's tensors: the array API standard, einops."""
