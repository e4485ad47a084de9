#include "server/split_model.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/blob_digest.h"
#include "core/status.h"
#include "proto/fleet/vector_codec.h"

namespace macaw::server {
namespace {

using fleet::kVectorHeader;

// Leaves that are hashed together: 8 MiB of them are copied.
constexpr size_t kLeavesAtOnce = 128;

}  // namespace

SplitModel::SplitModel(std::shared_ptr<const algorithms::ModelParts> parts, ConstVectorView base)
    : parts_(std::move(parts)),
      base_(fleet::Blob::Of(fleet::EncodeVectors({&base, 1}))),
      base_view_{parts_->base.layout().get(), base_.bytes->bytes().subspan(kVectorHeader)},
      bytes_(fleet::EncodedBytes(*parts_->whole)) {
  const size_t width = SizeOf(parts_->whole->dtype());
  const std::vector<bool>& is_trained = *parts_->trained.inside();
  size_t next_trained = 0, next_base = 0;
  for (size_t i = 0; i < is_trained.size(); ++i) {
    const LayoutEntry& entry = parts_->whole->entries()[i];
    const LayoutEntry& from = is_trained[i] ? parts_->trained.layout()->entries()[next_trained++]
                                            : parts_->base.layout()->entries()[next_base++];
    pieces_.push_back({.at = kVectorHeader + entry.offset * width,
                       .bytes = entry.size * width,
                       .is_trained = is_trained[i],
                       .from = kVectorHeader + from.offset * width});
  }
}

std::vector<TensorToWrite> SplitModel::Tensors(ConstVectorView trained) const {
  std::vector<TensorToWrite> whole;
  std::vector<TensorToWrite> moved = TensorsOf(trained), kept = TensorsOf(base_view_);
  auto next_moved = moved.begin(), next_kept = kept.begin();
  for (const bool is_trained : *parts_->trained.inside())
    whole.push_back(std::move(is_trained ? *next_moved++ : *next_kept++));
  return whole;
}

void SplitModel::Read(std::span<const std::byte> trained, uint64_t at,
                      std::span<std::byte> to) const {
  std::memset(to.data(), 0, to.size());  // gaps
  const uint64_t end = at + to.size();
  const auto copy = [&](uint64_t begin, std::span<const std::byte> bytes) {
    const uint64_t first = std::max(begin, at), last = std::min(begin + bytes.size(), end);
    if (first < last) std::memcpy(&to[first - at], &bytes[first - begin], last - first);
  };
  if (at < kVectorHeader) copy(0, fleet::HeaderOf(*parts_->whole));
  const auto behind = [](const Piece& piece) { return piece.at + piece.bytes; };
  for (auto piece = std::ranges::upper_bound(pieces_, at, {}, behind);
       piece != pieces_.end() && piece->at < end; ++piece) {
    const std::span<const std::byte> from = piece->is_trained ? trained : base_.bytes->bytes();
    copy(piece->at, from.subspan(piece->from, piece->bytes));
  }
}

AlignedBuffer SplitModel::Encode(std::span<const std::byte> trained) const {
  AlignedBuffer buffer = AlignedBuffer::Shareable(bytes_);
  Read(trained, 0, buffer.bytes());
  return buffer;
}

WholeNames::WholeNames(std::shared_ptr<const SplitModel> model) : model_(std::move(model)) {
  for (const SplitModel::Piece& piece : model_->pieces_) {
    if (!piece.is_trained || piece.bytes == 0) continue;
    const uint64_t last = (piece.at + piece.bytes - 1) / kBlobLeafBytes;
    for (uint64_t leaf = piece.at / kBlobLeafBytes; leaf <= last; ++leaf) {
      if (moving_.empty() || moving_.back() < leaf) moving_.push_back(leaf);
    }
  }
}

std::vector<size_t> WholeNames::LeavesToHash() const {
  if (!leaves_.empty()) return moving_;
  std::vector<size_t> all((model_->bytes() + kBlobLeafBytes - 1) / kBlobLeafBytes);
  std::iota(all.begin(), all.end(), size_t{0});
  return all;
}

fleet::Blob WholeNames::Of(fleet::Blob trained) {
  if (leaves_.empty() || newest_.first != trained.digest) {
    const std::vector<size_t> due = LeavesToHash();
    if (leaves_.empty()) leaves_.resize(due.size());
    std::vector<std::byte> bytes;
    for (size_t begin = 0; begin < due.size(); begin += kLeavesAtOnce) {
      const size_t end = std::min(begin + kLeavesAtOnce, due.size());
      bytes.resize((end - begin) * kBlobLeafBytes);
      uint64_t filled = 0;  // the blob's last leaf may be shorter, and is the last here, too
      for (size_t i = begin; i < end; ++i) {
        const uint64_t at = due[i] * kBlobLeafBytes;
        const uint64_t size = std::min(kBlobLeafBytes, model_->bytes() - at);
        model_->Read(trained.bytes->bytes(), at, std::span(bytes).subspan(filled, size));
        filled += size;
      }
      const std::vector<Digest> digests = LeafDigests(std::span(bytes).first(filled));
      for (size_t i = begin; i < end; ++i) leaves_[due[i]] = digests[i - begin];
    }
    newest_ = {trained.digest, NameOfLeaves(model_->bytes(), leaves_)};
  }
  return {.digest = newest_.second,
          .size = model_->bytes(),
          .bytes = nullptr,
          .parts = {std::move(trained), model_->base()}};
}

std::map<std::string, std::string> WithAdapters(std::map<std::string, std::string> metadata,
                                                const std::string& adapters) {
  if (!adapters.empty()) metadata[kAdaptersMetadata] = adapters;
  return metadata;
}

absl::StatusOr<ConstVectorView> KeptModel::Vector() const {
  const bool parts = blob.has_parts();
  const LayoutPtr& held = parts ? split->parts().trained.layout() : layout;
  MACAW_ASSIGN_OR_RETURN(
      const std::vector<ConstVectorView> vectors,
      fleet::DecodeVectors((parts ? blob.trained() : blob).bytes->bytes(), {&held, 1}));
  return vectors.front();
}

absl::StatusOr<std::vector<TensorToWrite>> KeptModel::Tensors() const {
  MACAW_ASSIGN_OR_RETURN(const ConstVectorView vector, Vector());
  return blob.has_parts() ? split->Tensors(vector) : TensorsOf(vector);
}

}  // namespace macaw::server
