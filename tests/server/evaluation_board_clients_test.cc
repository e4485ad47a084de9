// Which clients an evaluation asks, with which models, and how their rows and classes add up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

#include "tests/server/evaluation_boards.h"

namespace macaw::server {
namespace {

using fixtures::Everything;
using fixtures::kAnna;
using fixtures::kCentral;
using fixtures::kClients;
using fixtures::kTrainRows;
using fixtures::Result;
using fixtures::Take;

TEST(EvaluationBoard, AsksForTheGlobalModelWhereClientsHaveTheirOwn) {
  for (const bool personal : {false, true}) {
    EvaluationBoard board(
        Round(3), {},
        {.chunk = 400, .central = false, .clients = true, .validation = true, .train = true},
        personal, Everything());
    FenceSource fences(1);
    for (const auto& task : Take(board, kAnna, kClients, 100, 5, fences))
      board.Complete(kAnna, Result(task));
    ASSERT_TRUE(board.done());
    const EvaluationSums sums = board.Report();
    EXPECT_EQ(sums.Of(EvaluatedRows::kClients).size(), 5u);
    EXPECT_EQ(sums.Of(EvaluatedRows::kGlobal).size(), personal ? 5u : 0u);
    EXPECT_EQ(sums.Of(EvaluatedRows::kValidation).size(), 5u);
  }
}

TEST(EvaluationBoard, AsksForFineTunedClients) {
  EvaluationConfig config{.central = false, .clients = true};
  config.fine_tune.steps = 5;
  EvaluationBoard board(Round(3), {}, config, /*personal_models=*/false, Everything());
  FenceSource fences(1);
  for (const auto& task : Take(board, kAnna, kClients, 100, 5, fences))
    board.Complete(kAnna, Result(task));
  ASSERT_TRUE(board.done());
  EXPECT_EQ(board.Report().Of(EvaluatedRows::kClients).size(), 5u);
  EXPECT_EQ(board.Report().Of(EvaluatedRows::kTuned).size(), 5u);
}

// Client 1 has no training rows.
TEST(EvaluationBoard, KeepsClientsThatNeverTrainApart) {
  EvaluationConfig config{
      .chunk = 400, .central = false, .clients = true, .validation = true, .train = true};
  config.fine_tune.steps = 5;
  config.heldout = true;
  EvaluationBoard board(Round(3), {}, config, /*personal_models=*/false, Everything());
  FenceSource fences(1);
  for (const auto& task : Take(board, kAnna, kClients, 100, 5, fences))
    board.Complete(kAnna, Result(task));
  ASSERT_TRUE(board.done());
  const EvaluationSums sums = board.Report();
  for (const EvaluatedRows others :
       {EvaluatedRows::kClients, EvaluatedRows::kTuned, EvaluatedRows::kValidation}) {
    EXPECT_EQ(sums.Of(others).size(), 4u);
    for (const auto& client : sums.Of(others)) EXPECT_NE(client.client, ClientId(1));
  }
  EXPECT_TRUE(sums.Of(EvaluatedRows::kGlobal).empty());
  for (const EvaluatedRows heldout : {EvaluatedRows::kHeldout, EvaluatedRows::kHeldoutTuned}) {
    ASSERT_EQ(sums.Of(heldout).size(), 1u);
    EXPECT_EQ(sums.Of(heldout).front().client, ClientId(1));
  }
}

TEST(EvaluationBoard, SamplesThoseWhoTrainAndThoseWhoNeverDo) {
  EvaluationConfig config{.central = false, .clients = true, .sample = 3};
  config.heldout = true;
  EvaluationBoard board(Round(3), {}, config, /*personal_models=*/false, Everything(), 7);
  EXPECT_EQ(board.tasks(), 4u) << "3 of 4, and all 1";
}

TEST(EvaluationBoard, DrawsASampleOfTheClientsForEachRound) {
  const auto clients_of = [](uint32_t round, uint64_t sample, uint64_t seed) {
    EvaluationBoard board(Round(round), {},
                          {.central = false, .clients = true, .validation = true, .sample = sample},
                          /*personal_models=*/true, Everything(), seed);
    FenceSource fences(1);
    std::vector<std::vector<uint64_t>> of_kind(3);
    for (const auto& task : Take(board, kAnna, kClients, 100, 5, fences)) {
      const size_t kind = task.kind == fleet::EvaluationKind::kClientTest         ? 0
                          : task.kind == fleet::EvaluationKind::kClientTestGlobal ? 1
                                                                                  : 2;
      of_kind[kind].push_back(task.client.value);
    }
    EXPECT_EQ(of_kind[0], of_kind[1]);
    EXPECT_EQ(of_kind[0], of_kind[2]);
    EXPECT_TRUE(std::ranges::is_sorted(of_kind[0]));
    return of_kind[0];
  };
  EXPECT_EQ(clients_of(1, 2, 7).size(), 2u);
  EXPECT_EQ(clients_of(1, 2, 7), clients_of(1, 2, 7));
  EXPECT_EQ(clients_of(1, 9, 7).size(), kTrainRows.size());
  std::set<std::vector<uint64_t>> seen;
  for (uint32_t round = 1; round <= 20; ++round) seen.insert(clients_of(round, 2, 7));
  EXPECT_GT(seen.size(), 3u) << "of 10 pairs";
}

// Clients 0 and 3 have test rows, client 2 validation rows. Client 1 has nothing.
TEST(EvaluationBoard, DrawsASampleAmongThoseWhoHaveWhatIsEvaluated) {
  Roster roster;
  roster.Add({.name = "w", .clients = 4},
             {.rows = {3, 5, 950, 1}, .test_rows = {2, 0, 0, 4}, .validation_rows = {0, 0, 7, 0}});
  roster.Begin();
  const auto clients_of = [&](EvaluationConfig config) {
    config.central = false;
    std::set<uint64_t> seen;
    for (uint32_t round = 1; round <= 30; ++round) {
      EvaluationBoard board(Round(round), {}, config, /*personal_models=*/false, roster, 7);
      FenceSource fences(1);
      for (const auto& task : Take(board, kAnna, kClients, 100, 5, fences))
        seen.insert(task.client.value);
    }
    return seen;
  };
  EXPECT_EQ(clients_of({.clients = true, .sample = 1}), (std::set<uint64_t>{0, 3}));
  EXPECT_EQ(clients_of({.clients = true, .validation = true, .sample = 1}),
            (std::set<uint64_t>{0, 2, 3}));
  EXPECT_EQ(clients_of({.clients = true}).size(), 4u) << "without a sample everybody is asked";
}

TEST(EvaluationBoard, LeavesHostileClientsOut) {
  const HostileClients hostile({.kind = "sign-flip", .fraction = 0.4}, kTrainRows.size(), 7);
  ASSERT_EQ(hostile.count(), 2u);
  for (const uint64_t sample : {0, 2, 3, 9}) {
    EvaluationBoard board(Round(1), {},
                          {.central = false, .clients = true, .sample = sample, .train = true},
                          /*personal_models=*/false, Everything(), 7, {}, hostile);
    FenceSource fences(1);
    std::set<uint64_t> tested, trained;
    for (const auto& task : Take(board, kAnna, kClients, 100, 5, fences)) {
      const bool test = task.kind == fleet::EvaluationKind::kClientTest;
      (test ? tested : trained).insert(task.client.value);
      EXPECT_FALSE(test && hostile.Contains(task.client)) << sample;
    }
    EXPECT_EQ(tested.size(), sample == 2 ? 2u : 3u) << sample;
    EXPECT_EQ(trained.size(), 4u) << "the objective is of everybody with rows";
  }
}

TEST(EvaluationBoard, NamesAClientThatIsGivenUpOnce) {
  EvaluationBoard board(
      Round(3), {},
      {.chunk = 400, .central = false, .clients = true, .validation = true, .train = true},
      /*personal_models=*/true, Everything());
  board.GiveUp(board.Waiting(kClients));
  ASSERT_TRUE(board.done());
  EXPECT_EQ(board.Report().given_up.size(), 5u);
}

TEST(EvaluationBoard, AsksEveryClientWhenTold) {
  EvaluationBoard board(Round(3), {}, {.central = false, .clients = true}, false, Everything());
  FenceSource fences(1);
  for (const auto& task : Take(board, kAnna, kClients, 10, 5, fences))
    board.Complete(kAnna, Result(task));
  EXPECT_EQ(board.Report().Of(EvaluatedRows::kClients).size(), 5u);
  EXPECT_TRUE(board.Report().central.empty());
  EXPECT_TRUE(board.Report().train.empty());
}

TEST(EvaluationBoard, CutsEveryClientsTrainingRowsAndAddsThemInTheirOrder) {
  EvaluationBoard board(Round(3), {}, {.chunk = 400, .central = false, .train = true}, false,
                        Everything());
  FenceSource fences(1);
  const auto tasks = Take(board, kAnna, kClients, 10, 5, fences);
  ASSERT_EQ(tasks.size(), 6u);  // 3, 400 + 400 + 150, 1, 1; none for the client without rows
  EXPECT_EQ(tasks[3].client, ClientId(2));
  EXPECT_EQ(tasks[3].begin, 800u);
  EXPECT_EQ(tasks[3].end, 950u);
  for (const size_t i : {5, 2, 0, 3, 1, 4}) EXPECT_TRUE(board.Complete(kAnna, Result(tasks[i])));
  ASSERT_TRUE(board.done());
  EXPECT_THAT(board.Report().train, testing::ElementsAre(955, 40.0 + 80.0));
  EXPECT_TRUE(board.Report().Of(EvaluatedRows::kClients).empty());
}

// One client's word must not make the loss over all training rows infinite.
TEST(EvaluationBoard, LeavesOutTheTrainingRowsOfAFewClientsWithoutAFiniteLoss) {
  for (const bool most : {false, true}) {
    EvaluationBoard board(Round(3), {}, {.chunk = 400, .central = false, .train = true}, false,
                          Everything());
    FenceSource fences(1);
    for (const auto& task : Take(board, kAnna, kClients, 10, 5, fences)) {
      fleet::EvaluationResult result = Result(task);
      if (task.client == ClientId(2) && task.begin == 400) result.sums[1] = INFINITY;
      if (most && task.client == ClientId(3)) result.sums[1] = std::nan("");
      EXPECT_TRUE(board.Complete(kAnna, result));
    }
    const EvaluationSums sums = board.Report();
    constexpr auto kTrain = static_cast<size_t>(EvaluatedRows::kTrain);
    if (most) {  // two of four clients: the model has diverged
      EXPECT_EQ(sums.train[0], 955);
      EXPECT_FALSE(std::isfinite(sums.train[1]));
      EXPECT_EQ(sums.missing[kTrain], 0u);
    } else {
      EXPECT_THAT(sums.train, testing::ElementsAre(5, 0));
      EXPECT_EQ(sums.missing[kTrain], 1u);
      EXPECT_EQ(sums.uncounted[kTrain], 950);
    }
  }
}

const training::ClassCounts kTwoClasses = training::ClassCounts::Of(
    {.balanced_accuracy = true, .f1 = true}, TaskKind::kClassification, 2);

TEST(EvaluationBoard, AddsCountsOfClassesInAnyOrder) {
  const EvaluationConfig config{.chunk = 400, .central = true, .clients = true};
  EvaluationBoard board(Round(3), {}, config, false, Everything(), 0, kTwoClasses);
  FenceSource fences(1);
  for (const auto& task : Take(board, kAnna, kCentral, 10, 5, fences)) {
    fleet::EvaluationResult result = Result(task);
    result.counted = {0, 3};
    result.counts = {100, static_cast<uint32_t>(task.end - task.begin - 100)};
    board.Complete(kAnna, result);
  }
  for (const auto& task : Take(board, kAnna, kClients, 100, 5, fences)) {
    fleet::EvaluationResult result = Result(task);
    result.sums = {4, 1};
    if (task.client == ClientId(2)) result.counted = {1, 3}, result.counts = {1, 3};
    board.Complete(kAnna, result);
  }
  ASSERT_TRUE(board.done());
  const EvaluationSums sums = board.Report();
  const training::SparseCounts& central = sums.counts[size_t{0}];
  EXPECT_THAT(central.at, testing::ElementsAre(0, 3));
  EXPECT_THAT(central.count, testing::ElementsAre(300, 700));
  EXPECT_EQ(sums.Of(EvaluatedRows::kClients)[2].values[0], 0.5);  // recalls 0 and 1
  EXPECT_TRUE(std::isnan(sums.Of(EvaluatedRows::kClients)[3].values[0])) << "not counted";
}

// Of clients 0 and 1 in one group and 2 in another, which chose the second of two models; their
// training rows and the global model at their test rows count in no group.
TEST(EvaluationBoard, AddsCountsOfClassesByGroupAndByModel) {
  const EvaluationConfig config{.chunk = 1000, .central = false, .clients = true, .train = true};
  Roster roster;
  roster.Add({.name = "w", .clients = 3},
             {.rows = {3, 3, 3}, .names = {"a0", "a1", "b0"}, .test_rows = {2, 2, 2}});
  roster.Begin({}, *NamedGroups::Parse({"a=a*", "b=b*"}));
  EvaluationBoard board(Round(3), {}, config, /*personal_models=*/true, roster, 0, kTwoClasses, {},
                        1, false, /*models=*/2);
  FenceSource fences(1);
  for (const auto& task : Take(board, kAnna, kClients, 100, 5, fences)) {
    fleet::EvaluationResult result = Result(task);
    const bool second = task.client == ClientId(2);
    result.sums = {2, 1};
    result.choice = second ? 1 : 0;
    result.counted = {0, second ? 3u : 1u};
    result.counts = {1, 1};
    board.Complete(kAnna, result);
  }
  const EvaluationSums sums = board.Report();
  const auto expect = [](const training::SparseCounts& counts, std::vector<uint32_t> at,
                         double count) {
    EXPECT_EQ(counts.at, at);
    EXPECT_THAT(counts.count, testing::ElementsAre(count, count));
  };
  ASSERT_EQ(sums.group_counts.size(), 2u);
  expect(sums.group_counts[0], {0, 1}, 2);
  expect(sums.group_counts[1], {0, 3}, 1);
  ASSERT_EQ(sums.model_counts.size(), 2u);
  expect(sums.model_counts[0], {0, 1}, 2);
  expect(sums.model_counts[1], {0, 3}, 1);
}

}  // namespace
}  // namespace macaw::server
