#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "codecs/codec.h"

namespace macaw::codecs {

// A codec of correct lines.
inline std::unique_ptr<Codec> CodecOf(const std::vector<std::string>& lines,
                                      const CodecUse& use = {}) {
  absl::StatusOr<std::unique_ptr<Codec>> codec = ParseCodec(lines, use);
  if (!codec.ok()) {
    ADD_FAILURE() << codec.status();
    std::abort();
  }
  return *std::move(codec);
}

// The draws of a client in a round.
inline Draws DrawsOf(uint64_t client = 0, uint64_t seed = 1) {
  return {.own = RandomStream({.seed = seed, .client = ClientId(client), .extra = 1}),
          .common = RandomStream({.seed = seed, .extra = 2})};
}

using Doubles = std::vector<double>;

// A tensor of parameters each.
inline FlatVector VectorOf(const std::vector<Doubles>& tensors, DType dtype = DType::kF32) {
  std::vector<LayoutEntry> entries;
  for (size_t t = 0; t < tensors.size(); ++t) {
    entries.push_back(
        {.name = "t" + std::to_string(t), .shape = {static_cast<int64_t>(tensors[t].size())}});
  }
  FlatVector vector(*ParameterLayout::Make(std::move(entries), dtype));
  DispatchDType(dtype, [&]<typename T>(T) {
    for (size_t t = 0; t < tensors.size(); ++t) {
      const LayoutEntry& entry = vector.layout()->entries()[t];
      for (size_t i = 0; i < tensors[t].size(); ++i)
        vector.As<T>()[entry.offset + i] = static_cast<T>(tensors[t][i]);
    }
  });
  return vector;
}

inline std::vector<Doubles> TensorsOf(const FlatVector& vector) {
  std::vector<Doubles> tensors;
  DispatchDType(vector.layout()->dtype(), [&]<typename T>(T) {
    for (const LayoutEntry& entry : vector.layout()->entries()) {
      const auto values = vector.As<T>().subspan(entry.offset, entry.size);
      tensors.emplace_back(values.begin(), values.end());
    }
  });
  return tensors;
}

// C of one tensor.
inline Doubles Coded(const std::vector<std::string>& lines, const Doubles& values,
                     DType dtype = DType::kF32, Draws draws = DrawsOf(), const CodecUse& use = {}) {
  FlatVector vector = VectorOf({values}, dtype);
  CodecOf(lines, use)->Apply(vector.view(), draws);
  return TensorsOf(vector)[0];
}

// Reproducible numbers of both signs, with sizes over three orders of magnitude.
inline Doubles SomeNumbers(size_t count, uint64_t seed = 1) {
  RandomStream random({.seed = seed, .extra = 3});
  Doubles numbers;
  for (size_t i = 0; i < count; ++i) {
    const double normal = random.Normal();
    numbers.push_back(static_cast<float>(normal * normal * normal));
  }
  return numbers;
}

}  // namespace macaw::codecs
