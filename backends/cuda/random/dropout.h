#pragma once

#include "mica/backend/dropout_backend.h"

namespace mica::cuda {

DropoutFunction draw_dropout;

}  // namespace mica::cuda
