// Initial values of parameters under Python's names: init::xavier_uniform_(linear->weight). They draw from the default
// generator, or from one that is given.
#pragma once

#include "mica/generated/layers/init.h"
#include "mica/init.h"

namespace mica::nn::init {

using mica::calculate_gain;

#define MICA_INIT(name)                                           \
  template <class... Args>                                        \
  const Tensor& name(const Tensor& tensor, const Args&... args) { \
    return init_##name(tensor, args...);                          \
  }
MICA_INIT(uniform_)
MICA_INIT(normal_)
MICA_INIT(trunc_normal_)
MICA_INIT(constant_)
MICA_INIT(ones_)
MICA_INIT(zeros_)
MICA_INIT(eye_)
MICA_INIT(dirac_)
MICA_INIT(xavier_uniform_)
MICA_INIT(xavier_normal_)
MICA_INIT(kaiming_uniform_)
MICA_INIT(kaiming_normal_)
MICA_INIT(orthogonal_)
MICA_INIT(sparse_)
#undef MICA_INIT

}  // namespace mica::nn::init
