// CUDA graphs and facts about a device, which Backend::extension hands out: only this backend has them.
#pragma once

#include <string_view>

#include "mica/backend/cuda_extension.h"

namespace mica::cuda {

void device_facts(int index, DeviceFacts* facts);

void* graph_extension(std::string_view name);

}  // namespace mica::cuda
