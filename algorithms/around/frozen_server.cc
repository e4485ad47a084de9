#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "algorithms/api/vector_math.h"
#include "algorithms/around/decorated.h"
#include "algorithms/around/frozen.h"
#include "core/status.h"

namespace macaw::algorithms {
namespace {

class FrozenServer final : public DecoratedServer {
 public:
  FrozenServer(std::unique_ptr<ServerAlgorithm> inner, const Schema& rule,
               const ParameterGroup& trained, FlatVector whole)
      : DecoratedServer(std::move(inner)),
        channel_(rule.down[0].name),
        trained_(trained),
        model_(std::move(whole)),
        result_(model_.Clone()),
        sent_(model_.Clone()) {}

  absl::StatusOr<Broadcast> Configure(const ServerContext& context) const override {
    MACAW_ASSIGN_OR_RETURN(Broadcast broadcast, inner().Configure(context));
    for (DownVector& channel : broadcast) {
      if (channel.name == channel_) channel.vector = WholeOf(channel.vector);
    }
    return broadcast;
  }

  absl::StatusOr<AfterApply> Apply(const ServerContext& context,
                                   aggregation::Aggregate aggregate) override {
    ServerContext inside = context;
    FlatVector base;
    if (!context.base.bytes.empty()) {
      base = FlatVector(trained_.layout());
      trained_.Extract(context.base, base.view());
      inside.base = std::as_const(base).view();
    }
    MACAW_ASSIGN_OR_RETURN(const AfterApply next, inner().Apply(inside, std::move(aggregate)));
    Follow();
    return next;
  }
  ConstVectorView Model() const override { return model_.view(); }
  ConstVectorView Result() const override {
    return HasResultOfItsOwn() ? result_.view() : model_.view();
  }

  ServerState Save() const override {
    ServerState state = inner().Save();
    state.vectors.insert_or_assign(kWholeModel, model_.Clone());
    return state;
  }
  absl::Status Load(const ServerState& state) override {
    const auto found = state.vectors.find(kWholeModel);
    if (found == state.vectors.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the saved state has no vector '", kWholeModel,
                       "': it belongs to a run without model.frozen"));
    }
    if (!SameLayout(found->second.layout().get(), model_.layout().get())) {
      return absl::InvalidArgumentError(
          absl::StrCat("the saved vector '", kWholeModel, "' has another layout than the model"));
    }
    MACAW_RETURN_IF_ERROR(inner().Load(state));
    for (FlatVector* const vector : {&model_, &result_, &sent_})
      Copy(found->second.view(), vector->view());
    Follow();
    return absl::OkStatus();
  }

 private:
  bool HasResultOfItsOwn() const {
    return inner().Result().bytes.data() != inner().Model().bytes.data();
  }
  // Takes over what the rule has moved.
  void Follow() {
    trained_.Insert(inner().Model(), model_.view());
    if (HasResultOfItsOwn()) trained_.Insert(inner().Result(), result_.view());
  }
  // The rule's model, as it sends it, with the frozen tensors.
  ConstVectorView WholeOf(ConstVectorView part) const {
    if (!SameLayout(part.layout, trained_.layout().get())) return part;  // DownViews refuses it
    if (part.bytes.data() == inner().Model().bytes.data()) return model_.view();
    trained_.Insert(part, sent_.view());
    return std::as_const(sent_).view();
  }

  const std::string channel_;  // of the model
  const ParameterGroup trained_;
  FlatVector model_;
  FlatVector result_;        // used if the rule reports another model than it sends
  mutable FlatVector sent_;  // used if the rule sends a vector that is not its Model()
};

}  // namespace

std::unique_ptr<ServerAlgorithm> MakeFrozenServer(std::unique_ptr<ServerAlgorithm> inner,
                                                  const Schema& rule, const ParameterGroup& trained,
                                                  FlatVector whole) {
  return std::make_unique<FrozenServer>(std::move(inner), rule, trained, std::move(whole));
}

}  // namespace macaw::algorithms
