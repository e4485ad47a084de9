#include "server/engine/evaluation_board.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "tests/server/evaluation_boards.h"

namespace macaw::server {
namespace {

using fixtures::At;
using fixtures::Board;
using fixtures::Everything;
using fixtures::kAnna;
using fixtures::kBert;
using fixtures::kCentral;
using fixtures::kClients;
using fixtures::Result;
using fixtures::Take;

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
