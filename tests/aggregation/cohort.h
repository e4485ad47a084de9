#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "aggregation/exact_sum.h"
#include "core/random.h"
#include "core/vector.h"

namespace macaw::aggregation {

inline LayoutPtr Vector(int64_t count, DType dtype) {
  return ParameterLayout::Scalars("w", count, dtype);
}

inline FlatVector Filled(const LayoutPtr& layout, const std::vector<double>& values) {
  FlatVector vector(layout);
  DispatchDType(layout->dtype(), [&]<typename T>(T) {
    for (size_t i = 0; i < values.size(); ++i) vector.As<T>()[i] = static_cast<T>(values[i]);
  });
  return vector;
}

// A client that owns the vectors its contribution refers to.
struct TestClient {
  ClientId id{};
  double weight = 1;
  uint32_t multiplicity = 1;
  std::vector<FlatVector> vectors;

  absl::Status AddTo(ExactSum& sum) const {
    std::vector<ConstVectorView> views;
    for (const FlatVector& vector : vectors) views.push_back(vector.view());
    return sum.Add({id, weight, multiplicity, views});
  }
};

// Clients with random integer weights, multiplicities and values of very different sizes, and the
// order they need.
struct TestCohort {
  std::vector<ChannelSpec> channels;
  std::vector<TestClient> clients;
  GridOrder order;

  TestCohort(std::vector<ChannelSpec> specs, size_t count, uint64_t seed)
      : channels(std::move(specs)) {
    RandomStream random({.seed = seed});
    order = {.max_weight = 0, .total_weight = 0, .max_multiplicity = 1, .total_multiplicity = 0};
    for (size_t i = 0; i < count; ++i) {
      TestClient client{ClientId(i * 7 + 3),
                        static_cast<double>(1 + random.Below(2000)),
                        static_cast<uint32_t>(1 + random.Below(3)),
                        {}};
      for (const ChannelSpec& channel : channels) {
        std::vector<double> values(channel.layout->count());
        for (double& v : values)
          v = random.Normal() * std::ldexp(1.0, static_cast<int>(random.Below(12)) - 8);
        client.vectors.push_back(Filled(channel.layout, values));
      }
      const double weight = client.weight * client.multiplicity;
      order.max_weight = std::max(order.max_weight, weight);
      order.total_weight += weight;
      order.max_multiplicity = std::max(order.max_multiplicity, client.multiplicity);
      order.total_multiplicity += client.multiplicity;
      clients.push_back(std::move(client));
    }
  }

  ExactSum Empty() const { return *ExactSum::Make(channels, order); }
};

// Every reduction in both element types.
inline std::vector<ChannelSpec> AllKinds(int64_t count) {
  std::vector<ChannelSpec> channels;
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    for (const Reduction reduction : {Reduction::kWeightedMean, Reduction::kMean,
                                      Reduction::kFixedSum, Reduction::kMax, Reduction::kCollect}) {
      channels.push_back({.name = absl::StrCat("c", channels.size()),
                          .layout = Vector(count, dtype),
                          .reduction = reduction,
                          .divisor = 1000});
    }
  }
  return channels;
}

inline std::vector<std::byte> Bytes(const ExactSum& sum) {
  const AlignedBuffer buffer = sum.Encode();
  return {buffer.bytes().begin(), buffer.bytes().end()};
}

}  // namespace macaw::aggregation
