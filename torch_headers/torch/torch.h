// All of Mica's C++ under torch's names.
#pragma once

#include "torch/data.h"
#include "torch/functional.h"
#include "torch/nn.h"
#include "torch/optim.h"
#include "torch/serialize.h"
#include "torch/types.h"
