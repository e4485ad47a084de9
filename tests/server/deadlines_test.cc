#include "server/engine/deadlines.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "core/ids.h"
#include "core/random.h"

namespace macaw::server {
namespace {

TimePoint AtSecond(uint64_t seconds) {
  return TimePoint(FromSeconds(static_cast<double>(seconds)));
}

std::set<WorkerId> PopAll(Deadlines<WorkerId>& deadlines, TimePoint now) {
  std::set<WorkerId> popped;
  while (const auto id = deadlines.Pop(now)) EXPECT_TRUE(popped.insert(*id).second);
  return popped;
}

TEST(Deadlines, ADeadlineThatIsPutOffPassesOnlyAtItsLastTime) {
  Deadlines<WorkerId> deadlines;
  EXPECT_EQ(deadlines.next(), TimePoint::max());
  deadlines.Set(WorkerId(1), AtSecond(10));
  deadlines.Set(WorkerId(1), AtSecond(20));
  EXPECT_LE(deadlines.next(), AtSecond(20));
  EXPECT_TRUE(PopAll(deadlines, AtSecond(10)).empty());
  EXPECT_EQ(deadlines.next(), AtSecond(20));
  EXPECT_EQ(PopAll(deadlines, AtSecond(20)), std::set{WorkerId(1)});
  EXPECT_EQ(deadlines.next(), TimePoint::max());
}

TEST(Deadlines, ADeadlineThatIsBroughtForwardPassesOnce) {
  Deadlines<WorkerId> deadlines;
  deadlines.Set(WorkerId(1), AtSecond(20));
  deadlines.Set(WorkerId(1), AtSecond(5));
  deadlines.SetIfEarlier(WorkerId(1), AtSecond(9));
  EXPECT_EQ(deadlines.next(), AtSecond(5));
  EXPECT_EQ(PopAll(deadlines, AtSecond(30)), std::set{WorkerId(1)});
}

TEST(Deadlines, WhatIsRemovedDoesNotPass) {
  Deadlines<WorkerId> deadlines;
  deadlines.Set(WorkerId(1), AtSecond(1));
  deadlines.Set(WorkerId(2), AtSecond(2));
  deadlines.Remove(WorkerId(1));
  EXPECT_EQ(PopAll(deadlines, AtSecond(9)), std::set{WorkerId(2)});
  deadlines.Set(WorkerId(1), TimePoint::max());
  EXPECT_EQ(deadlines.next(), TimePoint::max());
}

TEST(Deadlines, AreThoseOfAMapWhateverHappens) {
  RandomStream random({.seed = 1});
  Deadlines<WorkerId> deadlines;
  std::map<WorkerId, TimePoint> expected;
  uint64_t now = 0;
  for (int step = 0; step < 100000; ++step) {
    const WorkerId id(static_cast<uint32_t>(random.Below(30)));
    const TimePoint when = AtSecond(now + random.Below(50));
    switch (random.Below(5)) {
      case 0:
        deadlines.Remove(id);
        expected.erase(id);
        break;
      case 1:
        deadlines.SetIfEarlier(id, when);
        if (!expected.contains(id) || when < expected[id]) expected[id] = when;
        break;
      default:
        deadlines.Set(id, when);
        expected[id] = when;
    }
    if (random.Below(4) > 0) continue;
    now += random.Below(3);
    std::set<WorkerId> due;
    for (const auto& [one, its] : expected) {
      if (its <= AtSecond(now)) due.insert(one);
    }
    for (const WorkerId one : due) expected.erase(one);
    ASSERT_EQ(PopAll(deadlines, AtSecond(now)), due) << step;
    for (const auto& [one, its] : expected) ASSERT_LE(deadlines.next(), its);
  }
}

}  // namespace
}  // namespace macaw::server
