#include "backends/cuda/fft/plans.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>

#include "backends/cuda/context.h"

namespace mica::cuda::fft {

namespace {

void check(int status, const char* what) { MICA_CHECK(status == 0, "cuFFT error ", status, " from ", what); }

struct Kept {
  cufft::Plan plan;
  size_t bytes;
};
using Key = std::array<long long, 7 + 2 * (kMostDims + 2)>;

Key key_of(const Call& call, int device) {
  Key key{};
  auto at = key.begin();
  *at++ = device;
  *at++ = call.type;
  *at++ = call.rank;
  *at++ = call.batch;
  at = std::copy(call.n, call.n + kMostDims, at);
  for (const Layout* layout : {&call.in, &call.out}) {
    at = std::copy(layout->embed, layout->embed + kMostDims, at);
    *at++ = layout->stride;
    *at++ = layout->distance;
  }
  return key;
}

// Whether the parts lie densely one after the other; `last` elements are along the last dimension.
bool is_dense(const Call& call, const Layout& layout, long long last) {
  long long distance = last;
  for (int k = 0; k + 1 < call.rank; ++k) distance *= call.n[k];
  bool dense = layout.stride == 1 && (call.batch == 1 || layout.distance == distance);
  for (int k = 1; k < call.rank; ++k) dense = dense && layout.embed[k] == (k + 1 < call.rank ? call.n[k] : last);
  return dense;
}

const Kept& plan_of(const Call& call, int device) {
  static auto* plans = new std::map<Key, Kept>;
  const Key key = key_of(call, device);
  const auto found = plans->find(key);
  if (found != plans->end()) return found->second;
  const cufft::Api& api = cufft::api();
  Kept kept{};
  check(api.create(&kept.plan), "cufftCreate");
  check(api.set_auto_allocation(kept.plan, 0), "cufftSetAutoAllocation");
  Call c = call;
  const long long whole = c.n[c.rank - 1], half = whole / 2 + 1;
  const bool from_half = c.type == cufft::kComplexToReal || c.type == cufft::kDoubleComplexToReal;
  const bool to_half = c.type == cufft::kRealToComplex || c.type == cufft::kDoubleRealToComplex;
  const bool dense = is_dense(c, c.in, from_half ? half : whole) && is_dense(c, c.out, to_half ? half : whole);
  check(api.make(kept.plan, c.rank, c.n, dense ? nullptr : c.in.embed, c.in.stride, c.in.distance,
                 dense ? nullptr : c.out.embed, c.out.stride, c.out.distance, c.type, c.batch, &kept.bytes),
        "cufftMakePlanMany64");
  return plans->emplace(key, kept).first->second;
}

}  // namespace

void run(const Call& call, void* in, void* out, bool forward, int device) {
  static std::mutex mutex;
  std::lock_guard lock(mutex);  // held over the call: a plan has one work area and one stream
  const Kept& kept = plan_of(call, device);
  const Workspace work(std::max<size_t>(kept.bytes, 16), device);
  const cufft::Api& api = cufft::api();
  check(api.set_work_area(kept.plan, work.data()), "cufftSetWorkArea");
  check(api.set_stream(kept.plan, current_stream(device)), "cufftSetStream");
  const int direction = forward ? cufft::kForward : cufft::kInverse;
  switch (call.type) {
    case cufft::kComplexToComplex:
      return check(api.complex_to_complex(kept.plan, in, out, direction), "cufftExecC2C");
    case cufft::kDoubleComplexToComplex:
      return check(api.double_complex_to_complex(kept.plan, in, out, direction), "cufftExecZ2Z");
    case cufft::kRealToComplex:
      return check(api.real_to_complex(kept.plan, in, out), "cufftExecR2C");
    case cufft::kDoubleRealToComplex:
      return check(api.double_real_to_complex(kept.plan, in, out), "cufftExecD2Z");
    case cufft::kComplexToReal:
      return check(api.complex_to_real(kept.plan, in, out), "cufftExecC2R");
    default:
      return check(api.double_complex_to_real(kept.plan, in, out), "cufftExecZ2D");
  }
}

}  // namespace mica::cuda::fft
