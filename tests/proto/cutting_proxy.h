#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <list>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"

namespace macaw::wire {

// A TCP relay on loopback that closes a connection when it has carried so many bytes in both
// directions together, and counts all of them. Connections after the last budget are never cut.
class CuttingProxy {
 public:
  CuttingProxy(int server_port, std::vector<uint64_t> budgets)
      : server_port_(server_port), budgets_(std::move(budgets)) {
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = Loopback(0);
    bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address));
    listen(listener_, 16);
    socklen_t size = sizeof(address);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { Accept(); });
  }
  ~CuttingProxy() {
    stop_ = true;
    shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    for (std::thread& relay : relays_) relay.join();
    close(listener_);
  }

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }
  uint64_t up() const { return carried_[0]; }  // bytes towards the server
  uint64_t down() const { return carried_[1]; }
  int cuts() const { return cuts_; }

 private:
  static sockaddr_in Loopback(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    return address;
  }

  void Accept() {
    for (size_t n = 0; !stop_; ++n) {
      const int client = accept(listener_, nullptr, nullptr);
      if (client < 0) return;
      relays_.emplace_back(
          [this, client, budget = n < budgets_.size() ? budgets_[n] : ~uint64_t{0}] {
            Relay(client, budget);
          });
    }
  }

  void Relay(int client, uint64_t budget) {
    const int server = socket(AF_INET, SOCK_STREAM, 0);
    const sockaddr_in address = Loopback(server_port_);
    if (connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
      pollfd ends[2] = {{client, POLLIN, 0}, {server, POLLIN, 0}};
      std::vector<char> buffer(1 << 16);
      for (bool open = true; open && budget > 0 && !stop_;) {
        poll(ends, 2, 50);
        for (int i = 0; i < 2 && open && budget > 0; ++i) {
          if (ends[i].revents == 0) continue;
          const ssize_t n =
              recv(ends[i].fd, buffer.data(), std::min<uint64_t>(buffer.size(), budget), 0);
          open = n > 0 && send(ends[1 - i].fd, buffer.data(), n, MSG_NOSIGNAL) == n;
          if (!open) break;
          budget -= n;
          carried_[i] += n;
        }
      }
      if (budget == 0) ++cuts_;
    }
    close(server);
    close(client);
  }

  const int server_port_;
  const std::vector<uint64_t> budgets_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> stop_ = false;
  std::atomic<int> cuts_ = 0;
  std::atomic<uint64_t> carried_[2] = {0, 0};
  std::thread acceptor_;
  std::list<std::thread> relays_;  // the acceptor's alone until it has ended
};

}  // namespace macaw::wire
