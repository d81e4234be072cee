// A small HTTP/1.1 server for one page on this machine: loopback only, one thread for each open connection.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>

namespace mica::lab {

struct Request {
  std::string method, path, query;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;

  std::string header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? std::string() : found->second;
  }
};

struct Response {
  int status = 200;
  std::string type = "application/json";
  std::string body;
  bool keep = false;             // the browser may keep it for as long as the server runs
  std::string style_nonce = {};  // marks the one style element that the page may have
};

class HttpServer {
 public:
  using Handler = std::function<Response(const Request&)>;

  // Binds to 127.0.0.1; port 0 takes a free one. Throws if the port is taken. Answers from threads of its own.
  HttpServer(int port, Handler handler);
  ~HttpServer() { stop(); }
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const { return port_; }
  void stop();  // returns when every connection has ended

 private:
  void accept_connections();
  void serve(int connection);

  Handler handler_;
  int listener_ = -1, port_ = 0;
  int wake_[2] = {-1, -1};  // a pipe that ends the wait for connections
  std::atomic<bool> stopping_{false};
  std::thread acceptor_;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::set<int> connections_;
};

}  // namespace mica::lab
