// Libraries that are opened when something first needs them: from the system's places, from the folders that
// MICA_CUDA_LIBRARIES names (mica.cuda puts those of the nvidia-* packages there), or from such packages beside ours.
#pragma once

namespace mica::cuda {

// Opens the first of the names (ended by null) that can be opened, or returns null. With `packages_first`, libraries in
// the folders win over the system's: a package is there because somebody asked for its version.
void* open_library(const char* const* names, bool packages_first = false);
void* symbol(void* library, const char* name);       // an error if it is not there
void* find_symbol(void* library, const char* name);  // null if it is not there

}  // namespace mica::cuda
