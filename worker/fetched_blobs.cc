#include "worker/fetched_blobs.h"

#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "algorithms/around/channels.h"
#include "core/status.h"
#include "proto/fleet/compact_vector.h"
#include "proto/fleet/vector_codec.h"

namespace macaw::worker {

std::vector<Digest> FetchedBlobs::Digests() const {
  std::vector<Digest> digests;
  for (const fleet::Blob& blob : cache_) digests.push_back(blob.digest);
  return digests;
}

absl::StatusOr<std::vector<ConstVectorView>> FetchedBlobs::FetchChannels(
    Phase phase, fleet::Broadcast& broadcast) {
  const std::vector<LayoutPtr> layouts = algorithms::DownLayouts(context_.schema, phase);
  if (broadcast.channels.size() != layouts.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the server sent ", broadcast.channels.size(),
                                                   " channels where phase ", phase.value,
                                                   " of the algorithm has ", layouts.size()));
  }
  std::vector<ConstVectorView> vectors;
  for (size_t i = 0; i < layouts.size(); ++i) {
    fleet::Blob& channel = broadcast.channels[i];
    MACAW_ASSIGN_OR_RETURN(channel, FetchVector(channel, layouts[i]));
    MACAW_ASSIGN_OR_RETURN(const std::vector<ConstVectorView> one,
                           fleet::DecodeVectors(channel.bytes->bytes(), {&layouts[i], 1}));
    vectors.push_back(one[0]);
  }
  return vectors;
}

const fleet::Blob* FetchedBlobs::Cached(const Digest& digest) {
  const auto cached = std::ranges::find(cache_, digest, &fleet::Blob::digest);
  if (cached == cache_.end()) return nullptr;
  std::rotate(cached, cached + 1, cache_.end());  // the newest use is last
  return &cache_.back();
}

fleet::Blob FetchedBlobs::Keep(fleet::Blob blob) {
  blob.compact.clear();
  cache_.push_back(blob);
  // Room for a phase's channels, the model under evaluation, the newest model before it, and
  // older ones from which clients train.
  if (cache_.size() > context_.schema.down.size() + 2 + most_models_) cache_.pop_front();
  return blob;
}

absl::StatusOr<fleet::Blob> FetchedBlobs::Fetch(const fleet::Blob& blob) {
  if (const fleet::Blob* const cached = Cached(blob.digest)) return *cached;
  MACAW_ASSIGN_OR_RETURN(fleet::Blob fetched, calls_.Repeat([&] { return link_.Fetch(blob); }));
  return Keep(std::move(fetched));
}

absl::StatusOr<fleet::Blob> FetchedBlobs::FetchVector(const fleet::Blob& blob,
                                                      const LayoutPtr& layout) {
  const fleet::CompactForm* least = nullptr;
  for (const fleet::CompactForm& form : blob.compact) {
    const bool readable = form.base.IsZero() || Cached(form.base) != nullptr;
    if (readable && (least == nullptr || form.size < least->size)) least = &form;
  }
  const bool here = blob.bytes != nullptr || blob.place.has_value();
  if (least == nullptr || here || Cached(blob.digest) != nullptr) return Fetch(blob);
  absl::StatusOr<fleet::Blob> whole = Expand(*least, blob, layout);
  if (whole.ok()) return Keep(*std::move(whole));
  log_.Warning(absl::StrCat("fetches_whole ", whole.status().message()));
  return Fetch(blob);
}

absl::StatusOr<fleet::Blob> FetchedBlobs::Expand(const fleet::CompactForm& form,
                                                 const fleet::Blob& blob, const LayoutPtr& layout) {
  const fleet::Blob named{form.digest, form.size, form.bytes};
  MACAW_ASSIGN_OR_RETURN(const fleet::Blob fetched,
                         calls_.Repeat([&] { return link_.Fetch(named); }));
  std::span<const std::byte> before;
  if (!form.base.IsZero()) before = Cached(form.base)->bytes->bytes();
  MACAW_ASSIGN_OR_RETURN(AlignedBuffer bytes,
                         fleet::ExpandCompact(fetched.bytes->bytes(), layout, before));
  fleet::Blob whole = fleet::Blob::Of(std::move(bytes));
  if (whole.digest != blob.digest) {
    return absl::DataLossError(absl::StrCat("a short form of the server's vector ",
                                            blob.digest.Hex(), " gives ", whole.digest.Hex()));
  }
  return whole;
}

}  // namespace macaw::worker
