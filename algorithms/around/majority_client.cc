#include <algorithm>
#include <utility>
#include <vector>

#include "algorithms/api/vector_math.h"
#include "algorithms/around/channels.h"
#include "algorithms/around/decorated.h"
#include "algorithms/around/majority.h"
#include "codecs/majority.h"
#include "core/status.h"

namespace macaw::algorithms {
namespace {

class MajorityClient final : public DecoratedClient {
 public:
  MajorityClient(std::unique_ptr<ClientAlgorithm> inner, aggregation::ChannelSpec channel)
      : DecoratedClient(std::move(inner)), channel_(std::move(channel)) {}

  absl::StatusOr<ClientResult> Conclude(const ClientContext& context,
                                        std::span<const training::StageOutcome> outcomes,
                                        Workspace& workspace) const override {
    MACAW_ASSIGN_OR_RETURN(ClientResult result, inner().Conclude(context, outcomes, workspace));
    const auto up = std::ranges::find(result.up, channel_.name, &UpVector::name);
    if (up == result.up.end()) return result;  // UpValues reports it
    MACAW_ASSIGN_OR_RETURN(const std::vector<ConstVectorView> on_host,
                           OnHost({&channel_, 1}, {&up->value, 1}, workspace));
    if (!SameLayout(on_host[0].layout, channel_.layout.get())) return result;  // reported later
    const VectorView votes = workspace.Vector(channel_.layout);
    Copy(on_host[0], votes);
    codecs::ToVotes(votes);
    up->value = ConstVectorView(votes);
    MACAW_RETURN_IF_ERROR(inner().Sent(context, result, workspace));
    return result;
  }

 private:
  const aggregation::ChannelSpec channel_;
};

}  // namespace

std::unique_ptr<ClientAlgorithm> MakeMajorityClient(std::unique_ptr<ClientAlgorithm> inner,
                                                    aggregation::ChannelSpec channel) {
  return std::make_unique<MajorityClient>(std::move(inner), std::move(channel));
}

}  // namespace macaw::algorithms
