#include "worker/work_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace macaw::worker {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Attempt WaitingAttempt(uint64_t client) { return {ClientId(client), Fence{1, client}}; }

TrainItem Waiting(const std::shared_ptr<const PhaseContext>& phase, uint64_t client) {
  const Attempt attempt = WaitingAttempt(client);
  return {phase, {.assignment = {.client = attempt.client, .fence = attempt.fence}}};
}

EvaluateItem WaitingTask(uint64_t counter) { return {nullptr, {.fence = Fence{1, counter}}}; }

std::vector<uint64_t> ClientsIn(const std::vector<WorkItem>& turn) {
  std::vector<uint64_t> clients;
  for (const WorkItem& item : turn)
    clients.push_back(std::get<TrainItem>(item).attempt().client.value);
  return clients;
}

const auto kPhase = std::make_shared<const PhaseContext>(PhaseContext{.id = 1});
const auto kOlder = std::make_shared<const PhaseContext>(PhaseContext{.id = 1, .staleness = 1});
const auto kArriving = std::make_shared<const PhaseContext>(PhaseContext{.id = 2, .arrives = true});

TEST(WorkQueue, GivesALaneItsShareAndNoMoreThanItTrainsAtOnce) {
  WorkQueue queue;
  for (uint64_t client = 0; client < 9; ++client) queue.Push(Waiting(kPhase, client));
  EXPECT_THAT(ClientsIn(queue.TakeTurn(/*idle_lanes=*/4, /*most=*/5)), ElementsAre(0, 1, 2));
  EXPECT_THAT(ClientsIn(queue.TakeTurn(/*idle_lanes=*/1, /*most=*/2)), ElementsAre(3, 4));
  EXPECT_EQ(queue.size(), 4u);
}

TEST(WorkQueue, ATurnHasClientsOfOneModelOrOneEvaluation) {
  WorkQueue queue;
  queue.Push(Waiting(kPhase, 0));
  queue.Push(Waiting(kPhase, 1));
  queue.Push(Waiting(kOlder, 2));
  queue.Push(WaitingTask(10));
  queue.Push(WaitingTask(11));
  queue.Push(Waiting(kPhase, 3));
  EXPECT_THAT(ClientsIn(queue.TakeTurn(1, 5)), ElementsAre(0, 1));
  EXPECT_THAT(ClientsIn(queue.TakeTurn(1, 5)), ElementsAre(2));
  const std::vector<WorkItem> turn = queue.TakeTurn(1, 5);
  ASSERT_EQ(turn.size(), 1u);
  EXPECT_EQ(std::get<EvaluateItem>(turn[0]).task.fence, (Fence{1, 10}));
}

TEST(WorkQueue, AClientWhoseRoundIsSaidLaterComesAlone) {
  WorkQueue queue;
  for (uint64_t client = 0; client < 3; ++client) queue.Push(Waiting(kArriving, client));
  EXPECT_THAT(ClientsIn(queue.TakeTurn(1, 5)), ElementsAre(0));
}

TEST(WorkQueue, RemovesWhatWaitsAndSaysWhetherItDid) {
  WorkQueue queue;
  queue.Push(Waiting(kPhase, 0));
  queue.Push(WaitingTask(10));
  queue.Push(Waiting(kPhase, 1));
  EXPECT_FALSE(queue.Remove(WaitingAttempt(2)));
  EXPECT_FALSE(queue.Remove({ClientId(0), Fence{1, 10}})) << "an evaluation is no attempt";
  EXPECT_TRUE(queue.Remove(WaitingAttempt(0)));
  EXPECT_THAT(queue.Clients(), ElementsAre(WaitingAttempt(1)));
  const Unbegun rest = queue.TakeAll();
  EXPECT_THAT(rest.attempts, ElementsAre(WaitingAttempt(1)));
  EXPECT_THAT(rest.tasks, ElementsAre(Fence{1, 10}));
  EXPECT_TRUE(queue.empty());
  EXPECT_THAT(queue.Clients(), IsEmpty());
}

}  // namespace
}  // namespace macaw::worker
