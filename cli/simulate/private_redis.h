#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "cli/config/config.h"
#include "cli/process/child.h"
#include "cli/simulate/run_folder.h"

namespace macaw::cli {

// A redis-server of one run's own: on a Unix socket in a private folder, its data in the run's. It
// dies with the object and with this process; a resumed run starts it on the same data.
class PrivateRedis {
 public:
  // Finds redis-server on PATH. Call on the main thread. It may still be loading when this returns;
  // workers wait for it.
  static absl::StatusOr<PrivateRedis> Start(const StateSection& state,
                                            const std::string& run_folder);
  std::string url() const { return "unix:" + folder_.socket(); }

 private:
  PrivateRedis(SocketFolder folder, Child child)
      : folder_(std::move(folder)), child_(std::move(child)) {}
  SocketFolder folder_;
  Child child_;
};

}  // namespace macaw::cli
