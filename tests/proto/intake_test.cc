#include "proto/wire/intake.h"

#include <gtest/gtest.h>

namespace macaw::wire {
namespace {

TEST(Intake, LetsOneRequestOfASessionIn) {
  Intake intake(100);
  auto first = intake.Enter(SessionId(1), 10);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(intake.Enter(SessionId(1), 10), nullptr);
  EXPECT_NE(intake.Enter(SessionId(2), 10), nullptr);
  first.reset();
  EXPECT_NE(intake.Enter(SessionId(1), 10), nullptr);
}

TEST(Intake, LetsSoManyBytesInAndOneThatIsLargerAlone) {
  Intake intake(100);
  auto first = intake.Enter(SessionId(1), 60), second = intake.Enter(SessionId(2), 40);
  ASSERT_TRUE(first != nullptr && second != nullptr);
  EXPECT_EQ(intake.Enter(SessionId(3), 1), nullptr);
  EXPECT_EQ(intake.Enter(SessionId(0), UINT64_MAX), nullptr);
  first->Leave();
  first->Leave();  // counted once
  EXPECT_NE(intake.Enter(SessionId(3), 60), nullptr);
  second.reset();
  EXPECT_NE(intake.Enter(SessionId(4), UINT64_MAX), nullptr);
}

TEST(Intake, WhoHasNoSessionIsBoundedByBytesAlone) {
  Intake intake(100);
  const auto first = intake.Enter({}, 50), second = intake.Enter({}, 50);
  EXPECT_NE(second, nullptr);
  EXPECT_EQ(intake.Enter({}, 1), nullptr);
}

TEST(Intake, MayGoBeforeWhatItHasLetIn) {
  std::shared_ptr<Intake::Place> place;
  {
    Intake intake(100);
    place = intake.Enter(SessionId(1), 10);
  }
  place.reset();
}

}  // namespace
}  // namespace macaw::wire
