#pragma once

#include <atomic>

#include "core/clock.h"

namespace macaw::testing_support {

// A clock that stands until a test moves it. It begins as if the machine had run for 1000 s, so
// that no time of a test is the default TimePoint. Thread-safe.
class FakeClock final : public Clock {
 public:
  TimePoint Now() const override { return TimePoint(Duration(now_.load())); }
  void Advance(Duration by) { now_ += by.count(); }

 private:
  std::atomic<Duration::rep> now_ = Duration(std::chrono::seconds(1000)).count();
};

}  // namespace macaw::testing_support
