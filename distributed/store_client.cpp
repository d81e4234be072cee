#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "store.h"
#include "store_fields.h"

namespace mica::distributed {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kGrace = 30;  // at most so many seconds for an answer that needs no waiting

FieldWriter request(StoreOp op) {
  FieldWriter made;
  made.byte(static_cast<uint8_t>(op));
  return made;
}

int64_t milliseconds(double seconds) { return static_cast<int64_t>(std::clamp(seconds, 0.0, 1e9) * 1000); }

int try_connect(const std::string& host, int port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return -1;
  int result = -1;
  for (addrinfo* each = found; each && result < 0; each = each->ai_next) {
    const int made = socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (made < 0) continue;
    if (connect(made, each->ai_addr, each->ai_addrlen) == 0)
      result = made;
    else
      close(made);
  }
  freeaddrinfo(found);
  if (result >= 0) {
    const int yes = 1;
    setsockopt(result, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  }
  return result;
}

}  // namespace

StoreClient::StoreClient(std::string host, int port, double timeout, const Interrupt& interrupt)
    : host_(std::move(host)), port_(port), grace_(std::clamp(timeout, 1.0, kGrace)) {
  connect(timeout, interrupt);
}

StoreClient::~StoreClient() {
  if (socket_ >= 0) close(socket_);
}

void StoreClient::connect(double timeout, const Interrupt& interrupt) {
  const auto end = Clock::now() + std::chrono::duration<double>(std::min(timeout, 1e9));
  int pause = 2;  // milliseconds; the server is often a process that is just starting
  while ((socket_ = try_connect(host_, port_)) < 0) {
    if (interrupt) interrupt();
    if (Clock::now() >= end) {
      throw NetworkError("The client socket has timed out after " + std::to_string(milliseconds(timeout)) +
                         "ms while trying to connect to (" + host_ + ", " + std::to_string(port_) + ").");
    }
    usleep(static_cast<useconds_t>(pause) * 1000);
    pause = std::min(pause * 2, 100);
  }
}

std::optional<std::string> StoreClient::ask(const std::string& payload, double timeout, const Interrupt& interrupt) {
  std::lock_guard lock(mutex_);
  if (socket_ < 0) connect(grace_, interrupt);
  // After any failure in the middle of an exchange, the next one begins on a new connection.
  struct Broken {
    int& socket;
    bool whole = false;
    ~Broken() {
      if (whole) return;
      close(socket);
      socket = -1;
    }
  } exchange{socket_};
  const auto lost = [&] {
    return NetworkError("Connection to the store at " + host_ + ":" + std::to_string(port_) +
                        " was likely closed. Did the remote server shutdown or crash?");
  };
  const auto end = Clock::now() + std::chrono::duration<double>(std::min(timeout, 1e9) + grace_);
  const auto ready = [&](short events) {
    pollfd event{socket_, events, 0};
    while (poll(&event, 1, 100) <= 0) {
      if (interrupt) interrupt();
      if (Clock::now() >= end)
        throw NetworkError("the store at " + host_ + ":" + std::to_string(port_) + " does not answer");
    }
  };
  const std::string framed = frame(payload);
  for (size_t at = 0; at < framed.size();) {
    const ssize_t sent = send(socket_, framed.data() + at, framed.size() - at, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0)
      at += static_cast<size_t>(sent);
    else if (errno == EAGAIN || errno == EWOULDBLOCK)
      ready(POLLOUT);
    else if (errno != EINTR)
      throw lost();
  }
  std::string answer;
  uint32_t size = 0;
  while (answer.size() < 4 || answer.size() < 4 + static_cast<size_t>(size)) {
    char buffer[16384];
    const size_t wanted = answer.size() < 4 ? sizeof buffer : std::min(sizeof buffer, 4 + size - answer.size());
    const ssize_t got = recv(socket_, buffer, wanted, MSG_DONTWAIT);
    if (got == 0) throw lost();
    if (got < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK)
        ready(POLLIN);
      else if (errno != EINTR)
        throw lost();
      continue;
    }
    answer.append(buffer, static_cast<size_t>(got));
    if (answer.size() >= 4) std::memcpy(&size, answer.data(), 4);
  }
  exchange.whole = true;
  if (size < 1) throw lost();
  const auto status = static_cast<StoreStatus>(answer[4]);
  std::string fields = answer.substr(5);
  if (status == StoreStatus::TimedOut) return std::nullopt;
  if (status == StoreStatus::Refused) throw StoreError(FieldReader{fields}.text());
  return fields;
}

