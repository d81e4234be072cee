// Work space that kernels keep between calls, beside the allocator's memory.
#pragma once

#include <cstddef>

namespace mica {

// Sets the function by which the CPU's kernels give back the work space that no call uses; it returns how many bytes
// that was. cpu_trim() calls it.
void on_trim(size_t (*give_back)());

}  // namespace mica
