// What the constructors of distributions, transforms and constraints take: tensors or numbers.
#pragma once

#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "mica/ops.h"

namespace mica::distributions {

// A tensor, or a number, which takes the dtype and device of the tensors beside it.
class Argument {
 public:
  Argument(Tensor tensor);  // refuses an undefined one
  Argument(Scalar number) : number_(number) {}
  template <class T>
  requires std::is_arithmetic_v<T> Argument(T number) : number_(number) {}

  bool is_number() const { return !tensor_.defined(); }
  const Scalar& number() const { return number_; }
  const Tensor& tensor() const { return tensor_; }  // undefined where this is a number
  IntArrayRef sizes() const { return is_number() ? IntArrayRef() : tensor_.sizes(); }
  // Calls f with the number or with the tensor.
  template <class F>
  Tensor visit(const F& f) const {
    return is_number() ? f(number_) : f(tensor_);
  }
  std::string str() const;

 private:
  Tensor tensor_;
  Scalar number_;
};

// Broadcasts the arguments to tensors of one shape. A number takes the dtype and device of the first tensor, or the
// default dtype where there are only numbers.
std::vector<Tensor> broadcast_all(const std::vector<Argument>& values);

struct Options {
  std::optional<bool> validate_args = std::nullopt;  // unset: Distribution::set_default_validate_args decides
};

// One of the two is to be given: Bernoulli({.logits = x}).
struct OddsOptions {
  std::optional<Argument> probs = std::nullopt;
  std::optional<Argument> logits = std::nullopt;
  std::optional<bool> validate_args = std::nullopt;
};

// ---- what distributions share ------------------------------------------------------------------------------------

Tensor clamp_probs(const Tensor& probs);  // kept off 0 and 1 by the dtype's epsilon
// Probabilities from log odds (binary), or from unnormalised log probabilities along the last dimension.
Tensor logits_to_probs(const Tensor& logits, bool is_binary = false);
Tensor probs_to_logits(const Tensor& probs, bool is_binary = false);
// The elements of the lower triangle, row by row, as vectors, and the way back.
Tensor tril_matrix_to_vec(const Tensor& mat, int64_t diag = 0);
Tensor vec_to_tril_matrix(const Tensor& vec, int64_t diag = 0);

}  // namespace mica::distributions
