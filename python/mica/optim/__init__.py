"""Optimizers, schedules of their learning rates, and averages of models."""

from mica.optim import lr_scheduler, swa_utils
from mica.optim._adafactor import Adafactor
from mica.optim._muon import Muon
from mica.optim._stateless import swap_in_optimizer_params_and_state
from mica.optim.adadelta import Adadelta
from mica.optim.adagrad import Adagrad
from mica.optim.adam import Adam
from mica.optim.adamax import Adamax
from mica.optim.adamw import AdamW
from mica.optim.asgd import ASGD
from mica.optim.lbfgs import LBFGS
from mica.optim.nadam import NAdam
from mica.optim.optimizer import Optimizer
from mica.optim.radam import RAdam
from mica.optim.rmsprop import RMSprop
from mica.optim.rprop import Rprop
from mica.optim.sgd import SGD
from mica.optim.sparse_adam import SparseAdam

__all__ = [
    "ASGD",
    "LBFGS",
    "SGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Muon",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SparseAdam",
    "lr_scheduler",
    "swa_utils",
    "swap_in_optimizer_params_and_state",
]
