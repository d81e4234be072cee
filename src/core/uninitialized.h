// Deterministic mode: memory without a value gets one, NaN or the largest integer, and what torch says has no
// deterministic implementation is refused.
#pragma once

#include "mica/tensor.h"

namespace mica {

enum class Determinism : uint8_t { NotAsked, Warn, Refuse };
void set_determinism(Determinism wanted);
void alert_not_deterministic(const char* operation);

void set_fill_uninitialized(bool fill);
Tensor filled_if_asked(Tensor t);
// What lies behind the bytes that the storage had before it grew.
void fill_added_if_asked(const Tensor& t, int64_t bytes_before);

}  // namespace mica
