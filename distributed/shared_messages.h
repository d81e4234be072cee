// Messages between two ranks of one host.
#pragma once

#include "shared_group.h"

namespace mica::distributed {

class SharedMessage final : public Message {
 public:
  SharedMessage(SharedGroup& group, Call call) : group_(group), call_(std::move(call)) {}
  bool wait(double seconds, const std::function<void()>& interrupt) override;
  bool done() override;
  int sender() const override { return sender_; }

 private:
  friend class SharedGroup;
  SharedGroup& group_;
  Call call_;
  bool begun_ = false;  // its header is in the ring
  size_t moved_ = 0;    // bytes that are in the ring, or out of it
  int sender_ = -1;
  std::atomic<bool> done_{false};
};

}  // namespace mica::distributed
