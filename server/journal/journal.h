#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "core/fd.h"
#include "core/ids.h"
#include "proto/fleet/messages.h"

// What a server of durability "commit" keeps beside the log, so that its successor can go on inside
// a round: who had registered, in which session, and every part that was accepted since the newest
// checkpoint. The log says what was decided; the journal holds what it was decided about.
//
//   RUN/journal/nodes          registrations, in their order
//   RUN/journal/parts-ROUND    parts of this round and later ones, up to the next file's
//
// A file is a row of frames: u64 bytes of the head, u64 bytes of the blob behind it, head, blob,
// u64 checksum of both. Frames behind a torn one, as a crash leaves the last, do not count. Only
// the run's owner may read them: they hold session numbers.
namespace macaw::server {

// A registration: all that the engine takes from it.
struct JournalNode {
  WorkerId node;
  SessionId session;
  fleet::RegisterRequest request;  // its table with bytes
};

// A part as it was accepted.
struct JournalPart {
  WorkerId node;
  std::string node_name;
  uint64_t commit = 0;
  fleet::Part part;
};

// Where the bytes of a blob lie in the journal.
struct JournalPlace {
  std::string path;
  uint64_t offset = 0, size = 0;
};

// What a journal holds. Parts are without the bytes of their sums, which ReadBlob reads.
struct JournalContent {
  std::map<WorkerId, JournalNode> nodes;
  std::map<std::pair<WorkerId, uint64_t>, JournalPart> parts;  // by node and commit
  absl::flat_hash_map<Digest, JournalPlace> sums;
};
absl::StatusOr<JournalContent> ReadJournal(const std::string& folder);
// Refuses bytes of another digest.
absl::StatusOr<fleet::Blob> ReadBlob(const JournalPlace& place, const Digest& digest);

// Writes it. Movable; one thread.
class Journal {
 public:
  // An empty one, whatever is in the folder. Parts come from round `from` on.
  static absl::StatusOr<Journal> Begin(const std::string& folder, Round from);
  // Behind what is there.
  static absl::StatusOr<Journal> Continue(const std::string& folder);

  // These hand the bytes to the system, which outlasts this process; Sync makes those of the parts
  // outlast the machine. A node that is lost there registers again.
  absl::Status Add(const JournalNode& node);
  absl::Status Add(const JournalPart& part);
  absl::Status Sync();
  // There is a checkpoint of round `newest`, and none older than that of `oldest`.
  absl::Status OnCheckpoint(Round newest, Round oldest);

 private:
  explicit Journal(std::string folder) : folder_(std::move(folder)) {}
  absl::Status OpenParts(Round from);

  std::string folder_;
  Fd nodes_, parts_;
  bool unsynced_ = false;
  absl::flat_hash_set<Digest> tables_;  // that the file of nodes has
};

}  // namespace macaw::server
