#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "algorithms/mean_delta.h"
#include "core/vector.h"

namespace macaw::algorithms {

// Whether `name` matches a glob: * is any run of characters, ? any one.
bool MatchesGlob(absl::string_view glob, absl::string_view name);

// Some of a model's tensors, chosen by name, and the small vector that holds them alone. Immutable,
// thread-safe.
class ParameterGroup {
 public:
  // The entries whose name matches one of the globs, which stand in one text, separated by spaces
  // or commas. May be empty or everything: the rule decides whether that will do.
  static ParameterGroup Matching(const LayoutPtr& layout, absl::string_view globs);
  // The tensors of normalisation layers: all that share a module with a "running_mean".
  static ParameterGroup OfNormLayers(const LayoutPtr& layout);
  // The tensors of the module that holds the last parameter: a classifier's head.
  static ParameterGroup OfLastLayer(const LayoutPtr& layout);

  const LayoutPtr& layout() const { return part_; }  // of the group alone
  bool empty() const { return part_->entries().empty(); }
  bool everything() const { return part_->count() == whole_->count(); }
  // One flag an entry of the model's layout, for Stage::trainable.
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

// A client whose group stays at home: it trains from x with its own group put in, sends nothing of
// the group, keeps the group as its state, and is evaluated with it. Until it has trained, the
// group is the broadcast's.
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
  // x with the client's own group.
  ConstVectorView Personal(const ClientContext& context, Workspace& workspace) const;

  const ParameterGroup group_;
};

// MeanDeltaSchema with the group as client state.
Schema LocalGroupSchema(const Setup& setup, const ParameterGroup& group);

}  // namespace macaw::algorithms
