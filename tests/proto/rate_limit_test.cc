#include "proto/wire/rate_limit.h"

#include <gtest/gtest.h>

#include "testing/fake_clock.h"

namespace macaw::wire {
namespace {

using testing_support::FakeClock;

constexpr Duration kSecond = std::chrono::seconds(1);

TEST(RateLimit, WaitsUntilWhatHasMovedHadItsTime) {
  FakeClock clock;
  RateLimit limit(50'000, clock);
  EXPECT_EQ(limit.Wait(), Duration{});
  limit.Count(100'000);
  EXPECT_EQ(limit.Wait(), 2 * kSecond);
  clock.Advance(kSecond);
  EXPECT_EQ(limit.Wait(), kSecond);
  limit.Count(50'000);  // a heartbeat does not ask
  EXPECT_EQ(limit.Wait(), 2 * kSecond);
}

// A pause does not let a link move more afterwards.
TEST(RateLimit, MovesNoMoreThanItsRateOverAnyTimeBeyondASecondsBytes) {
  FakeClock clock;
  constexpr uint64_t kRate = 50'000;
  RateLimit limit(kRate, clock);
  clock.Advance(100 * kSecond);
  const TimePoint begin = clock.Now();
  uint64_t moved = 0;
  for (uint64_t rest = 1'000'000; rest > 0;) {
    clock.Advance(limit.Wait());
    const double seconds = ToSeconds(clock.Now() - begin);
    EXPECT_LE(static_cast<double>(moved), 1.001 * kRate * seconds);
    const uint64_t next = limit.AtOnce(rest);
    EXPECT_LE(next, kRate);
    limit.Count(next);
    moved += next;
    rest -= next;
  }
  EXPECT_NEAR(ToSeconds(clock.Now() - begin + limit.Wait()), 20, 0.001);
}

TEST(RateLimit, OfNothingIsNone) {
  FakeClock clock;
  RateLimit limit(0, clock);
  limit.Count(uint64_t{1} << 50);
  EXPECT_EQ(limit.Wait(), Duration{});
  EXPECT_EQ(limit.AtOnce(1 << 30), uint64_t{1} << 30);
}

}  // namespace
}  // namespace macaw::wire
