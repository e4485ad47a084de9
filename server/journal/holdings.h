#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "server/engine/journal_data.h"
#include "server/engine/restored.h"
#include "server/journal/frame_file.h"

// The owners of a run and the tables of their clients, in RUN/holdings (frame_file.h): one value
// for each owner, without its session. Every run keeps the file. So a run that is
// resumed knows its clients' numbers although an owner does not come back.
namespace macaw::server {

// Empty: no owner had registered, or the file is not there. An error: the file cannot be
// read, or a table is damaged.
absl::StatusOr<std::vector<Restored::Member>> ReadHoldings(const std::string& run_dir);

// Writes the file. Movable; one thread.
class Holdings {
 public:
  // `fresh`: the file begins empty.
  static absl::StatusOr<Holdings> Open(const std::string& run_dir, bool fresh);
  // Does nothing for a node that owns no clients, or whose clients the file has. Of an owner that
  // changes its rows before the run begins, the last value holds (Roster::Replaces).
  absl::Status Add(const JournalNode& node);
  absl::Status Sync() { return file_.open() ? file_.Sync() : absl::OkStatus(); }

 private:
  Holdings() = default;

  std::string path_;
  FramesEnd end_;
  FrameFile<JournalNode> file_;                     // made for the first owner
  absl::flat_hash_map<std::string, Digest> known_;  // by owner: the digest of its last data
};

}  // namespace macaw::server
