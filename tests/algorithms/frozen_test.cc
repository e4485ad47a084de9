#include "algorithms/around/frozen.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "algorithms/around/channels.h"
#include "algorithms/around/coded_broadcast.h"
#include "algorithms/builtin.h"
#include "plan/run_plan.h"
#include "sdk/testing/round_loop.h"

// [model] frozen: a rule with frozen tensors is the same rule on the model of the others.

namespace macaw::algorithms {
namespace {

// ½(x−b)ᵀA(x−b) in three dimensions.
class Bowl final : public Objective {
 public:
  using Row = std::array<double, 3>;
  Bowl(std::array<Row, 3> a, Row b) : a_(a), b_(b) {}
  double Loss(const Numbers& w) const override {
    const Numbers g = Gradient(w);
    double loss = 0;
    for (size_t i = 0; i < 3; ++i) loss += 0.5 * g[i] * (w[i] - b_[i]);
    return loss;
  }
  Numbers Gradient(const Numbers& w) const override {
    Numbers g(3);
    for (size_t i = 0; i < 3; ++i)
      for (size_t j = 0; j < 3; ++j) g[i] += a_[i][j] * (w[j] - b_[j]);
    return g;
  }

 private:
  std::array<Row, 3> a_;
  Row b_;
};

constexpr double kFrozen = 0.75;  // the first coordinate

// The bowl where that coordinate is held.
class HeldBowl final : public Objective {
 public:
  explicit HeldBowl(std::shared_ptr<const Objective> whole) : whole_(std::move(whole)) {}
  double Loss(const Numbers& w) const override { return whole_->Loss({kFrozen, w[0], w[1]}); }
  Numbers Gradient(const Numbers& w) const override {
    const Numbers g = whole_->Gradient({kFrozen, w[0], w[1]});
    return {g[1], g[2]};
  }

 private:
  std::shared_ptr<const Objective> whole_;
};

std::vector<TestPopulationClient> Population(bool held) {
  std::vector<TestPopulationClient> clients;
  for (uint32_t k = 0; k < 4; ++k) {
    const double t = k;
    std::shared_ptr<const Objective> bowl = std::make_shared<Bowl>(
        std::array<Bowl::Row, 3>{{{2, .3, -.1 * t}, {.3, 1 + t / 2, .2}, {-.1 * t, .2, .7}}},
        Bowl::Row{1, t - 2, 3 - t});
    if (held) bowl = std::make_shared<HeldBowl>(bowl);
    clients.push_back({bowl, k + 1});
  }
  return clients;
}

LayoutPtr LayoutOf(bool held, DType dtype) {
  std::vector<LayoutEntry> entries;
  if (!held) entries.push_back({.name = "base.weight", .shape = {1}});
  entries.push_back({.name = "bn.weight", .shape = {1}});
  entries.push_back({.name = "fc.weight", .shape = {1}});
  entries.push_back({.name = "bn.running_mean", .shape = {1}, .group = Group::kBuffer});
  return *ParameterLayout::Make(std::move(entries), dtype);
}

RoundLoop Loop(const Description& rule, bool held, DType dtype) {
  std::map<std::string, ParameterValue> parameters;
  if (rule.name == "heterofl") parameters = {{"rates", "1"}};  // others need layers
  if (rule.name == "krum") parameters = {{"f", int64_t{0}}};
  const Numbers start = held ? Numbers{1, -1} : Numbers{kFrozen, 1, -1};
  return {held ? rule : WithFrozen(rule, {"base.*"}),
          Population(held),
          {.steps = 3,
           .parameters = parameters,
           .start = start,
           .lr = 0.1,
           .weight_decay = 0.1,
           .clip_norm = 2,
           .layout = LayoutOf(held, dtype),
           .cohort = {.size = 3}}};
}

Numbers Whole(Numbers part) {
  part.insert(part.begin(), kFrozen);
  return part;
}

class EveryFrozenRule : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryFrozenRule, IsTheRuleOnTheOtherTensorsBitForBit) {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    RoundLoop frozen = Loop(Builtin(GetParam()), false, dtype);
    RoundLoop held = Loop(Builtin(GetParam()), true, dtype);
    for (const auto& [cohort, lost] :
         {std::pair<std::vector<size_t>, std::set<size_t>>{{0, 1, 2}, {}},
          {{3, 1, 2}, {1}},
          {{0, 2, 3}, {}},
          {{0, 1, 3}, {0, 1, 3}},
          {{1, 2, 3}, {}}}) {
      const absl::Status round = frozen.Round(cohort, lost);
      ASSERT_TRUE(round.ok()) << round;
      ASSERT_TRUE(held.Round(cohort, lost).ok());
      EXPECT_EQ(frozen.Model(), Whole(held.Model()));
      EXPECT_EQ(frozen.Result(), Whole(held.Result()));
      EXPECT_EQ(frozen.metrics(), held.metrics());
      for (size_t client = 0; client < 4; ++client) {
        EXPECT_EQ(frozen.Personal(client), Whole(held.Personal(client)));
        for (size_t item = 0; item < held.schema().state.size(); ++item)
          EXPECT_EQ(frozen.State(client, item), held.State(client, item));
      }
    }
    // What travels up has no place for a frozen tensor.
    for (const aggregation::ChannelSpec& channel : frozen.schema().up)
      EXPECT_EQ(channel.layout->Find("base.weight"), nullptr);
  }
}

