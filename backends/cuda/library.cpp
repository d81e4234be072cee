#include "backends/cuda/library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "mica/error.h"

namespace mica::cuda {

static void* open_from_system(const char* const* names) {
  for (const char* const* name = names; *name; ++name)
    if (void* library = dlopen(*name, RTLD_NOW | RTLD_LOCAL)) return library;
  return nullptr;
}

// The folders of MICA_CUDA_LIBRARIES. Where it is not set, those that packages of PyPI use: the folder that holds this
// package holds theirs too, so they are looked for above this library.
static std::vector<std::string> package_folders() {
  std::vector<std::string> folders;
  if (const char* named = std::getenv("MICA_CUDA_LIBRARIES")) {
    for (std::string_view rest = named; !rest.empty();) {
      const size_t end = rest.find(':');
      folders.emplace_back(rest.substr(0, end));
      rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    }
    return folders;
  }
  Dl_info self{};
  if (!dladdr(reinterpret_cast<void*>(&package_folders), &self) || !self.dli_fname) return folders;
  constexpr int kLevels = 4;
  std::string above = self.dli_fname;
  for (int level = 0; level < kLevels; ++level) {
    const size_t slash = above.rfind('/');
    if (slash == std::string::npos || slash == 0) break;
    above.resize(slash);
    for (const char* package : {"cudnn", "cu13"}) folders.push_back(above + "/nvidia/" + package + "/lib");
  }
  return folders;
}

static void* open_from_folders(const char* const* names) {
  for (const std::string& folder : package_folders())
    for (const char* const* name = names; *name; ++name)
      if (void* library = dlopen((folder + "/" + *name).c_str(), RTLD_NOW | RTLD_GLOBAL)) return library;
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
