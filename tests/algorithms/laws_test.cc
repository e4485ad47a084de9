#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/around/decorated.h"
#include "algorithms/around/privacy.h"
#include "algorithms/builtin.h"
#include "core/status.h"
#include "sdk/testing/round_loop.h"

// What every built-in algorithm must do, whatever its rule.

namespace macaw::algorithms {
namespace {

std::map<std::string, ParameterValue> ParametersOf(const std::string& rule) {
  // With four clients Krum can tolerate no malicious one.
  if (rule == "krum") return {{"f", int64_t{0}}};
  // Narrower models need a list of layers.
  if (rule == "heterofl") return {{"rates", "1"}};
  // Tensors of one number have no other order.
  if (rule == "ifca") return {{"start", std::string("noise")}};
  return {};
}

// With a network that has a norm layer and a head, so that each rule has what it needs.
RoundLoop::Options OptionsOf(const std::string& rule, DType dtype, uint64_t planned = 4,
                             double lr = 0.1) {
  const LayoutPtr net =
      *ParameterLayout::Make({{.name = "bn.weight", .shape = {1}},
                              {.name = "fc.weight", .shape = {1}},
                              {.name = "bn.running_mean", .shape = {1}, .group = Group::kBuffer}},
                             dtype);
  return {.steps = 3,
          .parameters = ParametersOf(rule),
          .start = {1, -1},
          .lr = lr,
          .layout = net,
          .cohort = {.size = planned}};
}

RoundLoop LoopOf(const std::string& rule, DType dtype, uint64_t planned = 4, double lr = 0.1) {
  return {Builtin(rule), Q4(), OptionsOf(rule, dtype, planned, lr)};
}

class EveryAlgorithm : public ::testing::TestWithParam<std::string> {
 protected:
  static RoundLoop Loop(DType dtype, uint64_t planned = 4, double lr = 0.1) {
    return LoopOf(GetParam(), dtype, planned, lr);
  }
};

TEST_P(EveryAlgorithm, GivesTheSameBitsInAnyOrderOfClients) {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    RoundLoop forward = Loop(dtype), backward = Loop(dtype);
    for (int round = 0; round < 10; ++round) {
      ASSERT_TRUE(forward.Round({0, 1, 2, 3}).ok());
      ASSERT_TRUE(backward.Round({3, 1, 0, 2}).ok());
      ASSERT_EQ(forward.ModelDigest(), backward.ModelDigest());
      for (size_t item = 0; item < forward.schema().state.size(); ++item) {
        for (size_t client = 0; client < 4; ++client)
          ASSERT_EQ(forward.State(client, item), backward.State(client, item));
      }
    }
  }
}

// Else the server's sum would keep what a client has lost.
TEST_P(EveryAlgorithm, BeginsAnewAfterALossIfItsStateFollowsWhatIsSent) {
  EXPECT_EQ(BeginsAnew(Loop(DType::kF64).schema()), Builtin(GetParam()).state_follows_sent);
}

TEST_P(EveryAlgorithm, GoesOnWithTheSameBitsAfterAResume) {
  RoundLoop straight = Loop(DType::kF32);
  ASSERT_TRUE(straight.Rounds(3).ok());
  RoundLoop resumed = Loop(DType::kF32);
  ASSERT_TRUE(resumed.ResumeFrom(straight).ok());
  ASSERT_TRUE(straight.Rounds(3).ok());
  ASSERT_TRUE(resumed.Rounds(3).ok());
  EXPECT_EQ(resumed.ModelDigest(), straight.ModelDigest());
}

TEST_P(EveryAlgorithm, MovesTheModelAndStaysFinite) {
  RoundLoop loop = Loop(DType::kF32);
  const Digest before = loop.ModelDigest();
  const ServerState start = loop.server().Save();
  ASSERT_TRUE(loop.Rounds(1).ok());
  if (Builtin(GetParam()).has_several_models) {
    bool moved = false;
    const ServerState now = loop.server().Save();
    for (const auto& [name, vector] : start.vectors)
      moved |= DigestOfValues(now.vectors.at(name).view()) != DigestOfValues(vector.view());
    EXPECT_TRUE(moved);
  } else if (Builtin(GetParam()).has_common_model) {
    EXPECT_NE(loop.ModelDigest(), before);
  } else {
    EXPECT_EQ(loop.ModelDigest(), before);
    EXPECT_NE(loop.State(0, 0), loop.Model());
  }
  ASSERT_TRUE(loop.Rounds(50).ok());
  EXPECT_LT(Distance(loop.Model(), {0, 0}), 100);
}

TEST_P(EveryAlgorithm, LeavesEverythingWhenNobodyRemains) {
  RoundLoop loop = Loop(DType::kF64);
  ASSERT_TRUE(loop.Rounds(2).ok());
  const ServerState before = loop.server().Save();
  ASSERT_TRUE(loop.Round({0, 1, 2, 3}, {0, 1, 2, 3}).ok());
  ASSERT_TRUE(loop.Round({}).ok());
  const ServerState after = loop.server().Save();
  for (const auto& [name, vector] : before.vectors) {
    // h/α and momentum change the model only in a round with clients.
    EXPECT_EQ(DigestOfValues(vector.view()), DigestOfValues(after.vectors.at(name).view())) << name;
  }
  EXPECT_EQ(before.numbers, after.numbers);
}

TEST_P(EveryAlgorithm, CountsThoseWhoCameAndNotThoseWhoWereAsked) {
  RoundLoop asked = Loop(DType::kF64, 4), came = Loop(DType::kF64, 3);
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(asked.Round({0, 1, 2, 3}, {1}).ok());
    ASSERT_TRUE(came.Round({0, 2, 3}).ok());
  }
  // The grids depend on the planned cohort, so the bits may differ.
  EXPECT_LT(Distance(asked.Model(), came.Model()), 1e-12);
}

