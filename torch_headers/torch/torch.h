// All of Mica's C++ under torch's names.
#pragma once

#include "mica/nn.h"
#include "mica/nn/functional.h"
#include "mica/optim.h"
#include "mica/serialize.h"
#include "torch/types.h"
