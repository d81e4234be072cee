// Keys and values that processes share over TCP: a server, which is a thread of one of them, and its clients.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "call.h"

namespace mica::distributed {

// A request is a length of four bytes, an operation of one, and its fields; an answer is a length, a status and fields.
// A text is a length of eight bytes and its bytes, a number eight bytes, all in the order of the machine.
enum class StoreOp : uint8_t {
  Set,
  Get,  // waits until the key is there; several keys in one
  Add,
  Append,
  CompareSet,
  Check,
  Wait,
  Delete,
  Count,
  Push,
  Pop,  // waits until the queue has something
  Length,
  Keys,
  Ping
};
enum class StoreStatus : uint8_t { Done, TimedOut, Refused };

class StoreServer {
 public:
  // Listens on all addresses at `port`, any free one for 0; or on a socket that is listening already.
  StoreServer(int port, std::optional<int> listening);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  int port() const { return port_; }

 private:
  void serve();
  int listener_ = -1, wake_ = -1, port_ = 0;
  std::thread thread_;
};

class StoreClient {
 public:
  using Interrupt = std::function<void()>;
  // Tries until the server answers or `timeout` seconds are over.
  StoreClient(std::string host, int port, double timeout, const Interrupt& interrupt);
  ~StoreClient();
  StoreClient(const StoreClient&) = delete;

  void set(const std::vector<std::string>& keys, const std::vector<std::string>& values, const Interrupt& interrupt);
  // Returns nullopt if not all keys were there in time.
  std::optional<std::vector<std::string>> get(const std::vector<std::string>& keys, double timeout, const Interrupt&);
  bool wait(const std::vector<std::string>& keys, double timeout, const Interrupt& interrupt);
  int64_t add(const std::string& key, int64_t amount, const Interrupt& interrupt);
  void append(const std::string& key, const std::string& value, const Interrupt& interrupt);
  std::string compare_set(const std::string& key, const std::string& expected, const std::string& desired,
                          const Interrupt& interrupt);
  bool check(const std::vector<std::string>& keys, const Interrupt& interrupt);
  bool remove(const std::string& key, const Interrupt& interrupt);
  int64_t count(const Interrupt& interrupt);
  void push(const std::string& key, const std::string& value, const Interrupt& interrupt);
  std::optional<std::string> pop(const std::string& key, double timeout, const Interrupt& interrupt);
  int64_t length(const std::string& key, const Interrupt& interrupt);
  std::vector<std::string> keys(const Interrupt& interrupt);

 private:
  std::optional<std::string> ask(const std::string& request, double timeout, const Interrupt& interrupt);
  void connect(double timeout, const Interrupt& interrupt);

  std::string host_;
  int port_;
  double grace_;      // seconds for an answer that needs no waiting
  std::mutex mutex_;  // one request at a time
  int socket_ = -1;
};

}  // namespace mica::distributed
