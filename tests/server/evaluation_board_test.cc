#include "server/engine/evaluation_board.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

namespace macaw::server {
namespace {

TimePoint At(double seconds) { return TimePoint(FromSeconds(seconds)); }
constexpr WorkerId kAnna(1), kBert(2);

const std::vector<uint32_t> kTrainRows = {3, 0, 950, 1, 1};

// One node has the clients and the central test set.
Roster Everything() {
  Roster roster;
  roster.Add({.name = "w", .clients = kTrainRows.size(), .central_test_rows = 1000},
             {.rows = kTrainRows});
  roster.Begin();
  return roster;
}
constexpr EvaluationBoard::Queue kCentral = EvaluationBoard::Central();
constexpr EvaluationBoard::Queue kClients = EvaluationBoard::Of(HoldingId(0));

EvaluationBoard Board() {
  return EvaluationBoard(Round(3), {}, {.chunk = 400, .central = true}, false, Everything());
}

std::vector<fleet::EvaluationTask> Take(EvaluationBoard& board, WorkerId worker,
                                        EvaluationBoard::Queue queue, size_t count, double expires,
                                        FenceSource& fences) {
  std::vector<fleet::EvaluationTask> tasks;
  board.Take(worker, queue, count, At(expires), fences, tasks);
  return tasks;
}

fleet::EvaluationResult Result(const fleet::EvaluationTask& task) {
  return {.task = task,
          .round = Round(3),
          .sums = {static_cast<double>(task.end - task.begin), 0.1 * task.begin}};
}

TEST(EvaluationBoard, CutsByTheConfigurationAndAddsInChunkOrder) {
  EvaluationBoard board = Board();
  FenceSource fences(1);
  const auto tasks = Take(board, kAnna, kCentral, 10, 5, fences);
  ASSERT_EQ(tasks.size(), 3u);
  EXPECT_EQ(tasks[2].end - tasks[2].begin, 200u);
  for (const size_t i : {2, 0, 1}) EXPECT_TRUE(board.Complete(kAnna, Result(tasks[i])));
  ASSERT_TRUE(board.done());
  EXPECT_THAT(board.Report().central, testing::ElementsAre(1000, (0.0 + 40.0) + 80.0));
}

// As two groups of concept shift see it: no task is of both.
TEST(EvaluationBoard, TakesTheCentralTestSetOnceForEachGroup) {
  EvaluationBoard board(Round(3), {}, {.chunk = 400, .central = true}, false, Everything(), 0, {},
                        {}, /*groups=*/2);
  FenceSource fences(1);
  const auto tasks = Take(board, kAnna, kCentral, 10, 5, fences);
  ASSERT_EQ(tasks.size(), 6u);
  EXPECT_EQ(tasks[2].end, 1000u);
  EXPECT_EQ(tasks[3].begin, 1000u);
  EXPECT_EQ(tasks[5].end, 2000u);
  for (const auto& task : tasks) EXPECT_TRUE(board.Complete(kAnna, Result(task)));
  const EvaluationSums sums = board.Report();
  EXPECT_EQ(sums.central[0], 2000);
  ASSERT_EQ(sums.central_groups.size(), 2u);
  EXPECT_EQ(sums.central_groups[0][0], 1000);
  EXPECT_DOUBLE_EQ(sums.central_groups[0][1], 120);
  EXPECT_DOUBLE_EQ(sums.central_groups[1][1], 100 + 140 + 180);
}

// A backdoor's rows are counted apart, and are fewer than were asked for.
TEST(EvaluationBoard, TakesTheCentralTestSetWithATriggerToo) {
  EvaluationBoard board(Round(3), {}, {.chunk = 400, .central = true}, false, Everything(), 0, {},
                        {}, /*groups=*/2, /*backdoor=*/true);
  FenceSource fences(1);
  const auto tasks = Take(board, kAnna, kCentral, 20, 5, fences);
  ASSERT_EQ(tasks.size(), 9u);
  double rows = 0;
  for (size_t i = 0; i < tasks.size(); ++i) {
    const bool stamped = tasks[i].kind == fleet::EvaluationKind::kCentralBackdoor;
    EXPECT_EQ(stamped, i >= 6);
    fleet::EvaluationResult result = Result(tasks[i]);
    if (stamped) rows += result.sums[0] -= 30;
    EXPECT_TRUE(board.Complete(kAnna, result));
  }
  const EvaluationSums sums = board.Report();
  EXPECT_EQ(sums.central[0], 2000);
  EXPECT_EQ(sums.backdoor[0], rows);
  EXPECT_EQ(rows, 910);
  EvaluationBoard none(Round(3), {}, {.chunk = 400, .central = false}, false, Everything(), 0, {},
                       {}, 1, /*backdoor=*/true);
  EXPECT_EQ(none.tasks(), 0u);
}

TEST(EvaluationBoard, GivesUpABackdoorsRowsWithTheCentralOnes) {
  EvaluationBoard board(Round(3), {}, {.chunk = 400, .central = true}, false, Everything(), 0, {},
                        {}, 1, /*backdoor=*/true);
  FenceSource fences(1);
  const auto tasks = Take(board, kAnna, kCentral, 5, 5, fences);
  for (const auto& task : tasks) EXPECT_TRUE(board.Complete(kAnna, Result(task)));
  board.GiveUp(board.Waiting(kCentral));
  EXPECT_TRUE(board.Report().backdoor.empty());
}

TEST(EvaluationBoard, CountsTheClientsThatItDidWithout) {
  EvaluationBoard board(
      Round(3), {},
      {.chunk = 400, .central = false, .clients = true, .validation = true, .train = true}, false,
      Everything());
  FenceSource fences(1);
  const auto tasks = Take(board, kAnna, kClients, 3, 5, fences);
  ASSERT_EQ(tasks.size(), 3u);
  board.GiveUp(std::vector<uint64_t>{*board.NumberOf(kAnna, Result(tasks[0]))});
  for (const size_t i : {1, 2}) board.Complete(kAnna, Result(tasks[i]));
  board.GiveUp(board.Waiting(kClients));
  const EvaluationSums sums = board.Report();
  EXPECT_EQ(sums.missing[static_cast<size_t>(EvaluatedRows::kClients)], 3u);
  EXPECT_EQ(sums.missing[static_cast<size_t>(EvaluatedRows::kValidation)], 5u);
  EXPECT_EQ(sums.missing[static_cast<size_t>(EvaluatedRows::kGlobal)], 0u);
  EXPECT_EQ(sums.missing[static_cast<size_t>(EvaluatedRows::kTrain)], 4u) << "with training rows";
}

TEST(EvaluationBoard, LeavesTheCentralSetOutWhenAnyOfItIsGivenUp) {
  EvaluationBoard board = Board();
  FenceSource fences(1);
  const auto tasks = Take(board, kAnna, kCentral, 10, 5, fences);
  ASSERT_GT(tasks.size(), 1u);
  for (size_t i = 1; i < tasks.size(); ++i) board.Complete(kAnna, Result(tasks[i]));
  for (const auto& task : Take(board, kAnna, kClients, 100, 5, fences))
    board.Complete(kAnna, Result(task));
  const auto open = board.Unfinished();
  ASSERT_EQ(open.size(), 1u);
  EXPECT_EQ(open[0].second, kAnna);
  EXPECT_FALSE(board.done());
  board.GiveUp(std::vector<uint64_t>{open[0].first, 1'000'000});
  EXPECT_TRUE(board.done());
  EXPECT_FALSE(board.Complete(kAnna, Result(tasks[0]))) << "too late";
  const EvaluationSums sums = board.Report();
  EXPECT_TRUE(sums.central.empty());
  EXPECT_TRUE(sums.without_central);
  EXPECT_TRUE(sums.given_up.empty()) << "no client is concerned";
}

TEST(EvaluationBoard, CountsAResultOnceAndOnlyFromItsHolder) {
  EvaluationBoard board = Board();
  FenceSource fences(1);
  const auto first = Take(board, kAnna, kCentral, 1, 5, fences);
  EXPECT_FALSE(board.Complete(kBert, Result(first[0])));
  EXPECT_EQ(board.Expire(At(6)), 1u);
  EXPECT_FALSE(board.Complete(kAnna, Result(first[0])));
  const auto again = Take(board, kBert, kCentral, 1, 9, fences);
  EXPECT_EQ(again[0].begin, first[0].begin);
  EXPECT_TRUE(board.Complete(kBert, Result(again[0])));
  EXPECT_FALSE(board.Complete(kBert, Result(again[0])));
}

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

TEST(EvaluationBoard, LeasesFewTasksWhoseAnswersAreLarge) {
  const training::ClassCounts counts =
      training::ClassCounts::Of({.auc = true}, TaskKind::kClassification, 100);
  EvaluationConfig config{.chunk = 1000, .central = false, .train = true};
  Roster roster;
  const std::vector<uint32_t> rows(50, 1000);
  roster.Add({.name = "w", .clients = rows.size(), .central_test_rows = 0}, {.rows = rows});
  roster.Begin();
  EvaluationBoard board(Round(3), {}, config, false, roster, 0, counts);
  FenceSource fences(1);
  EXPECT_EQ(Take(board, kAnna, kClients, 100, 5, fences).size(), 2u);  // 500 kB each
  EXPECT_EQ(Take(board, kBert, kClients, 100, 5, fences).size(), 2u);
  EvaluationBoard plain(Round(3), {}, config, false, roster);
  EXPECT_EQ(Take(plain, kAnna, kClients, 100, 5, fences).size(), 50u);
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

// Anna has clients 0 and 2. Bert has client 1. Only Bert has the central test set.
TEST(EvaluationBoard, KeepsTasksForThoseWhoHaveTheRows) {
  Roster roster;
  const HoldingId annas =
      roster.Add({.name = "anna", .data_digest = DigestOf("a"), .clients = 2, .owner = true},
                 {.rows = {5, 5}, .names = {"0", "2"}});
  const HoldingId berts = roster.Add({.name = "bert",
                                      .data_digest = DigestOf("b"),
                                      .clients = 1,
                                      .owner = true,
                                      .central_test_rows = 30},
                                     {.rows = {5}, .names = {"1"}});
  roster.Begin();
  EvaluationBoard board(Round(3), {}, {.chunk = 400, .central = true, .clients = true}, false,
                        roster);
  FenceSource fences(1);
  const auto queue = [](HoldingId holding) { return EvaluationBoard::Of(holding); };
  EXPECT_EQ(board.waiting(kCentral), 1u);
  EXPECT_EQ(board.waiting(queue(annas)), 2u);
  EXPECT_EQ(board.waiting(queue(berts)), 1u);
  const auto hers = Take(board, kAnna, queue(annas), 10, 5, fences);
  ASSERT_EQ(hers.size(), 2u);
  EXPECT_EQ(hers[1].client, ClientId(2));
  EXPECT_EQ(hers[1].place, 1u);
  const auto his = Take(board, kBert, queue(berts), 10, 5, fences);
  ASSERT_EQ(his.size(), 1u);
  EXPECT_EQ(his[0].client, ClientId(1));
  EXPECT_EQ(his[0].place, 0u);
  EXPECT_EQ(board.DropWorker(kAnna), 2u);
  EXPECT_EQ(board.waiting(queue(annas)), 2u);
  EXPECT_EQ(board.waiting(queue(berts)), 0u);
}

// The central test set with the model of the round, and without clients 4 and 7.
EvaluationBoard BoardWithout(const fleet::Blob& four, const fleet::Blob& seven) {
  EvaluationBoard board = Board();
  board.AddWithout({{ClientId(4), four}, {ClientId(7), seven}}, {.chunk = 400, .central = true});
  return board;
}

TEST(EvaluationBoard, LeasesTasksOfOneModelAtATime) {
  const fleet::Blob four{.digest = DigestOf("four")}, seven{.digest = DigestOf("seven")};
  EvaluationBoard board = BoardWithout(four, seven);
  EXPECT_EQ(board.tasks(), 9u);
  EXPECT_EQ(board.model(1).digest, four.digest);
  EXPECT_EQ(board.model(2).digest, seven.digest);
  FenceSource fences(1);
  for (const size_t of : {0, 1, 2}) {
    ASSERT_EQ(board.NextModel(kCentral), of);
    std::vector<fleet::EvaluationTask> tasks;
    board.Take(kAnna, kCentral, 10, At(5), fences, tasks, of);
    ASSERT_EQ(tasks.size(), 3u) << "those of the next model stay";
    board.Take(kAnna, kCentral, 10, At(5), fences, tasks, of);
    ASSERT_EQ(tasks.size(), 3u);
    for (size_t i = 0; i < tasks.size(); ++i) {
      fleet::EvaluationResult result = Result(tasks[i]);
      result.sums[1] = static_cast<double>(100 * of + i);
      EXPECT_TRUE(board.Complete(kAnna, result));
    }
  }
  ASSERT_TRUE(board.done());
  EXPECT_EQ(board.NextModel(kCentral), std::nullopt);
  const EvaluationSums sums = board.Report();
  EXPECT_THAT(sums.central, testing::ElementsAre(1000, 0 + 1 + 2));
  ASSERT_EQ(sums.without.size(), 2u);
  EXPECT_EQ(sums.without[0].client, ClientId(4));
  EXPECT_THAT(sums.without[0].sums, testing::ElementsAre(1000, 303));
  EXPECT_EQ(sums.without[1].client, ClientId(7));
  EXPECT_THAT(sums.without[1].sums, testing::ElementsAre(1000, 603));
}

// evaluation.unlearn: client 4 without this round, and without all of them.
TEST(EvaluationBoard, TellsModelsWithoutAClientsRoundFromThoseWithoutAllOfThem) {
  using Of = ModelWithout::Of;
  EvaluationBoard board = Board();
  board.AddWithout({{ClientId(4), {.digest = DigestOf("round")}, Of::kRound},
                    {ClientId(4), {.digest = DigestOf("run")}, Of::kRun}},
                   {.chunk = 400, .central = true});
  FenceSource fences(1);
  for (const size_t of : {0, 1, 2}) {
    std::vector<fleet::EvaluationTask> tasks;
    board.Take(kAnna, kCentral, 10, At(5), fences, tasks, of);
    for (const fleet::EvaluationTask& task : tasks) {
      fleet::EvaluationResult result = Result(task);
      result.sums[1] = static_cast<double>(of);
      EXPECT_TRUE(board.Complete(kAnna, result));
    }
  }
  const EvaluationSums sums = board.Report();
  ASSERT_EQ(sums.without.size(), 1u);
  EXPECT_THAT(sums.without[0].sums, testing::ElementsAre(1000, 3));
  ASSERT_EQ(sums.unlearned.size(), 1u);
  EXPECT_EQ(sums.unlearned[0].client, ClientId(4));
  EXPECT_THAT(sums.unlearned[0].sums, testing::ElementsAre(1000, 6));
}

TEST(EvaluationBoard, TestsNoModelWithoutAClientWhereTheTestSetIsNotEvaluated) {
  EvaluationBoard board = Board();
  const uint64_t before = board.tasks();
  board.AddWithout({{ClientId(4), {.digest = DigestOf("four")}}}, {.central = false});
  EXPECT_EQ(board.tasks(), before);
}

// A worker that is lost gives its tasks back, and the model that it had is the next one again.
TEST(EvaluationBoard, SaysNothingOfAModelThatWasGivenUp) {
  EvaluationBoard board = BoardWithout({.digest = DigestOf("four")}, {.digest = DigestOf("seven")});
  FenceSource fences(1);
  std::vector<fleet::EvaluationTask> first, second, third;
  board.Take(kAnna, kCentral, 10, At(5), fences, first);
  board.Take(kBert, kCentral, 10, At(5), fences, second, 1);
  EXPECT_EQ(board.NextModel(kCentral), 2u);
  EXPECT_EQ(board.DropWorker(kAnna), 3u);
  EXPECT_EQ(board.NextModel(kCentral), 0u);
  first.clear();
  board.Take(kBert, kCentral, 10, At(5), fences, first);
  board.Take(kBert, kCentral, 10, At(5), fences, third, 2);
  for (const auto* tasks : {&first, &second, &third}) {
    for (size_t i = 0; i + 1 < tasks->size(); ++i)
      EXPECT_TRUE(board.Complete(kBert, Result((*tasks)[i])));
  }
  board.GiveUp(std::vector<uint64_t>{8});  // the last one of client 7
  for (const auto* tasks : {&first, &second})
    EXPECT_TRUE(board.Complete(kBert, Result(tasks->back())));
  ASSERT_TRUE(board.done());
  const EvaluationSums sums = board.Report();
  EXPECT_FALSE(sums.without_central);
  EXPECT_EQ(sums.central.size(), 2u);
  ASSERT_EQ(sums.without.size(), 1u);
  EXPECT_EQ(sums.without[0].client, ClientId(4));
}

}  // namespace
}  // namespace macaw::server
