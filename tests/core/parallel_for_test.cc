#include "core/parallel_for.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "core/buffer.h"

namespace macaw {
namespace {

TEST(ParallelFor, CutsTheRangeIntoPiecesOfTheGrain) {
  for (const size_t count :
       {size_t{0}, size_t{1}, size_t{99}, size_t{100}, size_t{101}, size_t{12345}}) {
    for (const size_t threads : {size_t{1}, size_t{2}, size_t{100}}) {
      std::vector<std::atomic<int>> visits(count);
      ParallelFor(
          count, 100,
          [&](size_t begin, size_t end) {
            EXPECT_EQ(begin % 100, 0u);
            EXPECT_EQ(end, std::min(begin + 100, count));
            for (size_t i = begin; i < end; ++i) ++visits[i];
          },
          threads);
      EXPECT_TRUE(std::ranges::all_of(visits, [](const auto& n) { return n == 1; })) << count;
    }
  }
}

TEST(ParallelFor, MayBeCalledFromManyThreadsAndFromWithin) {
  std::atomic<size_t> visited = 0;
  {
    std::vector<std::jthread> callers;
    for (int caller = 0; caller < 4; ++caller) {
      callers.emplace_back([&] {
        for (int turn = 0; turn < 50; ++turn) {
          ParallelFor(8, 1, [&](size_t, size_t) {
            ParallelFor(100, 10, [&](size_t begin, size_t end) { visited += end - begin; });
          });
        }
      });
    }
  }
  EXPECT_EQ(visited, 4u * 50 * 8 * 100);
}

TEST(ParallelFor, CopiesEveryByte) {
  AlignedBuffer from((size_t{3} << 20) + 5), to(from.size());
  for (size_t i = 0; i < from.size(); ++i) from.bytes()[i] = static_cast<std::byte>(i % 251);
  ParallelCopy(from.bytes(), to.bytes().data());
  EXPECT_TRUE(std::ranges::equal(from.bytes(), to.bytes()));
  ParallelCopy({}, nullptr);
}

}  // namespace
}  // namespace macaw
