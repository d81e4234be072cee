#include "compiler/fused_attention.h"

namespace mica::recording {

namespace {

// Whether an Indexed call writes one place of all heads, and no other: its rows lie as those of keys do, which are an
// operand of attention.
bool writes_one_place(const Call& write, const Operand& keys) {
  const auto& place = *reinterpret_cast<const IndexedPlace*>(write.arguments);
  const Operand& to = write.operands[0];
  const int64_t row = keys.strides[2], head = row * keys.sizes[2];
  if (row <= 0 || place.step != row || place.size != keys.sizes[2]) return false;
  for (int d = 0; d < 2; ++d)
    if (keys.sizes[d] > 1 && keys.strides[d] % head) return false;
  // Within a row, from its first byte to behind its last; other steps lead to the same row of another head.
  int64_t end = to.offset - keys.offset + element_size(to.dtype);
  if (to.offset < keys.offset) return false;
  for (int d = 0; d < write.ndim; ++d)
    if (write.shape[d] > 1 && to.strides[d] % head) {
      if (to.strides[d] < 0) return false;
      end += (write.shape[d] - 1) * to.strides[d];
    }
  return end <= row;
}

// Sets the index of what the calls write to the operand's storage. Returns false where they write elsewhere, too.
bool find_index(const Operand& keys, const std::vector<const Call*>& before, const Operand*& index) {
  for (const Call* call : before)
    for (int k = 0; k < call->noutputs; ++k) {
      if (call->operands[k].slot != keys.slot) continue;
      if (call->form != Call::Form::Indexed || !writes_one_place(*call, keys)) return false;
      const Operand& found = call->operands[2];
      if (index && (index->slot != found.slot || index->offset != found.offset)) return false;
      index = &found;
    }
  return true;
}

// The operands of a call as views; `address(operand)` says where one lies.
struct Views {
  int64_t strides[kOperands][kDims];
  TensorView views[kOperands];

  template <class Address>
  Views(const Call& call, const Address& address) {
    for (int k = 0; k < call.noperands; ++k) {
      const Operand& o = call.operands[k];
      int64_t count = 1;
      for (int d = 0; d < o.ndim; ++d) strides[k][d] = o.strides[d] / element_size(o.dtype), count *= o.sizes[d];
      views[k] = {address(o), o.sizes, strides[k], count, o.ndim, o.dtype, call.device};
    }
  }
  Views(const Views&) = delete;
};

}  // namespace

bool is_taken(const Call& attention) {
  const Views of(attention, [](const Operand& o) { return reinterpret_cast<void*>(o.offset); });
  return fusion_of(attention.device)
      ->takes_attention(of.views[kQuery], of.views[kKey], of.views[kValue],
                        attention.noperands > kMask ? of.views[kMask] : TensorView());
}

std::optional<NewKeys> find_new_keys(const Call& attention, const std::vector<const Call*>& before) {
  NewKeys found;
  if (!find_index(attention.operands[kKey], before, found.key_index) ||
      !find_index(attention.operands[kValue], before, found.value_index))
    return {};
  for (const Operand* index : {found.key_index, found.value_index})
    for (const Call* call : before)
      for (int k = 0; k < call->noutputs; ++k)
        if (index && call->operands[k].slot == index->slot) return {};
  return found;
}

void run_attention(const Call& call, const std::vector<Slot>& slots, const std::optional<NewKeys>& found) {
  const auto address = [&](const Operand& o) {
    return static_cast<char*>(slots[o.slot].storage->address()) + o.offset;
  };
  const Views of(call, address);
  const auto& arguments = *reinterpret_cast<const AttentionArguments*>(call.arguments);
  const TensorView mask = call.noperands > kMask ? of.views[kMask] : TensorView();
  FusedAttention attention{of.views[0], of.views[1],         of.views[kQuery], of.views[kKey],    of.views[kValue],
                           mask,        arguments.is_causal, arguments.scale,  found.has_value(), nullptr,
                           nullptr};
  if (found) {
    const auto number = [&](const Operand* o) { return o ? reinterpret_cast<const int64_t*>(address(*o)) : nullptr; };
    attention.key_place = number(found->key_index);
    attention.value_place = number(found->value_index);
  }
  fusion_of(call.device)->run_attention(attention);
}

}  // namespace mica::recording
