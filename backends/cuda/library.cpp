#include "backends/cuda/library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "mica/error.h"

namespace mica::cuda {

void* open_library(const char* const* names) {
  for (const char* const* name = names; *name; ++name)
    if (void* library = dlopen(*name, RTLD_NOW | RTLD_LOCAL)) return library;
  const char* folders = std::getenv("MICA_CUDA_LIBRARIES");
  for (std::string_view rest = folders ? folders : ""; !rest.empty();) {
    const size_t end = rest.find(':');
    const std::string folder(rest.substr(0, end));
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    for (const char* const* name = names; *name; ++name)
      if (void* library = dlopen((folder + "/" + *name).c_str(), RTLD_NOW | RTLD_GLOBAL)) return library;
  }
  return nullptr;
}

void* symbol(void* library, const char* name) {
  void* found = dlsym(library, name);
  MICA_CHECK(found, "the library that was opened has no ", name, ": ", dlerror());
  return found;
}

void* find_symbol(void* library, const char* name) { return dlsym(library, name); }

}  // namespace mica::cuda
