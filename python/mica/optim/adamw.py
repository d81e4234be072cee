"""Adam with weight decay that is no part of the gradient."""

from mica._generated import optimizers
from mica.optim.adam import Adam, adam

__all__ = ["AdamW", "adamw"]


class AdamW(optimizers.AdamW, Adam):
    """Adam whose weight decay shrinks the parameters themselves."""


def adamw(params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, *modes, **options):
    """One step of AdamW over lists."""
    options["decoupled_weight_decay"] = True
    adam(params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, *modes, **options)
