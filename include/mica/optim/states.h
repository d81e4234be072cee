// The states of each optimizer by torch's names, in the order in which torch makes them.
#pragma once

#include "mica/optim/steps.h"

namespace mica::optim {

template <class Item>
struct StateField {
  const char* name;
  Tensor Item::*member;
};

template <class Item>
std::span<const StateField<Item>> state_fields();

#define MICA_STATE(name) \
  { #name, &Item::name }
#define MICA_STATES(ItemType, ...)                              \
  template <>                                                   \
  inline std::span<const StateField<ItemType>> state_fields() { \
    using Item = ItemType;                                      \
    static constexpr StateField<Item> fields[] = {__VA_ARGS__}; \
    return fields;                                              \
  }
MICA_STATES(SGDItem, MICA_STATE(momentum_buffer))
MICA_STATES(AdamItem, MICA_STATE(step), MICA_STATE(exp_avg), MICA_STATE(exp_avg_sq), MICA_STATE(max_exp_avg_sq))
MICA_STATES(AdamaxItem, MICA_STATE(step), MICA_STATE(exp_avg), MICA_STATE(exp_inf))
MICA_STATES(NAdamItem, MICA_STATE(step), MICA_STATE(mu_product), MICA_STATE(exp_avg), MICA_STATE(exp_avg_sq))
MICA_STATES(RAdamItem, MICA_STATE(step), MICA_STATE(exp_avg), MICA_STATE(exp_avg_sq))
MICA_STATES(RMSpropItem, MICA_STATE(step), MICA_STATE(square_avg), MICA_STATE(momentum_buffer), MICA_STATE(grad_avg))
MICA_STATES(AdagradItem, MICA_STATE(step), MICA_STATE(sum))
MICA_STATES(AdadeltaItem, MICA_STATE(step), MICA_STATE(square_avg), MICA_STATE(acc_delta))
MICA_STATES(RpropItem, MICA_STATE(step), MICA_STATE(prev), MICA_STATE(step_size))
MICA_STATES(ASGDItem, MICA_STATE(step), MICA_STATE(eta), MICA_STATE(mu), MICA_STATE(ax))
MICA_STATES(AdafactorItem, MICA_STATE(step), MICA_STATE(row_var), MICA_STATE(col_var), MICA_STATE(variance))
MICA_STATES(MuonItem, MICA_STATE(momentum_buffer))
#undef MICA_STATES
#undef MICA_STATE

}  // namespace mica::optim
