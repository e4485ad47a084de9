#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "algorithms/api/parameter_group.h"
#include "core/digest.h"
#include "core/safetensors.h"
#include "core/vector.h"
#include "proto/fleet/messages.h"

namespace macaw::server {

// A model with frozen tensors (algorithms::ModelParts) as a server has it: the base once, as the
// blob that nodes fetch, and apart from it what is trained. No whole model is made for a round or a
// checkpoint. Immutable, thread-safe.
class SplitModel {
 public:
  // `base`: a vector of parts->base.
  SplitModel(std::shared_ptr<const algorithms::ModelParts> parts, ConstVectorView base);

  const algorithms::ModelParts& parts() const { return *parts_; }
  const fleet::Blob& base() const { return base_; }
  ConstVectorView base_view() const { return base_view_; }
  FlatVector Join(ConstVectorView trained) const { return parts_->Join(trained, base_view_); }
  // The tensors of the whole model, in its order. Those of the base are valid as long as this.
  std::vector<TensorToWrite> Tensors(ConstVectorView trained) const;

  // What EncodeVectors makes of the whole model: how many bytes, some of them, all. `trained`: the
  // encoded trained part.
  uint64_t bytes() const { return bytes_; }
  void Read(std::span<const std::byte> trained, uint64_t at, std::span<std::byte> to) const;
  AlignedBuffer Encode(std::span<const std::byte> trained) const;

 private:
  // A tensor of the encoded model.
  struct Piece {
    uint64_t at = 0, bytes = 0;
    bool is_trained = false;
    uint64_t from = 0;  // in the encoded vector that has it
  };
  friend class WholeNames;

  const std::shared_ptr<const algorithms::ModelParts> parts_;
  const fleet::Blob base_;
  const ConstVectorView base_view_;
  const uint64_t bytes_;
  std::vector<Piece> pieces_;
};

// Names whole models by what they would be named as one blob, so logs, broadcasts and nodes that
// know no parts see the digests of a model that has none. Only leaves (core/blob_digest.h) with
// trained numbers are hashed each time. One thread.
class WholeNames {
 public:
  explicit WholeNames(std::shared_ptr<const SplitModel> model);
  // The whole model of this trained part: its name, and the parts in the place of bytes.
  fleet::Blob Of(fleet::Blob trained);

 private:
  std::vector<size_t> LeavesToHash() const;

  std::shared_ptr<const SplitModel> model_;
  std::vector<Digest> leaves_;        // empty before the first name
  std::vector<size_t> moving_;        // leaves with trained numbers, ascending
  std::pair<Digest, Digest> newest_;  // of a trained part, and of the whole model
};

// In the metadata of a model's file: the lines of [model] adapters. A and B alone do not say by
// which scale α/r their product counts.
inline constexpr char kAdaptersMetadata[] = "adapters";
// What a file says of itself; `adapters` "": the model has none.
std::map<std::string, std::string> WithAdapters(std::map<std::string, std::string> metadata,
                                                const std::string& adapters);

// A model as a blob, for whoever writes it to a file.
struct KeptModel {
  fleet::Blob blob;
  LayoutPtr layout;                         // of the model
  std::shared_ptr<const SplitModel> split;  // of a blob with parts, else null
  std::string adapters = {};                // for the file's metadata

  // What the blob holds: the trained part, or the model.
  absl::StatusOr<ConstVectorView> Vector() const;
  // All of its tensors, in the order of the layout, valid as long as this.
  absl::StatusOr<std::vector<TensorToWrite>> Tensors() const;
};

}  // namespace macaw::server
