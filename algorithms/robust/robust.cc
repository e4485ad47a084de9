#include "algorithms/robust/robust.h"

#include <algorithm>

#include "algorithms/builtin.h"

namespace macaw::algorithms {
namespace {

double MedianOf(auto sorted) {
  const size_t n = sorted.size();  // if even: the mean of the two middle values
  return MeanOf(sorted.subspan((n - 1) / 2, n % 2 == 0 ? 2 : 1));
}

}  // namespace

absl::StatusOr<AfterApply> RobustServer::Apply(const ServerContext& context,
                                               aggregation::Aggregate aggregate) {
  const Updates& updates = ChannelOf(aggregate, "delta").collected;
  const FlatVector delta = updates.empty() ? FlatVector() : Combine(updates);
  if (delta.empty()) return AfterApply::kRoundDone;
  if (absl::Status status = Move(context.round, delta); !status.ok()) return status;
  return AfterApply::kRoundDone;
}

Description Robust(std::string name, std::string summary, std::string paper) {
  Description rule = FedAvg();
  rule.asynchronous = false;
  rule.name = std::move(name);
  rule.summary = std::move(summary);
  rule.paper = std::move(paper);
  rule.notes = [](const Setup& setup) {
    return PlainMeanNote(setup, "set cohort.weight = \"uniform\" for both");
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
  return DispatchDType(a.dtype(), [&]<typename T>(T) {
    double sum = 0;
    for (const LayoutEntry& entry : a.layout->entries()) {
      if (entry.group != Group::kParameter) continue;
      const std::span<const T> left = a.As<T>().subspan(entry.offset, entry.size);
      const std::span<const T> right = b.As<T>().subspan(entry.offset, entry.size);
      for (size_t i = 0; i < left.size(); ++i) {
        const double d = double{left[i]} - double{right[i]};
        sum += d * d;
      }
    }
    return sum;
  });
}

void TakeMedianBuffers(const Updates& updates, VectorView out) {
  ByCoordinate(updates, /*buffers_only=*/true, out, [](auto sorted) { return MedianOf(sorted); });
}

}  // namespace macaw::algorithms
