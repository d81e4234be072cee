#include "backends/cpu/random/narrow.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/random/narrow.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

int64_t narrow_to_half(const float* in, uint16_t* out, int64_t count) {
  const hn::ScalableTag<float> df;
  const hn::Rebind<hwy::float16_t, decltype(df)> dh;
  const hn::Rebind<uint16_t, decltype(df)> du;
  const auto lanes = static_cast<int64_t>(hn::Lanes(df));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(hn::BitCast(du, hn::DemoteTo(dh, hn::LoadU(df, in + i))), du, out + i);
  }
  return i;
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {

HWY_EXPORT(narrow_to_half);

void narrow(const float* in, Half* out, int64_t count) {
  int64_t i = HWY_DYNAMIC_DISPATCH(narrow_to_half)(in, reinterpret_cast<uint16_t*>(out), count);
  for (; i < count; ++i) out[i] = Half(in[i]);
}

void narrow(const float* in, BFloat16* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = BFloat16(in[i]);
}

}  // namespace mica::cpu
#endif
