#include "backends/cuda/query.h"

#include <dlfcn.h>

#include <string_view>

#include "backends/cuda/gemm/tuning.h"
#include "backends/cuda/library.h"
#include "backends/cuda/green_contexts.h"
#include "backends/cuda/memory/device_allocator.h"
#include "backends/cuda/memory/pinned.h"
#include "backends/cuda/memory/settings.h"
#include "backends/cuda/memory/shared.h"
#include "backends/cuda/profiler/recorder.h"
#include "backends/cuda/recurrent/stacks.h"

namespace mica::cuda {

// "library\nfunction that allocates\nfunction that frees"
static void open_allocator(std::string_view text) {
  const size_t first = text.find('\n'), second = text.find('\n', first + 1);
  MICA_CHECK(second != std::string_view::npos, "expected a library and the names of two functions");
  const std::string path(text.substr(0, first)), take(text.substr(first + 1, second - first - 1)),
      give_back(text.substr(second + 1));
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  MICA_CHECK(library, "the allocator's library cannot be opened: ", dlerror());
  use_foreign_allocator(symbol(library, take.c_str()), symbol(library, give_back.c_str()));
}

std::string query(const char* what, const char* argument, int index) {
  const std::string_view name = what;
  DeviceGuard guard(index);
  if (name == "memory_statistics") return allocator(index).statistics();
  if (name == "memory_snapshot") return allocator(index).snapshot();
  if (name == "reset_accumulated_memory_statistics") return allocator(index).reset_accumulated(), "";
  if (name == "pinned_statistics") return pinned_cache().statistics();
  if (name == "empty_pinned_cache") return pinned_cache().empty(), "";
  if (name == "reset_peak_pinned_statistics") return pinned_cache().reset_peaks(), "";
  if (name == "reset_accumulated_pinned_statistics") return pinned_cache().reset_accumulated(), "";
  if (name == "allocator_settings") return set_allocator_settings(argument), "";
  if (name == "use_allocator") return open_allocator(argument), "";
  if (name == "set_waiting") return set_waiting(static_cast<WaitingIs>(argument[0] - '0')), "";
  if (name == "waiting") return std::to_string(static_cast<int>(waiting_is()));
  if (name == "pool_new") return std::to_string(allocator(index).new_pool());
  if (name == "pool_begin") return allocator(index).begin_pool(std::stoull(argument)), "";
  if (name == "pool_end") return allocator(index).end_pool(std::stoull(argument)), "";
  if (name == "pool_free") return allocator(index).free_pool(std::stoull(argument)), "";
  if (name == "recurrent_algorithm") return recurrent::give_algorithm(std::stoi(argument)), "";
  if (name == "recurrent_library") return recurrent::library_facts();
  if (name == "export_memory") return export_memory(reinterpret_cast<void*>(std::stoull(argument)));
  if (name == "import_memory") return std::to_string(reinterpret_cast<uintptr_t>(import_memory(argument)));
  if (name == "release_memory") return release_memory(argument), "";
  if (name == "green_context_new") return new_green_context(index, std::stoi(argument));
  if (name == "green_stream_new") return new_green_stream(argument);
  if (name == "green_stream_free") return free_green_stream(argument), "";
  if (name == "green_context_free") return free_green_context(argument), "";
  if (name == "tuning") return tuning::ask(argument, index);
  if (name == "profiler_start") return start_recording(), "";
  if (name == "profiler_stop") return stop_recording();
  if (name == "profiler_missing") return why_no_recording();
  fail(ErrorKind::NotImplemented, cat("the CUDA backend knows no query '", name, "'"));
}

}  // namespace mica::cuda
