#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <deque>
#include <list>
#include <map>
#include <unordered_map>

#include "store.h"
#include "store_fields.h"

namespace mica::distributed {
namespace {

using Clock = std::chrono::steady_clock;

struct Connection {
  int socket;
  std::string in, out;
  bool broken = false;
};

// A request that is answered later, because its keys are not all there yet.
struct Waiting {
  Connection* who;
  StoreOp op;
  std::vector<std::string> keys;
  Clock::time_point until;
};

class Service {
 public:
  void handle(Connection& who, const std::string& request);
  void forget(Connection& who) {
    waiting_.remove_if([&](const Waiting& each) { return each.who == &who; });
  }
  // Answers requests whose time is over. Returns the milliseconds until the next one's time is, -1 for none.
  int expire();

 private:
  void answer(Connection& who, StoreStatus status, const std::string& fields = "") {
    who.out += frame(std::string(1, static_cast<char>(status)) + fields);
  }
  bool try_answer(Connection& who, StoreOp op, const std::vector<std::string>& keys);
  void changed();

  std::unordered_map<std::string, std::string> values_;
  std::unordered_map<std::string, std::deque<std::string>> queues_;
  std::list<Waiting> waiting_;
};

bool Service::try_answer(Connection& who, StoreOp op, const std::vector<std::string>& keys) {
  FieldWriter fields;
  if (op == StoreOp::Pop) {
    auto queue = queues_.find(keys[0]);
    if (queue == queues_.end()) return false;
    fields.text(queue->second.front());
    queue->second.pop_front();
    if (queue->second.empty()) queues_.erase(queue);
  } else {
    for (const auto& key : keys) {
      if (!values_.contains(key) && (op == StoreOp::Get || !queues_.contains(key))) return false;
    }
    if (op == StoreOp::Get) {
      for (const auto& key : keys) fields.text(values_[key]);
    }
  }
  answer(who, StoreStatus::Done, fields.bytes);
  return true;
}

void Service::changed() {
  waiting_.remove_if([&](const Waiting& each) { return try_answer(*each.who, each.op, each.keys); });
}

int Service::expire() {
  const auto now = Clock::now();
  waiting_.remove_if([&](const Waiting& each) {
    if (each.until > now) return false;
    answer(*each.who, StoreStatus::TimedOut);
    return true;
  });
  if (waiting_.empty()) return -1;
  const auto next = std::min_element(waiting_.begin(), waiting_.end(),
                                     [](const auto& a, const auto& b) { return a.until < b.until; });
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(next->until - now).count() + 1;
  return static_cast<int>(std::min<int64_t>(left, 60000));
}

void Service::handle(Connection& who, const std::string& request) {
  FieldReader in{request};
  FieldWriter out;
  const auto op = static_cast<StoreOp>(in.byte());
  switch (op) {
    case StoreOp::Set: {
      const auto keys = in.texts(), values = in.texts();
      if (keys.size() != values.size()) throw std::out_of_range("keys and values");
      for (size_t i = 0; i < keys.size(); ++i) values_[keys[i]] = values[i];
      changed();
      return answer(who, StoreStatus::Done);
    }
    case StoreOp::Get:
    case StoreOp::Wait:
    case StoreOp::Pop: {
      const auto keys = in.texts();
      const int64_t milliseconds = std::clamp<int64_t>(in.number(), 0, int64_t{1} << 40);
      if (op == StoreOp::Pop && keys.size() != 1) throw std::out_of_range("one queue");
      if (try_answer(who, op, keys)) return;
      if (milliseconds == 0) return answer(who, StoreStatus::TimedOut);
      waiting_.push_back({&who, op, keys, Clock::now() + std::chrono::milliseconds(milliseconds)});
      return;
    }
    case StoreOp::Add: {
      const auto key = in.text();
      const int64_t amount = in.number();
      int64_t value = 0;
      auto found = values_.find(key);
      if (found != values_.end()) {
        try {
          value = std::stoll(found->second);
        } catch (const std::exception&) {
          out.text("add: the value of '" + key + "' is not a number");
          return answer(who, StoreStatus::Refused, out.bytes);
        }
      }
      value = static_cast<int64_t>(static_cast<uint64_t>(value) + static_cast<uint64_t>(amount));
      values_[key] = std::to_string(value);
      changed();
      out.number(value);
      break;
    }
    case StoreOp::Append: {
      const auto key = in.text(), value = in.text();
      values_[key] += value;
      changed();
      break;
    }
    case StoreOp::CompareSet: {
      const auto key = in.text(), expected = in.text(), desired = in.text();
      auto found = values_.find(key);
      if (found == values_.end()) {
        if (expected.empty()) values_[key] = desired;
        out.text(expected.empty() ? desired : expected);
      } else {
        if (found->second == expected) found->second = desired;
        out.text(found->second);
      }
      changed();
      break;
    }
    case StoreOp::Check: {
      const auto keys = in.texts();
      out.number(std::all_of(keys.begin(), keys.end(),
                             [&](const auto& key) { return values_.contains(key) || queues_.contains(key); }));
      break;
    }
    case StoreOp::Delete:
      out.number(static_cast<int64_t>(values_.erase(in.text())));
      break;
    case StoreOp::Count:
      out.number(static_cast<int64_t>(values_.size()));
      break;
    case StoreOp::Push: {
      const auto key = in.text(), value = in.text();
      queues_[key].push_back(value);
      changed();
      break;
    }
    case StoreOp::Length: {
      auto queue = queues_.find(in.text());
      out.number(queue == queues_.end() ? 0 : static_cast<int64_t>(queue->second.size()));
      break;
    }
    case StoreOp::Keys: {
      std::vector<std::string> keys;
      for (const auto& [key, value] : values_) keys.push_back(key);
      std::sort(keys.begin(), keys.end());
      out.texts(keys);
      break;
    }
    case StoreOp::Ping:
      break;
    default:
      throw std::out_of_range("no such operation");
  }
  answer(who, StoreStatus::Done, out.bytes);
}

// Reads what has arrived and handles every complete request. Returns false if the connection is over.
bool receive(Connection& who, Service& service) {
  char buffer[65536];
  for (;;) {
    const ssize_t got = recv(who.socket, buffer, sizeof buffer, MSG_DONTWAIT);
    if (got == 0) return false;
    if (got < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) break;
      return false;
    }
    who.in.append(buffer, static_cast<size_t>(got));
  }
  size_t at = 0;
  while (who.in.size() - at >= 4) {
    uint32_t size;
    std::memcpy(&size, who.in.data() + at, 4);
    if (size > kLargestFrame) return false;
    if (who.in.size() - at - 4 < size) break;
    try {
      service.handle(who, who.in.substr(at + 4, size));
    } catch (const std::exception&) {
      return false;  // it is not one of our clients
    }
    at += 4 + size;
  }
  who.in.erase(0, at);
  return true;
}

bool send_pending(Connection& who) {
  while (!who.out.empty()) {
    const ssize_t sent = send(who.socket, who.out.data(), who.out.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      return errno == EAGAIN || errno == EWOULDBLOCK;
    }
    who.out.erase(0, static_cast<size_t>(sent));
  }
  return true;
}

int listen_on(int port) {
  for (int family : {AF_INET6, AF_INET}) {
    const int made = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (made < 0) continue;
    const int yes = 1, no = 0;
    setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (family == AF_INET6) setsockopt(made, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    sockaddr_in6 six{};
    sockaddr_in four{};
    six.sin6_family = AF_INET6;
    six.sin6_addr = in6addr_any;
    four.sin_family = AF_INET;
    six.sin6_port = four.sin_port = htons(static_cast<uint16_t>(port));
    const bool bound = family == AF_INET6 ? bind(made, reinterpret_cast<sockaddr*>(&six), sizeof six) == 0
                                          : bind(made, reinterpret_cast<sockaddr*>(&four), sizeof four) == 0;
    if (bound && listen(made, 4096) == 0) return made;
    const int error = errno;
    close(made);
    errno = error;
    if (error == EADDRINUSE) break;
  }
  return -1;
}

}  // namespace

StoreServer::StoreServer(int port, std::optional<int> listening) {
  if (port < 0 || port > 65535) throw InvalidCall("port out of range: " + std::to_string(port));
  listener_ = listening ? *listening : listen_on(port);
  // The caller may have bound the socket without listening.
  if (listening && listen(*listening, 4096) != 0) listener_ = -1;
  if (listener_ < 0) {
    const int error = errno;
    throw NetworkError(
        "The server socket has failed to listen on any local network address. port: " + std::to_string(port) +
        ", code: -" + std::to_string(error) + ", name: " + (strerrorname_np(error) ? strerrorname_np(error) : "?") +
        ", message: " + std::strerror(error));
  }
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length);
  port_ = ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                              : reinterpret_cast<sockaddr_in&>(address).sin_port);
  fcntl(listener_, F_SETFL, fcntl(listener_, F_GETFL) | O_NONBLOCK);
  wake_ = eventfd(0, EFD_CLOEXEC);
  thread_ = std::thread([this] { serve(); });
}

