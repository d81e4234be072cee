#include "backends/cpu/register.h"

#include <cstdio>
#include <cstdlib>

namespace mica::cpu {

bool register_kernel(const char* slot, const std::type_info& type, void (*function)()) {
  const KernelSlot* found = find_kernel_slot(slot);
  if (!found || *found->type != type) {
    std::fprintf(stderr, "mica: the CPU kernel '%s' does not fit the kernel table: %s\n", slot,
                 found ? "its signature differs from the slot's" : "there is no such slot in ops/*.toml");
    std::abort();
  }
  *static_cast<void (**)()>(found->address) = function;
  return true;
}

}  // namespace mica::cpu
