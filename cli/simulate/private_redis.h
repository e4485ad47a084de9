#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "cli/process/child.h"
#include "cli/process/restart_policy.h"
#include "cli/simulate/run_folder.h"

namespace macaw::cli {

// A redis-server of one run's own: on a Unix socket in a private folder, its data in the run's. It
// dies with the object and with this process; when it dies by itself, its owner starts it again on
// the same data, as a resumed run does. One thread: the main one.
class PrivateRedis {
 public:
  // Finds redis-server on PATH. It may still be loading when this returns; workers wait for it.
  // Its data is in RUN/state: whoever wants it to outlast a crash of the machine syncs that folder.
  static absl::StatusOr<PrivateRedis> Start(const std::string& run_folder);
  std::string url() const { return "unix:" + folder_.socket(); }

  // Readable once it has died or is due to be started again: time to call Attend.
  int fd() const { return child_.has_value() ? child_->pidfd() : timer_.get(); }
  Child* process() { return child_.has_value() ? &*child_ : nullptr; }
  // Starts it again, after a pause when it dies often; `say` gets a line about it. An error once
  // that has become pointless, with Redis' last words.
  absl::Status Attend(const std::function<void(const std::string&)>& say);
  // The run has moved on: deaths before this do not count.
  void OnProgress();

 private:
  PrivateRedis(SocketFolder folder, std::string data, ChildSpec spec, Fd timer)
      : folder_(std::move(folder)),
        data_(std::move(data)),
        spec_(std::move(spec)),
        timer_(std::move(timer)) {}
  absl::Status Spawn();

  // Swept when nobody writes into it any more: before the folder goes, after the child.
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
