"""Helpers for training: clipping of gradients, parametrizations, vectors of parameters."""