void StoreClient::set(const std::vector<std::string>& keys, const std::vector<std::string>& values,
                      const Interrupt& interrupt) {
  FieldWriter out = request(StoreOp::Set);
  out.texts(keys);
  out.texts(values);
  ask(out.bytes, 0, interrupt);
}

std::optional<std::vector<std::string>> StoreClient::get(const std::vector<std::string>& keys, double timeout,
                                                         const Interrupt& interrupt) {
  FieldWriter out = request(StoreOp::Get);
  out.texts(keys);
  out.number(milliseconds(timeout));
  const auto fields = ask(out.bytes, timeout, interrupt);
  if (!fields) return std::nullopt;
  FieldReader in{*fields};
  std::vector<std::string> values;
  for (size_t i = 0; i < keys.size(); ++i) values.push_back(in.text());
  return values;
}

bool StoreClient::wait(const std::vector<std::string>& keys, double timeout, const Interrupt& interrupt) {
  FieldWriter out = request(StoreOp::Wait);
  out.texts(keys);
  out.number(milliseconds(timeout));
  return ask(out.bytes, timeout, interrupt).has_value();
}

int64_t StoreClient::add(const std::string& key, int64_t amount, const Interrupt& interrupt) {
  FieldWriter out = request(StoreOp::Add);
  out.text(key);
  out.number(amount);
  const std::string fields = *ask(out.bytes, 0, interrupt);
  return FieldReader{fields}.number();
}

void StoreClient::append(const std::string& key, const std::string& value, const Interrupt& interrupt) {
  FieldWriter out = request(StoreOp::Append);
  out.text(key);
  out.text(value);
  ask(out.bytes, 0, interrupt);
}

std::string StoreClient::compare_set(const std::string& key, const std::string& expected, const std::string& desired,
                                     const Interrupt& interrupt) {
  FieldWriter out = request(StoreOp::CompareSet);
  out.text(key);
  out.text(expected);
  out.text(desired);
  const std::string fields = *ask(out.bytes, 0, interrupt);
  return FieldReader{fields}.text();
}

bool StoreClient::check(const std::vector<std::string>& keys, const Interrupt& interrupt) {
  FieldWriter out = request(StoreOp::Check);
  out.texts(keys);
  const std::string fields = *ask(out.bytes, 0, interrupt);
  return FieldReader{fields}.number() != 0;
}

bool StoreClient::remove(const std::string& key, const Interrupt& interrupt) {
  FieldWriter out = request(StoreOp::Delete);
  out.text(key);
  const std::string fields = *ask(out.bytes, 0, interrupt);
  return FieldReader{fields}.number() != 0;
}

int64_t StoreClient::count(const Interrupt& interrupt) {
  const std::string fields = *ask(request(StoreOp::Count).bytes, 0, interrupt);
  return FieldReader{fields}.number();
}

void StoreClient::push(const std::string& key, const std::string& value, const Interrupt& interrupt) {
  FieldWriter out = request(StoreOp::Push);
  out.text(key);
  out.text(value);
  ask(out.bytes, 0, interrupt);
}

std::optional<std::string> StoreClient::pop(const std::string& key, double timeout, const Interrupt& interrupt) {
  FieldWriter out = request(StoreOp::Pop);
  out.texts(std::vector<std::string>{key});
  out.number(milliseconds(timeout));
  const auto fields = ask(out.bytes, timeout, interrupt);
  if (!fields) return std::nullopt;
  return FieldReader{*fields}.text();
}

int64_t StoreClient::length(const std::string& key, const Interrupt& interrupt) {
  FieldWriter out = request(StoreOp::Length);
  out.text(key);
  const std::string fields = *ask(out.bytes, 0, interrupt);
  return FieldReader{fields}.number();
}

std::vector<std::string> StoreClient::keys(const Interrupt& interrupt) {
  const std::string fields = *ask(request(StoreOp::Keys).bytes, 0, interrupt);
  return FieldReader{fields}.texts();
}

}  // namespace mica::distributed
