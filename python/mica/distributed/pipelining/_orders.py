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


def v_place(stage, places):
    """The process of a stage where each has one from the begin and one from the end: the second half runs back."""
    return stage if stage < places else 2 * places - 1 - stage


def v_shaped(chunks, places):
    """The orders of all processes that have two stages each, laid out as a V, and backward passes in two parts.

    All processes are followed step by step, every action taking one. A process computes the gradient of an input that
    somebody waits for if it can, then a forward pass, then gradients of weights. As many microbatches are under way as
    there are stages, so that memory is that of one forward, one backward.
    """
    count = 2 * places
    done, orders = set(), {place: [] for place in range(places)}
    waiting = {place: [] for place in range(places)}
    mine = {place: (place, count - 1 - place) for place in range(places)}
    following = dict.fromkeys(((kind, stage) for kind in "FI" for stage in range(count)), 0)

    def ready(kind, stage):
        chunk = following[kind, stage]
        if chunk == chunks:
            return False
        if kind == FORWARD:
            return stage == 0 or (FORWARD, stage - 1, chunk) in done
        return (FORWARD, stage, chunk) in done and (stage == count - 1 or (INPUT_GRADIENT, stage + 1, chunk) in done)

    def choice(place):
        first, second = mine[place]
        for stage in (second, first):
            if ready(INPUT_GRADIENT, stage):
                return INPUT_GRADIENT, stage
        under_way = following[FORWARD, first] - following[INPUT_GRADIENT, first]
        if ready(FORWARD, second):
            return FORWARD, second
        return (FORWARD, first) if under_way < count and ready(FORWARD, first) else None

    while any(len(order) < 6 * chunks for order in orders.values()):
        step = []
        for place, order in orders.items():
            chosen = choice(place)
            if chosen is not None:
                action = (*chosen, following[chosen])
                step.append(action)
                if chosen[0] == INPUT_GRADIENT:
                    waiting[place].append((WEIGHT_GRADIENT, *action[1:]))
            elif waiting[place]:
                action = waiting[place].pop(0)
            else:
                continue
            order.append(action)
        for kind, stage, chunk in step:
            done.add((kind, stage, chunk))
            following[kind, stage] += 1
    return orders


def dual_pipe_v(chunks, place, places):
    """The order of one process that has two stages, laid out as a V, where forward and backward passes go by pairs.

    This is DualPipeV of DeepSeek's. Its eight parts: the pipeline fills up to the bend of the V; forward passes of both
    stages by turns; backward passes of the second stage begin, in two parts; forward of one stage and backward of the
    other in pairs; the last forward passes of the second stage; backward passes of both, the later ones without the
    gradients of weights; what is left of the first stage, with such gradients in between; the gradients of weights.
    """
    first, second = place, 2 * places - 1 - place
    left = places - place - 1  # the number of processes between this one and the bend
    order, waiting = [], []
    following = dict.fromkeys(((kind, stage) for kind in "FB" for stage in (first, second)), 0)

    def forward(stage):
        order.append((FORWARD, stage, following[FORWARD, stage]))
        following[FORWARD, stage] += 1

    def backward(stage, whole=True):
        chunk = following[BACKWARD, stage]
        order.append((BACKWARD if whole else INPUT_GRADIENT, stage, chunk))
        following[BACKWARD, stage] += 1
        if not whole:
            waiting.append((WEIGHT_GRADIENT, stage, chunk))

    for _ in range(2 * left):
        forward(first)
    for _ in range(place + 1):
        forward(first)
        forward(second)
    for _ in range(left):
        backward(second, whole=False)
        order.append(waiting.pop(0))
        forward(second)
    for _ in range(chunks - 2 * places + place + 1):
        forward(first)
        backward(second)
        forward(second)
        backward(first)
    for _ in range(left):
        backward(second)
        forward(second)
        backward(first)
    for number in range(place + 1):
        # From the middle on. Processes take turns in which of their two stages begins.
        late = number > (place + 1) // 2
        half = number == (place + 1) // 2
        backward(second, whole=not (late or (half and place % 2 == 1)))
        backward(first, whole=not (late or half))
    for _ in range(left):
        if waiting:
            order.append(waiting.pop(0))
        backward(first, whole=False)
    return order + waiting
