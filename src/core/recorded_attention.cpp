#include "core/recorded_attention.h"

#include <new>

#include "core/recorded_rows.h"
#include "mica/backend.h"
#include "mica/backend/layer_backend.h"
#include "mica/core/recording.h"

namespace mica::recording {

namespace {

bool can_wait(const Tensor& t, Device device) {
  return t.dim() == 4 && t.device() == device && t.numel() != 0 && t.storage() && t.storage()->resizable();
}

// A view of what may have no memory yet. Its address tells the alignment.
TensorView unplaced(const Tensor& t) {
  TensorView view{};
  if (!t.defined()) return view;
  view = {reinterpret_cast<void*>(t.storage_offset() * t.element_size()),
          t.sizes().data(),
          t.strides().data(),
          t.numel(),
          static_cast<int32_t>(t.dim()),
          t.dtype(),
          t.device()};
  return view;
}

// By the kernel that computes it in eager execution.
void run_alone(const Call& call, const TensorView* views, int) {
  const auto& arguments = *reinterpret_cast<const AttentionArguments*>(call.arguments);
  const TensorView none{};
  MICA_LAYER_KERNEL(call.device, attention_forward)
  (views[0], views[1], views[2], views[3], views[4], call.noperands > 5 ? views[5] : none, arguments.is_causal,
   arguments.scale);
}

}  // namespace

bool attention_waits(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask) {
  if (!(thread_modes & mode_bit::kRecord) || least_fused > 1 || query.is_cpu() || query.is_meta()) [[likely]]
    return false;
  const Fusion* fusion = fusion_of(query.device());
  if (!fusion || !fusion->takes_attention) return false;
  for (const Tensor* t : {&query, &key, &value})
    if (!can_wait(*t, query.device())) return false;
  if (mask.defined() && (mask.device() != query.device() || !mask.storage() || !mask.storage()->resizable()))
    return false;
  return fusion->takes_attention(unplaced(query), unplaced(key), unplaced(value), unplaced(mask));
}

bool put_off_attention(const Tensor& out, const Tensor& logsumexp, const Tensor& query, const Tensor& key,
                       const Tensor& value, const Tensor& mask, bool is_causal, double scale) {
  for (const Tensor* t : {&out, &logsumexp})
    if (!t->storage() || !t->storage()->resizable()) return false;
  Call& call = begin_call();
  call.name = "attention_forward";
  call.device = out.device();
  call.dtype = call.result_dtype = out.dtype();
  call.noutputs = 2;
  call.noperands = 0;
  call.ndim = 0;
  for (const Tensor* t : {&out, &logsumexp, &query, &key, &value, &mask})
    if (t->defined()) describe(call.operands[call.noperands++], *t);
  call.form = Call::Form::Attention;
  call.run_loop = nullptr;
  call.run_rows = run_alone;
  new (call.arguments) AttentionArguments{scale, is_causal};
  return end_call();
}

}  // namespace mica::recording
