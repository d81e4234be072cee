#include "mica/autograd.h"

namespace mica {

constinit thread_local uint32_t thread_modes = 0;
constinit thread_local uint64_t unwanted_gradients = 0;

}  // namespace mica
