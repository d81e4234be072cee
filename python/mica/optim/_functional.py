"""The steps of optimizers as functions over lists."""

from mica.optim.adadelta import adadelta
from mica.optim.adagrad import adagrad
from mica.optim.adam import adam
from mica.optim.adamax import adamax
from mica.optim.adamw import adamw
from mica.optim.asgd import asgd
from mica.optim.nadam import nadam
from mica.optim.radam import radam
from mica.optim.rmsprop import rmsprop
from mica.optim.rprop import rprop
from mica.optim.sgd import sgd

__all__ = [
    "adadelta", "adagrad", "adam", "adamax", "adamw", "asgd", "nadam", "radam", "rmsprop", "rprop", "sgd",
]  # fmt: skip
