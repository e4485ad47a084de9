#include "server/engine/evaluation_board.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace macaw::server {
namespace {

TimePoint At(double seconds) { return TimePoint(FromSeconds(seconds)); }
constexpr WorkerId kAnna(1), kBert(2);

const std::vector<uint32_t> kTrainRows = {3, 0, 950, 1, 1};

EvaluationBoard Board() {
  return EvaluationBoard(Round(3), {}, {.chunk = 400, .central = true}, 1000, kTrainRows);
}

fleet::EvaluationResult Result(const fleet::EvaluationTask& task) {
  return {.task = task,
          .round = Round(3),
          .sums = {static_cast<double>(task.end - task.begin), 0.1 * task.begin}};
}

TEST(EvaluationBoard, CutsByTheConfigurationAndAddsInChunkOrder) {
  EvaluationBoard board = Board();
  FenceSource fences(1);
  const auto tasks = board.Take(kAnna, 10, At(5), fences);
  ASSERT_EQ(tasks.size(), 3u);
  EXPECT_EQ(tasks[2].end - tasks[2].begin, 200u);
  for (const size_t i : {2, 0, 1}) EXPECT_TRUE(board.Complete(kAnna, Result(tasks[i])));
  ASSERT_TRUE(board.done());
  EXPECT_THAT(board.Report().central, testing::ElementsAre(1000, (0.0 + 40.0) + 80.0));
}

TEST(EvaluationBoard, CountsAResultOnceAndOnlyFromItsHolder) {
  EvaluationBoard board = Board();
  FenceSource fences(1);
  const auto first = board.Take(kAnna, 1, At(5), fences);
  EXPECT_FALSE(board.Complete(kBert, Result(first[0])));
  EXPECT_EQ(board.Expire(At(6)), 1u);
  EXPECT_FALSE(board.Complete(kAnna, Result(first[0])));
  const auto again = board.Take(kBert, 1, At(9), fences);
  EXPECT_EQ(again[0].begin, first[0].begin);
  EXPECT_TRUE(board.Complete(kBert, Result(again[0])));
  EXPECT_FALSE(board.Complete(kBert, Result(again[0])));
}

TEST(EvaluationBoard, AsksEveryClientWhenTold) {
  EvaluationBoard board(Round(3), {}, {.central = false, .clients = true}, 1000, kTrainRows);
  FenceSource fences(1);
  for (const auto& task : board.Take(kAnna, 10, At(5), fences)) board.Complete(kAnna, Result(task));
  EXPECT_EQ(board.Report().clients.size(), 5u);
  EXPECT_TRUE(board.Report().central.empty());
  EXPECT_TRUE(board.Report().train.empty());
}

TEST(EvaluationBoard, CutsEveryClientsTrainingRowsAndAddsThemInTheirOrder) {
  EvaluationBoard board(Round(3), {}, {.chunk = 400, .central = false, .train = true}, 1000,
                        kTrainRows);
  FenceSource fences(1);
  const auto tasks = board.Take(kAnna, 10, At(5), fences);
  ASSERT_EQ(tasks.size(), 6u);  // 3, 400 + 400 + 150, 1, 1; the client without rows is not asked
  EXPECT_EQ(tasks[3].client, ClientId(2));
  EXPECT_EQ(tasks[3].begin, 800u);
  EXPECT_EQ(tasks[3].end, 950u);
  for (const size_t i : {5, 2, 0, 3, 1, 4}) EXPECT_TRUE(board.Complete(kAnna, Result(tasks[i])));
  ASSERT_TRUE(board.done());
  EXPECT_THAT(board.Report().train, testing::ElementsAre(955, 40.0 + 80.0));
  EXPECT_TRUE(board.Report().clients.empty());
}

}  // namespace
}  // namespace macaw::server
