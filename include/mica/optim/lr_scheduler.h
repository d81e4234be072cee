// Schedules of learning rates, stepped after the optimizer. They change the rates that are set, so that several can act
// on one optimizer.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "mica/optim/optimizer.h"

namespace mica::optim {

class Fields;

class LRScheduler {
 public:
  virtual ~LRScheduler() = default;
  LRScheduler(const LRScheduler&) = delete;
  LRScheduler& operator=(const LRScheduler&) = delete;

  virtual void step();
  std::vector<double> get_last_lr() const;
  int64_t last_epoch() const { return last_epoch_; }

  // The state that Python's schedule of that name has, without functions. Loading it does not set the optimizer's
  // rates: the optimizer's own state has them.
  virtual Value state_dict() const;
  virtual void load_state_dict(const Value& state);

 protected:
  explicit LRScheduler(Optimizer& optimizer);
  void begin() { step(); }  // for the end of a subclass's constructor
  virtual double next_lr(size_t group, double lr) const = 0;
  // The rate of the epoch, whatever the rate was before, where the schedule has a formula for it. Otherwise the next
  // rate.
  virtual double closed_form(size_t group) const { return next_lr(group, optimizer_.lr(group)); }
  virtual void visit_fields(Fields&) {}
  double base_lr(size_t group) const { return base_lrs_[group]; }

  Optimizer& optimizer_;
  int64_t last_epoch_ = -1;
  std::vector<double> base_lrs_;

 private:
  friend class SequentialLR;
  friend class ChainedScheduler;
  virtual void take_back() { --last_epoch_; }  // takes back the epoch that the constructor counted
  virtual void restart();                      // begins again at epoch 0
};

class StepLR final : public LRScheduler {  // times gamma every step_size epochs
 public:
  StepLR(Optimizer& optimizer, int64_t step_size, double gamma = 0.1);

 private:
  double next_lr(size_t group, double lr) const override;
  double closed_form(size_t group) const override;
  void visit_fields(Fields& fields) override;
  int64_t step_size_;
  double gamma_;
};

class MultiStepLR final : public LRScheduler {  // times gamma at each milestone
 public:
  MultiStepLR(Optimizer& optimizer, std::vector<int64_t> milestones, double gamma = 0.1);

 private:
  double next_lr(size_t group, double lr) const override;
  double closed_form(size_t group) const override;
  void visit_fields(Fields& fields) override;
  std::vector<int64_t> milestones_;
  double gamma_;
};

class ExponentialLR final : public LRScheduler {  // times gamma every epoch
 public:
  ExponentialLR(Optimizer& optimizer, double gamma);

 private:
  double next_lr(size_t group, double lr) const override;
  double closed_form(size_t group) const override;
  void visit_fields(Fields& fields) override;
  double gamma_;
};

class ConstantLR final : public LRScheduler {  // times a factor for the first total_iters epochs
 public:
  explicit ConstantLR(Optimizer& optimizer, double factor = 1.0 / 3, int64_t total_iters = 5);

 private:
  double next_lr(size_t group, double lr) const override;
  double closed_form(size_t group) const override;
  void visit_fields(Fields& fields) override;
  double factor_;
  int64_t total_iters_;
};

class LinearLR final : public LRScheduler {  // a factor that goes from start to end in total_iters epochs
 public:
  explicit LinearLR(Optimizer& optimizer, double start_factor = 1.0 / 3, double end_factor = 1.0,
                    int64_t total_iters = 5);

 private:
  double next_lr(size_t group, double lr) const override;
  double closed_form(size_t group) const override;
  void visit_fields(Fields& fields) override;
  double start_, end_;
  int64_t total_iters_;
};

class PolynomialLR final : public LRScheduler {  // down to zero in total_iters epochs, along a power of what is left
 public:
  explicit PolynomialLR(Optimizer& optimizer, int64_t total_iters = 5, double power = 1);

 private:
  double next_lr(size_t group, double lr) const override;
  double closed_form(size_t group) const override;
  void visit_fields(Fields& fields) override;
  int64_t total_iters_;
  double power_;
};

class CosineAnnealingLR final : public LRScheduler {  // down to eta_min in t_max epochs along half a cosine
 public:
  CosineAnnealingLR(Optimizer& optimizer, int64_t t_max, double eta_min = 0);

 private:
  double next_lr(size_t group, double lr) const override;
  double closed_form(size_t group) const override;
  void visit_fields(Fields& fields) override;
  int64_t t_max_;
  double eta_min_;
};

class LambdaLR final : public LRScheduler {  // the initial rate times a function of the epoch
 public:
  LambdaLR(Optimizer& optimizer, std::function<double(int64_t)> lr_lambda);

 private:
  double next_lr(size_t group, double lr) const override;
  std::function<double(int64_t)> lr_lambda_;
};

class MultiplicativeLR final : public LRScheduler {  // the rate before times a function of the epoch
 public:
  MultiplicativeLR(Optimizer& optimizer, std::function<double(int64_t)> lr_lambda);

