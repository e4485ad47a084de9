#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/executor.h"
#include "identity/chained_log.h"
#include "identity/key.h"

namespace macaw::identity {

// Who was refused, for the room that it has in the log.
enum class Standing : uint8_t {
  kStranger,  // has proven nothing
  kKnown,     // the authority has certified its name
  kBanned,    // a certified name that was revoked, or that reached for what is another's
};

// A call that a server refused.
struct Refusal {
  Standing standing = Standing::kStranger;
  std::string who;   // the name in its certificate, or ""; a stranger's is only claimed
  std::string from;  // its address, without the port
  std::string call;  // "/macaw.v1.Fleet/Lease"
  std::string why;
};

// The list of what was refused: a ChainedLog. Nobody can fill a disk by being refused, and nobody
// can hide another's refusal behind many of its own:
//   strangers  share kMostOfStrangers kinds of line a minute. A kind is the reason without its
//              particulars (names, numbers), which a stranger cannot choose
//   a node     has kMostOfNode kinds of its own a minute: call and reason
//   banned     a name has kMostOfBanned kinds more: calls
// A kind is written when it is first seen in a minute. How many more there were is written with the
// first refusal after the minute, or when the log is closed. The newest kFiles files of
// `most_bytes` each are kept. Thread-safe; returns at once, a thread of its own writes.
class Audit {
 public:
  static constexpr size_t kMostOfStrangers = 32;
  static constexpr size_t kMostOfNode = 8;
  static constexpr size_t kMostOfBanned = 32;
  static constexpr int kFiles = 8;

  struct Options {
    const PrivateKey* key = nullptr;  // signs the head (signed_head.h); null: nobody does
    uint64_t most_bytes = 8 << 20;
  };

  // `path` ends with ".jsonl". Older files lie beside it: audit.1.jsonl, audit.2.jsonl, ….
  static absl::StatusOr<std::unique_ptr<Audit>> Open(const std::string& path, Options options);
  static absl::StatusOr<std::unique_ptr<Audit>> Open(const std::string& path) {
    return Open(path, Options());
  }
  ~Audit();  // writes what has not been written

  void Refused(const Refusal& refusal, absl::Time now);

 private:
  struct Seen {
    Refusal refusal;
    uint64_t since = 0;  // its line was written
  };

  Audit(std::string path, const Options& options, ChainedLog log);
  // Writes how many more of each kind there were, and forgets them.
  void CloseMinute(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Write(const Refusal& refusal, uint64_t times, absl::Time now);
  // The executor's:
  absl::Status Append(const LogEntry& entry);
  // Locks other processes out of the newest file, which `log_` is then.
  absl::Status LockNewest();
  // With the lock; afterwards it is that of the new file.
  absl::Status BeginNewFile(absl::Time now);

  const std::string path_;
  const std::unique_ptr<const PrivateKey> key_;
  const uint64_t most_bytes_;
  ChainedLog log_;  // the executor's
  absl::Mutex mutex_;
  absl::flat_hash_map<std::string, Seen> seen_ ABSL_GUARDED_BY(mutex_);  // by kind
  // How many kinds of this minute a budget has used.
  absl::flat_hash_map<std::string, size_t> kinds_ ABSL_GUARDED_BY(mutex_);
  absl::Time minute_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  Executor executor_;  // destroyed first
};

}  // namespace macaw::identity
