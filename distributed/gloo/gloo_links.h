// The connections that Gloo has opened and does not show.
#pragma once

#include <set>

namespace mica::distributed {

// The TCP sockets of this process.
std::set<int> tcp_sockets();

// Lets the kernel end a connection whose other side has not answered for so many seconds. While nothing is sent, the
// kernel asks, and the other side's kernel answers even while its process computes: only a lost host or link is silent.
void limit_silence(int socket, double seconds);

}  // namespace mica::distributed
