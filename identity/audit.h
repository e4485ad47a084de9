#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/executor.h"
#include "identity/chained_log.h"

namespace macaw::identity {

// A call that a server refused.
struct Refusal {
  std::string who;   // the name in its certificate, or ""
  std::string from;  // its address
  std::string call;  // "/macaw.v1.Fleet/Lease"
  std::string why;
};

// The list of what was refused: a ChainedLog. One kind of refusal (all four fields) is written once
// a minute, with how many there were, and at most kMostKinds kinds a minute are told apart: nobody
// can fill a disk by being refused. Thread-safe; returns at once, a thread of its own writes.
class Audit {
 public:
  static constexpr size_t kMostKinds = 256;

  static absl::StatusOr<std::unique_ptr<Audit>> Open(const std::string& path);
  ~Audit();  // writes what has not been written

  void Refused(const Refusal& refusal, absl::Time now);

 private:
  explicit Audit(ChainedLog log);
  void Write(const Refusal& refusal, uint64_t times, absl::Time now);

  ChainedLog log_;  // the executor's
  absl::Mutex mutex_;
  // Of this minute: how often a kind was seen since its line was written.
  absl::flat_hash_map<std::string, std::pair<Refusal, uint64_t>> seen_ ABSL_GUARDED_BY(mutex_);
  absl::Time minute_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  uint64_t others_ ABSL_GUARDED_BY(mutex_) = 0;
  Executor executor_;  // destroyed first
};

}  // namespace macaw::identity
