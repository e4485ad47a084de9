#include "training/batch_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace macaw::training {
namespace {

using testing::ElementsAre;

using Batches = std::vector<std::vector<uint32_t>>;

Batches Walk(uint64_t rows, const LocalConfig& local, const StreamKey& key = {.seed = 1},
             uint32_t stage = 0) {
  BatchOrder order;
  order.Start(key, stage, rows, local);
  Batches batches;
  for (auto next = order.Next(); !next.empty(); next = order.Next()) {
    batches.emplace_back(next.begin(), next.end());
  }
  EXPECT_EQ(batches.size(), order.steps());
  return batches;
}

std::vector<uint32_t> Joined(const Batches& batches, size_t begin, size_t end) {
  std::vector<uint32_t> all;
  for (size_t i = begin; i < end; ++i) all.insert(all.end(), batches[i].begin(), batches[i].end());
  return all;
}

TEST(BatchOrder, JoinsALastBatchOfOneWhereAsked) {
  const auto sizes = [](uint64_t rows, const LocalConfig& local) {
    BatchOrder order;
    order.Start({.seed = 1}, 0, rows, local, BatchOrder::Single::kJoin);
    std::vector<size_t> all;
    std::vector<uint32_t> seen;
    for (auto next = order.Next(); !next.empty(); next = order.Next()) {
      all.push_back(next.size());
      seen.insert(seen.end(), next.begin(), next.end());
    }
    EXPECT_EQ(all.size(), order.steps());
    std::sort(seen.begin(), seen.end());
    seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
    EXPECT_EQ(seen.size(), local.drop_last ? rows / local.batch_size * local.batch_size : rows);
    return all;
  };
  LocalConfig local;
  local.batch_size = 4;
  EXPECT_THAT(sizes(9, local), ElementsAre(4, 5));
  EXPECT_THAT(sizes(10, local), ElementsAre(4, 4, 2));
  EXPECT_THAT(sizes(8, local), ElementsAre(4, 4));
  EXPECT_THAT(sizes(5, local), ElementsAre(5));
  EXPECT_THAT(sizes(1, local), ElementsAre(1));  // there is nothing to join
  local.epochs = 2;
  EXPECT_THAT(sizes(9, local), ElementsAre(4, 5, 4, 5));
  local.steps = 3;
  EXPECT_THAT(sizes(9, local), ElementsAre(4, 5, 4));
  local = {};
  local.batch_size = 1;
  EXPECT_THAT(sizes(3, local), ElementsAre(1, 1, 1));
  local.batch_size = 4;
  local.drop_last = true;
  EXPECT_THAT(sizes(9, local), ElementsAre(4, 4));
}

TEST(BatchOrder, KeepsStoredOrderWhenNotShuffled) {
  EXPECT_THAT(Walk(5, {.batch_size = 2, .shuffle = false}),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3), ElementsAre(4)));
  EXPECT_THAT(Walk(5, {.batch_size = 2, .drop_last = true, .shuffle = false}),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  EXPECT_THAT(Walk(3, {.epochs = 2, .batch_size = 0, .shuffle = false}),
              ElementsAre(ElementsAre(0, 1, 2), ElementsAre(0, 1, 2)));
}

TEST(BatchOrder, SeesEveryRowOnceAnEpochInAnotherOrder) {
  const Batches batches = Walk(25, {.epochs = 2, .batch_size = 10});
  ASSERT_EQ(batches.size(), 6u);
  std::vector<uint32_t> first = Joined(batches, 0, 3), second = Joined(batches, 3, 6);
  EXPECT_NE(first, second);
  std::vector<uint32_t> all(25);
  std::iota(all.begin(), all.end(), 0u);
  EXPECT_NE(first, all);
  std::sort(first.begin(), first.end());
  std::sort(second.begin(), second.end());
  EXPECT_EQ(first, all);
  EXPECT_EQ(second, all);
}

TEST(BatchOrder, RepeatsEpochsForAGivenNumberOfSteps) {
  const Batches steps = Walk(5, {.steps = 7, .batch_size = 2});
  const Batches epochs = Walk(5, {.epochs = 3, .batch_size = 2});
  ASSERT_EQ(steps.size(), 7u);
  EXPECT_TRUE(std::equal(steps.begin(), steps.end(), epochs.begin()));
}

TEST(BatchOrder, IsTheShuffleOfItsStream) {
  const StreamKey key{.seed = 3, .round = Round(2), .phase = Phase(1), .client = ClientId(9)};
  StreamKey named = key;
  named.purpose = Purpose::kShuffle;
  named.extra = (uint64_t{4} << 32) | 1;  // stage 4, epoch 1
  std::vector<uint32_t> expected = {0, 1, 2, 3, 4, 5, 6, 7};
  RandomStream(named).Shuffle(std::span(expected));
  EXPECT_EQ(Walk(8, {.epochs = 2, .batch_size = 0}, key, 4)[1], expected);
}

TEST(BatchOrder, DependsOnRoundClientAndStage) {
  const LocalConfig local{.batch_size = 0};
  const Batches base = Walk(30, local);
  EXPECT_NE(base, Walk(30, local, {.seed = 2}));
  EXPECT_NE(base, Walk(30, local, {.seed = 1, .round = Round(1)}));
  EXPECT_NE(base, Walk(30, local, {.seed = 1, .client = ClientId(1)}));
  EXPECT_NE(base, Walk(30, local, {.seed = 1}, 1));
  EXPECT_EQ(base, Walk(30, local));
}

TEST(BatchOrder, HasNoStepsWithoutABatch) {
  EXPECT_TRUE(Walk(0, {.batch_size = 0}).empty());
  EXPECT_TRUE(Walk(0, {.steps = 5, .batch_size = 4}).empty());
  EXPECT_TRUE(Walk(3, {.steps = 5, .batch_size = 4, .drop_last = true}).empty());
}

}  // namespace
}  // namespace macaw::training
