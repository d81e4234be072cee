// extension("round_products") of a backend: says whether float32 products that this thread asks for may round their
// inputs where the backend's layers may (torch.backends.cudnn.allow_tf32). It returns the earlier setting.
#pragma once

#include "mica/backend.h"

namespace mica {

using RoundProductsFunction = bool(bool on);

// While one lives, products count as part of a layer.
class ProductsOfLayer {
 public:
  explicit ProductsOfLayer(Device device) {
    if (device.is_cpu() || device.is_meta()) return;
    const Backend& b = backend(device.type());
    set_ = b.extension ? reinterpret_cast<RoundProductsFunction*>(b.extension("round_products")) : nullptr;
    if (set_) before_ = set_(true);
  }
  ProductsOfLayer(const ProductsOfLayer&) = delete;
  ~ProductsOfLayer() {
    if (set_) set_(before_);
  }

 private:
  RoundProductsFunction* set_ = nullptr;
  bool before_ = false;
};

}  // namespace mica
