// Tensors and what computes with them: operations, layers as functions, indexing, autograd, randomness. Modules and
// optimizers are apart (mica/nn.h, mica/optim.h), so that programs without them compile in a second.
#pragma once

#include "mica/allocator.h"
#include "mica/autograd.h"
#include "mica/backend.h"
#include "mica/custom_function.h"
#include "mica/generator.h"
#include "mica/indexing.h"
#include "mica/layers.h"
#include "mica/ops.h"
#include "mica/parallel.h"
#include "mica/print.h"
#include "mica/tensor.h"
#include "mica/values.h"
