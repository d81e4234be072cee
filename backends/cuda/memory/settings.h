// The settings of the allocator in PYTORCH_CUDA_ALLOC_CONF, PYTORCH_ALLOC_CONF or MICA_CUDA_ALLOC_CONF.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace mica::cuda {

struct AllocatorSettings {
  std::atomic<bool> expandable_segments{false};
  std::atomic<bool> caching{true};               // PYTORCH_NO_CUDA_MEMORY_CACHING says no
  std::atomic<size_t> max_split_size{SIZE_MAX};  // larger blocks are not cut
};

AllocatorSettings& allocator_settings();  // from the environment when first asked for
// "name:value,name:value". Names of torch's that change nothing here are read and checked; others are an error.
void set_allocator_settings(std::string_view text);

}  // namespace mica::cuda