StoreServer::~StoreServer() {
  const uint64_t one = 1;
  if (write(wake_, &one, sizeof one) < 0) return;
  thread_.join();
  close(listener_);
  close(wake_);
}

void StoreServer::serve() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  Service service;
  std::list<Connection> connections;
  for (;;) {
    const int timeout = service.expire();
    std::vector<pollfd> events{{wake_, POLLIN, 0}, {listener_, POLLIN, 0}};
    for (Connection& each : connections) {
      if (!send_pending(each)) each.broken = true;
      events.push_back({each.socket, static_cast<short>(POLLIN | (each.out.empty() ? 0 : POLLOUT)), 0});
    }
    if (poll(events.data(), events.size(), timeout) < 0 && errno != EINTR) break;
    if (events[0].revents) break;
    size_t index = 2;
    for (Connection& each : connections) {
      if (events[index++].revents & (POLLIN | POLLHUP | POLLERR)) each.broken |= !receive(each, service);
    }
    for (auto each = connections.begin(); each != connections.end();) {
      if (each->broken) {
        service.forget(*each);
        close(each->socket);
        each = connections.erase(each);
      } else {
        ++each;
      }
    }
    if (events[1].revents) {
      for (int made; (made = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) {
        const int yes = 1;
        setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        connections.push_back({made, "", "", false});
      }
    }
  }
  for (Connection& each : connections) {
    send_pending(each);
    close(each.socket);
  }
}

}  // namespace mica::distributed
