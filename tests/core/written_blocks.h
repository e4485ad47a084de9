#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "core/blocks.h"
#include "core/random.h"

// Blocks of numbers and what a writer makes of them.
namespace macaw::testing_support {

using Floats = std::vector<float>;
using Integers = std::vector<int64_t>;

struct Written {
  std::vector<std::byte> bytes;
  uint64_t counted = 0;  // bytes, by a writer that only counts
};

template <typename Block>
Written Write(const std::vector<Block>& blocks, ValueForms forms = {}) {
  Written written;
  BlockWriter writer(&written.bytes), counter(nullptr);
  for (const Block& block : blocks) {
    for (BlockWriter* to : {&writer, &counter}) {
      if constexpr (std::is_same_v<Block, Floats>) {
        to->Values(block, forms);
      } else {
        to->Integers(block);
      }
    }
  }
  writer.End();
  counter.End();
  EXPECT_EQ(writer.bytes(), written.bytes.size());
  written.counted = counter.bytes();
  return written;
}

inline Floats Normals(size_t count, uint64_t seed) {
  RandomStream random({.seed = seed});
  Floats values(count);
  for (float& value : values) value = static_cast<float>(random.Normal());
  return values;
}

}  // namespace macaw::testing_support
