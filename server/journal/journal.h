#pragma once

#include <algorithm>
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
#include "server/engine/journal_data.h"
#include "server/journal/frame_file.h"

// The files that a server with durability "commit" keeps beside the log, so that the next server
// can continue inside a round: the registered nodes with their sessions, and every part that was
// accepted since the newest checkpoint. The log holds the decisions; the journal holds the data
// about which they were made.
//
//   RUN/journal/nodes          registrations, in order
//   RUN/journal/parts-ROUND    parts from this round on, up to the round of the next file
//   RUN/journal/uploads/       uploads that are not complete (proto/wire/partial_files.h)
//   RUN/journal/synced         size of the log when it was last known to be on the disk
//
// What a file of nodes or parts consists of is in frame_file.h. Only the run's owner may read the
// files, because they hold session numbers. A file tells the names of its fields, so that a server
// of another release can go on: fields that it does not know are skipped, and fields that the file
// lacks have their default. A field that a later release means otherwise takes another name.
namespace macaw::server {

// Where the bytes of a blob lie in the journal.
struct JournalPlace {
  std::string path;
  uint64_t offset = 0, size = 0;
};

// The content of a journal. The parts lack the bytes of their sums; ReadBlob reads them.
struct JournalContent {
  std::map<WorkerId, JournalNode> nodes;
  std::map<std::pair<WorkerId, uint64_t>, JournalPart> parts;  // by node and commit
  absl::flat_hash_map<Digest, JournalPlace> sums;
  // The log's first bytes, so many, were on the disk, and with them all data of the journal that
  // their records need. After a crash of the machine it may be less than really was.
  uint64_t synced_log_bytes = 0;
};
absl::StatusOr<JournalContent> ReadJournal(const std::string& folder);
// Returns an error if the bytes do not have this digest.
absl::StatusOr<fleet::Blob> ReadBlob(const JournalPlace& place, const Digest& digest);

// Writes a journal. Movable; one thread.
class Journal {
 public:
  // Starts an empty journal and removes the old one in the folder, if any. Its parts belong to
  // round `from` and later.
  static absl::StatusOr<Journal> Begin(const std::string& folder, Round from);
  // Appends to the journal in the folder.
  static absl::StatusOr<Journal> Continue(const std::string& folder);

  // Add passes the bytes to the operating system, so they survive this process. Sync makes them
  // survive a crash of the machine.
  absl::Status Add(const JournalNode& node);
  absl::Status Add(const JournalPart& part);
  absl::Status Sync();
  // Notes, without waiting for the disk, that so many bytes of the log are synced. The journal has
  // been synced before.
  absl::Status NoteSynced(uint64_t log_bytes);
  // Tells the journal that there is a checkpoint of round `newest`, and none older than `oldest`.
  // Starts the next file of parts, and removes files that are no longer needed. While rounds that
  // an earlier server had closed are done again, the open file has parts of rounds after `newest`:
  // then all files stay as they are.
  absl::Status OnCheckpoint(Round newest, Round oldest);

 private:
  explicit Journal(std::string folder) : folder_(std::move(folder)) {}
  absl::Status OpenParts(Round from);
  void NoteRound(const JournalPart& part) { newest_ = std::max(newest_, part.part.round); }

  std::string folder_;
  Round newest_;  // of the parts in all files
  FrameFile<JournalNode> nodes_;
  FrameFile<JournalPart> parts_;
  Fd synced_;
  absl::flat_hash_set<Digest> tables_;  // tables whose bytes the file of nodes already has
};

}  // namespace macaw::server
