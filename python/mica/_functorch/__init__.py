"""Where torch has the parts of torch.func that packages reach for: those of vmap."""
