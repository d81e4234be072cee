// Regions that values lie in: `check` says for each event whether it does.
//
//   constraints::positive().check(value)
//   constraints::independent(constraints::interval(low, high), 1)
//
// A constraint is a handle to its rule. A region of your own is a class derived from Constraint::Rule:
//
//   Constraint even(std::make_shared<EvenRule>());
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mica/distributions/argument.h"

namespace mica::distributions {

class Transform;

class Constraint {
 public:
  class Rule;
  explicit Constraint(std::shared_ptr<const Rule> rule) : rule_(std::move(rule)) {}

  Tensor check(const Tensor& value) const;
  bool is_discrete() const;
  int64_t event_dim() const;  // an event is made of this many last dimensions
  std::string str() const;    // as Python prints it
  const Rule& rule() const { return *rule_; }

 private:
  std::shared_ptr<const Rule> rule_;
};

class Constraint::Rule {
 public:
  virtual ~Rule() = default;
  virtual std::string name() const = 0;
  virtual Tensor check(const Tensor& value) const = 0;
  virtual bool is_discrete() const { return false; }
  virtual int64_t event_dim() const { return 0; }
  virtual std::string str() const { return name() + "()"; }
  // A transform from unconstrained numbers into the region, one to one if `one_to_one`. Throws unless it is overridden.
  virtual Transform transform(bool one_to_one) const;
};

namespace constraints {

Constraint boolean();
Constraint one_hot();
Constraint nonnegative_integer();
Constraint positive_integer();
Constraint integer_interval(Argument lower_bound, Argument upper_bound);
Constraint real();
Constraint real_vector();
Constraint positive();
Constraint nonnegative();
Constraint greater_than(Argument lower_bound);
Constraint greater_than_eq(Argument lower_bound);
Constraint less_than(Argument upper_bound);
Constraint multinomial(Argument upper_bound);
Constraint unit_interval();
Constraint interval(Argument lower_bound, Argument upper_bound);
Constraint half_open_interval(Argument lower_bound, Argument upper_bound);
Constraint simplex();
Constraint lower_triangular();
Constraint lower_cholesky();
Constraint corr_cholesky();
Constraint square();
Constraint symmetric();
Constraint positive_semidefinite();
Constraint positive_definite();
// A constraint whose events take in more dimensions: valid where all of their parts are.
Constraint independent(Constraint base_constraint, int64_t reinterpreted_batch_ndims);
// Values in the region of every component of a mixture, whose dimension comes before the event's.
Constraint mixture_same_family(Constraint base_constraint);
// Each constraint holds for a stretch of the dimension (of length one, unless lengths are given), or for one index.
Constraint cat(std::vector<Constraint> parts, int64_t dim = 0, std::vector<int64_t> lengths = {});
Constraint stack(std::vector<Constraint> parts, int64_t dim = 0);

}  // namespace constraints

// A transform from unconstrained numbers into the region of a constraint. biject_to is one to one; transform_to need
// not be, and may be cheaper.
Transform biject_to(const Constraint& constraint);
Transform transform_to(const Constraint& constraint);

}  // namespace mica::distributions
