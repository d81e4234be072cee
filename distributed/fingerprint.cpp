#include "fingerprint.h"

namespace mica::distributed {
namespace {

uint64_t mix(uint64_t hash, uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15 + (hash << 6) + (hash >> 2);
  return hash * 0xff51afd7ed558ccd;
}

}  // namespace

uint64_t fingerprint(const Call& call) {
  uint64_t hash = mix(0, static_cast<uint64_t>(call.kind));
  if (call.kind == Kind::Barrier) return hash;
  hash = mix(hash, static_cast<uint64_t>(call.dtype));
  hash = mix(hash, static_cast<uint64_t>(call.root));
  if (call.reduces()) hash = mix(hash, static_cast<uint64_t>(call.reduction));
  switch (call.kind) {
    case Kind::AllToAll:
      break;  // parts may differ, and a rank knows only its own
    case Kind::AllGather:
      for (const Bytes& each : call.outputs) hash = mix(hash, each.size);
      break;
    case Kind::ReduceScatter:
      for (const Bytes& each : call.inputs) hash = mix(hash, each.size);
      break;
    case Kind::Scatter:
      hash = mix(hash, call.outputs[0].size);
      break;
    default:
      hash = mix(hash, call.inputs[0].size);
  }
  return hash;
}

}  // namespace mica::distributed
