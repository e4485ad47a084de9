#include "algorithms/around/coded_broadcast.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "algorithms/builtin.h"
#include "sdk/testing/round_loop.h"
#include "tests/algorithms/compressed_util.h"

namespace macaw::algorithms {
namespace {

using testing::HasSubstr;

// ½|x − b|².
class Dish final : public Objective {
 public:
  explicit Dish(Numbers middle) : middle_(std::move(middle)) {}
  double Loss(const Numbers& w) const override {
    double loss = 0;
    for (size_t i = 0; i < w.size(); ++i) loss += 0.5 * (w[i] - middle_[i]) * (w[i] - middle_[i]);
    return loss;
  }
  Numbers Gradient(const Numbers& w) const override {
    Numbers g(w.size());
    for (size_t i = 0; i < w.size(); ++i) g[i] = w[i] - middle_[i];
    return g;
  }

 private:
  const Numbers middle_;
};

BroadcastConfig Coded(std::vector<std::string> codec, std::string of = "auto") {
  return {.codec = std::move(codec), .of = std::move(of)};
}

// Equal clients whose optima are these, and steps of 0.1, one a round.
RoundLoop Dishes(const Description& rule, const std::vector<Numbers>& middles, Numbers start,
                 DType dtype = DType::kF64, uint64_t cohort = 0) {
  std::vector<TestPopulationClient> population;
  for (const Numbers& middle : middles) population.push_back({std::make_shared<Dish>(middle), 1});
  return {rule,
          population,
          {.steps = 1,
           .dtype = dtype,
           .start = std::move(start),
           .cohort = CohortOf(cohort == 0 ? middles.size() : cohort)}};
}

TEST(CodedBroadcast, ClientsTrainFromTheCodedModelAndTheServerKeepsItsOwn) {
  RoundLoop loop = Dishes(WithCodedBroadcast(Builtin("fedavg"), Coded({"bf16"}, "model")), {{0.0}},
                          {1.0 / 3}, DType::kF32);
  ASSERT_TRUE(loop.Rounds(1).ok());
  constexpr double kSent = 0.333984375;  // the nearest bfloat16
  EXPECT_NEAR(loop.Model()[0], 1.0 / 3 - 0.1 * kSent, 1e-7);
  EXPECT_NEAR(loop.metrics().at("broadcast_error"), (kSent - 1.0 / 3) * 3, 1e-6);
  EXPECT_TRUE(loop.schema().down[0].coded);
}

TEST(CodedBroadcast, AChangeIsOfWhatWasSentBefore) {
  RoundLoop loop =
      Dishes(WithCodedBroadcast(Builtin("fedavg"), Coded({"topk 0.5"})), {{0, 0}}, {1, 2});
  ASSERT_TRUE(loop.Rounds(1).ok());  // the first is sent whole
  EXPECT_LT(Distance(loop.Model(), {0.9, 1.8}), 1e-12);
  EXPECT_EQ(loop.metrics().at("broadcast_error"), 0);
  ASSERT_TRUE(loop.Rounds(1).ok());  // C(−.1, −.2)
  EXPECT_LT(Distance(loop.Saved(kBroadcastSent), {1, 1.8}), 1e-12);
  EXPECT_LT(Distance(loop.Model(), {0.8, 1.62}), 1e-12);
  EXPECT_NEAR(loop.metrics().at("broadcast_error"), 0.1 / std::hypot(0.9, 1.8), 1e-12);
  ASSERT_TRUE(loop.Rounds(1).ok());  // C(−.2, −.18): what was left out comes again
  EXPECT_LT(Distance(loop.Saved(kBroadcastSent), {0.8, 1.8}), 1e-12);
  EXPECT_LT(Distance(loop.Model(), {0.72, 1.44}), 1e-12);
}

TEST(CodedBroadcast, ReachesTheOptimumWithEveryCodecOfChanges) {
  for (const char* codec : {"topk 0.2", "randomk 0.2", "sign", "terngrad", "bits 2", "f16"}) {
    RoundLoop loop = Dishes(WithCodedBroadcast(Builtin("fedavg"), Coded({codec})),
                            {{1, -2, 3, -4, 5}, {3, 0, 1, 2, -1}}, {0, 0, 0, 0, 0});
    ASSERT_TRUE(loop.Rounds(600).ok());
    EXPECT_LT(Distance(loop.Model(), {2, -1, 2, -1, 2}), 1e-6) << codec;
  }
}

// What a receiver makes of the change has the bits of what the server says that it sent.
TEST(CodedBroadcast, TheChangeGivesTheVectorBitForBit) {
  const LayoutPtr layout = *ParameterLayout::Make(
      {{"w", {3, 700}}, {"b", {5}}, {.name = "mean", .shape = {4}, .group = Group::kBuffer}},
      DType::kF32);
  algorithms::Setup setup{.config = {.name = "fedavg", .parameters = {{"server_lr", 1.0}}},
                          .layout = layout,
                          .cohort = CohortOf(4),
                          .clients = 4,
                          .total_weight = 4,
                          .seed = 3};
  FlatVector start(layout);
  RandomStream random({.seed = 1, .purpose = Purpose::kTest});
  for (const LayoutEntry& entry : layout->entries()) {
    for (uint64_t i = 0; i < entry.size; ++i)
      start.As<float>()[entry.offset + i] = static_cast<float>(random.Normal());
  }
  const Description rule = WithCodedBroadcast(Builtin("fedavg"), Coded({"topk 0.1", "bits 4"}));
  const auto server = *rule.server(setup, start.Clone());
  const Schema schema = *rule.schema(setup);
  FlatVector held = start.Clone();
  for (uint32_t round = 1; round <= 5; ++round) {
    std::map<std::string, double> metrics;
    const ServerContext context{
        .round = Round(round), .seed = 3, .metrics = &metrics, .schema = &schema};
    for (int times = 0; times < 2; ++times) {  // asking again changes nothing
      const Broadcast broadcast = *server->Configure(context);
      ASSERT_EQ(broadcast[0].change.empty(), round == 1);
      if (round == 1) {
        EXPECT_TRUE(std::ranges::equal(broadcast[0].vector.bytes, start.view().bytes));
        continue;
      }
      EXPECT_TRUE(std::ranges::equal(broadcast[0].before.bytes, std::as_const(held).view().bytes));
      FlatVector made = held.Clone();
      AddChange(broadcast[0].change, made.view());
      EXPECT_TRUE(std::ranges::equal(std::as_const(made).view().bytes, broadcast[0].vector.bytes));
      // Buffers are as the model's.
      EXPECT_EQ(made.As<float>()[layout->entries()[2].offset],
                server->Model().As<float>()[layout->entries()[2].offset]);
      if (times == 1) held = std::move(made);
    }
    FlatVector moved(layout);
    for (uint64_t i = 0; i < layout->size(); ++i)
      moved.As<float>()[i] = 0.1f * static_cast<float>(random.Normal());
    aggregation::Aggregate aggregate;
    aggregate.clients = 4;
    aggregate.channels.push_back({.name = "delta", .value = std::move(moved), .weight = 4});
    ASSERT_TRUE(server->Apply(context, std::move(aggregate)).ok());
  }
}

TEST(CodedBroadcast, GoesOnAfterAResume) {
  for (const char* of : {"model", "change"}) {
    const Description rule = WithCodedBroadcast(Builtin("fedadam"), Coded({"bits 3"}, of));
    const auto loop = [&] {
      return Dishes(rule, {{1, -2, 3}, {3, 0, 1}}, {0.5, 0.5, 0.5}, DType::kF32);
    };
    RoundLoop whole = loop(), first = loop(), second = loop();
    ASSERT_TRUE(whole.Rounds(7).ok());
    ASSERT_TRUE(first.Rounds(4).ok());
    ASSERT_TRUE(second.ResumeFrom(first).ok());
    ASSERT_TRUE(second.Rounds(3).ok());
    EXPECT_EQ(second.ModelDigest(), whole.ModelDigest()) << of;
  }
}

// A run that is stopped inside a round begins the round again, and sends the same.
TEST(CodedBroadcast, SendsTheSameAgainAfterAStopInsideARound) {
  const LayoutPtr layout = ParameterLayout::Scalars("w", 40, DType::kF32);
  const algorithms::Setup setup{.config = {.name = "fedavg", .parameters = {{"server_lr", 1.0}}},
                                .layout = layout,
                                .cohort = CohortOf(1),
                                .clients = 1,
                                .total_weight = 1};
  const Description rule = WithCodedBroadcast(Builtin("fedavg"), Coded({"bits 2"}));
  const auto server = *rule.server(setup, FlatVector(layout));
  const auto resumed = *rule.server(setup, FlatVector(layout));
  const Schema schema = *rule.schema(setup);
  RandomStream random({.seed = 1, .purpose = Purpose::kTest});
  for (uint32_t round = 1; round <= 4; ++round) {
    std::map<std::string, double> metrics;
    const ServerContext context{.round = Round(round), .metrics = &metrics, .schema = &schema};
    const Broadcast sent = *server->Configure(context);
    ASSERT_TRUE(resumed->Load(server->Save()).ok());
    const Broadcast again = *resumed->Configure(context);
    EXPECT_TRUE(std::ranges::equal(sent[0].vector.bytes, again[0].vector.bytes)) << round;
    EXPECT_EQ(sent[0].before.empty(), again[0].before.empty());
    FlatVector moved(layout);
    for (float& x : moved.As<float>()) x = static_cast<float>(random.Normal());
    aggregation::Aggregate aggregate;
    aggregate.clients = 1;
    aggregate.channels.push_back({.name = "delta", .value = std::move(moved), .weight = 1});
    ASSERT_TRUE(server->Apply(context, std::move(aggregate)).ok());
  }
}

TEST(CodedBroadcast, EveryRuleHasItsResultUnderACodecThatChangesNothing) {
  for (const Description& rule : BuiltinAlgorithms()) {
    if (rule.pools_clients || !rule.has_common_model || rule.has_hooks) continue;
    if (rule.has_slices || rule.has_statistics) continue;  // of a list of layers
    const auto loop = [&](const Description& description) {
      return Dishes(description, {{1, -2, 3}, {3, 0, 1}, {0, 0, 2}}, {0.5, 0.5, 0.5});
    };
    RoundLoop plain = loop(rule);
    RoundLoop coded = loop(WithCodedBroadcast(rule, Coded({"threshold 1e-300"})));
    const absl::Status first = plain.Rounds(4), second = coded.Rounds(4);
    EXPECT_EQ(first, second) << rule.name;
    if (!first.ok()) continue;
    EXPECT_LT(Distance(plain.Model(), coded.Model()), 1e-9) << rule.name;
  }
}

std::string Refusal(const std::string& rule, const BroadcastConfig& broadcast, uint64_t cohort,
                    uint64_t clients) {
  const algorithms::Setup setup{.config = {.name = rule},
                                .layout = ParameterLayout::Scalars("w", 4, DType::kF32),
                                .cohort = CohortOf(cohort),
                                .clients = clients,
                                .total_weight = static_cast<double>(clients)};
  return std::string(WithCodedBroadcast(Builtin(rule), broadcast).check(setup).message());
}

TEST(CodedBroadcast, RefusesWhatCannotBe) {
  EXPECT_EQ(Refusal("fedavg", Coded({"bits 8"}), 2, 8), "");
  EXPECT_EQ(Refusal("fedavg", Coded({"topk 0.1"}), 8, 8), "");
  EXPECT_THAT(Refusal("fedavg", Coded({"topk 0.1"}), 2, 8),
              HasSubstr("broadcast.codec = [\"topk 0.1\"]: would leave most of the model out"));
  EXPECT_THAT(Refusal("fedavg", Coded({"sign"}), 2, 8), HasSubstr("or move it"));
  EXPECT_THAT(Refusal("fedavg", Coded({"randomk 0.1"}), 2, 8), HasSubstr("would leave most"));
  EXPECT_THAT(Refusal("fedavg", Coded({"bits 8"}, "change"), 2, 8),
              HasSubstr("not all clients take part in each round"));
  EXPECT_THAT(Refusal("fedavg", Coded({"acpsgd 4"}), 8, 8), HasSubstr("for update.codec alone"));
  EXPECT_THAT(Refusal("fedavg", Coded({"bots 8"}), 8, 8), HasSubstr("did you mean 'bits'"));
  for (const char* of : {"model", "change"}) {
    for (const std::vector<std::string>& codec :
         {std::vector<std::string>{"rotate", "bits 4"}, {"bits 4", "rotate"}, {"rotate"}})
      EXPECT_THAT(Refusal("fedavg", Coded(codec, of), 8, 8),
                  HasSubstr("each device would have to"));
  }
  EXPECT_THAT(Refusal("local", Coded({"bits 8"}), 8, 8),
              HasSubstr("train from the server's model"));
}

}  // namespace
}  // namespace macaw::algorithms
