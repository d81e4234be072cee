// What ranks must agree about in a collective, as one number.
#pragma once

#include "call.h"

namespace mica::distributed {

uint64_t fingerprint(const Call& call);

}  // namespace mica::distributed
