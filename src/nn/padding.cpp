#include "mica/nn/padding.h"

#include "mica/ops.h"

namespace mica::nn {

#define MICA_PADDING(Name, mode) \
  Tensor Name##Impl::forward(const Tensor& x) { return pad(x, padding, mode); }
MICA_PADDING(ZeroPad1d, "constant")
MICA_PADDING(ZeroPad2d, "constant")
MICA_PADDING(ZeroPad3d, "constant")
MICA_PADDING(ReflectionPad1d, "reflect")
MICA_PADDING(ReflectionPad2d, "reflect")
MICA_PADDING(ReflectionPad3d, "reflect")
MICA_PADDING(ReplicationPad1d, "replicate")
MICA_PADDING(ReplicationPad2d, "replicate")
MICA_PADDING(ReplicationPad3d, "replicate")
#undef MICA_PADDING

#define MICA_PADDING(Name, ndim)                                                                             \
  Tensor Name##Impl::forward(const Tensor& x) {                                                              \
    MICA_CHECK_KIND(x.dim() == (ndim) + 1 || x.dim() == (ndim) + 2, Value, "expected ", (ndim) + 1, "D or ", \
                    (ndim) + 2, "D input (got ", x.dim(), "D input)");                                       \
    return pad(x, padding, "circular");                                                                      \
  }
MICA_PADDING(CircularPad1d, 1)
MICA_PADDING(CircularPad2d, 2)
MICA_PADDING(CircularPad3d, 3)
#undef MICA_PADDING

#define MICA_PADDING(Name) \
  Tensor Name##Impl::forward(const Tensor& x) { return pad(x, padding, "constant", value); }
MICA_PADDING(ConstantPad1d)
MICA_PADDING(ConstantPad2d)
MICA_PADDING(ConstantPad3d)
#undef MICA_PADDING

}  // namespace mica::nn
