#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "cli/process/restart_policy.h"
#include "cli/simulate/run_folder.h"
#include "core/child.h"

namespace macaw::cli {

// A redis-server that belongs to one run. It listens on a Unix socket in a private folder, and its
// data is in the run's folder. It ends with the object and with this process. If it dies by itself,
// its owner restarts it on the same data, as a resumed run does. Main thread only.
class PrivateRedis {
 public:
  // Finds redis-server on PATH. It may still be loading when this returns; workers wait for it. Its
  // data is in RUN/state. To keep the data through a crash of the machine, the caller must sync
  // that folder.
  static absl::StatusOr<PrivateRedis> Start(const std::string& run_folder);
  std::string url() const { return "unix:" + folder_.socket(); }

  // Readable when the server has died or its restart is due: call Attend then.
  int fd() const { return child_.has_value() ? child_->pidfd() : timer_.get(); }
  Child* process() { return child_.has_value() ? &*child_ : nullptr; }
  // Restarts the server, after a pause if it dies often. `say` gets a line about it. When a restart
  // has become pointless, returns an error with the last error line of Redis.
  absl::Status Attend(const std::function<void(const std::string&)>& say);
  // The run made progress: earlier deaths do not count.
  void OnProgress();

 private:
  PrivateRedis(SocketFolder folder, std::string data, ChildSpec spec, Fd timer)
      : folder_(std::move(folder)),
        data_(std::move(data)),
        spec_(std::move(spec)),
        timer_(std::move(timer)) {}
  absl::Status Spawn();

  // The data folder. Its destructor sweeps the folder (SweepRedisFiles), after the child has ended
  // and before the folder of the socket is removed.
  struct Data {
    explicit Data(std::string path) : folder(std::move(path)) {}
    Data(Data&& other) noexcept : folder(std::exchange(other.folder, "")) {}
    Data& operator=(Data&& other) noexcept {
      std::swap(folder, other.folder);
      return *this;
    }
    ~Data();
    std::string folder;
  };

  SocketFolder folder_;
  Data data_;
  ChildSpec spec_;
  Fd timer_;  // for the next start, while there is no child
  RestartPolicy policy_;
  std::optional<Child> child_;
};

}  // namespace macaw::cli