 private:
  double next_lr(size_t group, double lr) const override;
  std::function<double(int64_t)> lr_lambda_;
};

// Half a cosine down to eta_min, again and again, each t_mult times as long as the one before.
class CosineAnnealingWarmRestarts final : public LRScheduler {
 public:
  CosineAnnealingWarmRestarts(Optimizer& optimizer, int64_t t_0, int64_t t_mult = 1, double eta_min = 0);
  void step() override;
  void step(double epoch);  // the rates of an epoch, which may be a fraction

 private:
  double next_lr(size_t group, double lr) const override;
  void visit_fields(Fields& fields) override;
  int64_t t_0_, t_i_, t_mult_;
  double eta_min_, t_cur_ = -1;
};

struct CyclicOptions {
  double base_lr = 1e-3, max_lr = 1e-2;
  int64_t step_size_up = 2000;
  int64_t step_size_down = 0;       // 0: as long as up
  std::string mode = "triangular";  // "triangular2": half as high each time, "exp_range": times gamma each step
  double gamma = 1;
  bool cycle_momentum = true;
  double base_momentum = 0.8, max_momentum = 0.9;
};

class CyclicLR final : public LRScheduler {  // up and down between two rates, momentum the other way round
 public:
  CyclicLR(Optimizer& optimizer, CyclicOptions options);
  void step() override;

 private:
  double next_lr(size_t group, double lr) const override;
  double height() const;
  void visit_fields(Fields& fields) override;
  CyclicOptions options_;
};

// One schedule after another: the next one begins at each milestone. All were made for this optimizer.
//
//   LinearLR warmup(optimizer, 0.1, 1, 5);
//   CosineAnnealingLR cosine(optimizer, 95);
//   SequentialLR schedule(optimizer, {warmup, cosine}, {5});
class SequentialLR final : public LRScheduler {
 public:
  SequentialLR(Optimizer& optimizer, std::vector<std::reference_wrapper<LRScheduler>> schedulers,
               std::vector<int64_t> milestones);
  void step() override;
  Value state_dict() const override;
  void load_state_dict(const Value& state) override;

 private:
  double next_lr(size_t group, double lr) const override;
  void take_back() override;
  size_t current() const;
  std::vector<std::reference_wrapper<LRScheduler>> schedulers_;
  std::vector<int64_t> milestones_;
};

class ChainedScheduler final : public LRScheduler {  // several at once: each changes what the one before it has set
 public:
  explicit ChainedScheduler(std::vector<std::reference_wrapper<LRScheduler>> schedulers);
  void step() override;
  Value state_dict() const override;
  void load_state_dict(const Value& state) override;

 private:
  static Optimizer& first_optimizer(const std::vector<std::reference_wrapper<LRScheduler>>& schedulers);
  double next_lr(size_t group, double lr) const override;
  void take_back() override;
  std::vector<std::reference_wrapper<LRScheduler>> schedulers_;
};

struct OneCycleOptions {
  double max_lr = 0.1;
  int64_t total_steps = 0;
  double pct_start = 0.3;
  bool linear = false;  // along a cosine otherwise
  bool cycle_momentum = true;
  double base_momentum = 0.85, max_momentum = 0.95;
  double div_factor = 25, final_div_factor = 1e4;
  bool three_phase = false;
};

class OneCycleLR final : public LRScheduler {  // up to max_lr, then far below the start, momentum the other way round
 public:
  OneCycleLR(Optimizer& optimizer, OneCycleOptions options);
  void step() override;

 private:
  double next_lr(size_t group, double lr) const override;
  void visit_fields(Fields& fields) override;
  double anneal(double start, double end, double share) const;
  struct Phase {
    double end_step, start_lr, end_lr, start_momentum, end_momentum;
  };
  std::pair<const Phase*, double> phase() const;  // the phase, and the share of it that is over

  OneCycleOptions options_;
  std::vector<Phase> phases_;
};

struct PlateauOptions {
  bool maximize = false;  // whether a larger metric is a better one
  double factor = 0.1;
  int64_t patience = 10;
  double threshold = 1e-4;
  bool relative = true;  // whether the threshold is relative
  int64_t cooldown = 0;
  double min_lr = 0;
  double eps = 1e-8;
};

class ReduceLROnPlateau {  // times factor when a metric has not improved for patience epochs
 public:
  explicit ReduceLROnPlateau(Optimizer& optimizer, PlateauOptions options = {});
  void step(double metric);
  std::vector<double> get_last_lr() const;
  Value state_dict() const;
  void load_state_dict(const Value& state);

 private:
  void visit_fields(Fields& fields);
  bool better(double metric) const;
  Optimizer& optimizer_;
  PlateauOptions options_;
  double best_;
  int64_t bad_epochs_ = 0, cooldown_ = 0, last_epoch_ = 0;
};

}  // namespace mica::optim
