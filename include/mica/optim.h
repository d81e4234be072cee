// Optimizers, schedules of their learning rates, and what a GradScaler is made of.
#pragma once

#include "mica/optim/loss_scale.h"
#include "mica/optim/lr_scheduler.h"
#include "mica/optim/optimizer.h"
