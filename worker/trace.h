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
// Rows are numbered in the client's stored order. Stages that train nothing have no batches. Turns
// that did not count (of a killed worker, of a round that ran again) are recorded, too, with the
// same contents. Thread-safe without a lock: a line is one append.
class Trace {
 public:
  static absl::StatusOr<Trace> Open(const std::string& path);

  // `norms_need_two_rows`: the model has batch norm, so a last batch of one row joined the one
  // before it.
  absl::Status Write(const training::LocalPlan& plan, const training::ClientTask& task,
                     bool norms_need_two_rows) const;

 private:
  Trace(std::string path, Fd fd) : path_(std::move(path)), fd_(std::move(fd)) {}

  std::string path_;
  Fd fd_;
};

}  // namespace macaw::worker
