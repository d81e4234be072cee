// Messages between two ranks over Gloo. A message is a header of fixed size and then its bytes, which the other rank
// receives when it has read the header.
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <chrono>

#include "distributed/gloo/gloo_group.h"
#include "distributed/gloo/gloo_links.h"

namespace mica::distributed {

static constexpr uint64_t kMessages = uint64_t{1} << 62;  // slots of messages, apart from those of collectives

class GlooMessage final : public Message {
 public:
  GlooMessage(GlooGroup& group, Call call) : group_(group), call_(std::move(call)) {}

  void begin() {
    const uint64_t slot = kMessages | (static_cast<uint64_t>(call_.tag) << 1);
    header_buffer_ = group_.context_->createUnboundBuffer(&header_, sizeof header_);
    if (call_.kind == Kind::Send) {
      header_ = {call_.inputs[0].size, static_cast<uint64_t>(call_.dtype)};
      header_buffer_->send(call_.root, slot);
      data_buffer_ = group_.context_->createUnboundBuffer(call_.inputs[0].data, call_.inputs[0].size);
      if (call_.inputs[0].size) data_buffer_->send(call_.root, slot | 1);
      return;
    }
    if (call_.root != Call::kAnySource) {
      header_buffer_->recv(call_.root, slot);
      return;
    }
    std::vector<int> all;
    for (int rank = 0; rank < group_.options_.size; ++rank) {
      if (rank != group_.options_.rank) all.push_back(rank);
    }
    header_buffer_->recv(all, slot);
  }

  ~GlooMessage() override {
    if (waiter_.joinable()) waiter_.join();
  }

  bool wait(double seconds, const std::function<void()>&) override {
    if (waiter_.joinable()) waiter_.join();
    if (!done_) finish(seconds);
    if (error_) std::rethrow_exception(error_);
    return true;
  }

  // Gloo can be waited for, but not asked. So a thread waits for the messages that a program asks about.
  bool done() override {
    if (!done_ && !waiter_.joinable()) waiter_ = std::thread([this] { finish(call_.timeout); });
    return done_;
  }
  int sender() const override { return sender_; }

 private:
  void finish(double seconds) {
    const auto limit = milliseconds(std::min(seconds, call_.timeout));
    try {
      try {
        if (call_.kind == Kind::Send) {
          header_buffer_->waitSend(limit);
          if (call_.inputs[0].size) data_buffer_->waitSend(limit);
        } else {
          receive(limit);
        }
      } catch (const BackendError&) {
        throw;
      } catch (const std::exception& error) {
        group_.fail(group_.describe(call_) + " cannot end: " + error.what() +
                    of_silence(error.what(), group_.options_.silence));
      }
    } catch (...) {
      error_ = std::current_exception();
    }
    done_ = true;
  }

  void receive(std::chrono::milliseconds limit) {
    header_buffer_->waitRecv(&sender_, limit);
    const Bytes out = call_.outputs[0];
    if (header_.bytes != out.size || header_.dtype != static_cast<uint64_t>(call_.dtype)) {
      group_.fail("rank " + std::to_string(sender_) + " sends " + std::to_string(header_.bytes) + " bytes of " +
                  name_of_dtype(static_cast<DType>(header_.dtype)) + " where rank " +
                  std::to_string(group_.options_.rank) + " expects " + std::to_string(out.size) + " bytes of " +
                  name_of_dtype(call_.dtype) + " in " + group_.describe(call_));
    }
    if (out.size == 0) return;
    data_buffer_ = group_.context_->createUnboundBuffer(out.data, out.size);
    data_buffer_->recv(sender_, kMessages | (static_cast<uint64_t>(call_.tag) << 1) | 1);
    data_buffer_->waitRecv(limit);
  }

  struct Header {
    uint64_t bytes, dtype;
  };
  GlooGroup& group_;
  Call call_;
  Header header_{};
  std::unique_ptr<gloo::transport::UnboundBuffer> header_buffer_, data_buffer_;
  std::atomic<bool> done_{false};
  std::exception_ptr error_;
  std::thread waiter_;
  int sender_ = -1;
};

std::shared_ptr<Message> GlooGroup::post(Call call) {
  {
    std::lock_guard lock(mutex_);
    if (!why_.empty()) throw BackendError(why_);
  }
  auto message = std::make_shared<GlooMessage>(*this, std::move(call));
  try {
    message->begin();
  } catch (const std::exception& error) {
    fail(std::string("a message cannot be started: ") + error.what());
  }
  return message;
}

}  // namespace mica::distributed