TEST_P(EveryFrozenRule, GoesOnWithTheSameBitsAfterAResume) {
  RoundLoop straight = Loop(Builtin(GetParam()), false, DType::kF32);
  ASSERT_TRUE(straight.Rounds(3).ok());
  RoundLoop resumed = Loop(Builtin(GetParam()), false, DType::kF32);
  ASSERT_TRUE(resumed.ResumeFrom(straight).ok());
  EXPECT_EQ(resumed.ModelDigest(), straight.ModelDigest());
  ASSERT_TRUE(straight.Rounds(3).ok());
  ASSERT_TRUE(resumed.Rounds(3).ok());
  EXPECT_EQ(resumed.ModelDigest(), straight.ModelDigest());
}

std::vector<std::string> TrainingNames() {
  Registry registry;
  registry.AddBuiltin(BuiltinAlgorithms());
  std::vector<std::string> names;
  for (const Description* description : registry.All()) {
    if (description->has_statistics) continue;  // of a list of layers
    if (!description->has_several_models) names.push_back(description->name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(BuiltIn, EveryFrozenRule, ::testing::ValuesIn(TrainingNames()),
                         [](const auto& test) { return test.param; });

TEST(WithFrozen, RefusesARuleWithSeveralModels) {
  algorithms::Setup setup;
  setup.layout = LayoutOf(false, DType::kF32);
  setup.config = *[] {
    Registry registry;
    registry.AddBuiltin(BuiltinAlgorithms());
    return registry.Complete({.name = "ifca"});
  }();
  setup.cohort.size = 3;
  setup.clients = 4;
  setup.total_weight = 4;
  const auto schema = MakeSchema(WithFrozen(Builtin("ifca"), {"base.*"}), setup);
  EXPECT_NE(std::string(schema.status().message()).find("model.frozen"), std::string::npos);
}

// Privacy and hostile clients stand inside, too: their norms and noise are of the other tensors.
TEST(WithFrozen, IsOutsidePrivacyAndAttackers) {
  Registry registry;
  registry.AddBuiltin(BuiltinAlgorithms());
  for (const bool private_run : {true, false}) {
    RunPlan run;
    run.algorithm.name = "fedavg";
    run.rounds = 3;
    run.clients = run.train_clients = 4;
    if (private_run) {
      run.privacy = {.mechanism = "gaussian", .clip = 4, .noise = 0.5};
    } else {
      run.attack = {.kind = "sign-flip", .fraction = 0.5};
    }
    RoundLoop held = Loop(*registry.RuleOf(run), true, DType::kF64);
    // [model] frozen names what stays, trained the rest.
    if (private_run) {
      run.model.frozen = {"base.*"};
    } else {
      run.model.trained = {"bn.*", "fc.*"};
    }
    RoundLoop frozen(*registry.RuleOf(run), Population(false),
                     {.steps = 3,
                      .start = {kFrozen, 1, -1},
                      .weight_decay = 0.1,
                      .clip_norm = 2,
                      .layout = LayoutOf(false, DType::kF64),
                      .cohort = {.size = 3}});
    ASSERT_TRUE(held.Rounds(3).ok());
    ASSERT_TRUE(frozen.Rounds(3).ok());
    EXPECT_EQ(frozen.Model(), Whole(held.Model()));
    EXPECT_EQ(frozen.metrics(), held.metrics());
  }
}

// A codec of the model that goes down stands inside, too: its draws and its shares are of what is
// trained.
TEST(WithFrozen, IsOutsideTheCodecOfTheBroadcast) {
  for (const auto& [codec, of] : {std::pair<const char*, const char*>{"bits 2", "model"},
                                  {"bits 2", "change"},
                                  {"topk 0.5", "change"}}) {
    const BroadcastConfig broadcast{.codec = {codec}, .of = of};
    const auto loop = [&](bool held) {
      const Description rule = WithCodedBroadcast(Builtin("fedadam"), broadcast);
      return RoundLoop(held ? rule : WithFrozen(rule, {"base.*"}), Population(held),
                       {.steps = 3,
                        .start = held ? Numbers{1, -1} : Numbers{kFrozen, 1, -1},
                        .layout = LayoutOf(held, DType::kF32),
                        .cohort = {.size = 4}});
    };
    RoundLoop frozen = loop(false), held = loop(true);
    ASSERT_TRUE(frozen.Rounds(4).ok());
    ASSERT_TRUE(held.Rounds(4).ok());
    EXPECT_EQ(frozen.Model(), Whole(held.Model())) << codec << " of " << of;
    EXPECT_EQ(frozen.metrics(), held.metrics()) << codec << " of " << of;
  }
}

// The server half has no frozen tensor: neither in what it sends nor in what it saves.
TEST(WithFrozen, KeepsTheBaseOutOfTheServerHalf) {
  RoundLoop loop = Loop(Builtin("fedadam"), false, DType::kF32);
  ASSERT_TRUE(loop.Rounds(2).ok());
  const auto has_base = [](const LayoutPtr& layout) {
    return layout->Find("base.weight") != nullptr;
  };
  ASSERT_NE(loop.schema().parts, nullptr);
  EXPECT_TRUE(has_base(loop.schema().down[0].layout)) << "clients get the whole model";
  EXPECT_FALSE(has_base(SentModelLayout(loop.schema())));
  EXPECT_EQ(loop.server().Model().layout->Find("base.weight"), nullptr);
  const ServerState state = loop.server().Save();
  for (const auto& [name, vector] : state.vectors) EXPECT_FALSE(has_base(vector.layout())) << name;
}

}  // namespace
}  // namespace macaw::algorithms
