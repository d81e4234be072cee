// Schedules of learning rates, stepped after the optimizer. They change the rates that are set, so that several can act
// on one optimizer.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "mica/optim/optimizer.h"

namespace mica::optim {

class LRScheduler {
 public:
  virtual ~LRScheduler() = default;
  virtual void step();
  std::vector<double> get_last_lr() const;
  int64_t last_epoch() const { return last_epoch_; }

 protected:
  explicit LRScheduler(Optimizer& optimizer);
  void begin() { step(); }  // for the end of a subclass's constructor
  virtual double next_lr(size_t group, double lr) const = 0;
  double base_lr(size_t group) const { return base_lrs_[group]; }

  Optimizer& optimizer_;
  int64_t last_epoch_ = -1;

 private:
  std::vector<double> base_lrs_;
};

class StepLR final : public LRScheduler {  // times gamma every step_size epochs
 public:
  StepLR(Optimizer& optimizer, int64_t step_size, double gamma = 0.1);

 private:
  double next_lr(size_t group, double lr) const override;
  int64_t step_size_;
  double gamma_;
};

class MultiStepLR final : public LRScheduler {  // times gamma at each milestone
 public:
  MultiStepLR(Optimizer& optimizer, std::vector<int64_t> milestones, double gamma = 0.1);

 private:
  double next_lr(size_t group, double lr) const override;
  std::vector<int64_t> milestones_;
  double gamma_;
};

class ExponentialLR final : public LRScheduler {  // times gamma every epoch
 public:
  ExponentialLR(Optimizer& optimizer, double gamma);

 private:
  double next_lr(size_t group, double lr) const override;
  double gamma_;
};

class LinearLR final : public LRScheduler {  // a factor that goes from start to end in total_iters epochs
 public:
  LinearLR(Optimizer& optimizer, double start_factor = 1.0 / 3, double end_factor = 1.0, int64_t total_iters = 5);

 private:
  double next_lr(size_t group, double lr) const override;
  double start_, end_;
  int64_t total_iters_;
};

class CosineAnnealingLR final : public LRScheduler {  // down to eta_min in t_max epochs along half a cosine
 public:
  CosineAnnealingLR(Optimizer& optimizer, int64_t t_max, double eta_min = 0);

 private:
  double next_lr(size_t group, double lr) const override;
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
  double anneal(double start, double end, double share) const;
  struct Phase {
    double end_step, start_lr, end_lr, start_momentum, end_momentum;
  };
  std::pair<const Phase*, double> phase() const;  // and how much of it is over

  OneCycleOptions options_;
  std::vector<Phase> phases_;
};

struct PlateauOptions {
  bool maximize = false;  // whether a larger metric is a better one
  double factor = 0.1;
  int64_t patience = 10;
  double threshold = 1e-4;
  bool relative = true;  // the threshold
  int64_t cooldown = 0;
  double min_lr = 0;
  double eps = 1e-8;
};

class ReduceLROnPlateau {  // times factor when a metric has not improved for patience epochs
 public:
  explicit ReduceLROnPlateau(Optimizer& optimizer, PlateauOptions options = {});
  void step(double metric);
  std::vector<double> get_last_lr() const;

 private:
  bool better(double metric) const;
  Optimizer& optimizer_;
  PlateauOptions options_;
  double best_;
  int64_t bad_epochs_ = 0, cooldown_ = 0;
};

}  // namespace mica::optim
