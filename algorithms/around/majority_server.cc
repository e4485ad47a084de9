#include <cmath>
#include <utility>

#include "algorithms/around/channels.h"
#include "algorithms/around/decorated.h"
#include "algorithms/around/majority.h"
#include "codecs/majority.h"

namespace macaw::algorithms {
namespace {

// The mean |m| over parameters.
double MeanSize(ConstVectorView m) {
  double sum = 0, count = 0;
  DispatchDType(m.dtype(), [&]<typename T>(T) {
    for (const LayoutEntry& entry : m.layout->entries()) {
      if (entry.group != Group::kParameter) continue;
      for (const T value : m.As<T>().subspan(entry.offset, entry.size))
        sum += std::fabs(static_cast<double>(value));
      count += static_cast<double>(entry.size);
    }
  });
  return count == 0 ? 0 : sum / count;
}

class MajorityServer final : public DecoratedServer {
 public:
  MajorityServer(std::unique_ptr<ServerAlgorithm> inner, aggregation::ChannelSpec channel,
                 double step, bool reports)
      : DecoratedServer(std::move(inner)),
        channel_(std::move(channel)),
        step_(step),
        reports_(reports) {}

  absl::StatusOr<AfterApply> Apply(const ServerContext& context,
                                   aggregation::Aggregate aggregate) override {
    if (InPhase(channel_.phases, context.phase)) {
      FlatVector& mean = ChannelOf(aggregate, channel_.name).value;
      if (!mean.empty()) {  // some client was counted
        if (reports_) context.Report(kVoteMarginMetric, MeanSize(std::as_const(mean).view()));
        codecs::Decide(step_, mean.view());
      }
    }
    return inner().Apply(context, std::move(aggregate));
  }

 private:
  const aggregation::ChannelSpec channel_;
  const double step_;
  const bool reports_;
};

}  // namespace

std::unique_ptr<ServerAlgorithm> MakeMajorityServer(std::unique_ptr<ServerAlgorithm> inner,
                                                    aggregation::ChannelSpec channel, double step,
                                                    bool reports) {
  return std::make_unique<MajorityServer>(std::move(inner), std::move(channel), step, reports);
}

}  // namespace macaw::algorithms
