// Which loops behind products of one row (FusedTail) the kernel of products computes, and what they are. A loop is
// known by what it stores: by the operations on what it loads, in whatever order its instructions compute them.
#pragma once

#include "mica/backend/fusion.h"

namespace mica::cuda {

// The loops by what they store of a product's result p, and of its second product q. Heads: p, or its heads with their
// positions rotated, stored with any distance between heads and perhaps at a place that an index names.
struct KnownTail {
  enum class Kind : uint8_t { Unknown, Sum, Silu, Heads } kind = Kind::Unknown;
  int product = -1;  // p; of silu(p) * q, the one that silu is computed of
  int row = -1;      // the operand that is added to p

  // What is stored. Of heads that are rotated this is for their two halves, (a, b): a * cos[0] - b * sin[0] and
  // b * cos[1] + a * sin[1]; these are operands.
  int out[2] = {-1, -1}, cos[2] = {-1, -1}, sin[2] = {-1, -1};
  bool rotates = false;
  int64_t width = 0;  // of a head
};

KnownTail known_tail(const FusedProducts& products, const FusedTail& tail);

// Whether the kernel computes all loops behind the products: a sum or silu behind all of them, or each behind a product
// of its own.
bool takes_tails(const FusedProducts& products);

}  // namespace mica::cuda
