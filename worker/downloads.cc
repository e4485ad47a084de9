#include "worker/downloads.h"

#include <iterator>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "proto/fleet/compact_vector.h"
#include "proto/fleet/vector_codec.h"

namespace macaw::worker {
namespace {

// Before memory is made for the blob: a server may announce any size.
absl::Status CheckSize(const fleet::Blob& blob, std::span<const LayoutPtr> layouts) {
  const uint64_t bytes = fleet::EncodedBytes(layouts);
  if (blob.size == bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the server announces ", blob.size,
                                                 " bytes for a vector that has ", bytes,
                                                 ": server and worker disagree about the model"));
}

}  // namespace

// A worker on the server's machine maps its memory, and needs no file.
Downloads::Downloads(fleet::FleetLink& link, const PatientCalls& calls, const RunContext& context,
                     const std::string& scratch_dir, uint64_t most_kept)
    : link_(link),
      calls_(calls),
      context_(context),
      bases_(link.shares_memory() ? "" : BaseFiles::FolderIn(scratch_dir)),
      most_kept_(most_kept) {}

std::vector<Digest> Downloads::Have() const {
  std::vector<Digest> have;
  for (const fleet::Blob& blob : cache_) have.push_back(blob.digest);
  if (context_.whole != nullptr) {
    if (const Digest base = context_.whole->base(); !base.IsZero()) have.push_back(base);
  }
  return have;
}

void Downloads::BeginLease(const std::vector<fleet::Blob>& channels) {
  of_lease_.clear();
  for (const fleet::Blob& channel : channels)
    of_lease_.push_back(channel.has_parts() ? channel.trained().digest : channel.digest);
}

bool Downloads::LetGoOfLarge() {
  return std::erase_if(cache_, [&](const fleet::Blob& blob) { return blob.size > most_kept_; }) > 0;
}

absl::StatusOr<std::vector<ConstVectorView>> Downloads::Vectors(
    fleet::Blob& blob, const std::vector<LayoutPtr>& layouts) {
  MACAW_RETURN_IF_ERROR(CheckSize(blob, layouts));
  MACAW_ASSIGN_OR_RETURN(blob, Fetch(blob));
  return fleet::DecodeVectors(blob.bytes->bytes(), layouts);
}

absl::StatusOr<ConstVectorView> Downloads::Vector(fleet::Blob& blob, const LayoutPtr& layout) {
  MACAW_RETURN_IF_ERROR(CheckSize(blob, {&layout, 1}));
  MACAW_ASSIGN_OR_RETURN(blob, FetchShortest(blob, layout));
  MACAW_ASSIGN_OR_RETURN(const std::vector<ConstVectorView> views,
                         fleet::DecodeVectors(blob.bytes->bytes(), {&layout, 1}));
  return views[0];
}

absl::StatusOr<ConstVectorView> Downloads::Model(fleet::Blob& model, TrainedPart& part) {
  if (context_.whole == nullptr || !model.has_parts()) return Vector(model, context_.spec.layout);
  MACAW_RETURN_IF_ERROR(TakeBase(model.base()));
  part.whole = model.digest;
  MACAW_ASSIGN_OR_RETURN(part.vector,
                         Vector(model.parts[0], context_.whole->parts().trained.layout()));
  return ConstVectorView();
}

absl::Status Downloads::TakeBase(const fleet::Blob& base) {
  WholeModels& whole = *context_.whole;
  if (!base_.IsZero() && base_ != base.digest) {
    return absl::InvalidArgumentError(
        absl::StrCat("the server names another base of the model (", base.digest.Hex(),
                     ") than before (", base_.Hex(), "), and what a run has frozen never changes"));
  }
  base_ = base.digest;
  if (whole.base() == base.digest) return absl::OkStatus();
  const LayoutPtr& layout = whole.parts().base.layout();
  const auto take = [&](std::span<const std::byte> bytes) -> absl::Status {
    MACAW_ASSIGN_OR_RETURN(const std::vector<ConstVectorView> views,
                           fleet::DecodeVectors(bytes, {&layout, 1}));
    whole.TakeBase(base.digest, views[0]);
    return absl::OkStatus();
  };
  if (const absl::StatusOr<MappedFile> kept = bases_.Read(base.digest); kept.ok())
    return take(kept->bytes());
  MACAW_RETURN_IF_ERROR(CheckSize(base, {&layout, 1}));
  MACAW_ASSIGN_OR_RETURN(const fleet::Blob fetched,
                         calls_.Repeat([&] { return link_.Fetch(base); }));
  MACAW_RETURN_IF_ERROR(take(fetched.bytes->bytes()));
  bases_.Write(fetched);
  log_.Info(absl::StrCat("base_fetched bytes=", base.size));
  return absl::OkStatus();
}

const fleet::Blob* Downloads::Cached(const Digest& digest) {
  const auto cached = std::ranges::find(cache_, digest, &fleet::Blob::digest);
  if (cached == cache_.end()) return nullptr;
  std::rotate(cached, cached + 1, cache_.end());
  return &cache_.back();
}

fleet::Blob Downloads::Keep(fleet::Blob blob) {
  blob.compact.clear();
  cache_.push_back(blob);
  // Room for a phase's channels, the model under evaluation, the newest model before it, and older
  // ones from which clients train.
  if (cache_.size() > context_.schema.down.size() + 2 + most_models_) cache_.pop_front();
  return blob;
}

void Downloads::MakeRoomFor(uint64_t bytes) {
  for (const fleet::Blob& blob : cache_) bytes += blob.size;
  for (auto blob = cache_.begin(); blob != cache_.end() && bytes > most_kept_;) {
    const bool of_lease = std::ranges::find(of_lease_, blob->digest) != of_lease_.end();
    if (!of_lease) bytes -= blob->size;
    blob = of_lease ? std::next(blob) : cache_.erase(blob);
  }
}

bool Downloads::HasBase(const Digest& base) const {
  return (context_.whole != nullptr && context_.whole->base() == base) || bases_.Has(base);
}

absl::StatusOr<fleet::Blob> Downloads::Fetch(const fleet::Blob& blob) {
  if (const fleet::Blob* const cached = Cached(blob.digest)) return *cached;
  MakeRoomFor(blob.size);
  MACAW_ASSIGN_OR_RETURN(fleet::Blob fetched, calls_.Repeat([&] { return link_.Fetch(blob); }));
  return Keep(std::move(fetched));
}

absl::StatusOr<fleet::Blob> Downloads::FetchShortest(const fleet::Blob& blob,
                                                     const LayoutPtr& layout) {
  const fleet::CompactForm* least = nullptr;
  for (const fleet::CompactForm& form : blob.compact) {
    const bool readable = form.base.IsZero() || Cached(form.base) != nullptr;
    if (readable && form.size < blob.size && (least == nullptr || form.size < least->size))
      least = &form;
  }
  const bool here = blob.bytes != nullptr || blob.place.has_value();
  if (least == nullptr || here || Cached(blob.digest) != nullptr) return Fetch(blob);
  absl::StatusOr<fleet::Blob> whole = Expand(*least, blob, layout);
  if (whole.ok()) {
    MakeRoomFor(whole->size);
    return Keep(*std::move(whole));
  }
  log_.Warning(absl::StrCat("fetches_whole ", whole.status().message()));
  return Fetch(blob);
}

absl::StatusOr<fleet::Blob> Downloads::Expand(const fleet::CompactForm& form,
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
