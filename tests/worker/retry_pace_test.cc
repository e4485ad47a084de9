#include "worker/retry_pace.h"

#include <gtest/gtest.h>

#include <set>

namespace macaw::worker {
namespace {

constexpr Duration kLongest = std::chrono::seconds(60);

TEST(RetryPace, BeginsAtTheServersPaceAndNeverComesAtOnce) {
  const Duration every = FromSeconds(10);
  Duration sum{};
  std::set<Duration> pauses;
  constexpr int kWorkers = 1000;
  for (uint64_t seed = 0; seed < kWorkers; ++seed) {
    RetryPace pace(every, kLongest, seed, /*call=*/1);
    const Duration pause = pace.Next();
    EXPECT_GE(pause, every / 2);
    EXPECT_LE(pause, every * 3 / 2);
    sum += pause;
    pauses.insert(pause);
  }
  EXPECT_NEAR(ToSeconds(sum) / kWorkers, 10, 0.3);
  EXPECT_EQ(pauses.size(), size_t{kWorkers})
      << "a fleet that lost its server comes back one by one";
}

TEST(RetryPace, DoublesUpToTheLongestPause) {
  for (const Duration every : {Duration{}, FromSeconds(0.1), FromSeconds(90)}) {
    RetryPace pace(every, kLongest, /*seed=*/1, /*call=*/1);
    Duration mean = every > Duration{} ? every : RetryPace::kFirst;
    for (int i = 0; i < 20; ++i) {
      const Duration pause = pace.Next();
      EXPECT_GE(pause, mean / 2);
      EXPECT_LE(pause, mean * 3 / 2);
      mean = std::min<Duration>(2 * mean, std::max(every, kLongest));
    }
    EXPECT_EQ(mean, std::max(every, kLongest));
  }
}

TEST(RetryPace, DrawsOtherPausesForEachCall) {
  RetryPace first(FromSeconds(1), kLongest, /*seed=*/1, /*call=*/1);
  RetryPace second(FromSeconds(1), kLongest, /*seed=*/1, /*call=*/2);
  EXPECT_NE(first.Next(), second.Next());
}

}  // namespace
}  // namespace macaw::worker
