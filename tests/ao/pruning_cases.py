"""Sparsifiers and schedules as functions of a library that speaks torch; what they give is recorded."""

# name -> maker(pruning)
SPARSIFIERS = {
    "blocks of four": lambda p: p.WeightNormSparsifier(0.5, (1, 4)),
    "squares": lambda p: p.WeightNormSparsifier(0.4, (2, 2), norm=1),
    "two of four": lambda p: p.WeightNormSparsifier(1.0, (1, 2), 1),
    "elements": lambda p: p.WeightNormSparsifier(0.3, (1, 1)),
    "all": lambda p: p.WeightNormSparsifier(1.0, (1, 2)),
    "none": lambda p: p.WeightNormSparsifier(0.0),
    "a norm of its own": lambda p: p.WeightNormSparsifier(0.6, (2, 1), norm=lambda t: -t),
    "three diagonals": lambda p: p.NearlyDiagonalSparsifier(3),
}


def model(t):
    t.manual_seed(0)
    return t.nn.Sequential(t.nn.Linear(6, 8), t.nn.ReLU(), t.nn.Sequential(t.nn.Linear(8, 4)))


def masks(t, name):
    """The rows of both masks as texts of zeros and ones, by the path of their tensor."""
    made, sparsifier = model(t), SPARSIFIERS[name](t.ao.pruning)
    sparsifier.prepare(made, None)
    sparsifier.step()
    found = {}
    for group in sparsifier.groups:
        mask = group["module"].parametrizations.weight[0].mask
        found[group["tensor_fqn"]] = ["".join(str(int(v)) for v in row) for row in mask.tolist()]
    return found


def levels(t, name):
    """The levels that a schedule sets."""
    made = model(t)
    sparsifier = t.ao.pruning.WeightNormSparsifier(0.8)
    sparsifier.prepare(made, [{"tensor_fqn": "0.weight"}, {"tensor_fqn": "2.0.weight", "sparsity_level": 0.5}])
    if name == "lambda":
        schedule = t.ao.pruning.LambdaSL(sparsifier, lambda epoch: epoch / 4)
    else:
        schedule = t.ao.pruning.CubicSL(
            sparsifier, init_sl=[0.1, 0.0], init_t=1, delta_t=2, total_t=2, initially_zero=True
        )
    found = [schedule.get_last_sl()]
    for _ in range(5):
        sparsifier.step()
        schedule.step()
        found.append(schedule.get_last_sl())
    return found
