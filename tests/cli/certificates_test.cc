#include "cli/identity/certificates.h"

#include <gtest/gtest.h>

namespace macaw::cli {
namespace {

constexpr absl::Duration kMonth = absl::Hours(24 * 30);

TEST(RenewalPace, LooksSoonerWhereLittleIsLeft) {
  RenewalPace pace;
  for (const bool renewed : {true, false}) {
    EXPECT_EQ(pace.After(renewed, {kMonth, kMonth}).pause, absl::Hours(1));
    EXPECT_EQ(pace.After(renewed, {absl::Hours(5), kMonth}).pause, absl::Minutes(30));
    EXPECT_EQ(pace.After(renewed, {absl::Seconds(1), kMonth}).pause, absl::Minutes(1));
    EXPECT_EQ(pace.After(renewed, {absl::Seconds(4), absl::Seconds(5)}).pause,
              absl::Milliseconds(400));
  }
}

TEST(RenewalPace, AfterTheEndPausesDoubleAndFailuresAreToldLessAndLess) {
  RenewalPace pace;
  absl::Duration left = absl::Seconds(5), last;
  int looks = 0, told = 0;
  for (; left > -absl::Hours(24); ++looks) {
    const RenewalPace::Next next = pace.After(false, {left, absl::Seconds(5)});
    if (left < absl::ZeroDuration()) {
      EXPECT_GE(next.pause, last);
    }
    last = next.pause;
    told += next.tell ? 1 : 0;
    EXPECT_TRUE(looks > 0 || next.tell);
    left -= next.pause;
  }
  EXPECT_EQ(last, absl::Hours(1));
  EXPECT_LT(looks, 80);
  EXPECT_LT(told, 40);
  // It begins anew with the next certificate.
  EXPECT_FALSE(pace.After(true, {absl::Seconds(5), absl::Seconds(5)}).tell);
  const RenewalPace::Next again = pace.After(false, {-absl::Seconds(1), absl::Seconds(5)});
  EXPECT_TRUE(again.tell);
  EXPECT_EQ(again.pause, absl::Milliseconds(200));
}

TEST(RenewalPace, WithoutACertificateItBeginsWithAMinute) {
  RenewalPace pace;
  EXPECT_EQ(pace.After(false, {.lifetime = absl::InfiniteDuration()}).pause, absl::Minutes(1));
  EXPECT_EQ(pace.After(false, {.lifetime = absl::InfiniteDuration()}).pause, absl::Minutes(2));
}

}  // namespace
}  // namespace macaw::cli
