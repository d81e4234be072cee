// One line that shows how a training run goes: a bar with the loss, the speed and the memory.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

class Progress {
 public:
  Progress(int64_t steps, std::string unit, int64_t per_step)
      : steps_(steps), unit_(std::move(unit)), per_step_(per_step) {}

  void update(double loss) {
    losses_.push_back(loss);
    const auto done = static_cast<int64_t>(losses_.size());
    const double now = seconds();
    if (now - shown_ < (live_ ? 0.1 : 5.0) && done < steps_) return;
    shown_ = now;
    const auto filled = static_cast<int>(kWidth * done / steps_);
    std::string bar;
    for (int i = 0; i < kWidth; ++i) bar += i < filled ? "█" : "░";
    std::printf("%s%s %5ld  loss %7.4f  %9.0f %ss/s  %5.0f MB%s", live_ ? "\r" : "", bar.c_str(),
                static_cast<long>(done), loss, speed(), unit_.c_str(), megabytes(), live_ && done < steps_ ? "" : "\n");
    std::fflush(stdout);
  }

  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  double speed() const { return static_cast<double>(losses_.size()) * static_cast<double>(per_step_) / seconds(); }
  const std::vector<double>& losses() const { return losses_; }

  // Whether the mean loss of the last tenth is below that of the first.
  bool has_learned() const {
    const size_t tenth = std::max<size_t>(losses_.size() / 10, 1);
    double first = 0, last = 0;
    for (size_t i = 0; i < tenth; ++i) {
      first += losses_[i];
      last += losses_[losses_.size() - 1 - i];
    }
    return last < first;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int kWidth = 24;

  static double megabytes() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_maxrss) / 1024;
  }

  int64_t steps_;
  std::string unit_;
  int64_t per_step_;
  Clock::time_point start_ = Clock::now();
  double shown_ = -1e9;
  bool live_ = isatty(STDOUT_FILENO) != 0;
  std::vector<double> losses_;
};
