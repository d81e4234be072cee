"""The parts of torch.utils.benchmark, by the modules that torch has them in."""
