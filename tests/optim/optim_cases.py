"""What the tests of optimizers and schedules run, on Mica and on torch alike."""

import numpy as np

TENSOR = "tensor:"  # an option given as a 0-dim tensor: TENSOR + its value

OPTIMIZERS = {
    "sgd": ("SGD", {"lr": 0.1}),
    "sgd_decay": ("SGD", {"lr": 0.1, "weight_decay": 0.05, "maximize": True}),
    "sgd_momentum": ("SGD", {"lr": 0.1, "momentum": 0.9}),
    "sgd_damped": ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.5}),
    "sgd_nesterov": ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    "sgd_tensor_lr": ("SGD", {"lr": TENSOR + "0.1", "momentum": 0.9}),
    "sgd_fused": ("SGD", {"lr": 0.1, "momentum": 0.9, "fused": True}),
    "adam": ("Adam", {"lr": 0.05}),
    "adam_amsgrad": ("Adam", {"lr": 0.05, "amsgrad": True, "weight_decay": 0.1}),
    "adam_betas": ("Adam", {"lr": 0.05, "betas": (0.3, 0.8), "eps": 1e-4, "maximize": True}),
    "adam_foreach": ("Adam", {"lr": 0.05, "foreach": True}),
    "adam_fused": ("Adam", {"lr": 0.05, "fused": True}),
    "adamw": ("AdamW", {"lr": 0.05}),
    "adamw_amsgrad": ("AdamW", {"lr": 0.05, "weight_decay": 0.3, "amsgrad": True, "maximize": True}),
    "adamax": ("Adamax", {}),
    "adamax_decay": ("Adamax", {"lr": 0.1, "weight_decay": 0.1, "betas": (0.7, 0.9), "maximize": True}),
    "nadam": ("NAdam", {"lr": 0.05}),
    "nadam_decay": ("NAdam", {"lr": 0.05, "weight_decay": 0.1, "momentum_decay": 0.01}),
    "nadam_decoupled": ("NAdam", {"lr": 0.05, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    "radam": ("RAdam", {"lr": 0.05}),
    "radam_decay": ("RAdam", {"lr": 0.05, "weight_decay": 0.1, "betas": (0.8, 0.9)}),
    "radam_decoupled": ("RAdam", {"lr": 0.05, "weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True}),
    "rmsprop": ("RMSprop", {}),
    "rmsprop_momentum": ("RMSprop", {"momentum": 0.9, "weight_decay": 0.1}),
    "rmsprop_centered": ("RMSprop", {"centered": True, "alpha": 0.8}),
    "rmsprop_all": ("RMSprop", {"centered": True, "momentum": 0.5, "maximize": True, "eps": 1e-3}),
    "adagrad": ("Adagrad", {"lr": 0.1}),
    "adagrad_decay": (
        "Adagrad",
        {"lr": 0.1, "lr_decay": 0.1, "initial_accumulator_value": 0.5, "weight_decay": 0.1, "maximize": True},
    ),
    "adadelta": ("Adadelta", {}),
    "adadelta_decay": ("Adadelta", {"lr": 0.5, "rho": 0.5, "weight_decay": 0.1, "maximize": True}),
    "rprop": ("Rprop", {}),
    "rprop_bounds": ("Rprop", {"lr": 0.1, "etas": (0.3, 1.5), "step_sizes": (0.05, 0.3), "maximize": True}),
    "asgd": ("ASGD", {}),
    "asgd_averaging": ("ASGD", {"lr": 0.1, "t0": 5, "lambd": 0.01, "weight_decay": 0.1, "maximize": True}),
    "adafactor": ("Adafactor", {}),
    "adafactor_decay": ("Adafactor", {"weight_decay": 0.1, "d": 2.0, "eps": (1e-4, 1e-2), "maximize": True}),
    "muon": ("Muon", {"lr": 0.05}),
    "muon_adjusted": ("Muon", {"lr": 0.05, "adjust_lr_fn": "match_rms_adamw", "nesterov": False}),
}
SHAPES = ((4, 3), (17,), (2, 3, 2), ())
MATRICES = ((4, 3), (3, 5))  # all that Muon takes


def options_for(lib, options):
    """The options with tensors of the library in place of their descriptions."""
    return {
        key: lib.tensor(float(value[len(TENSOR) :])) if isinstance(value, str) and value.startswith(TENSOR) else value
        for key, value in options.items()
    }


def shapes_for(name):
    return MATRICES if name == "Muon" else SHAPES


def start_values(name):
    draw = np.random.RandomState(0)
    return [draw.standard_normal(shape) for shape in shapes_for(name)]


def gradients(name, step):
    draw = np.random.RandomState(1 + step)
    return [draw.standard_normal(shape) for shape in shapes_for(name)]


def tensors(lib, arrays, dtype="float32"):
    return [lib.tensor(a.tolist(), dtype=getattr(lib, dtype)) for a in arrays]


def set_gradients(lib, params, name, step, dtype="float32"):
    for p, grad in zip(params, tensors(lib, gradients(name, step), dtype), strict=True):
        p.grad = grad


def run(lib, case, steps, dtype="float32"):
    """The optimizer and its parameters after some steps."""
    name, options = OPTIMIZERS[case]
    params = [t.requires_grad_() for t in tensors(lib, start_values(name), dtype)]
    optimizer = getattr(lib.optim, name)(params, **options_for(lib, options))
    for step in range(steps):
        set_gradients(lib, params, name, step, dtype)
        optimizer.step()
    return optimizer, params


# Each makes a schedule of (lib, optimizer); the optimizer has two groups with rates 0.1 and 0.02, and momentum.
def _sequential(lib, optimizer):
    s = lib.optim.lr_scheduler
    first = s.ConstantLR(optimizer, factor=0.1, total_iters=3)
    second = s.ExponentialLR(optimizer, gamma=0.8)
    third = s.CosineAnnealingLR(optimizer, T_max=5)
    return s.SequentialLR(optimizer, [first, second, third], milestones=[4, 9])


def _chained(lib, optimizer):
    s = lib.optim.lr_scheduler
    return s.ChainedScheduler([s.LinearLR(optimizer, 0.2, total_iters=6), s.ExponentialLR(optimizer, 0.9)], optimizer)


SCHEDULES = {
    "lambda": lambda lib, o: lib.optim.lr_scheduler.LambdaLR(o, [lambda e: 0.9**e, lambda e: 1 / (1 + e)]),
    "multiplicative": lambda lib, o: lib.optim.lr_scheduler.MultiplicativeLR(o, lambda e: 0.95),
    "step": lambda lib, o: lib.optim.lr_scheduler.StepLR(o, 4, gamma=0.3),
    "multistep": lambda lib, o: lib.optim.lr_scheduler.MultiStepLR(o, [3, 8, 8, 12], gamma=0.5),
    "constant": lambda lib, o: lib.optim.lr_scheduler.ConstantLR(o, factor=0.25, total_iters=4),
    "linear": lambda lib, o: lib.optim.lr_scheduler.LinearLR(o, 0.25, 0.9, total_iters=7),
    "exponential": lambda lib, o: lib.optim.lr_scheduler.ExponentialLR(o, 0.87),
    "polynomial": lambda lib, o: lib.optim.lr_scheduler.PolynomialLR(o, total_iters=11, power=2.0),
    "cosine": lambda lib, o: lib.optim.lr_scheduler.CosineAnnealingLR(o, T_max=6, eta_min=0.001),
    "warm_restarts": lambda lib, o: lib.optim.lr_scheduler.CosineAnnealingWarmRestarts(o, T_0=3, T_mult=2),
    "one_cycle": lambda lib, o: lib.optim.lr_scheduler.OneCycleLR(o, [0.5, 0.2], total_steps=20),
    "one_cycle_three": lambda lib, o: lib.optim.lr_scheduler.OneCycleLR(
        o, 0.5, epochs=4, steps_per_epoch=5, anneal_strategy="linear", three_phase=True, cycle_momentum=False
    ),
    "cyclic": lambda lib, o: lib.optim.lr_scheduler.CyclicLR(o, 0.01, 0.1, step_size_up=4, step_size_down=3),
    "cyclic_halving": lambda lib, o: lib.optim.lr_scheduler.CyclicLR(
        o, [0.01, 0.02], [0.1, 0.3], step_size_up=3, mode="triangular2", cycle_momentum=False
    ),
    "cyclic_range": lambda lib, o: lib.optim.lr_scheduler.CyclicLR(
        o, 0.01, 0.1, step_size_up=3, mode="exp_range", gamma=0.9
    ),
    "swa": lambda lib, o: lib.optim.swa_utils.SWALR(o, [0.05, 0.005], anneal_epochs=5),
    "swa_linear": lambda lib, o: lib.optim.swa_utils.SWALR(o, 0.05, anneal_epochs=4, anneal_strategy="linear"),
    "sequential": _sequential,
    "chained": _chained,
    "plateau": lambda lib, o: lib.optim.lr_scheduler.ReduceLROnPlateau(o, patience=1, cooldown=2, factor=0.5),
    "plateau_max": lambda lib, o: lib.optim.lr_scheduler.ReduceLROnPlateau(
        o, mode="max", patience=0, threshold=0.1, threshold_mode="abs", min_lr=[0.05, 0.001]
    ),
}
METRICS = [3.0, 2.0, 2.0, 2.1, 1.9, 1.9, 1.9, 1.95, 1.99, 1.0, 1.2, 1.2, 1.3, 1.3, 1.4, 1.4, 1.4, 1.0, 0.9]


def two_groups(lib):
    params = [lib.zeros(2, requires_grad=True), lib.zeros(3, requires_grad=True)]
    return lib.optim.SGD([{"params": params[:1]}, {"params": params[1:], "lr": 0.02}], lr=0.1, momentum=0.9)


def step_schedule(case, schedule, step):
    if case.startswith("plateau"):
        schedule.step(METRICS[step])
    else:
        schedule.step()


def rates(lib, case, steps=19):
    """Rates and momenta of both groups, from the start on."""
    optimizer = two_groups(lib)
    schedule = SCHEDULES[case](lib, optimizer)
    seen = []
    for step in range(steps):
        seen.append([[float(g["lr"]), float(g["momentum"])] for g in optimizer.param_groups])
        optimizer.step()
        step_schedule(case, schedule, step)
    return seen
