#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "algorithms/mean_delta.h"
#include "core/vector.h"

namespace macaw::algorithms {

// Whether `name` matches a glob: * stands for any characters, ? for one.
bool MatchesGlob(absl::string_view glob, absl::string_view name);

// Some of a model's tensors, chosen by name, and the layout of a vector that holds only them.
// Immutable, thread-safe.
class ParameterGroup {
 public:
  // The entries whose name matches one of the globs, which are separated by spaces or commas. May
  // contain none or all; the rule decides whether that is acceptable.
  static ParameterGroup Matching(const LayoutPtr& layout, absl::string_view globs);
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

// A client whose group is personal: it trains from x with its own group inserted, sends zeros for
// the group, keeps the group as its state, and is evaluated with it. Before its first training it
// uses the broadcast's group.
class LocalGroupClient : public DeltaClient {
 public:
  LocalGroupClient(const Setup& setup, ParameterGroup group)
      : DeltaClient(setup), group_(std::move(group)) {}

  absl::StatusOr<ClientResult> Conclude(const ClientContext& context,
                                        std::span<const training::StageOutcome> outcomes,
                                        Workspace& workspace) const override;
  absl::StatusOr<training::Point> EvaluationPoint(const ClientContext& context,
                                                  Workspace& workspace) const override {
    return training::Point(Personal(context, workspace));
  }

 protected:
  training::Stage LocalWork(const ClientContext& context, Workspace& workspace) const override;
  // x with the client's own group inserted.
  ConstVectorView Personal(const ClientContext& context, Workspace& workspace) const;

  const ParameterGroup group_;
};

// MeanDeltaSchema, with the group as client state.
Schema LocalGroupSchema(const Setup& setup, const ParameterGroup& group);

}  // namespace macaw::algorithms
