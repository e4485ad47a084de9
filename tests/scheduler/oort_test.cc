// Oort by hand. With cut_off = 1 the clients with the best scores are drawn, without chance.
#include "scheduler/oort.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "tests/scheduler/learning.h"

namespace macaw::scheduler {
namespace {

using fixtures::Learning;
using ::testing::ElementsAre;

// Never explores, and clips nothing.
CohortConfig Exploiting(uint64_t size) {
  CohortConfig config{.size = size, .sampling = "oort", .seed = 4};
  config.oort.exploration = config.oort.exploration_min = 0;
  config.oort.clip = config.oort.cut_off = 1;
  return config;
}

// U = 50, 100, 75, 80.
const std::vector<uint32_t> kRows = {10, 100, 50, 20};
constexpr double kLosses[] = {5, 1, 1.5, 4};

TEST(Oort, UtilityIsRowsTimesLoss) {
  Learning clients(Exploiting(2), kRows);
  clients.Close(1, {{0, kLosses[0]}, {1, kLosses[1]}, {2, kLosses[2]}, {3, kLosses[3]}});
  EXPECT_THAT(clients.Draw(2), ElementsAre(1, 3)) << "the largest losses are those of 0 and 3";
}

// In round 10, least = 49.95 and range = 50.05: the first terms are 0.001, 1, 0.5005 and 0.6004.
// Clients 0 and 2 were asked in round 1, √(0.1 · ln 10 / 1) = 0.480; 1 and 3 in round 9, 0.160.
void CloseNineRounds(Learning& clients) {
  clients.Close(1, {{0, kLosses[0]}, {2, kLosses[2]}});
  for (uint32_t round = 2; round <= 8; ++round) clients.Close(round, {});
  clients.Close(9, {{1, kLosses[1]}, {3, kLosses[3]}});
}

TEST(Oort, AClientThatWasAskedLongAgoScoresHigher) {
  Learning clients(Exploiting(2), kRows);
  CloseNineRounds(clients);
  EXPECT_THAT(clients.Draw(10), ElementsAre(1, 2)) << "0.481, 1.160, 0.980, 0.760";
}

// The utilities 50, 75, 80, 100 are clipped at 80, which is number ⌊4 · 0.5⌋ from 0.
TEST(Oort, ClipsTheLargestUtilities) {
  for (const double clip : {1.0, 0.5}) {
    CohortConfig config = Exploiting(1);
    config.oort.clip = clip;
    Learning clients(config, kRows);
    CloseNineRounds(clients);
    EXPECT_THAT(clients.Draw(10), ElementsAre(clip == 1 ? 1 : 2)) << "0.760 instead of 1.160";
  }
}

// U = 10, 12, 15, 16, so the first terms are 0.002, 0.334, 0.834 and 1, and the others 0.263. T is
// number ⌊4 · 0.5⌋ of 1, 2, 4 and 8 seconds: client 3 scores 1.263 · (4/8)² = 0.316.
TEST(Oort, PenalizesOnlyClientsThatTakeLongerThanPreferred) {
  CohortConfig config = Exploiting(2);
  config.oort.round_threshold = 0.5;
  Learning clients(config, {10, 10, 10, 10});
  clients.Close(1, {{0, 1.0, 1}, {1, 1.2, 2}, {2, 1.5, 4}, {3, 1.6, 8}});
  EXPECT_THAT(clients.Draw(2), ElementsAre(1, 2));
  config.oort.round_threshold = 1;
  Learning patient(config, {10, 10, 10, 10});
  patient.Close(1, {{0, 1.0, 1}, {1, 1.2, 2}, {2, 1.5, 4}, {3, 1.6, 8}});
  EXPECT_THAT(patient.Draw(2), ElementsAre(2, 3));
  Learning untimed(Exploiting(2), {10, 10, 10, 10});
  untimed.Close(1, {{0, 1.0}, {1, 1.2}, {2, 1.5}, {3, 1.6}});
  EXPECT_THAT(untimed.Draw(2), ElementsAre(2, 3));
}

// ε is 0.25 in round 2: of 8 clients 6 are known ones.
TEST(Oort, SharesARoundBetweenKnownAndNewClients) {
  CohortConfig config{.size = 8, .sampling = "oort", .seed = 4};
  config.oort.exploration = 1;
  config.oort.exploration_decay = 0.5;
  config.oort.exploration_min = 0.1;
  Learning clients(config, std::vector<uint32_t>(100, 5));
  const std::vector<uint64_t> first = clients.Draw(1);
  EXPECT_EQ(first.size(), 8u);
  std::vector<Learning::Told> told;
  for (const uint64_t client : first) told.push_back({client, 1.0 + 0.1 * client});
  clients.Close(1, told);
  const std::vector<uint64_t> second = clients.Draw(2);
  EXPECT_EQ(second.size(), 8u);
  EXPECT_EQ(std::ranges::count_if(
                second, [&](uint64_t id) { return std::ranges::binary_search(first, id); }),
            6);
  EXPECT_EQ(clients.Draw(2), second);
  EXPECT_NE(clients.Draw(3), second);
}

TEST(Oort, FillsUpFromTheOtherKind) {
  CohortConfig config{.size = 3, .sampling = "oort"};
  config.oort.exploration = config.oort.exploration_min = 0;
  config.oort.exploration_decay = 1;
  Learning clients(config, {1, 1, 1, 1});
  clients.Close(1, {{1, 2.0}});
  const std::vector<uint64_t> drawn = clients.Draw(2);
  EXPECT_EQ(drawn.size(), 3u);
  EXPECT_TRUE(std::ranges::binary_search(drawn, 1u)) << "two are new";
  config.oort.exploration = config.oort.exploration_min = 1;
  Learning curious(config, {1, 1, 1, 1});
  curious.Close(1, {{0, 1.0}, {1, 2.0}, {2, 3.0}});
  const std::vector<uint64_t> all = curious.Draw(2);
  EXPECT_EQ(all.size(), 3u);
  EXPECT_TRUE(std::ranges::binary_search(all, 3u)) << "one is new";
}

TEST(Oort, PrefersFastClientsAmongTheNewOnes) {
  CohortConfig config{.size = 1, .sampling = "oort"};
  config.oort.sample_window = 10;
  Learning clients(config, std::vector<uint32_t>(10, 3));
  std::set<uint64_t> without;
  for (uint32_t round = 1; round <= 20; ++round) {
    Moment moment{Round(round)};
    without.insert(clients.Draw(moment).front());
    moment.seconds_of = [](const CohortEntry& entry) {
      return entry.client == ClientId(6) ? 1e-6 : 1e6;
    };
    EXPECT_THAT(clients.Draw(moment), ElementsAre(6));
  }
  EXPECT_GT(without.size(), 3u);
}

TEST(Oort, LeavesOutClientsThatCountedOftenButNotTooMany) {
  CohortConfig config = Exploiting(1);
  config.oort.blacklist_rounds = 1;
  config.oort.blacklist_share = 0.5;
  Learning clients(config, {1, 1, 1, 1});
  clients.Close(1, {{0, 1.0}, {1, 9.0}, {2, 2.0}, {3, 8.0}});
  EXPECT_THAT(clients.Draw(2), ElementsAre(1));
  clients.Close(2, {{1, 9.0}});
  EXPECT_THAT(clients.Draw(3), ElementsAre(3)) << "1 has counted twice";
  clients.Close(3, {{0, 1.0}, {2, 2.0}, {3, 8.0}});
  EXPECT_THAT(clients.Draw(4), ElementsAre(3)) << "of four, two at most, by their ids: 0 and 1";
}

TEST(Oort, AClientThatNeverAnswersIsNeitherNewNorGood) {
  Learning clients(Exploiting(1), {10, 10, 10});
  clients.Close(1, {{0, 1.0}, {.client = 1, .left_out = true}, {2, 1.5}});
  EXPECT_THAT(clients.Draw(2), ElementsAre(2));
  CohortConfig config = Exploiting(1);
  config.oort.exploration = config.oort.exploration_min = 1;
  Learning curious(config, {10, 10, 10});
  curious.Close(1, {{.client = 1, .left_out = true}, {.client = 2, .left_out = true}});
  EXPECT_THAT(curious.Draw(2), ElementsAre(0));
}

TEST(Oort, DrawsOnlyClientsWithRows) {
  CohortConfig config{.size = 3, .sampling = "oort"};
  std::vector<uint32_t> rows(20, 2);
  for (size_t client = 0; client < rows.size(); client += 2) rows[client] = 0;
  Learning clients(config, rows);
  for (uint32_t round = 1; round <= 30; ++round) {
    std::vector<Learning::Told> told;
    for (const uint64_t client : clients.Draw(round)) {
      EXPECT_EQ(client % 2, 1u);
      told.push_back({client, 1.0});
    }
    EXPECT_EQ(told.size(), 3u);
    clients.Close(round, told);
  }
  EXPECT_EQ(clients.feedback().clients().size(), 10u) << "all were found";
}

}  // namespace
}  // namespace macaw::scheduler
