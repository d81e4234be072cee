"""Quantization of traced models: what joins layers, observes them, and converts them."""
