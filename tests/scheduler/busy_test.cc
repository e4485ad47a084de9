#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/random.h"
#include "scheduler/cohort.h"
#include "scheduler/trainable.h"
#include "tests/scheduler/surprise.h"

// Cohorts of rounds that do not wait for each other: clients that still train cannot be drawn
// (Moment::busy), and at most so many are drawn (Moment::most).
namespace macaw::scheduler {
namespace {

using Ids = std::vector<uint64_t>;

std::vector<ClientId> ClientsOf(const Ids& ids) {
  std::vector<ClientId> clients;
  for (const uint64_t id : ids) clients.emplace_back(id);
  return clients;
}

// Every third client has no rows.
std::vector<uint32_t> WithHoles(size_t count) {
  std::vector<uint32_t> examples(count, 4);
  for (size_t client = 1; client < count; client += 3) examples[client] = 0;
  return examples;
}

TEST(WithoutBusy, NumbersTheFreeClientsInTheirOrder) {
  RandomStream stream({.seed = 7});
  for (int trial = 0; trial < 300; ++trial) {
    const std::vector<uint32_t> examples = trial % 2 == 0
                                               ? std::vector<uint32_t>(1 + stream.Below(30), 4)
                                               : WithHoles(1 + stream.Below(30));
    const Trainable clients(examples);
    std::vector<ClientId> busy;
    Ids free;  // the positions of the others, by walking through all
    for (uint64_t position = 0; position < clients.size(); ++position) {
      if (stream.Below(3) == 0) {
        busy.push_back(clients[position]);
      } else {
        free.push_back(position);
      }
    }
    Ids numbers(free.size());
    for (uint64_t n = 0; n < numbers.size(); ++n) numbers[n] = n;
    EXPECT_EQ(clients.WithoutBusy(numbers, busy), free);
    Ids some, wanted;
    for (uint64_t n = 0; n < numbers.size(); ++n) {
      if (stream.Below(2) == 0) continue;
      some.push_back(n);
      wanted.push_back(free[n]);
    }
    stream.Shuffle(std::span(some));
    EXPECT_EQ(clients.WithoutBusy(some, busy), wanted) << "whatever their order";
  }
}

class BusyClients : public testing::TestWithParam<std::string> {
 protected:
  static std::unique_ptr<CohortSampler> Sampler(uint64_t size,
                                                const std::vector<uint32_t>& examples) {
    return *MakeSampler({.size = size, .sampling = GetParam(), .seed = 5, .availability = 1},
                        examples);
  }
  static Ids Drawn(const CohortSampler& sampler, uint32_t round, const std::vector<ClientId>& busy,
                   uint64_t most) {
    Moment moment{Round(round)};
    moment.busy = busy;
    moment.most = most;
    Ids ids;
    for (const CohortEntry& entry : sampler.Sample(moment).entries)
      ids.push_back(entry.client.value);
    return ids;
  }
};

TEST_P(BusyClients, AreNeverDrawn) {
  RandomStream stream({.seed = 3});
  for (uint32_t trial = 1; trial <= 400; ++trial) {
    const std::vector<uint32_t> examples = WithHoles(2 + stream.Below(40));
    const uint64_t size = 1 + stream.Below(std::min<uint64_t>(12, Trainable(examples).size()));
    const uint64_t most = stream.Below(14);
    std::vector<ClientId> busy;
    uint64_t free = 0;
    for (uint64_t client = 0; client < examples.size(); ++client) {
      if (examples[client] == 0) continue;
      if (stream.Below(2) == 0) {
        busy.emplace_back(client);
      } else {
        ++free;
      }
    }
    const auto sampler = Sampler(size, examples);
    const Ids drawn = Drawn(*sampler, trial, busy, most);
    EXPECT_EQ(drawn.size(), std::min({size, most, free}));
    EXPECT_TRUE(std::ranges::is_sorted(drawn));
    EXPECT_EQ(std::set<uint64_t>(drawn.begin(), drawn.end()).size(), drawn.size());
    for (const uint64_t client : drawn) {
      EXPECT_GT(examples[client], 0u);
      EXPECT_FALSE(std::ranges::binary_search(busy, ClientId(client))) << client;
    }
  }
}

// Of 5 free clients each of the 10 pairs.
TEST_P(BusyClients, LeaveEverySubsetOfTheFreeOnesEquallyLikely) {
  const std::vector<uint32_t> examples = WithHoles(12);  // 0 2 3 5 6 8 9 11 have rows
  const std::vector<ClientId> busy = ClientsOf({0, 5, 11});
  constexpr uint32_t kRounds = 10000;
  for (const bool by_most : {false, true}) {
    const auto sampler = Sampler(by_most ? 4 : 2, examples);
    std::map<Ids, double> counts;
    for (uint32_t round = 1; round <= kRounds; ++round)
      ++counts[Drawn(*sampler, round, busy, by_most ? 2 : ~uint64_t{0})];
    ASSERT_EQ(counts.size(), 10u);
    std::vector<double> seen;
    for (const auto& [pair, count] : counts) {
      EXPECT_EQ(pair.size(), 2u);
      seen.push_back(count);
    }
    EXPECT_LT(std::abs(fixtures::Surprise(seen, std::vector<double>(10, kRounds / 10.0))), 4);
  }
}

TEST_P(BusyClients, MayBeAllOfThem) {
  const std::vector<uint32_t> examples = WithHoles(6);
  EXPECT_TRUE(Drawn(*Sampler(3, examples), 1, ClientsOf({0, 2, 3, 5}), 3).empty());
  EXPECT_TRUE(Drawn(*Sampler(3, examples), 1, {}, 0).empty());
}

INSTANTIATE_TEST_SUITE_P(Of, BusyClients, testing::Values("uniform", "available"));

}  // namespace
}  // namespace macaw::scheduler
