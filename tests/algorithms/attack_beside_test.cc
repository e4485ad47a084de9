// Attacks on rules that send numbers beside their updates.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/around/attack.h"
#include "algorithms/around/decorated.h"
#include "algorithms/around/factored.h"
#include "algorithms/builtin.h"
#include "core/status.h"
#include "tests/algorithms/attack_util.h"
#include "tests/algorithms/bowls.h"
#include "tests/algorithms/robust_util.h"

namespace macaw::algorithms {
namespace {

TEST(Attacks, KnowWhatIsBesideUpdates) {
  RoundLoop loop(Builtin("fedavg"), Q4(), {});
  Registry registry;
  registry.AddBuiltin(BuiltinAlgorithms());
  std::map<std::string, std::vector<std::string>> beside;
  for (const Description* rule : registry.All()) {
    if (rule->has_slices || rule->has_statistics || !rule->shares_models()) continue;
    auto setup = SetupOfRule(rule->name, {}, loop.setup().layout);
    setup.clients = 4;
    const absl::StatusOr<Schema> schema = rule->schema(setup);
    ASSERT_TRUE(schema.ok()) << rule->name << schema.status();
    const std::vector<std::string> names = BesideUpdates(*schema, setup.layout);
    if (!names.empty()) beside[rule->name] = names;
  }
  EXPECT_EQ(beside, (std::map<std::string, std::vector<std::string>>{{"afl", {"loss"}},
                                                                     {"fedexp", {"square"}},
                                                                     {"fednova", {"tau"}},
                                                                     {"ifca", {"share"}},
                                                                     {"qfedavg", {"h"}},
                                                                     {"term", {"tilt", "power"}}}));
  // All numbers that travel are updates where none has the model's layout.
  Schema sums{.up = {{.name = "sums", .layout = ParameterLayout::Scalars("sums", 7, DType::kF64)}}};
  EXPECT_TRUE(BesideUpdates(sums, loop.setup().layout).empty());
}

// Rules that are FedAvg's formula with these parameters, if all clients take the same steps and
// weigh the same.
struct AsFedAvg {
  const char* rule;
  std::map<std::string, ParameterValue> parameters;
};

std::vector<AsFedAvg> RulesAsFedAvg() {
  return {{"qfedavg", {{"q", 0.0}}},
          {"fednova", {}},
          {"term", {{"t", 0.0}}},
          {"ifca", {{"clusters", int64_t{1}}}},
          {"afl", {{"mixture_lr", 0.0}, {"evaluate", std::string("x")}}},
          {"fedexp", {{"epsilon", 1e9}, {"evaluate", std::string("x")}}},
          {"fedprox", {{"mu", 0.0}}}};
}

TEST(Attacks, AreTheSameUnderRulesThatAreTheSame) {
  std::vector<TestPopulationClient> equal = Q4();
  for (TestPopulationClient& client : equal) client.examples = 3;
  for (const char* kind : {"label-flip", "sign-flip", "scaling", "free-rider", "inner-product",
                           "alie", "min-max", "min-sum", "mimic", "backdoor"}) {
    AttackConfig attack = Of(kind, .5, 3);
    if (attack.kind == "alie") attack.z = 1.5;
    RoundLoop fedavg(Under(attack, "fedavg", 4), equal, {}), honest(Builtin("fedavg"), equal, {});
    ASSERT_TRUE(fedavg.Rounds(3).ok());
    ASSERT_TRUE(honest.Rounds(3).ok());
    EXPECT_GT(Distance(fedavg.Model(), honest.Model()), 1e-3) << kind;
    for (const auto& [rule, parameters] : RulesAsFedAvg()) {
      const bool refused = rule == std::string("term") || rule == std::string("ifca");
      if (refused && attack.omniscient()) continue;
      RoundLoop loop(Under(attack, rule, 4), equal, {.parameters = parameters});
      ASSERT_TRUE(loop.Rounds(3).ok()) << kind << " " << rule;
      EXPECT_LT(Distance(loop.Model(), fedavg.Model()), 1e-9) << kind << " " << rule;
    }
  }
}

// x + mean(τ)·mean(d), where hostile clients lie about d alone.
TEST(Attacks, LeaveTheStepsOfFedNovaHonest) {
  std::vector<TestPopulationClient> uneven = Q4();
  std::vector<Numbers> delta;
  for (size_t k = 0; k < 4; ++k) {
    uneven[k].steps = static_cast<uint32_t>(k + 1);
    RoundLoop alone(Builtin("fedavg"), uneven, {});
    ASSERT_TRUE(alone.Round({k}).ok());
    delta.push_back(alone.Model());
  }
  for (const auto& [kind, factor] :
       {std::pair("sign-flip", -2.0), std::pair("scaling", 2.0), std::pair("free-rider", 0.0)}) {
    const AttackConfig attack = Of(kind, .5, 2);
    const HostileClients hostile(attack, 4, kSeed);
    double tau = 0;
    Numbers direction = {0, 0};
    for (size_t k = 0; k < 4; ++k) {
      const double p = Q4()[k].examples / 10.0, steps = uneven[k].steps;
      const double times = hostile.Contains(ClientId(k)) ? factor : 1;
      tau += p * steps;
      for (size_t i = 0; i < 2; ++i) direction[i] += p * times * delta[k][i] / steps;
    }
    RoundLoop loop(Under(attack, "fednova", 4), uneven, {});
    ASSERT_TRUE(loop.Rounds(1).ok());
    EXPECT_LT(Distance(loop.Model(), {tau * direction[0], tau * direction[1]}), 1e-12) << kind;
  }
}

// ΣΔ_k/Σh_k with q = 1: Δ_k = F_k·(y − x) and h_k = ‖y − x‖²/η + F_k, of a free-rider F_k.
TEST(FreeRider, SaysTheHOfAnUpdateOfZeros) {
  const AttackConfig attack = Of("free-rider", .5);
  const FirstRound round(attack, "fedavg");
  double h = 0;
  Numbers sum = {0, 0};
  for (size_t k = 0; k < 4; ++k) {
    const double f = Q4()[k].objective->Loss({0, 0}) + 1e-10;
    h += f;
    if (round.hostile[k]) continue;
    for (size_t i = 0; i < 2; ++i) {
      h += round.honest[k][i] * round.honest[k][i] / .1;
      sum[i] += f * round.honest[k][i];
    }
  }
  RoundLoop loop = Q4Under(attack, "qfedavg", {.parameters = {{"q", 1.0}}});
  ASSERT_TRUE(loop.Rounds(1).ok());
  EXPECT_LT(Distance(loop.Model(), {sum[0] / h, sum[1] / h}), 1e-12);
}

// Its power counts, and its update does not.
TEST(FreeRider, SaysItsLossUnderTerm) {
  const AttackConfig attack = Of("free-rider", .5);
  const FirstRound round(attack, "fedavg");
  double powers = 0;
  Numbers sum = {0, 0};
  for (size_t k = 0; k < 4; ++k) {
    const double power = Q4()[k].examples * std::exp(.5 * Q4()[k].objective->Loss({0, 0}));
    powers += power;
    for (size_t i = 0; i < 2; ++i) sum[i] += round.hostile[k] ? 0 : power * round.honest[k][i];
  }
  RoundLoop loop = Q4Under(attack, "term", {.parameters = {{"t", .5}}});
  ASSERT_TRUE(loop.Rounds(1).ok());
  EXPECT_LT(Distance(loop.Model(), {sum[0] / powers, sum[1] / powers}), 1e-9);
}

// A codec gives the update's channel another layout, and the number stays beside it.
TEST(Attacks, LeaveNumbersHonestWithACodecInside) {
  const UpdateConfig update{.codec = {"acpsgd 1"}, .feedback = "none"};
  const AttackConfig attack = Of("sign-flip", .5, 2);
  const Bowls bowls(4, 42, /*seed=*/77, /*spread=*/1);
  const auto after = [&](const char* rule, std::map<std::string, ParameterValue> parameters) {
    const Description own = Builtin(rule);
    RoundLoop loop(
        Attacked(Factored(own, update), attack, HostileClients(attack, 4, kSeed), &own),
        bowls.population,
        {.parameters = std::move(parameters),
         .start = Numbers(42),
         .layout = *ParameterLayout::Make(
             {{.name = "weight", .shape = {6, 6}}, {.name = "bias", .shape = {6}}}, DType::kF64)});
    EXPECT_TRUE(loop.Rounds(2).ok());
    return loop.Model();
  };
  EXPECT_LT(Distance(after("qfedavg", {{"q", 0.0}}), after("fedavg", {})), 1e-9);
}

// The rule, with a copy of what each client sends on a channel.
Description Listening(Description rule, const std::string& channel,
                      std::map<uint64_t, Numbers>& sent) {
  class Client final : public DecoratedClient {
   public:
    Client(std::unique_ptr<ClientAlgorithm> inner, std::string channel,
           std::map<uint64_t, Numbers>& sent)
        : DecoratedClient(std::move(inner)), channel_(std::move(channel)), sent_(sent) {}
    absl::StatusOr<ClientResult> Conclude(const ClientContext& context,
                                          std::span<const training::StageOutcome> outcomes,
                                          Workspace& workspace) const override {
      MACAW_ASSIGN_OR_RETURN(ClientResult result, inner().Conclude(context, outcomes, workspace));
      const auto up = std::ranges::find(result.up, channel_, &UpVector::name);
      const auto numbers = std::get<ConstVectorView>(up->value).As<double>();
      sent_[context.client.value] = Numbers(numbers.begin(), numbers.end());
      return result;
    }

   private:
    const std::string channel_;
    std::map<uint64_t, Numbers>& sent_;
  };
  rule.client = [client = rule.client, channel,
                 &sent](const Setup& setup) -> absl::StatusOr<std::unique_ptr<ClientAlgorithm>> {
    MACAW_ASSIGN_OR_RETURN(std::unique_ptr<ClientAlgorithm> inner, client(setup));
    return std::make_unique<Client>(std::move(inner), channel, sent);
  };
  return rule;
}

// The errors by which ranks are chosen are no part of an update (update.adapt).
TEST(Attacks, LeaveTheErrorsOfRanksHonest) {
  const UpdateConfig update{.codec = {"acpsgd 2"}, .feedback = "none", .adapt = 1};
  const Bowls bowls(4, 144, /*seed=*/78, /*spread=*/1);
  const LayoutPtr layout =
      *ParameterLayout::Make({{.name = "weight", .shape = {12, 12}}}, DType::kF64);
  const auto errors_sent = [&](const Description& rule) {
    std::map<uint64_t, Numbers> sent;
    RoundLoop loop(Listening(rule, "delta_errors", sent), bowls.population,
                   {.start = Numbers(144), .layout = layout});
    EXPECT_TRUE(loop.Rounds(1).ok());
    return sent;
  };
  const Description own = Builtin("fedavg"), coded = Factored(own, update);
  const auto honest = errors_sent(coded);
  ASSERT_EQ(honest.size(), 4);
  EXPECT_GT(honest.at(0).front(), 0);
  for (const char* kind : {"sign-flip", "scaling"}) {
    const AttackConfig attack = Of(kind, .5, 2);
    EXPECT_EQ(errors_sent(Attacked(coded, attack, HostileClients(attack, 4, kSeed), &own)), honest)
        << kind;
  }
}

}  // namespace
}  // namespace macaw::algorithms
