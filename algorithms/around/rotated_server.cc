#include <utility>

#include "algorithms/around/channels.h"
#include "algorithms/around/compressed.h"
#include "algorithms/around/decorated.h"
#include "codecs/rotation.h"

namespace macaw::algorithms {
namespace {

using aggregation::AggregatedChannel;

class RotatedServer final : public DecoratedServer {
 public:
  RotatedServer(std::unique_ptr<ServerAlgorithm> inner, Compression compression)
      : DecoratedServer(std::move(inner)), compression_(std::move(compression)) {}

  absl::StatusOr<AfterApply> Apply(const ServerContext& context,
                                   aggregation::Aggregate aggregate) override {
    for (const aggregation::ChannelSpec& spec : compression_.channels) {
      if (!InPhase(spec.phases, context.phase)) continue;
      AggregatedChannel& channel = ChannelOf(aggregate, spec.name);
      const RandomStream rotation = context.CommonRandom(RotationOf(spec.name));
      if (!channel.value.empty()) codecs::RotateBack(channel.value.view(), rotation);
      for (auto& [client, vector] : channel.collected) codecs::RotateBack(vector.view(), rotation);
    }
    return inner().Apply(context, std::move(aggregate));
  }

 private:
  const Compression compression_;
};

}  // namespace

std::unique_ptr<ServerAlgorithm> MakeRotatedServer(std::unique_ptr<ServerAlgorithm> inner,
                                                   Compression compression) {
  return std::make_unique<RotatedServer>(std::move(inner), std::move(compression));
}

}  // namespace macaw::algorithms