TEST_P(EveryAlgorithm, LoadsOnlyAStateOfItsOwn) {
  RoundLoop loop = Loop(DType::kF64);
  const ServerState whole = loop.server().Save();
  for (const auto& [missing, vector] : whole.vectors) {
    ServerState partial = loop.server().Save();
    partial.vectors.erase(missing);
    EXPECT_NE(loop.server().Load(partial).message().find(missing), std::string::npos);
    partial.vectors.emplace(missing, FlatVector(Plain(3, DType::kF64)));
    EXPECT_FALSE(loop.server().Load(partial).ok());
  }
  for (const auto& [missing, number] : whole.numbers) {
    ServerState partial = loop.server().Save();
    partial.numbers.erase(missing);
    EXPECT_FALSE(loop.server().Load(partial).ok());
  }
  EXPECT_TRUE(loop.server().Load(whole).ok());
}

// The last round of some schedules.
TEST_P(EveryAlgorithm, StaysWhereItIsAtARateOfZero) {
  RoundLoop warm = Loop(DType::kF64), still = Loop(DType::kF64, 4, /*lr=*/0);
  ASSERT_TRUE(warm.Rounds(3).ok());
  ASSERT_TRUE(still.ResumeFrom(warm).ok());
  const absl::Status status = still.Rounds(2);
  ASSERT_TRUE(status.ok()) << status;
  for (const auto& [name, vector] : still.server().Save().vectors) {
    for (const double number : NumbersOf(vector.view())) EXPECT_TRUE(std::isfinite(number)) << name;
  }
  for (size_t item = 0; item < still.schema().state.size(); ++item) {
    for (size_t client = 0; client < 4; ++client) {
      for (const double number : still.State(client, item)) EXPECT_TRUE(std::isfinite(number));
    }
  }
  // Server momentum, FedDyn's h/α and the centre of earlier rounds move the model on.
  const std::set<std::string> moves_on = {"fedavgm", "fedadam", "fedyogi", "feddyn",
                                          "centered_clipping"};
  if (!moves_on.contains(GetParam())) {
    EXPECT_EQ(still.Model(), warm.Model());
  }
}

