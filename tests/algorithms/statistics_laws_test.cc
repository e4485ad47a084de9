// What laws_test.cc asks of rules that train, of those that sum over rows.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "core/random.h"
#include "tests/algorithms/summing_run.h"

namespace macaw::algorithms {
namespace {

std::vector<std::string> NamesOfSums() {
  std::vector<std::string> names;
  for (const Description& rule : BuiltinAlgorithms()) {
    if (rule.has_statistics) names.push_back(rule.name);
  }
  return names;
}

class EveryRuleOfSums : public ::testing::TestWithParam<std::string> {
 protected:
  static SummingRun Run() {
    if (GetParam() == "daef") {
      return {"daef", {"linear 1", "tanh", "linear 3", "tanh", "linear 3"},
              3,      3,
              {},     TaskKind::kReconstruction};
    }
    return {GetParam(), {"linear 2"}, 3, 2, {}, TaskKind::kClassification};
  }

  static std::map<size_t, SummedRows> Clients() {
    RandomStream random({.seed = 21});
    std::map<size_t, SummedRows> clients;
    for (size_t client = 0; client < 4; ++client) {
      for (size_t r = 0; r < 5 + client; ++r) {
        clients[client].x.push_back({random.Normal(), random.Normal(), 1e3 * random.Normal()});
        clients[client].classes.push_back(static_cast<int64_t>(r % 2));
      }
    }
    return clients;
  }
};

void ExpectTheSame(const ServerState& before, const ServerState& after) {
  ASSERT_EQ(before.vectors.size(), after.vectors.size());
  for (const auto& [name, vector] : before.vectors)
    EXPECT_EQ(DigestOfValues(vector.view()), DigestOfValues(after.vectors.at(name).view())) << name;
  EXPECT_EQ(before.numbers, after.numbers);
}

TEST_P(EveryRuleOfSums, GivesTheSameBitsInAnyOrderOfClients) {
  SummingRun forward = Run(), backward = Run();
  backward.order = {3, 1, 0, 2};
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(forward.Round(Clients()).ok());
    ASSERT_TRUE(backward.Round(Clients()).ok());
    ExpectTheSame(forward.server().Save(), backward.server().Save());
  }
}

TEST_P(EveryRuleOfSums, LeavesEverythingWhenNobodyRemains) {
  SummingRun run = Run();
  const FlatVector initial = FlatVector::CopyOf(run.server().Model(), run.spec().layout);
  ASSERT_TRUE(run.Round(Clients()).ok());
  EXPECT_NE(DigestOfValues(run.server().Model()), DigestOfValues(initial.view()));
  const ServerState before = run.server().Save();
  ASSERT_TRUE(run.Round({}).ok());
  ExpectTheSame(before, run.server().Save());
  EXPECT_EQ(run.metrics.at("thrown_away"), 0);
}

TEST_P(EveryRuleOfSums, GoesOnWithTheSameBitsAfterAResume) {
  SummingRun run = Run();
  ASSERT_TRUE(run.Round({*Clients().begin()}).ok());
  const ServerState saved = run.server().Save();
  ASSERT_TRUE(run.Round({}).ok());
  ASSERT_TRUE(run.server().Load(saved).ok());
  ExpectTheSame(saved, run.server().Save());
}

TEST_P(EveryRuleOfSums, LoadsOnlyAStateOfItsOwn) {
  SummingRun run = Run();
  const ServerState whole = run.server().Save();
  for (const auto& [missing, vector] : whole.vectors) {
    ServerState partial = run.server().Save();
    partial.vectors.erase(missing);
    EXPECT_NE(run.server().Load(partial).message().find(missing), std::string::npos);
    partial.vectors.emplace(missing,
                            FlatVector(ParameterLayout::Scalars("another", 7, DType::kF64)));
    EXPECT_FALSE(run.server().Load(partial).ok());
  }
  for (const auto& [missing, number] : whole.numbers) {
    ServerState partial = run.server().Save();
    partial.numbers.erase(missing);
    EXPECT_FALSE(run.server().Load(partial).ok());
  }
  ExpectTheSame(whole, run.server().Save());
  EXPECT_TRUE(run.server().Load(whole).ok());
}

INSTANTIATE_TEST_SUITE_P(BuiltIn, EveryRuleOfSums, ::testing::ValuesIn(NamesOfSums()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace macaw::algorithms
