// The base of all distributions.
//
// A distribution is a value: copies refer to the same parameters. What takes one of any kind (Independent,
// TransformedDistribution, kl_divergence) takes a `const Distribution&` and keeps a copy. The formulas are those of the
// Python package; tests/distributions holds both to what torch recorded.
//
// One of your own is a class derived from Family. Its constructor names the parameters and ends with finish():
//
//   class Triangle : public Family<Triangle, Distribution> {
//    public:
//     static constexpr const char* kName = "Triangle";
//     Triangle(const Argument& width, const Options& options = {}) {
//       add("width", constraints::positive(), broadcast_all({width})[0]);
//       finish(width.sizes(), {}, options);
//     }
//     Tensor rsample(IntArrayRef sample_shape = {}) const override;
//     Tensor log_prob(const Tensor& value) const override;
//   };
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
using DistributionPtr = std::shared_ptr<const Distribution>;

class Distribution {
 public:
  // The number of base classes above this one; the table of divergences takes the entry of the nearest classes.
  static constexpr int kDepth = 0;
  virtual ~Distribution() = default;

  // Whether distributions check their parameters and values unless they are told otherwise.
  static void set_default_validate_args(bool value);
  static bool default_validate_args();

  IntArrayRef batch_shape() const { return batch_shape_; }  // the shape over which parameters are batched
  IntArrayRef event_shape() const { return event_shape_; }  // the shape of one sample of one distribution
  bool validates() const { return validate_args_; }
  virtual const char* name() const = 0;
  virtual std::string str() const;  // as Python prints it
  virtual bool has_rsample() const { return false; }
  virtual bool has_enumerate_support() const { return false; }
  virtual Constraint support() const;
  std::vector<std::pair<std::string, Constraint>> arg_constraints() const;

  // A function that a class does not override throws an Error of the kind NotImplemented.
  virtual Tensor mean() const;
  virtual Tensor mode() const;
  virtual Tensor variance() const;
  virtual Tensor stddev() const;
  // Samples of shape sample_shape + batch_shape + event_shape, without a gradient; rsample's have one, by the
  // parameters.
  virtual Tensor sample(IntArrayRef sample_shape = {}) const;
  virtual Tensor rsample(IntArrayRef sample_shape = {}) const;
  virtual Tensor log_prob(const Tensor& value) const;
  virtual Tensor cdf(const Tensor& value) const;
  virtual Tensor icdf(const Tensor& value) const;
  virtual Tensor enumerate_support(bool expand = true) const;  // all values along a new first dimension
  virtual Tensor entropy() const;
  Tensor perplexity() const;

  // The distribution with its batch expanded: views of the parameters, which are not checked again. Classes return
  // their own type.
  std::shared_ptr<Distribution> expand(IntArrayRef batch_shape) const;
  virtual std::shared_ptr<Distribution> clone() const = 0;
  // Throws unless `value` has a shape that fits and lies in the support.
  void validate_sample(const Tensor& value) const;

 protected:
  // How a parameter is seen. A quiet one is kept by another distribution that this one is made of: it is checked and
  // listed but not printed, as in Python. A hidden one is neither.
  enum class Seen : uint8_t { Printed, Quiet, Hidden };

  // ---- for constructors: the parameters in the order of arg_constraints
  void add(const char* name, const Constraint& constraint, const Tensor& value, Seen seen = Seen::Printed);
  // Its value is computed when asked for: see `computed`.
  void add_computed(const char* name, const Constraint& constraint);
  void finish(IntArrayRef batch_shape, IntArrayRef event_shape, const Options& options);  // checks the parameters

  // ---- for methods
  const Tensor& parameter(size_t i) const { return parameters_[i].value; }
  // The parameter. Where it was not given, `compute` makes it of the others at the first use, with gradients recorded.
  template <class F>
  Tensor computed(size_t i, const F& compute) const;
  DimVector extended_shape(IntArrayRef sample_shape = {}) const;
  Tensor filled(double number, const Tensor& like) const;
  void check(const Tensor& value) const {
    if (validate_args_) validate_sample(value);
  }
  [[noreturn]] void not_implemented(const char* what) const;

  // Expands everything that the class keeps to a batch of this shape. Classes that keep more than parameters override
  // it.
  virtual void widen(IntArrayRef batch_shape);
  void widen_batch(IntArrayRef batch_shape);  // calls widen, and sets the shape of the batch itself

 private:
  struct Computed {
    std::mutex mutex;
    HeldOverFork held{mutex, LockOrder::Distributions};
    Tensor value;
  };
  struct Parameter {
    const char* name;
    Constraint constraint;
    Tensor value;                        // undefined where it is computed at the first use
    std::shared_ptr<Computed> computed;  // shared by copies: their parameters are the same
    Seen seen;
    Tensor known() const;  // the value, given or computed; undefined before it is computed
  };
  void check_parameters() const;
  Tensor remember(size_t i, Tensor (*compute)(const void*), const void* context) const;

  DimVector batch_shape_, event_shape_;
  bool validate_args_ = true;
  std::vector<Parameter> parameters_;
};

template <class F>
Tensor Distribution::computed(size_t i, const F& compute) const {
  if (parameters_[i].value.defined()) return parameters_[i].value;
  return remember(
      i, [](const void* context) -> Tensor { return (*static_cast<const F*>(context))(); }, &compute);
}

// What a class adds by its type alone. `Self::kName` is its name.
template <class Self, class Base>
class Family : public Base {
 public:
  static constexpr int kDepth = Base::kDepth + 1;
  const char* name() const override { return Self::kName; }
  std::shared_ptr<Distribution> clone() const override { return std::make_shared<Self>(self()); }
  Self expand(IntArrayRef batch_shape) const {
    Self copy(self());
    static_cast<Family&>(copy).widen_batch(batch_shape);
    return copy;
  }

 protected:
  using Base::Base;

 private:
  const Self& self() const { return static_cast<const Self&>(*this); }
};

// Densities exp(<t(x), natural parameters> - log normalizer + carrier): entropy and divergence follow from the
// derivative of the log normalizer.
class ExponentialFamily : public Distribution {
 public:
  static constexpr int kDepth = Distribution::kDepth + 1;
  virtual std::vector<Tensor> natural_params() const;
  virtual Tensor log_normalizer(const std::vector<Tensor>& natural_params) const;
  virtual double mean_carrier_measure() const;
  Tensor entropy() const override;
};

}  // namespace mica::distributions
