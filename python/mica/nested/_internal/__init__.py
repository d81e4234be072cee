"""The parts of nested tensors."""
