// The facts about a collective in which all ranks must agree, as one number.
#pragma once

#include "call.h"

namespace mica::distributed {

uint64_t fingerprint(const Call& call);

}  // namespace mica::distributed
