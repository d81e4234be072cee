// What a C++ extension for Python includes.
#pragma once

#include "torch/torch.h"
#include "torch/python.h"
#include "torch/library.h"
