// Layers as modules. mica/layers.h has them as functions, mica/optim.h what trains them.
#pragma once

#include "mica/layers.h"
#include "mica/nn/activation.h"
#include "mica/nn/container.h"
#include "mica/nn/conv.h"
#include "mica/nn/linear.h"
#include "mica/nn/loss.h"
#include "mica/nn/normalization.h"
#include "mica/nn/pooling.h"
#include "mica/nn/resize.h"
#include "mica/nn/rnn.h"
#include "mica/nn/transformer.h"
