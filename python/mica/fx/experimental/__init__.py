"""Parts of torch.fx that may change."""
