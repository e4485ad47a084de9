#include "server/model_keeper.h"

#include <cmath>
#include <utility>

#include "core/status.h"
#include "proto/fleet/vector_codec.h"

namespace macaw::server {

absl::StatusOr<ModelKeeper> ModelKeeper::Make(const algorithms::Description& algorithm,
                                              algorithms::Setup setup, FlatVector initial) {
  ModelKeeper keeper;
  keeper.layout_ = setup.layout;
  MACAW_ASSIGN_OR_RETURN(keeper.schema_, algorithm.schema(setup));
  MACAW_ASSIGN_OR_RETURN(keeper.algorithm_, algorithm.server(setup, std::move(initial)));
  return keeper;
}

absl::StatusOr<fleet::Blob> ModelKeeper::Open(const PhaseOrder& order) {
  // The channels and their grids are the same from round to round; only the order's weights move.
  if (sum_.has_value() && order_.has_value() && order_->grid == order.grid) {
    sum_->Reset();
  } else {
    MACAW_ASSIGN_OR_RETURN(sum_, aggregation::ExactSum::Make(schema_.up, order.grid));
  }
  order_ = order;
  return fleet::Blob::Of(fleet::EncodeVectors(algorithm_->Configure(order.round, order.phase)));
}

absl::StatusOr<aggregation::ExactSum> ModelKeeper::Decode(const fleet::Part& part) const {
  if (!order_.has_value() || part.round != order_->round || part.phase != order_->phase) {
    return absl::FailedPreconditionError("that round and phase is not open");
  }
  if (part.sums.bytes == nullptr)
    return absl::InvalidArgumentError("the part names clients but brings no sums");
  MACAW_ASSIGN_OR_RETURN(
      aggregation::ExactSum sum,
      aggregation::ExactSum::Decode(part.sums.bytes->bytes(), schema_.up, order_->grid));
  if (sum.clients() != part.included.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the part names ", part.included.size(),
                                                   " clients but its sums hold ", sum.clients()));
  }
  uint64_t multiplicity = 0;
  double weight = 0;
  for (const fleet::ClientRecord& record : part.included) {
    multiplicity += record.multiplicity;
    weight += record.multiplicity * record.weight;
  }
  // A sum that weighs more than its clients would push later parts past what the round planned.
  if (sum.multiplicity() != multiplicity || !(std::fabs(sum.weight() - weight) <= 1e-9 * weight)) {
    return absl::InvalidArgumentError(absl::StrCat("the part names clients that weigh ", weight,
                                                   " but its sums hold ", sum.weight()));
  }
  return sum;
}

absl::Status ModelKeeper::Add(aggregation::ExactSum&& sum) {
  if (!sum_.has_value()) return absl::FailedPreconditionError("no round is open");
  return sum_->Merge(std::move(sum));
}

absl::StatusOr<bool> ModelKeeper::Apply(Round round, Phase phase) {
  aggregation::ExactSum sum = *std::exchange(sum_, std::nullopt);
  MACAW_ASSIGN_OR_RETURN(aggregation::Aggregate aggregate, std::move(sum).Report());
  headroom_.clear();
  for (size_t c = 0; c < schema_.up.size(); ++c) {
    headroom_.emplace_back(schema_.up[c].name, aggregate.channels[c].max_abs / schema_.up[c].bound);
  }
  MACAW_ASSIGN_OR_RETURN(const algorithms::AfterApply next,
                         algorithm_->Apply(round, phase, std::move(aggregate)));
  return next == algorithms::AfterApply::kNextPhase;
}

fleet::Blob ModelKeeper::ModelBlob() const {
  const ConstVectorView model = algorithm_->Model();
  return fleet::Blob::Of(fleet::EncodeVectors({&model, 1}));
}

std::vector<LayoutPtr> ModelKeeper::Layouts() const {
  std::vector<LayoutPtr> layouts = {layout_};
  for (const auto& named : schema_.down) layouts.push_back(named.layout);
  for (const auto& channel : schema_.up) layouts.push_back(channel.layout);
  return layouts;
}

}  // namespace macaw::server
