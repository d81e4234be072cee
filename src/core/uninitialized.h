// Deterministic mode: uninitialised memory is filled with NaN or the largest integer, and operations are refused that
// torch says have no deterministic implementation.
#pragma once

#include "mica/tensor.h"

namespace mica {

enum class Determinism : uint8_t { NotAsked, Warn, Refuse };
void set_determinism(Determinism wanted);
void alert_not_deterministic(const char* operation);

void set_fill_uninitialized(bool fill);
Tensor filled_if_asked(Tensor t);
// Fills the bytes that a storage has gained by growing.
void fill_added_if_asked(const Tensor& t, int64_t bytes_before);

}  // namespace mica
