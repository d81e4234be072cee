// Memory of a device that another process uses too. A handle names a whole piece that cudaMalloc gave.
#pragma once

#include <string>
#include <string_view>

namespace mica::cuda {

// "handle offset": how another process finds the memory at an address of the current device. The handle is 128
// hexadecimal digits; the offset is that of the address within the piece. Waits for the current stream's work.
std::string export_memory(void* address);

// The address of the piece in this process. Every import is released once; CUDA opens a piece once per process, so
// that imports of the same handle share it.
void* import_memory(std::string_view handle);
void release_memory(std::string_view handle);  // does nothing for a handle that was not imported

}  // namespace mica::cuda
