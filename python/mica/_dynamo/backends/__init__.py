"""Backends of torch.compile, and what they are made with."""
