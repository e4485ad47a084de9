#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <list>
#include <string>
#include <thread>
#include <vector>

#include "core/clock.h"
#include "core/fd.h"

namespace macaw::testing_support {

// What happens to a connection once it has carried so many bytes, both directions together.
struct Fault {
  enum class Kind : uint8_t {
    kNone,
    kCut,      // it is closed
    kStall,    // it stays, and all further bytes vanish (half open)
    kCorrupt,  // one bit of the next byte is wrong
  };
  Kind kind = Kind::kNone;
  uint64_t after = 0;
};

struct BadNetworkOptions {
  std::vector<Fault> faults;      // of the first connection, the second, …; later ones have none
  bool again = false;             // the last fault is that of all later connections, too
  uint64_t bytes_per_second = 0;  // in each direction of each connection; 0: no limit
  Duration delay{};               // of each byte
};

// A TCP relay on loopback that is as bad as it is told, and counts what it carries. Time is real.
// Thread-safe.
class BadNetwork {
 public:
  explicit BadNetwork(int server_port, BadNetworkOptions options = {});
  // To the server at this address (host:port), which listens on loopback.
  explicit BadNetwork(const std::string& server, BadNetworkOptions options = {});
  ~BadNetwork();
  BadNetwork(const BadNetwork&) = delete;
  BadNetwork& operator=(const BadNetwork&) = delete;

  std::string address() const;                 // for clients to dial
  uint64_t up() const { return carried_[0]; }  // bytes towards the server
  uint64_t down() const { return carried_[1]; }
  int connections() const { return connections_; }
  int faults() const { return faults_; }  // those that have happened
  // Later connections go to the server at this address; those that are open stay where they are.
  void Redirect(const std::string& server);
  // No more than so many bytes in all come down, until a later call lets more pass.
  void HoldDown(uint64_t bytes) { most_down_ = bytes; }
  // An outage: connections are closed, those that are open and, until it is over, those that come.
  void Down(bool down) { down_ = down; }

 private:
  class Relay;
  void Accept();
  Fault FaultOf(size_t connection) const;

  const BadNetworkOptions options_;
  std::atomic<int> server_port_;
  Fd listener_;
  int port_ = 0;
  std::atomic<bool> stop_ = false, down_ = false;
  std::atomic<int> connections_ = 0, faults_ = 0;
  std::atomic<uint64_t> carried_[2] = {0, 0};
  std::atomic<uint64_t> most_down_ = std::numeric_limits<uint64_t>::max();
  std::thread acceptor_;
  std::list<std::thread> relays_;  // the acceptor's alone until it has ended
};

// Cuts a connection after each of these numbers of bytes in turn; later ones are left alone.
inline BadNetworkOptions CutsAfter(const std::vector<uint64_t>& bytes) {
  BadNetworkOptions options;
  for (const uint64_t after : bytes) options.faults.push_back({Fault::Kind::kCut, after});
  return options;
}

}  // namespace macaw::testing_support
