#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace macaw::bench {

struct RoundsOptions {
  size_t devices = 3000;
  uint32_t cohort = 300;
  uint32_t rounds = 10;
  bool plain = false;  // over a Unix socket without TLS
  std::string log;     // the server's; "": it is removed
};

// A run of macaw-server with devices that register, send heartbeats, wait for work, and
// train their client when they are drawn. The devices are threads of this process: each has a
// connection and a certificate of its own, and all train on two threads. Prints the times of calls
// and of the parts of a round, and what the server used. Then simulates the run: it must end with
// the same model.
void MeasureRounds(const RoundsOptions& options);

}  // namespace macaw::bench
