#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/logging.h"
#include "proto/fleet/link.h"
#include "worker/base_files.h"
#include "worker/patient_calls.h"
#include "worker/phase.h"

namespace macaw::worker {

// The vectors that a session gets from its server, and the blobs that it still has of them. One
// thread.
class Downloads {
 public:
  // All must outlive this. `scratch_dir`: empty: the node keeps nothing on disk. `most_kept`:
  // Options::kept_models_bytes.
  Downloads(fleet::FleetLink& link, const PatientCalls& calls, const RunContext& context,
            const std::string& scratch_dir, uint64_t most_kept);

  // What need not be sent again.
  std::vector<Digest> Have() const;
  // Whether this base of models is here, so that it need not be fetched.
  bool HasBase(const Digest& base) const;
  // Clients of a lease train from so many older models.
  void ExpectModels(size_t older) { most_models_ = std::max(most_models_, older); }
  // The channels of the newest lease, whose blobs stay.
  void BeginLease(const std::vector<fleet::Blob>& channels);
  // Forgets the blobs that are too large to be kept for the next round, those of the newest lease
  // too: whoever needs one again fetches it. False: there was none.
  bool LetGoOfLarge();

  // The vector of a blob, which gets its bytes: in its shortest form that can be read here, if it
  // has any.
  absl::StatusOr<ConstVectorView> Vector(fleet::Blob& blob, const LayoutPtr& layout);
  // The vectors of a blob, which gets its bytes.
  absl::StatusOr<std::vector<ConstVectorView>> Vectors(fleet::Blob& blob,
                                                       const std::vector<LayoutPtr>& layouts);
  // The vector of a model; or `part` of it and, once, its base: then the view is empty. A server of
  // release 0.1.0 sends whole models.
  absl::StatusOr<ConstVectorView> Model(fleet::Blob& model, TrainedPart& part);

 private:
  // The base stays for the whole session: clients that wait are of models with it.
  absl::Status TakeBase(const fleet::Blob& base);
  const fleet::Blob* Cached(const Digest& digest);  // null: it is not here
  fleet::Blob Keep(fleet::Blob blob);
  // Before a large blob comes: forgets those used longest ago, unless all are small. The channels
  // of the newest lease stay, and whoever works with another blob holds it.
  void MakeRoomFor(uint64_t bytes);
  absl::StatusOr<fleet::Blob> Fetch(const fleet::Blob& blob);
  absl::StatusOr<fleet::Blob> FetchShortest(const fleet::Blob& blob, const LayoutPtr& layout);
  // `blob`, made of one of its short forms.
  absl::StatusOr<fleet::Blob> Expand(const fleet::CompactForm& form, const fleet::Blob& blob,
                                     const LayoutPtr& layout);

  fleet::FleetLink& link_;
  const PatientCalls& calls_;
  const RunContext& context_;
  const BaseFiles bases_;
  const uint64_t most_kept_;
  const Logger log_{"worker"};
  size_t most_models_ = 0;
  std::deque<fleet::Blob> cache_;  // the one used last is last
  std::vector<Digest> of_lease_;
  Digest base_;  // of the session's models; zero: none has come
};

}  // namespace macaw::worker
