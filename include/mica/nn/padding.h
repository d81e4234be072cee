// Layers that widen their input at its borders: by one number on all sides, or by two for each dimension, the last
// dimension first.
#pragma once

#include "mica/generated/nn/padding.h"

namespace mica::nn {

#define MICA_PADDING(Name, ndim)                                             \
  class Name##Impl : public PaddingBase {                                    \
   public:                                                                   \
    explicit Name##Impl(const Dims& padding) : PaddingBase(ndim, padding) {} \
    Tensor forward(const Tensor& x);                                         \
  };                                                                         \
  MICA_MODULE(Name);
MICA_PADDING(ZeroPad1d, 1)
MICA_PADDING(ZeroPad2d, 2)
MICA_PADDING(ZeroPad3d, 3)
MICA_PADDING(ReflectionPad1d, 1)
MICA_PADDING(ReflectionPad2d, 2)
MICA_PADDING(ReflectionPad3d, 3)
MICA_PADDING(ReplicationPad1d, 1)
MICA_PADDING(ReplicationPad2d, 2)
MICA_PADDING(ReplicationPad3d, 3)
MICA_PADDING(CircularPad1d, 1)
MICA_PADDING(CircularPad2d, 2)
MICA_PADDING(CircularPad3d, 3)
#undef MICA_PADDING

#define MICA_PADDING(Name, ndim)                                                                 \
  class Name##Impl : public ConstantPaddingBase {                                                \
   public:                                                                                       \
    Name##Impl(const Dims& padding, double value) : ConstantPaddingBase(ndim, padding, value) {} \
    Tensor forward(const Tensor& x);                                                             \
  };                                                                                             \
  class Name : public ModuleHolder<Name##Impl> {                                                 \
   public:                                                                                       \
    using ModuleHolder<Name##Impl>::ModuleHolder;                                                \
    Name(const Dims& padding, double value) : ModuleHolder<Name##Impl>(padding, value) {}        \
  };
MICA_PADDING(ConstantPad1d, 1)
MICA_PADDING(ConstantPad2d, 2)
MICA_PADDING(ConstantPad3d, 3)
#undef MICA_PADDING

}  // namespace mica::nn
