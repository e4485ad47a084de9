#pragma once

#include <span>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "core/fd.h"
#include "training/api/trainer.h"

namespace macaw::worker {

// Records which rows every local step saw, so that other code can repeat a run. One line of JSON
// per turn:
//
//   {"round":1,"phase":0,"client":3,"rows":17,"stages":[{"kind":"train","batches":[[4,0],…]}]}
//
// Rows are numbered in the client's stored order. Stages that train nothing have no batches. In a
// run with [attack], the lines of hostile clients also say "hostile":true. Turns that did not count
// (of a killed worker, of a round that ran again) are recorded, too, with the same contents.
// Thread-safe without a lock: a line is one append.
class Trace {
 public:
  static absl::StatusOr<Trace> Open(const std::string& path);

  struct About {
    bool norms_need_two_rows = false;  // batch norm: a last batch of one row joined the one before
    bool hostile = false;              // the client, in the run's attack
  };
  absl::Status Write(const training::LocalPlan& plan, const training::ClientTask& task,
                     const About& about) const;

 private:
  Trace(std::string path, Fd fd) : path_(std::move(path)), fd_(std::move(fd)) {}

  std::string path_;
  Fd fd_;
};

}  // namespace macaw::worker