// What a rule's clients pass through the model is what it says (Description::passes), by which
// devices are timed: whole turns, stragglers' parts, and turns after a first one.
TEST_P(EveryAlgorithm, PassesTheRowsThatItSays) {
  const RoundLoop::Options plain = OptionsOf(GetParam(), DType::kF64);
  RoundLoop::Options steps = plain, epochs = plain, stragglers = plain, slow_epochs = plain;
  steps.steps = 4;
  epochs.steps = slow_epochs.steps = 0;
  epochs.epochs = slow_epochs.epochs = 3;
  stragglers.cohort.straggler_fraction = slow_epochs.cohort.straggler_fraction = 0.7;
  for (const RoundLoop::Options& options : {plain, steps, epochs, stragglers, slow_epochs}) {
    RoundLoop loop(Builtin(GetParam()), Q4(), options);
    ASSERT_TRUE(loop.Rounds(1).ok());
    for (int round = 2; round <= 4; ++round) {
      ASSERT_TRUE(loop.Rounds(1).ok());
      for (size_t client = 0; client < 4; ++client) {
        EXPECT_GT(loop.Passed(client), 0);
        EXPECT_NEAR(loop.Passed(client), loop.SaidToPass(client), 1e-9)
            << "client " << client << ", round " << round;
      }
    }
  }
}

// The second batch of each pair has two gradients.
TEST(PerFedAvg, PassesTheRowsOfSecondBatchesTwice) {
  const auto passed = [](uint64_t rows, uint32_t steps) {
    const RoundLoop loop = LoopOf("perfedavg", DType::kF64);
    return RowsOfTurnOf(Builtin("perfedavg"), loop.setup())(
        {.local = {.epochs = 2, .steps = steps, .batch_size = 4}, .rows = rows});
  };
  EXPECT_EQ(passed(6, 6), 18 + 6);    // 4 2 4 2 4 2
  EXPECT_EQ(passed(10, 6), 20 + 10);  // 4 4 2 4 4 2
  EXPECT_EQ(passed(10, 5), 18 + 8);   // 4 4 2 4 4
  EXPECT_EQ(passed(10, 0), 20 + 10);
  EXPECT_EQ(passed(2, 3), 6 + 2);
}

// Under a clip that shortens the first updates and none of the last, and with noise that does not
// count, a rule ends where it ends without: what was clipped is made up for later. A rule whose
// clients remember what they sent as if it had been counted does not.
class FixedPoint {
 public:
  explicit FixedPoint(const Description& rule)
      : plain_(rule, Population(), OptionsFor(rule, "uniform")),
        private_(WithPrivacy(rule, kPrivacy, kRounds), Population(), OptionsFor(rule, "poisson")) {}

  static constexpr uint32_t kRounds = 3000;
  absl::Status Accepted(const Description& rule) const {
    return MakeSchema(WithPrivacy(rule, kPrivacy, kRounds), private_.setup()).status();
  }
  // How far the two end from each other: the common model, and those of the clients.
  double Error() {
    EXPECT_TRUE(plain_.Rounds(kRounds).ok());
    EXPECT_TRUE(private_.Rounds(1).ok());
    EXPECT_EQ(private_.metrics().at("clipped"), 1) << "the first updates should be long";
    EXPECT_TRUE(private_.Rounds(kRounds - 1).ok());
    EXPECT_EQ(private_.metrics().at("clipped"), 0) << "the last updates should be short";
    double error = Distance(plain_.Model(), private_.Model());
    for (size_t client = 0; client < 4; ++client)
      error = std::max(error, Distance(plain_.Personal(client), private_.Personal(client)));
    return error;
  }

 private:
  inline static const PrivacyConfig kPrivacy = {.mechanism = "gaussian", .clip = 3, .noise = 1e-12};
  // Who count alike, as [privacy] wants it.
  static std::vector<TestPopulationClient> Population() {
    std::vector<TestPopulationClient> population = Q4();
    for (TestPopulationClient& client : population) client.examples = 1;
    return population;
  }
  static RoundLoop::Options OptionsFor(const Description& rule, const std::string& sampling) {
    RoundLoop::Options options{.steps = 3, .start = {60, -60}};
    options.cohort.size = 4;
    options.cohort.sampling = sampling;
    options.cohort.weight = WeightPolicy::kUniform;
    options.layout = *ParameterLayout::Make(
        {{.name = "norm.weight", .shape = {1}}, {.name = "fc.weight", .shape = {1}}}, DType::kF64);
    if (rule.name == "fedbn") options.parameters = {{"local", "norm.*"}};
    if (rule.name == "ifca") options.parameters = {{"start", std::string("noise")}};
    if (rule.name == "feddyn") options.parameters = {{"alpha", 0.5}};  // it gets there sooner
    return options;
  }

