#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/api/description.h"
#include "algorithms/mean_delta.h"

namespace macaw::algorithms {

// What the rules that a minority of malicious clients cannot steer share. Such a rule sees every
// client's own update (a collected channel, ordered by client id). It sees no weight unless a
// parameter asks for it (reported_weights.h), because a client could lie about it.

using Updates = std::vector<std::pair<ClientId, FlatVector>>;

// A round as such a rule sees it.
struct Arrived {
  Updates updates;              // by client id; where there are buckets: their means, numbered
  std::vector<double> weights;  // α_k > 0 of each update; empty: all are alike

  size_t size() const { return updates.size(); }
  double WeightOf(size_t k) const { return weights.empty() ? 1 : weights[k]; }
};

// Moves the model by what `Combine` makes of the updates. One thread.
class RobustServer : public MeanDeltaServer {
 public:
  RobustServer(const Setup& setup, FlatVector model);

  absl::StatusOr<AfterApply> Apply(const ServerContext& context,
                                   aggregation::Aggregate aggregate) override;

 protected:
  // Combines the updates, at least one, into one. Empty if there are too few of them; the model
  // then stays.
  virtual FlatVector Combine(const ServerContext& context, const Arrived& arrived) = 0;

 private:
  const bool weighted_;       // reported_weights.h
  const size_t bucket_size_;  // bucketing.h
};

// A description to start from: FedAvg's client, and a channel that collects.
Description Robust(std::string name, std::string summary, std::string paper);

// The largest number of hostile clients that is less than half of `clients`.
uint64_t LessThanHalf(uint64_t clients);

// ---- by coordinate

double MeanOf(auto values) {
  double sum = 0;
  for (const auto value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

// Applies f to the sorted values of each coordinate, of all tensors or of the buffers only.
template <typename F>
void ByCoordinate(const Updates& updates, bool buffers_only, VectorView out, F&& f) {
  DispatchDType(out.dtype(), [&]<typename T>(T) {
    std::vector<T> values(updates.size());
    for (const LayoutEntry& entry : out.layout->entries()) {
      if (buffers_only && entry.group == Group::kParameter) continue;
      for (uint64_t i = entry.offset; i < entry.offset + entry.size; ++i) {
        for (size_t k = 0; k < values.size(); ++k) values[k] = updates[k].second.As<T>()[i];
        std::ranges::sort(values);
        out.As<T>()[i] = static_cast<T>(f(std::span<const T>(values)));
      }
    }
  });
}

FlatVector MedianByCoordinate(const Updates& updates);

// ---- by distance

// Over the parameters only: statistics have another scale and would dominate.
double SquaredDistance(ConstVectorView a, ConstVectorView b);
double ParameterDot(ConstVectorView a, ConstVectorView b);

// For rules that judge an update by its distance. Buffers are not part of a distance, so an update
// with ordinary parameters could bring any statistics: the median's are taken.
void TakeMedianBuffers(const Updates& updates, VectorView out);

}  // namespace macaw::algorithms
