#include "proto/wire/link_pace.h"

#include <gtest/gtest.h>

namespace macaw::wire {
namespace {

constexpr double kSliceSeconds = 4;

// Moves so many bytes over a line of this speed. How long its longest chunk took.
double MoveOver(LinkPace& pace, uint64_t bytes, double bytes_per_second) {
  double longest = 0;
  while (bytes > 0) {
    const uint64_t slice = std::min(bytes, pace.slice());
    longest = std::max(longest, LinkPace::ChunkOf(pace.slice()) / bytes_per_second);
    pace.Moved(slice, FromSeconds(slice / bytes_per_second));
    bytes -= slice;
  }
  return longest;
}

TEST(LinkPace, AChunkTakesAboutASecondWhateverTheSpeed) {
  for (const double rate : {8e3, 64e3, 100e3, 250e3}) {
    LinkPace pace(FromSeconds(kSliceSeconds));
    EXPECT_LE(MoveOver(pace, 1 << 20, rate), 2.1) << "the first chunk at " << rate;
    EXPECT_NEAR(MoveOver(pace, 1 << 20, rate), 1, 0.1) << rate;
  }
}

TEST(LinkPace, AFastLineSoonTakesAllAtOnce) {
  LinkPace pace(FromSeconds(kSliceSeconds));
  int slices = 0;
  for (uint64_t left = uint64_t{1} << 30; left > 0; ++slices) {
    const uint64_t slice = std::min(left, pace.slice());
    pace.Moved(slice, FromSeconds(0.001 + slice / 1e9));
    left -= slice;
  }
  EXPECT_LE(slices, 6);
  EXPECT_EQ(LinkPace::ChunkOf(pace.slice()), kChunkBytes);
}

TEST(LinkPace, BeginsSmallAgainWhereNothingMoves) {
  LinkPace pace(FromSeconds(kSliceSeconds));
  MoveOver(pace, 1 << 30, 1e9);
  pace.Failed();
  EXPECT_EQ(pace.slice(), LinkPace::kFirstSlice);
  for (int i = 0; i < 10; ++i) pace.Failed();
  EXPECT_EQ(pace.slice(), LinkPace::kLeastSlice);
  EXPECT_EQ(LinkPace::ChunkOf(pace.slice()), kLeastChunkBytes);
}

TEST(LinkPace, IsNotSlowedByTheLastBytesOfABlob) {
  LinkPace pace(FromSeconds(kSliceSeconds));
  MoveOver(pace, 1 << 30, 1e9);
  const uint64_t before = pace.slice();
  pace.Moved(100, FromSeconds(0.2));
  EXPECT_EQ(pace.slice(), before);
}

}  // namespace
}  // namespace macaw::wire
