#include "mica/grad_mode.h"

namespace mica {

constinit thread_local uint32_t thread_modes = 0;

}  // namespace mica
