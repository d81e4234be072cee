#include "http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "mica/error.h"

namespace mica::lab {

namespace {

constexpr size_t kMostHeaderBytes = 16 << 10;
constexpr size_t kMostBodyBytes = 32 << 20;
constexpr size_t kMostConnections = 512;
constexpr int kIdleMilliseconds = 30000;

const char* reason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 411:
      return "Length Required";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    default:
      return "Internal Server Error";
  }
}

bool send_all(int fd, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t n = send(fd, data, size, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    data += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

bool send_response(int fd, const Response& r, bool keep_alive, bool with_body) {
  std::string head = cat("HTTP/1.1 ", r.status, " ", reason(r.status), "\r\nContent-Type: ", r.type,
                         "\r\nContent-Length: ", r.body.size(), "\r\nConnection: ", keep_alive ? "keep-alive" : "close",
                         "\r\nCache-Control: ", r.keep ? "private, max-age=3600" : "no-store",
                         // Nothing from elsewhere, nothing inline but the page's own style, no frame around the page,
                         // no address handed on.
                         "\r\nContent-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'",
                         r.style_nonce.empty() ? "" : " 'nonce-" + r.style_nonce + "'",
                         "; img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
                         "frame-ancestors 'none'"
                         "\r\nX-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY"
                         "\r\nReferrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin"
                         "\r\nCross-Origin-Opener-Policy: same-origin\r\n\r\n");
  if (with_body) head += r.body;
  return send_all(fd, head.data(), head.size());
}

std::string lower(std::string s) {
  std::transform(s.begin(), s.end(), s.begin(), [](unsigned char c) { return std::tolower(c); });
  return s;
}
std::string trim(const std::string& s) {
  const size_t first = s.find_first_not_of(" \t"), last = s.find_last_not_of(" \t");
  return first == std::string::npos ? "" : s.substr(first, last - first + 1);
}

// The request line and the headers; false if they are not HTTP.
bool parse_head(const std::string& head, Request& request) {
  size_t at = head.find("\r\n");
  const std::string line = head.substr(0, at);
  const size_t first = line.find(' '), second = line.rfind(' ');
  if (first == std::string::npos || second <= first || line.compare(second + 1, 7, "HTTP/1.") != 0) return false;
  request.method = line.substr(0, first);
  request.path = line.substr(first + 1, second - first - 1);
  if (const size_t mark = request.path.find('?'); mark != std::string::npos) {
    request.query = request.path.substr(mark + 1);
    request.path.resize(mark);
  }
  while (at + 2 < head.size()) {
    const size_t begin = at + 2;
    at = head.find("\r\n", begin);
    if (at == std::string::npos) at = head.size();
    const size_t colon = head.find(':', begin);
    if (colon == std::string::npos || colon > at) return false;
    const auto [place, fresh] =
        request.headers.emplace(lower(head.substr(begin, colon - begin)), trim(head.substr(colon + 1, at - colon - 1)));
    if (!fresh) return false;  // which of two Hosts or lengths was meant is nothing to guess
  }
  return !request.path.empty() && request.path[0] == '/';
}

// One connection's bytes, in the order in which they come.
class Reader {
 public:
  explicit Reader(int fd) : fd_(fd) {}

  // Reads one request. Returns 0, -1 if the connection has ended, or the status of an error to answer with.
  int read(Request& request) {
    size_t end;
    while ((end = buffer_.find("\r\n\r\n")) == std::string::npos) {
      if (buffer_.size() > kMostHeaderBytes) return 431;
      if (!more()) return -1;
    }
    if (end > kMostHeaderBytes) return 431;
    if (!parse_head(buffer_.substr(0, end), request)) return 400;
    buffer_.erase(0, end + 4);
    if (!request.header("transfer-encoding").empty()) return 411;
    const std::string length = request.header("content-length");
    size_t size = 0;
    if (!length.empty()) {
      const auto [stop, error] = std::from_chars(length.data(), length.data() + length.size(), size);
      if (error != std::errc() || stop != length.data() + length.size()) return 400;
    }
    if (size > kMostBodyBytes) return 413;
    while (buffer_.size() < size)
      if (!more()) return -1;
    request.body = buffer_.substr(0, size);
    buffer_.erase(0, size);
    return 0;
  }

 private:
  bool more() {
    pollfd wait{fd_, POLLIN, 0};
    if (poll(&wait, 1, kIdleMilliseconds) <= 0) return false;
    char chunk[16384];
    const ssize_t n = recv(fd_, chunk, sizeof chunk, 0);
    if (n <= 0) return false;
    buffer_.append(chunk, static_cast<size_t>(n));
    return true;
  }
  int fd_;
  std::string buffer_;
};

}  // namespace

HttpServer::HttpServer(int port, Handler handler) : handler_(std::move(handler)) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  MICA_CHECK(listener_ >= 0, "mica lab: no socket: ", std::strerror(errno));
  const int on = 1;
  setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) < 0 || listen(listener_, 512) < 0) {
    const int error = errno;
    close(listener_);
    fail(cat("mica lab: cannot listen on port ", port, ": ", std::strerror(error),
             ". Another program may be using it; --port 0 takes a free one"));
  }
  socklen_t length = sizeof address;
  getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length);
  port_ = ntohs(address.sin_port);
  MICA_CHECK(pipe(wake_) == 0, "mica lab: no pipe: ", std::strerror(errno));
  acceptor_ = std::thread([this] { accept_connections(); });
}

void HttpServer::accept_connections() {
  while (!stopping_) {
    pollfd wait[2] = {{listener_, POLLIN, 0}, {wake_[0], POLLIN, 0}};
    if (poll(wait, 2, -1) < 0 && errno != EINTR) break;
    if (stopping_) break;
    if (!(wait[0].revents & POLLIN)) continue;
    const int connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) continue;
    const int on = 1;
    setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    {
      std::lock_guard lock(mutex_);
      if (connections_.size() >= kMostConnections) {
        send_response(connection, {503, "text/plain", "too many connections\n"}, false, true);
        close(connection);
        continue;
      }
      connections_.insert(connection);
    }
    std::thread([this, connection] { serve(connection); }).detach();
  }
}

void HttpServer::serve(int connection) {
  try {
    Reader reader(connection);
    while (!stopping_) {
      Request request;
      const int problem = reader.read(request);
      if (problem < 0) break;
      if (problem > 0) {
        send_response(connection, {problem, "text/plain", std::string(reason(problem)) + "\n"}, false, true);
        break;
      }
      const Response response = handler_(request);
      const bool keep_alive = lower(request.header("connection")) != "close";
      if (!send_response(connection, response, keep_alive, request.method != "HEAD") || !keep_alive) break;
    }
  } catch (const std::exception&) {
    // A connection that fails ends; the server goes on.
  }
  std::lock_guard lock(mutex_);
  close(connection);
  connections_.erase(connection);
  ended_.notify_all();
}

void HttpServer::stop() {
  if (stopping_.exchange(true)) return;
  const char byte = 0;
  while (write(wake_[1], &byte, 1) < 0 && errno == EINTR) {
  }
  if (acceptor_.joinable()) acceptor_.join();
  std::unique_lock lock(mutex_);
  for (const int c : connections_) shutdown(c, SHUT_RDWR);
  ended_.wait(lock, [this] { return connections_.empty(); });
  lock.unlock();
  close(listener_);
  close(wake_[0]);
  close(wake_[1]);
}

}  // namespace mica::lab
