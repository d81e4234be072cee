// Every operation of layers (convolutions, pooling, norms, losses...) as a free function. Apart from mica/ops.h so that
// the engine does not depend on what stands on it.
#pragma once

#include "mica/generated/layers.h"
#include "mica/ops.h"
