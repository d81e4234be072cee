"""An optimizer of each process, after whose steps parameters are averaged now and then."""

import warnings

import mica

__all__ = ["PostLocalSGDOptimizer"]


class PostLocalSGDOptimizer(mica.optim.Optimizer):
    """Steps of `optim`, each followed by `averager`, which decides whether it is time."""

    def __init__(self, optim, averager):
        # Groups and states belong to the other optimizer, so the base class is not set up.
        self.optim, self.averager = optim, averager
        self.param_groups = optim.param_groups

    @property
    def state(self):
        return self.optim.state

    def __repr__(self):
        return repr(self.optim)

    def state_dict(self):
        """The state of the optimizer, and the number of steps that the averager has counted."""
        return {**self.optim.state_dict(), "step": self.averager.step}

    def load_state_dict(self, state_dict):
        self.optim.load_state_dict(state_dict)
        if "step" not in state_dict:
            warnings.warn(
                "Loaded state dict does not contain a step counter for an averager. Setting step counter to 0.",
                stacklevel=2,
            )
        self.averager.step = state_dict.get("step", 0)

    def step(self):
        self.optim.step()
        self.averager.average_parameters(self.param_groups)

    def zero_grad(self, set_to_none=True):
        self.optim.zero_grad(set_to_none=set_to_none)

    def add_param_group(self, param_group):
        self.optim.add_param_group(param_group)
