// Attention of few queries within compiled functions, where the device's backend computes it by one kernel.
#pragma once

#include "mica/core/grad_mode.h"
#include "mica/tensor.h"

namespace mica::recording {

// Whether such attention can be put off, in a graph that is captured: its neighbours then know what runs before and
// after them. The mask may be undefined.
bool attention_waits(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask);

// Puts it off, with the arguments of the kernel attention_forward. False where a result was given that cannot wait.
bool put_off_attention(const Tensor& out, const Tensor& logsumexp, const Tensor& query, const Tensor& key,
                       const Tensor& value, const Tensor& mask, bool is_causal, double scale);

}  // namespace mica::recording
