// The node of a base that was changed in place through one of its views.
#pragma once

#include "autograd/metadata.h"

namespace mica {

// Sizes, strides and offset of a tensor within its storage.
struct Geometry {
  explicit Geometry(const Tensor& t) : sizes(t.sizes()), strides(t.strides()), offset(t.storage_offset()) {}
  DimVector sizes, strides;
  int64_t offset;
};

// Turns the gradient with respect to the changed base into the one with respect to the base before the change. Outside
// the view the gradient passes unchanged; inside it goes through the node of the change.
class CopySlices final : public Node {
 public:
  CopySlices(const Tensor& base, const Tensor& view, ViewInfo::Replay replay, Ref<Node> change);
  const char* name() const override { return "CopySlices"; }
  void apply(TensorVec& grads, TensorVec& out) override;
  void release_saved() override;

  Tensor view_of(const Tensor& base) const;  // makes the same view of another tensor that has the base's geometry
  // Uninitialised, of the base's geometry. A mode or a class is asked for one of the kind of `like`.
  Tensor fresh_base(const Tensor* like = nullptr) const;

 private:
  Geometry base_, view_;
  ViewInfo::Replay replay_;
  Ref<Node> change_;
};

}  // namespace mica
