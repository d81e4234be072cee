"""In which order a process computes the forward and backward passes of its stages' microbatches.

An action is (kind, stage, microbatch). Orders depend on nothing but numbers, so every process knows those of all others.
"""

FORWARD, BACKWARD, INPUT_GRADIENT, WEIGHT_GRADIENT = "F", "B", "I", "W"


def sends_gradient(kind):
    """Whether the stage before gets a gradient after this."""
    return kind in (BACKWARD, INPUT_GRADIENT)


def forward_only(stages, chunks):
    """All forward passes: microbatch by microbatch through the stages of a process."""
    return [(FORWARD, stage, chunk) for chunk in range(chunks) for stage in stages]


def gpipe(stages, chunks):
    """All forward passes, then all backward passes."""
    (stage,) = stages
    return [(kind, stage, chunk) for kind in (FORWARD, BACKWARD) for chunk in range(chunks)]


def one_forward_one_backward(stages, chunks, count):
    """As few microbatches under way as keep all stages busy, then forward and backward by turns."""
    (stage,) = stages
    ahead = min(chunks, count - stage)
    order = [(FORWARD, stage, chunk) for chunk in range(ahead)]
    for chunk in range(chunks):
        order.append((BACKWARD, stage, chunk))
        if ahead + chunk < chunks:
            order.append((FORWARD, stage, ahead + chunk))
    return order


def looped_breadth_first(stages, chunks):
    """All microbatches through one stage after the other, and back."""
    return [(FORWARD, stage, chunk) for stage in stages for chunk in range(chunks)] + [
        (BACKWARD, stage, chunk) for stage in reversed(stages) for chunk in reversed(range(chunks))
    ]


def interleaved(stages, chunks, place, places, split_backward=False):
    """One forward, one backward over several stages of each process, in rounds of microbatches.

    With `split_backward` the gradients of weights wait until a process would stand idle.
    """
    local = len(stages)
    rounds = max(1, chunks // places)
    if chunks % rounds:
        raise ValueError(f"the number of microbatches, {chunks}, must be a multiple of the number of rounds, {rounds}")
    per_round = chunks // rounds
    total = local * chunks
    step_of = 1 if split_backward else 2
    ahead = min(total, (local - 1) * per_round + step_of * (places - 1 - place))

    def at(step, backward):
        turn = (step // per_round) % local
        stage = stages[local - 1 - turn if backward else turn]
        return stage, step // (per_round * local) * per_round + step % per_round

    order, waiting = [], []
    kind = INPUT_GRADIENT if split_backward else BACKWARD

    def back(step):
        order.append((kind, *at(step, True)))
        if split_backward:
            waiting.append((WEIGHT_GRADIENT, *at(step, True)))
            if len(waiting) > place:
                order.append(waiting.pop(0))

    order += [(FORWARD, *at(step, False)) for step in range(ahead)]
    for step in range(ahead, total):
        order.append((FORWARD, *at(step, False)))
        back(step - ahead)
    for step in range(total - ahead, total):
        back(step)
    return order + waiting
