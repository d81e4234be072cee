// The connections that Gloo has opened and does not show.
#pragma once

#include <chrono>
#include <set>
#include <string>

namespace mica::distributed {

// The TCP sockets of this process.
std::set<int> tcp_sockets();

// Lets the kernel end a connection whose other side has not answered for so many seconds. While nothing is sent, the
// kernel asks, and the other side's kernel answers even while its process computes: only a lost host or link is silent.
void limit_silence(int socket, double seconds);

// The words that are added to an error of the kernel about a silent host. Empty where the error is another one.
std::string of_silence(const std::string& error, double seconds);

// A time limit as Gloo takes it.
std::chrono::milliseconds milliseconds(double seconds);

}  // namespace mica::distributed
