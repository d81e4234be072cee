// Everything: tensors, operations, indexing, autograd, randomness.
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
#include "mica/tensor.h"
