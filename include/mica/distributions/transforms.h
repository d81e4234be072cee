// Transforms of random variables, with the logarithm of the determinant of their Jacobian.
//
//   Transform t = ComposeTransform({ExpTransform(), AffineTransform(-1.0, 2.0)});
//   Tensor y = t(x), back = t.inv()(y), slope = t.log_abs_det_jacobian(x, y);
//
// A transform is a handle to its rule, so that they stand in lists. One of your own is a class derived from
// Transform::Rule:
//
//   Transform cube(std::make_shared<CubeRule>());
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "mica/distributions/constraints.h"
#include "mica/core/fork.h"

namespace mica::distributions {

class Distribution;

class Transform {
 public:
  class Rule;
  explicit Transform(std::shared_ptr<const Rule> rule) : rule_(std::move(rule)) {}

  Tensor operator()(const Tensor& x) const;
  Transform inv() const;
  // log |dy/dx| of a value and its image, one number per event.
  Tensor log_abs_det_jacobian(const Tensor& x, const Tensor& y) const;
  Constraint domain() const;
  Constraint codomain() const;
  int64_t event_dim() const;  // of a transform with the same event dimensions on both sides
  bool bijective() const;
  Argument sign() const;                             // the sign of the derivative, for a transform of single numbers
  DimVector forward_shape(IntArrayRef shape) const;  // the shape of the image of a value of this shape
  DimVector inverse_shape(IntArrayRef shape) const;
  // The same transform with a cache of no or one pair: with one, inverting what was just computed is free and exact.
  Transform with_cache(int64_t cache_size = 1) const;
  std::string str() const;  // as Python prints it
  const Rule& rule() const { return *rule_; }
  // Whether both are known to do the same.
  friend bool operator==(const Transform& a, const Transform& b);
  friend bool operator!=(const Transform& a, const Transform& b) { return !(a == b); }

 private:
  std::shared_ptr<const Rule> rule_;
};

class Transform::Rule : public std::enable_shared_from_this<Transform::Rule> {
 public:
  explicit Rule(int64_t cache_size = 0);
  Rule(const Rule& other) : std::enable_shared_from_this<Rule>(other), cache_size_(other.cache_size_) {}
  Rule& operator=(const Rule&) = delete;
  virtual ~Rule() = default;

  virtual std::string name() const = 0;
  virtual Constraint domain() const = 0;
  virtual Constraint codomain() const = 0;
  virtual bool bijective() const { return false; }
  virtual Argument sign() const;
  virtual int64_t event_dim() const;
  virtual Tensor forward(const Tensor& x) const = 0;
  virtual Tensor inverse(const Tensor& y) const = 0;
  virtual Tensor log_abs_det_jacobian(const Tensor& x, const Tensor& y) const;
  virtual DimVector forward_shape(IntArrayRef shape) const { return shape; }
  virtual DimVector inverse_shape(IntArrayRef shape) const { return shape; }
  virtual Transform with_cache(int64_t cache_size) const;
  virtual Transform inv() const;
  virtual bool equals(const Rule& other) const { return this == &other; }
  virtual std::string str() const { return name() + "()"; }

  // Computes forward and inverse, and asks the cache first.
  virtual Tensor call(const Tensor& x) const;
  virtual Tensor call_inverse(const Tensor& y) const;
  int64_t cache_size() const { return cache_size_; }

 protected:
  int64_t cache_size_;

 private:
  mutable std::mutex mutex_;  // guards the cache
  HeldOverFork held_{mutex_, LockOrder::Distributions};
  mutable Tensor cached_x_, cached_y_;
  void remember(Tensor x, Tensor y) const;
};

// ---- of single numbers -------------------------------------------------------------------------------------------

struct ExpTransform : Transform {
  explicit ExpTransform(int64_t cache_size = 0);
};
struct PowerTransform : Transform {  // y = x ^ exponent
  explicit PowerTransform(Argument exponent, int64_t cache_size = 0);
};
struct SigmoidTransform : Transform {
  explicit SigmoidTransform(int64_t cache_size = 0);
};
struct SoftplusTransform : Transform {
  explicit SoftplusTransform(int64_t cache_size = 0);
};
struct TanhTransform : Transform {  // the inverse near -1 and 1 is rough: a cache avoids it
  explicit TanhTransform(int64_t cache_size = 0);
};
struct AbsTransform : Transform {  // the inverse is the positive one
  explicit AbsTransform(int64_t cache_size = 0);
};
struct AffineTransform : Transform {  // y = loc + scale * x
  AffineTransform(Argument loc, Argument scale, int64_t event_dim = 0, int64_t cache_size = 0);
};
struct CumulativeDistributionTransform : Transform {  // y = the distribution function of single numbers
  explicit CumulativeDistributionTransform(const Distribution& distribution, int64_t cache_size = 0);
};

// ---- of vectors and matrices -------------------------------------------------------------------------------------

struct ReshapeTransform : Transform {
  ReshapeTransform(IntArrayRef in_shape, IntArrayRef out_shape, int64_t cache_size = 0);
};
struct SoftmaxTransform : Transform {  // not one to one
  explicit SoftmaxTransform(int64_t cache_size = 0);
};
// Vectors as points of the simplex of one more dimension, each number a share of what is left of a stick.
struct StickBreakingTransform : Transform {
  explicit StickBreakingTransform(int64_t cache_size = 0);
};
// A vector of D (D - 1) / 2 numbers as the Cholesky factor of a D x D correlation matrix.
struct CorrCholeskyTransform : Transform {
  explicit CorrCholeskyTransform(int64_t cache_size = 0);
};
// Square matrices as lower triangular ones with a positive diagonal, the exp of theirs.
struct LowerCholeskyTransform : Transform {
  explicit LowerCholeskyTransform(int64_t cache_size = 0);
};
struct PositiveDefiniteTransform : Transform {  // by way of their Cholesky factors
  explicit PositiveDefiniteTransform(int64_t cache_size = 0);
};

// ---- of transforms -----------------------------------------------------------------------------------------------

struct ComposeTransform : Transform {  // one after the other
  explicit ComposeTransform(std::vector<Transform> parts, int64_t cache_size = 0);
};
inline Transform identity_transform() { return ComposeTransform(std::vector<Transform>()); }
// A transform whose events take in more dimensions: their Jacobians multiply.
struct IndependentTransform : Transform {
  IndependentTransform(const Transform& base_transform, int64_t reinterpreted_batch_ndims, int64_t cache_size = 0);
};
// Each transform takes a stretch of the dimension, of length one unless lengths are given.
struct CatTransform : Transform {
  explicit CatTransform(std::vector<Transform> transforms, int64_t dim = 0, std::vector<int64_t> lengths = {},
                        int64_t cache_size = 0);
};
struct StackTransform : Transform {  // each takes one index of the dimension
  explicit StackTransform(std::vector<Transform> transforms, int64_t dim = 0, int64_t cache_size = 0);
};

}  // namespace mica::distributions
