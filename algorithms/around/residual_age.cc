#include "algorithms/around/residual_age.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "algorithms/api/vector_math.h"

namespace macaw::algorithms {
namespace {

// Not std::pow, whose last bit depends on the processor.
double Power(double base, uint32_t exponent) {
  double power = 1;
  for (double square = base; exponent > 0; exponent /= 2, square *= square) {
    if (exponent % 2 == 1) power *= square;
  }
  return power;
}

}  // namespace

absl::Status CheckDecay(const UpdateConfig& update, bool residual) {
  if (residual || update.residual_decay == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "update.residual_decay = ", update.residual_decay,
      " has no effect, since update.feedback = \"", update.feedback,
      "\" keeps no residual here: take it out, or set update.feedback = \"residual\""));
}

NamedLayout ResidualRoundOf(absl::string_view channel) {
  static const auto* const number =
      new LayoutPtr(ParameterLayout::Scalars("round", 1, DType::kF64));
  return {absl::StrCat("update_round_", channel), *number};
}

double PartThatStays(double decay, const ClientContext& context, absl::string_view channel) {
  if (decay >= 1) return 1;  // the client keeps no round
  const double counted = context.State(ResidualRoundOf(channel).name).As<double>()[0];
  const auto since = static_cast<uint32_t>(context.round.value - counted);
  return Power(decay, since > 0 ? since - 1 : 0);
}

void KeepRound(const ClientContext& context, absl::string_view channel, ClientResult& result,
               Workspace& workspace) {
  NamedLayout item = ResidualRoundOf(channel);
  const VectorView round = workspace.Vector(item.layout);
  Zero(round);
  round.As<double>()[0] = context.round.value;
  const auto kept = std::ranges::find(result.state, item.name, &NamedView::name);
  if (kept == result.state.end()) {
    result.state.push_back({std::move(item.name), ConstVectorView(round)});
  } else {
    kept->vector = round;
  }
}

}  // namespace macaw::algorithms
