#include "core/mutex.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "core/executor.h"

namespace macaw {
namespace {

// A number that threads wait for.
struct Counter {
  Mutex mutex;
  int value ABSL_GUARDED_BY(mutex) = 0;

  void Add() {
    MutexLock lock(&mutex);
    ++value;
  }
  void WaitFor(int wanted) {
    MutexLock lock(&mutex);
    const auto there = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex) { return value >= wanted; };
    mutex.Await(there);
  }
};

TEST(Mutex, WakesEveryWaiterWhoseConditionHolds) {
  Counter counter;
  std::atomic<int> woken = 0;
  std::vector<std::thread> waiters;
  for (int i = 1; i <= 8; ++i) {
    waiters.emplace_back([&, i] {
      counter.WaitFor((i + 1) / 2);  // two threads wait for each value of 1 to 4
      ++woken;
    });
  }
  for (int i = 1; i <= 4; ++i) {
    counter.Add();
    while (woken < 2 * i) std::this_thread::yield();
  }
  for (std::thread& waiter : waiters) waiter.join();
  EXPECT_EQ(woken, 8);
}

TEST(Mutex, AThreadThatWaitsWakesTheOthersForWhatItChanged) {
  Counter counter;
  std::thread other([&] { counter.WaitFor(1); });
  {
    MutexLock lock(&counter.mutex);
    counter.value = 1;
    EXPECT_FALSE(counter.mutex.AwaitFor(FromSeconds(0.01), [] { return false; }));
    // The other thread has continued meanwhile, or the test would hang.
  }
  other.join();
}

TEST(Mutex, AwaitForReturnsAfterItsTimeout) {
  Mutex mutex;
  MutexLock lock(&mutex);
  const TimePoint start = SteadyClock().Now();
  EXPECT_FALSE(mutex.AwaitFor(FromSeconds(0.02), [] { return false; }));
  EXPECT_GE(SteadyClock().Now() - start, FromSeconds(0.02));
  EXPECT_TRUE(mutex.AwaitFor(Duration::zero(), [] { return true; }));
}

// Timeouts and wake-ups at the same moment: no wake-up is lost, and none is sent to a thread that
// has left.
TEST(Mutex, EndsOfPatienceRaceWithWakeUps) {
  Counter counter;
  std::atomic<bool> over = false;
  std::atomic<int> in_time = 0, too_late = 0;
  std::vector<std::thread> waiters;
  for (int i = 0; i < 3; ++i) {
    waiters.emplace_back([&, i] {
      for (int round = 1; !over; ++round) {
        MutexLock lock(&counter.mutex);
        const int before = counter.value;
        const auto moved = [&]() ABSL_SHARED_LOCKS_REQUIRED(counter.mutex) {
          return counter.value != before;
        };
        const bool held =
            counter.mutex.AwaitFor(std::chrono::microseconds(20 * i + round % 50), moved);
        EXPECT_EQ(held, moved());
        ++(held ? in_time : too_late);
      }
    });
  }
  // Repeats until both cases have happened often, however the machine schedules the threads.
  const auto enough = [&] { return in_time > 100 && too_late > 100; };
  for (int i = 0; i < 20'000 || (i < 20'000'000 && !enough()); ++i) {
    counter.Add();
    for (int spin = 0; spin < i % 300; ++spin) std::atomic_signal_fence(std::memory_order_seq_cst);
    if (i % 16 == 0) std::this_thread::yield();
  }
  over = true;
  for (std::thread& waiter : waiters) waiter.join();
  EXPECT_TRUE(enough()) << in_time << " in time, " << too_late << " too late";
}

TEST(Mutex, MayBeDestroyedByTheThreadThatWaited) {
  Executor executor("other", 1);
  for (int i = 0; i < 20'000; ++i) {
    auto counter = std::make_unique<Counter>();
    executor.Post([shared = counter.get()] { shared->Add(); });
    counter->WaitFor(1);
    counter.reset();
  }
}

// Every token is taken exactly once, whichever thread is woken for it.
TEST(Mutex, ManyTakersAndGivers) {
  constexpr int kTokens = 30'000;
  Mutex mutex;
  int tokens = 0, taken = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      while (true) {
        MutexLock lock(&mutex);
        mutex.Await([&] { return tokens > 0 || taken == kTokens; });
        if (taken == kTokens) return;
        --tokens;
        ++taken;
      }
    });
  }
  for (int i = 0; i < kTokens; ++i) {
    MutexLock lock(&mutex);
    ++tokens;
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(tokens, 0);
}

}  // namespace
}  // namespace macaw
