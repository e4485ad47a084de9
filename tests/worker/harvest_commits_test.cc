#include "worker/harvest_commits.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

namespace macaw::worker {
namespace {

// A server takes back clients that wait in a node's queue, and the node's evaluation is due.
TEST(HarvestCommits, SendNoPartThatNamesNobody) {
  Harvest harvest{.phase = std::make_shared<const PhaseContext>()};
  harvest.evaluations.push_back({.round = Round(1)});
  HarvestCommits commits(std::move(harvest), aggregation::SumForm::kCompact, /*knows_unsaid=*/true);
  const auto evaluated = commits.Next();
  ASSERT_TRUE(evaluated.ok()) << evaluated.status();
  EXPECT_FALSE(evaluated->part.has_value());
  EXPECT_EQ(evaluated->evaluations.size(), 1u);
  EXPECT_FALSE(commits.more());
}

TEST(HarvestCommits, SayWhoWasLeftOutAlsoWhereNobodyIsIncluded) {
  Harvest harvest{.phase = std::make_shared<const PhaseContext>()};
  harvest.left_out.push_back({.attempt = {ClientId(7), {1, 1}}, .message = "no rows"});
  HarvestCommits commits(std::move(harvest), aggregation::SumForm::kCompact, true);
  const auto left_out = commits.Next();
  ASSERT_TRUE(left_out.ok()) << left_out.status();
  ASSERT_TRUE(left_out->part.has_value());
  EXPECT_EQ(left_out->part->left_out.size(), 1u);
  EXPECT_FALSE(commits.more());
}

}  // namespace
}  // namespace macaw::worker
