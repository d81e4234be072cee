"""AdamW: Adam with a weight decay that is not part of the gradient."""

from mica._generated import optimizers
from mica.optim.adam import Adam, adam

__all__ = ["AdamW", "adamw"]


class AdamW(optimizers.AdamW, Adam):
    """Adam whose weight decay shrinks the parameters themselves. The arguments are those of Adam.

    Example::

        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1)
    """


def adamw(params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, *modes, **options):
    """One step of AdamW over lists."""
    options["decoupled_weight_decay"] = True
    adam(params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, *modes, **options)