  RoundLoop plain_, private_;
};

// Of rules with a client state, those that [privacy] refuses, and why.
const std::map<std::string, std::string>& RefusedUnderAClip() {
  static const auto& refused =
      *new std::map<std::string, std::string>{{"local", "whose server adds up what clients send"}};
  return refused;
}

class RuleWithAState : public ::testing::TestWithParam<std::string> {};

TEST_P(RuleWithAState, ReachesItsFixedPointUnderAClip) {
  const Description rule = Builtin(GetParam());
  FixedPoint point(rule);
  const absl::Status accepted = point.Accepted(rule);
  const auto refused = RefusedUnderAClip().find(GetParam());
  if (refused != RefusedUnderAClip().end()) {
    EXPECT_NE(accepted.message().find(refused->second), absl::string_view::npos) << accepted;
    return;
  }
  ASSERT_TRUE(accepted.ok()) << accepted;
  EXPECT_LT(point.Error(), 1e-9);
}

// The rule without ClientAlgorithm::Sent: its clients keep what they sent, not what was counted.
Description Deaf(Description rule) {
  class DeafClient final : public DecoratedClient {
   public:
    using DecoratedClient::DecoratedClient;
    absl::Status Sent(const ClientContext&, ClientResult&, Workspace&) const override {
      return absl::OkStatus();
    }
  };
  rule.client = [client = rule.client](
                    const Setup& setup) -> absl::StatusOr<std::unique_ptr<ClientAlgorithm>> {
    MACAW_ASSIGN_OR_RETURN(std::unique_ptr<ClientAlgorithm> inner, client(setup));
    return std::make_unique<DeafClient>(std::move(inner));
  };
  return rule;
}

TEST(FixedPointUnderAClip, IsMissedByARuleThatIsNotToldWhatWasSent) {
  for (const char* name : {"scaffold", "feddyn"}) {
    FixedPoint point(Deaf(Builtin(name)));
    EXPECT_GT(point.Error(), 1e-2) << name << ": the law would not notice it";
  }
}

TEST(FixedPointUnderAClip, RefusesARuleThatDoesNotSayWhatItsStateIs) {
  Description rule = Builtin("scaffold");
  rule.state_follows_sent = false;
  const absl::Status refused = FixedPoint(Builtin("scaffold")).Accepted(rule);
  EXPECT_NE(refused.message().find("control"), absl::string_view::npos) << refused;
}

std::vector<std::string> BuiltinNames() {
  Registry registry;
  registry.AddBuiltin(BuiltinAlgorithms());
  std::vector<std::string> names;
  for (const Description* description : registry.All()) {
    // Those that sum over rows train nothing: statistics_laws_test.cc.
    if (!description->has_statistics) names.push_back(description->name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(BuiltIn, EveryAlgorithm, ::testing::ValuesIn(BuiltinNames()),
                         [](const auto& test) { return test.param; });

std::vector<std::string> NamesWithAState() {
  std::vector<std::string> names;
  for (const std::string& name : BuiltinNames()) {
    if (!LoopOf(name, DType::kF64).schema().state.empty()) names.push_back(name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(BuiltIn, RuleWithAState, ::testing::ValuesIn(NamesWithAState()),
                         [](const auto& test) { return test.param; });

TEST(FixedPointUnderAClip, IsAskedOfEveryBuiltInRuleWithAState) {
  EXPECT_EQ(NamesWithAState(),
            (std::vector<std::string>{"apfl", "ditto", "fedbn", "feddyn", "fedper", "fedrep",
                                      "local", "moon", "pfedme", "scaffold"}));
}

}  // namespace
}  // namespace macaw::algorithms
