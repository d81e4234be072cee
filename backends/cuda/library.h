// Libraries that are opened when something first needs them: from where the system looks, from the folders that
// MICA_CUDA_LIBRARIES names (mica.cuda puts those of the nvidia-* packages there), or from such packages beside ours.
#pragma once

namespace mica::cuda {

// The first of the names (ended by null) that can be opened, or null. With `packages_first`, those of the folders win
// over the system's: a package is there because somebody has asked for its version.
void* open_library(const char* const* names, bool packages_first = false);
void* symbol(void* library, const char* name);       // an error if it is not there
void* find_symbol(void* library, const char* name);  // null if it is not there

}  // namespace mica::cuda
