#include "backends/cuda/library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "mica/error.h"

namespace mica::cuda {

static void* open_from_system(const char* const* names) {
  for (const char* const* name = names; *name; ++name)
    if (void* library = dlopen(*name, RTLD_NOW | RTLD_LOCAL)) return library;
  return nullptr;
}

static void* open_from_folders(const char* const* names) {
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

void* open_library(const char* const* names, bool packages_first) {
  void* library = packages_first ? open_from_folders(names) : open_from_system(names);
  return library ? library : packages_first ? open_from_system(names) : open_from_folders(names);
}

void* symbol(void* library, const char* name) {
  void* found = dlsym(library, name);
  MICA_CHECK(found, "the library that was opened has no ", name, ": ", dlerror());
  return found;
}

void* find_symbol(void* library, const char* name) { return dlsym(library, name); }

}  // namespace mica::cuda
