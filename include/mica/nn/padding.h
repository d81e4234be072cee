// Layers that widen their input at its borders: by one number on all sides, or by two for each dimension, the last
// dimension first.
#pragma once

#include "mica/nn/module.h"

namespace mica::nn {

class PaddingBase : public Module {
 public:
  std::string extra_repr() const override { return tuple_text(padding); }
  const DimVector padding;

 protected:
  PaddingBase(size_t ndim, const Dims& padding) : padding(padding.expand(2 * ndim, "padding")) {}
};

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

#define MICA_PADDING(Name, ndim)                                                                \
  class Name##Impl : public PaddingBase {                                                       \
   public:                                                                                      \
    Name##Impl(const Dims& padding, double value) : PaddingBase(ndim, padding), value(value) {} \
    Tensor forward(const Tensor& x);                                                            \
    std::string extra_repr() const override;                                                    \
    const double value;                                                                         \
  };                                                                                            \
  class Name : public ModuleHolder<Name##Impl> {                                                \
   public:                                                                                      \
    using ModuleHolder<Name##Impl>::ModuleHolder;                                               \
    Name(const Dims& padding, double value) : ModuleHolder<Name##Impl>(padding, value) {}       \
  };
MICA_PADDING(ConstantPad1d, 1)
MICA_PADDING(ConstantPad2d, 2)
MICA_PADDING(ConstantPad3d, 3)
#undef MICA_PADDING

}  // namespace mica::nn
