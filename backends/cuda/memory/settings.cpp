#include "backends/cuda/memory/settings.h"

#include <charconv>
#include <cstdlib>

#include "mica/error.h"

namespace mica::cuda {

namespace {

bool truth(std::string_view key, std::string_view value) {
  MICA_CHECK(value == "True" || value == "False", "Expected a single True/False argument for ", key, ", but got ",
             value);
  return value == "True";
}

void apply(AllocatorSettings& settings, std::string_view text) {
  while (!text.empty()) {
    const size_t comma = text.find(',');
    std::string_view item = text.substr(0, comma);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
    while (!item.empty() && item.front() == ' ') item.remove_prefix(1);
    while (!item.empty() && item.back() == ' ') item.remove_suffix(1);
    if (item.empty()) continue;
    const size_t colon = item.find(':');
    const std::string_view key = item.substr(0, colon);
    const std::string_view value = colon == std::string_view::npos ? std::string_view() : item.substr(colon + 1);
    if (key == "expandable_segments") {
      settings.expandable_segments = truth(key, value);
    } else if (key == "max_split_size_mb") {
      size_t mib = 0;
      const auto parsed = std::from_chars(value.data(), value.data() + value.size(), mib);
      MICA_CHECK(parsed.ec == std::errc() && parsed.ptr == value.data() + value.size() && mib > 20,
                 "CachingAllocator option max_split_size_mb too small, must be > 20: got ", value);
      settings.max_split_size = mib << 20;
    } else if (key == "caching") {  // of ours: what caching_allocator_enable changes
      settings.caching = truth(key, value);
    } else if (key == "backend") {
      MICA_CHECK(value == "native", "Unknown allocator backend, options are native: got ", value);
    } else {
      // Settings of torch's allocator for rounding, pinning and cleaning up, which ours does in its own way.
      constexpr std::string_view kOthers[] = {"garbage_collection_threshold",      "roundup_power2_divisions",
                                              "roundup_bypass_threshold_mb",       "release_lock_on_cudamalloc",
                                              "release_lock_on_hipmalloc",         "pinned_use_cuda_host_register",
                                              "pinned_use_hip_host_register",      "pinned_num_register_threads",
                                              "pinned_use_background_threads",     "pinned_reserve_segment_size_mb",
                                              "graph_capture_record_stream_reuse", "max_non_split_rounding_mb",
                                              "per_process_memory_fraction",       "throw_on_cudamalloc_oom"};
      bool known = false;
      for (const std::string_view other : kOthers) known = known || key == other;
      MICA_CHECK(known, "Unrecognized key '", key, "' in CUDA allocator config.");
      // A list of values in brackets has commas of its own.
      if (!value.empty() && value.front() == '[' && value.back() != ']') {
        const size_t end = text.find(']');
        MICA_CHECK(end != std::string_view::npos, "Expected ']' in the CUDA allocator config after ", item);
        text.remove_prefix(end + 1);
      }
    }
  }
}

}  // namespace

AllocatorSettings& allocator_settings() {
  static AllocatorSettings* const settings = [] {
    auto* made = new AllocatorSettings;
    made->caching = std::getenv("PYTORCH_NO_CUDA_MEMORY_CACHING") == nullptr;
    for (const char* name : {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "MICA_CUDA_ALLOC_CONF"})
      if (const char* text = std::getenv(name)) apply(*made, text);
    return made;
  }();
  return *settings;
}

void set_allocator_settings(std::string_view text) { apply(allocator_settings(), text); }

}  // namespace mica::cuda
