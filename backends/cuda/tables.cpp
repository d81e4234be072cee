// The tables of kernels. A slot's function is declared here by the slot's own type, so that kernel files need not know
// the tables and a wrong signature does not link.
#include "backends/cuda/tables.h"

#include <type_traits>

#include "backends/cuda/slots.h"

namespace mica::cuda {

#define MICA_CUDA_DECLARE(slot) std::remove_pointer_t<decltype(KernelTable::slot)> slot;
MICA_CUDA_SLOTS(MICA_CUDA_DECLARE)
#undef MICA_CUDA_DECLARE
#define MICA_CUDA_DECLARE(slot) std::remove_pointer_t<decltype(LayerKernelTable::slot)> slot;
MICA_CUDA_LAYER_SLOTS(MICA_CUDA_DECLARE)
#undef MICA_CUDA_DECLARE

const KernelTable& kernels() {
  static const KernelTable table = [] {
    KernelTable t;
#define MICA_CUDA_FILL(slot) t.slot = slot;
    MICA_CUDA_SLOTS(MICA_CUDA_FILL)
    return t;
  }();
  return table;
}

const LayerKernelTable& layer_kernels() {
  static const LayerKernelTable table = [] {
    LayerKernelTable t;
    MICA_CUDA_LAYER_SLOTS(MICA_CUDA_FILL)
#undef MICA_CUDA_FILL
    return t;
  }();
  return table;
}

}  // namespace mica::cuda
