#include "algorithms/robust/robust.h"

#include <algorithm>

#include "algorithms/api/reported_weight.h"
#include "algorithms/builtin.h"
#include "algorithms/robust/bucketing.h"
#include "algorithms/robust/reported_weights.h"

namespace macaw::algorithms {
namespace {

double MedianOf(auto sorted) {
  const size_t n = sorted.size();  // if even: the mean of the two middle values
  return MeanOf(sorted.subspan((n - 1) / 2, n % 2 == 0 ? 2 : 1));
}

// Σ f(a_i, b_i) over the parameters, in the vectors' order.
double SumOverParameters(ConstVectorView a, ConstVectorView b, auto f) {
  return DispatchDType(a.dtype(), [&]<typename T>(T) {
    double sum = 0;
    for (const LayoutEntry& entry : a.layout->entries()) {
      if (entry.group != Group::kParameter) continue;
      const std::span<const T> left = a.As<T>().subspan(entry.offset, entry.size);
      const std::span<const T> right = b.As<T>().subspan(entry.offset, entry.size);
      for (size_t i = 0; i < left.size(); ++i) sum += f(double{left[i]}, double{right[i]});
    }
    return sum;
  });
}

}  // namespace

RobustServer::RobustServer(const Setup& setup, FlatVector model)
    : MeanDeltaServer(setup, std::move(model)),
      weighted_(IsWeighted(setup)),
      bucket_size_(BucketSize(setup)) {}

absl::StatusOr<AfterApply> RobustServer::Apply(const ServerContext& context,
                                               aggregation::Aggregate aggregate) {
  Arrived arrived{.updates = std::move(ChannelOf(aggregate, "delta").collected)};
  if (weighted_) TakeWeights(ChannelOf(aggregate, kWeightChannel).collected, arrived);
  if (bucket_size_ > 1)
    arrived = InBuckets(std::move(arrived), bucket_size_, context.Random("buckets"));
  const FlatVector delta = arrived.updates.empty() ? FlatVector() : Combine(context, arrived);
  if (delta.empty()) return AfterApply::kRoundDone;
  if (absl::Status status = Move(context.round, delta); !status.ok()) return status;
  return AfterApply::kRoundDone;
}

Description Robust(std::string name, std::string summary, std::string paper) {
  Description rule = LikeFedAvg();
  rule.name = std::move(name);
  rule.summary = std::move(summary);
  rule.paper = std::move(paper);
  rule.notes = [](const Setup& setup) {
    return AlikeNote(setup, "set cohort.weight = \"uniform\" for both");
  };
  rule.schema = [](const Setup& setup) -> absl::StatusOr<Schema> {
    Schema schema = MeanDeltaSchema(setup);
    schema.up[0].reduction = aggregation::Reduction::kCollect;
    return schema;
  };
  return rule;
}

uint64_t LessThanHalf(uint64_t clients) { return clients == 0 ? 0 : (clients - 1) / 2; }

FlatVector MedianByCoordinate(const Updates& updates) {
  FlatVector median(updates[0].second.layout());
  ByCoordinate(updates, /*buffers_only=*/false, median.view(),
               [](auto sorted) { return MedianOf(sorted); });
  return median;
}

double SquaredDistance(ConstVectorView a, ConstVectorView b) {
  return SumOverParameters(a, b, [](double left, double right) {
    const double d = left - right;
    return d * d;
  });
}

double ParameterDot(ConstVectorView a, ConstVectorView b) {
  return SumOverParameters(a, b, [](double left, double right) { return left * right; });
}

void TakeMedianBuffers(const Updates& updates, VectorView out) {
  ByCoordinate(updates, /*buffers_only=*/true, out, [](auto sorted) { return MedianOf(sorted); });
}

}  // namespace macaw::algorithms
