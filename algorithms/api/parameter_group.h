#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/vector.h"

namespace macaw::algorithms {

// Some of a model's tensors, chosen by name, and the layout of a vector that holds only them.
// Immutable, thread-safe.
class ParameterGroup {
 public:
  // The entries whose name matches one of the globs, which are separated by spaces or commas. May
  // contain none or all; the rule decides whether that is acceptable.
  static ParameterGroup Matching(const LayoutPtr& layout, absl::string_view globs);
  static ParameterGroup Matching(const LayoutPtr& layout, std::span<const std::string> globs);
  // The others: what is outside this group.
  ParameterGroup Others() const { return {whole_, *outside_}; }
  // The tensors of normalisation layers: of every module that has a "running_mean".
  static ParameterGroup OfNormLayers(const LayoutPtr& layout);
  // The tensors of the last module with parameters: a classifier's head.
  static ParameterGroup OfLastLayer(const LayoutPtr& layout);

  const LayoutPtr& layout() const { return part_; }  // of the group's tensors only
  bool empty() const { return part_->entries().empty(); }
  bool everything() const { return part_->count() == whole_->count(); }
  // One flag per entry of the model's layout, for Stage::trainable.
  using Mask = std::shared_ptr<const std::vector<bool>>;
  const Mask& inside() const { return inside_; }
  const Mask& outside() const { return outside_; }

  void Extract(ConstVectorView whole, VectorView part) const;  // part ← the group of whole
  void Insert(ConstVectorView part, VectorView whole) const;   // the group of whole ← part
  void Clear(VectorView whole) const;                          // the group of whole ← 0

 private:
  ParameterGroup(const LayoutPtr& layout, std::vector<bool> inside);
  LayoutPtr whole_;
  LayoutPtr part_;
  Mask inside_;
  Mask outside_;
};

// The model of a run with frozen tensors ([model] frozen): what is trained, and the base, which
// never changes in the run. Immutable, thread-safe.
struct ModelParts {
  ModelParts(LayoutPtr model, const ParameterGroup& frozen)
      : whole(std::move(model)), trained(frozen.Others()), base(frozen) {}
  // The whole model.
  FlatVector Join(ConstVectorView trained_part, ConstVectorView base_part) const;

  LayoutPtr whole;
  ParameterGroup trained, base;
};

}  // namespace macaw::algorithms
