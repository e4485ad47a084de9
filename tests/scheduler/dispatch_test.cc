#include "scheduler/dispatch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "scheduler/policies/policies.h"
#include "tests/scheduler/cohorts.h"

namespace macaw::scheduler {
namespace {

using fixtures::MakeCohort;
using fixtures::RandomLoads;

Plan Planned(const std::string& policy, const std::vector<uint64_t>& loads,
             const std::vector<WorkerInfo>& workers) {
  return (*MakeScheduler({.policy = policy}))->Assign(MakeCohort(loads), workers);
}

class EveryHandOut : public ::testing::TestWithParam<std::string> {};

// Requests in any order, from workers that the plan does not know, with lost workers and clients
// that come back: in the end every client was handed out exactly once.
TEST_P(EveryHandOut, HandsEveryClientOutExactlyOnce) {
  RandomStream stream({.seed = 2});
  for (int trial = 0; trial < 200; ++trial) {
    const uint64_t workers = 1 + stream.Below(4), clients = stream.Below(60);
    std::vector<WorkerInfo> infos;
    for (uint64_t w = 0; w < workers; ++w) {
      infos.push_back({.worker = WorkerId(static_cast<uint32_t>(w + 1)),
                       .slots = 1 + static_cast<uint32_t>(stream.Below(3))});
    }
    DispatchQueue queue(Planned(GetParam(), RandomLoads(stream, clients), infos));
    EXPECT_EQ(queue.size(), clients);
    std::map<ClientId, int> out;
    double now = 0;
    for (int asks = 0; !queue.empty(); ++asks) {
      ASSERT_LT(asks, 20000) << "some clients are never handed out";
      now += stream.Uniform() * 100;
      const WorkerId asking(static_cast<uint32_t>(1 + stream.Below(workers + 1)));
      if (stream.Below(20) == 0) queue.RemoveWorker(asking);
      const Piece piece = queue.Take({.worker = asking,
                                      .slots = 2,
                                      .idle = static_cast<uint32_t>(stream.Below(3)),
                                      .now = now});
      for (const CohortEntry& entry : piece.clients) {
        if (stream.Below(10) == 0) {
          queue.PutBack(entry);
        } else {
          ++out[entry.client];
        }
      }
    }
    EXPECT_EQ(out.size(), clients);
    for (const auto& [client, count] : out) EXPECT_EQ(count, 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, EveryHandOut,
                         ::testing::Values("planned_stealing", "longest_first", "random",
                                           "round_robin", "uniform"),
                         [](const auto& policy) { return policy.param; });

TEST(DispatchQueue, KWholeHandsOutAQueueAtOnceAndOthersTakeNothingFromIt) {
  DispatchQueue queue(
      Planned("round_robin", std::vector<uint64_t>(10, 5), {{WorkerId(1)}, {WorkerId(2)}}));
  EXPECT_EQ(queue.Take({.worker = WorkerId(1)}).clients.size(), 5u);
  EXPECT_TRUE(queue.Take({.worker = WorkerId(1), .now = 25}).clients.empty());
  EXPECT_EQ(queue.size(), 5u);
  queue.RemoveWorker(WorkerId(2));  // then other workers get its clients
  EXPECT_EQ(queue.Take({.worker = WorkerId(1), .now = 30}).clients.size(), 1u);
}

TEST(DispatchQueue, KWholeGivesAClientThatCameBackToEachIdleSlot) {
  DispatchQueue queue(
      Planned("round_robin", std::vector<uint64_t>(20, 5), {{WorkerId(1), 3}, {WorkerId(2)}}));
  const size_t own = queue.Take({.worker = WorkerId(1), .slots = 3, .idle = 3}).clients.size();
  queue.RemoveWorker(WorkerId(2));
  ASSERT_EQ(queue.size(), 20 - own);
  ASSERT_GE(queue.size(), 4u);
  const auto take = [&](uint32_t idle) {
    return queue.Take({.worker = WorkerId(1), .slots = 3, .idle = idle, .now = 30}).clients.size();
  };
  EXPECT_EQ(take(3), 3u);
  EXPECT_EQ(take(0), 1u) << "it asks ahead";
}

TEST(DispatchQueue, AQueueThatItsWorkerDoesNotAskForGoesToThoseThatAsk) {
  Plan plan = Planned("round_robin", std::vector<uint64_t>(10, 5), {{WorkerId(1)}, {WorkerId(2)}});
  EXPECT_EQ(plan.uncollected, 60);
  DispatchQueue queue(plan);
  EXPECT_EQ(queue.Take({.worker = WorkerId(1)}).clients.size(), 5u);
  EXPECT_EQ(queue.Take({.worker = WorkerId(1), .now = 59}).look_again, 60);
  EXPECT_TRUE(queue.Take({.worker = WorkerId(1), .idle = 0, .now = 60}).clients.empty());
  EXPECT_EQ(queue.Take({.worker = WorkerId(1), .now = 60}).clients.size(), 3u);
  EXPECT_EQ(queue.Take({.worker = WorkerId(2), .now = 61}).clients.size(), 2u);
  EXPECT_TRUE(queue.empty());
}

// The phase is so short that it goes out whole, and the worker that is planned for all of it is
// gone, although nobody knows that yet.
TEST(DispatchQueue, AShortPhaseDoesNotWaitForAWorkerThatDoesNotAsk) {
  constexpr Costs kShort{.fixed = 1e-4, .row = 0, .known = true};
  DispatchQueue queue(
      Planned("planned_stealing", {10, 10, 10, 10},
              {{WorkerId(1), 1, kShort}, {WorkerId(2), 1, Costs{kShort}.Slower(50)}}));
  double now = 0;
  for (int asks = 0; !queue.empty(); ++asks) {
    ASSERT_LT(asks, 10);
    const Piece piece = queue.Take({.worker = WorkerId(2), .now = now});
    now = piece.clients.empty() ? piece.look_again : now + 5e-3;
  }
  EXPECT_LT(now, 0.05);
}

TEST(DispatchQueue, PullGivesOneClientToEachIdleSlot) {
  DispatchQueue queue(
      Planned("random", std::vector<uint64_t>(10, 5), {{WorkerId(1), 3}, {WorkerId(2)}}));
  EXPECT_EQ(queue.Take({.worker = WorkerId(1), .slots = 3, .idle = 2}).clients.size(), 2u);
  EXPECT_EQ(queue.Take({.worker = WorkerId(2)}).clients.size(), 1u);
  EXPECT_TRUE(queue.Take({.worker = WorkerId(1), .slots = 3, .idle = 0}).clients.empty());
}

const Costs kKnown{.known = true};

TEST(DispatchQueue, PiecesShrinkTowardsTheEnd) {
  DispatchQueue queue(Planned("planned_stealing", std::vector<uint64_t>(128, 5),
                              {{WorkerId(1), 1, kKnown}, {WorkerId(2), 1, kKnown}}));
  const Piece first = queue.Take({.worker = WorkerId(1)});
  EXPECT_EQ(first.clients.size(), 16u);  // a quarter of its 64
  EXPECT_FALSE(first.when_idle);         // it may ask ahead
  const Piece second = queue.Take({.worker = WorkerId(1), .now = 80});
  EXPECT_LT(second.clients.size(), first.clients.size());
  size_t last = 0;
  for (double now = 140; !queue.empty(); now += 5) {
    for (const uint32_t worker : {1, 2}) {
      const Piece piece = queue.Take({.worker = WorkerId(worker), .now = now});
      if (!piece.clients.empty()) last = piece.clients.size();
      EXPECT_TRUE(piece.when_idle || queue.size() >= 8);
    }
  }
  EXPECT_EQ(last, 1u);
}

TEST(DispatchQueue, APieceHasAtLeastTheMinimumWork) {
  DispatchQueue queue(Planned("planned_stealing", std::vector<uint64_t>(16, 5),
                              {{WorkerId(1), 1, kKnown}, {WorkerId(2), 1, kKnown}}));
  EXPECT_EQ(queue.Take({.worker = WorkerId(1), .least_seconds = 30}).clients.size(), 6u);
}

TEST(DispatchQueue, AWorkerThatIsAloneGetsASecondsWorkAtOnceAndAlwaysAsksAhead) {
  const Costs millisecond = kKnown.Slower(1e-3);
  DispatchQueue queue(Planned("planned_stealing", std::vector<uint64_t>(1000, 5),
                              {{WorkerId(1), 2, millisecond}}));  // 5 ms a client
  const Piece first = queue.Take({.worker = WorkerId(1), .slots = 2, .idle = 2});
  EXPECT_NEAR(first.clients.size(), 400, 1) << "a second on two slots is more than a quarter";
  EXPECT_FALSE(first.when_idle);
  double now = 0;
  for (int asks = 0; !queue.empty(); ++asks) {
    ASSERT_LT(asks, 3);
    now += 1;
    const Piece piece = queue.Take({.worker = WorkerId(1), .slots = 2, .idle = 0, .now = now});
    EXPECT_FALSE(piece.clients.empty()) << "it asks before a slot is idle, also at the end";
    EXPECT_FALSE(piece.when_idle);
  }
}

TEST(DispatchQueue, AWorkerThatJoinsTakesItsShareOfWhatIsLeft) {
  const Costs second{.known = true};
  DispatchQueue queue(
      Planned("planned_stealing", std::vector<uint64_t>(100, 5), {{WorkerId(1), 1, second}}));
  EXPECT_EQ(queue.Take({.worker = WorkerId(1)}).clients.size(), 25u);
  EXPECT_FALSE(queue.Take({.worker = WorkerId(2), .now = 1}).clients.empty());
  const size_t left = queue.size();
  EXPECT_LT(queue.Take({.worker = WorkerId(1), .now = 120}).clients.size(), left / 2)
      << "it is no longer alone";
}

TEST(DispatchQueue, AWorkerWithoutTimesIsTriedWithOneClient) {
  DispatchQueue queue(
      Planned("planned_stealing", std::vector<uint64_t>(64, 5), {{WorkerId(1), 2}, {WorkerId(2)}}));
  const Piece piece = queue.Take({.worker = WorkerId(1), .slots = 2, .idle = 2});
  EXPECT_EQ(piece.clients.size(), 2u);
  EXPECT_TRUE(piece.when_idle);
}

// Only clients in a queue are moved; a client that was handed out stays with its worker.
TEST(DispatchQueue, ADryWorkerTakesOnlyWhatIsNotHandedOut) {
  DispatchQueue queue(Planned("planned_stealing", std::vector<uint64_t>(24, 5),
                              {{WorkerId(1), 1, kKnown}, {WorkerId(2), 1, kKnown}}));
  std::set<ClientId> held;
  for (const CohortEntry& entry : queue.Take({.worker = WorkerId(2)}).clients)
    held.insert(entry.client);
  EXPECT_FALSE(held.empty());
  // Worker 2 never asks again; worker 1 is as fast as predicted.
  double now = 0;
  while (!queue.empty()) {
    const Piece piece = queue.Take({.worker = WorkerId(1), .now = now});
    for (const CohortEntry& entry : piece.clients) EXPECT_TRUE(held.insert(entry.client).second);
    now += 5.0 * std::max<double>(static_cast<double>(piece.clients.size()), 0.2);
  }
  EXPECT_EQ(held.size(), 24u);
}

// A slow slot that would only delay the end gets no client, until the fast slot turns out to be
// late.
TEST(DispatchQueue, ASlowSlotLeavesTheLastClientToAFastOneUnlessThatIsLate) {
  const std::vector<WorkerInfo> workers = {
      {.worker = WorkerId(1), .costs = kKnown},
      {.worker = WorkerId(2), .costs = Costs{kKnown}.Slower(20)}};
  DispatchQueue queue(Planned("planned_stealing", {10, 10}, workers));
  EXPECT_EQ(queue.Take({.worker = WorkerId(1)}).clients.size(), 1u);
  const Piece none = queue.Take({.worker = WorkerId(2)});
  EXPECT_TRUE(none.clients.empty());
  EXPECT_TRUE(none.when_idle);
  EXPECT_GT(none.look_again, 10);
  EXPECT_LT(none.look_again, 20);
  EXPECT_EQ(queue.Take({.worker = WorkerId(2), .now = 1000}).clients.size(), 1u);
}

// The fast slot is idle and does not ask: its program hangs, or its network does.
TEST(DispatchQueue, ASlowSlotTakesEverythingIfTheFastOneNeverAsks) {
  DispatchQueue queue(
      Planned("planned_stealing", {10, 10, 10},
              {{WorkerId(1), 1, kKnown}, {WorkerId(2), 1, Costs{kKnown}.Slower(20)}}));
  const double alone = 3 * 20 * kKnown.Seconds({.rows = 10});
  double now = 0;
  for (int asks = 0; !queue.empty(); ++asks) {
    ASSERT_LT(asks, 100) << "after " << now << " s";
    const Piece piece = queue.Take({.worker = WorkerId(2), .now = now});
    now = piece.clients.empty() ? piece.look_again : now + alone / 3;
  }
  EXPECT_LT(now, 3 * alone);
}

// Workers join late, are slow at first and then faster than the clock can measure. A worker that
// gets nothing waits for the time it was told, so some worker must always be about to ask.
TEST(DispatchQueue, SomebodyIsAlwaysDueToAskWhileClientsAreLeft) {
  RandomStream stream({.seed = 3});
  for (int trial = 0; trial < 3000; ++trial) {
    const size_t count = 2 + stream.Below(3);
    std::vector<WorkerInfo> workers;
    for (uint32_t w = 0; w < count; ++w) workers.push_back({.worker = WorkerId(w + 1)});
    DispatchQueue queue(
        Planned("planned_stealing", RandomLoads(stream, 1 + stream.Below(6), 10), workers));
    std::vector<double> asks;  // when each asks next
    for (size_t w = 0; w < count; ++w) asks.push_back(stream.Uniform() * 1e-2);
    for (int n = 0; !queue.empty(); ++n) {
      ASSERT_LT(n, 10000) << "trial " << trial << ": clients are never handed out";
      const auto next = std::ranges::min_element(asks);
      ASSERT_TRUE(std::isfinite(*next)) << "trial " << trial << ": everybody waits for another";
      const double now = *next;
      const Piece piece = queue.Take(
          {.worker = WorkerId(static_cast<uint32_t>(next - asks.begin() + 1)), .now = now});
      *next = piece.clients.empty() ? piece.look_again : now + stream.Uniform() * 1e-4;
    }
  }
}

TEST(DispatchQueue, AStalledSlotGetsNoMoreClients) {
  std::vector<WorkerInfo> workers = {{.worker = WorkerId(1), .costs = kKnown},
                                     {.worker = WorkerId(2), .costs = kKnown}};
  DispatchQueue queue(Planned("planned_stealing", std::vector<uint64_t>(40, 10), workers));
  queue.Take({.worker = WorkerId(2)});
  queue.Take({.worker = WorkerId(1)});
  // Worker 2 stalls; long after its clients should have ended, no clients are reserved for it.
  EXPECT_FALSE(queue.Take({.worker = WorkerId(1), .now = 1e4}).clients.empty());
  for (double now = 1e4 + 10; !queue.empty(); now += 10)
    ASSERT_FALSE(queue.Take({.worker = WorkerId(1), .now = now}).clients.empty());
}

TEST(DispatchQueue, ClientsThatCameBackAreHandedOutFirst) {
  DispatchQueue queue(Planned("planned_stealing", std::vector<uint64_t>(2000, 10),
                              {{WorkerId(1), 1, kKnown}, {WorkerId(2), 1, kKnown}}));
  const Piece piece = queue.Take({.worker = WorkerId(1)});
  queue.PutBack(piece.clients[3]);
  EXPECT_EQ(queue.Take({.worker = WorkerId(2)}).clients.front().client, piece.clients[3].client);
}

}  // namespace
}  // namespace macaw::scheduler
