// Rules whose server half sums what clients keep, when clients lose it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "algorithms/around/attack.h"
#include "algorithms/around/coded_broadcast.h"
#include "algorithms/around/compressed.h"
#include "algorithms/around/drift.h"
#include "algorithms/around/frozen.h"
#include "algorithms/around/privacy.h"
#include "sdk/testing/round_loop.h"
#include "tests/algorithms/compressed_util.h"

namespace macaw::algorithms {
namespace {

using testing::HasSubstr;

// ---- which rules begin anew

TEST(BeginsAnew, IsNotARuleWhoseClientsKeepSomethingOfTheirOwn) {
  RoundLoop alone(Compressed(Builtin("fedavg"), Update({"topk 0.5"}, "ef21")), Q4(), {});
  EXPECT_TRUE(BeginsAnew(alone.schema()));
  // Or all personal models would go where one client has lost its own.
  RoundLoop personal(Compressed(Builtin("ditto"), Update({"topk 0.5"}, "ef21")), Q4(), {});
  ASSERT_EQ(personal.schema().state.size(), 2u);
  EXPECT_FALSE(BeginsAnew(personal.schema()));
  // A residual is the client's own, too: nobody has a sum of it.
  RoundLoop residual(Compressed(Builtin("fedavg"), Update({"topk 0.5"}, "residual")), Q4(), {});
  ASSERT_EQ(residual.schema().state.size(), 1u);
  EXPECT_FALSE(BeginsAnew(residual.schema()));
  RoundLoop stateless(Builtin("fedavg"), Q4(), {});
  EXPECT_FALSE(BeginsAnew(stateless.schema()));
}

TEST(BeginsAnew, ARuleThatSaysSoAndHasNoMethodIsToldWhichOne) {
  RoundLoop loop(Builtin("fedavg"), Q4(), {});
  EXPECT_THAT(loop.ForgetStates().ToString(), HasSubstr("ForgetStates"));
}

// ---- each rule, and the rule within everything that may stand around it

struct Forgetting {
  std::string name;
  Description rule;
  std::vector<std::string> sums;  // the vectors of the saved state that are sums, and their numbers
};
void PrintTo(const Forgetting& one, std::ostream* out) { *out << one.name; }

PrivacyConfig Clip() { return {.mechanism = "gaussian", .clip = 100, .noise = 1e-9}; }

std::vector<Forgetting> Cases() {
  const Description scaffold = Builtin("scaffold"), feddyn = Builtin("feddyn");
  const auto ef21 = [](const std::vector<std::string>& codec) {
    return Compressed(Builtin("fedavg"), Update(codec, "ef21"));
  };
  AttackConfig attack;
  attack.kind = "sign-flip";
  BroadcastConfig broadcast;
  broadcast.codec = {"threshold 1e-300"};
  return {
      {"Scaffold", scaffold, {"control"}},
      {"FedDyn", feddyn, {"h"}},
      {"Ef21", ef21({"topk 0.5"}), {"update_sum_delta"}},
      {"Ef21Rotated", ef21({"rotate", "sign"}), {"update_sum_delta"}},
      {"ScaffoldCoded", Compressed(scaffold, Update({"bf16"})), {"control"}},
      {"ScaffoldWithDrift", WithDrift(scaffold), {"control"}},
      {"ScaffoldAttacked", Attacked(scaffold, attack, HostileClients()), {"control"}},
      {"ScaffoldPrivate", WithPrivacy(scaffold, Clip(), 100), {"control"}},
      {"ScaffoldBroadcast", WithCodedBroadcast(scaffold, broadcast), {"control"}},
      {"FedDynFrozen", WithFrozen(feddyn, {"frozen"}), {"h"}},
      {"Ef21InAll",
       WithFrozen(
           WithCodedBroadcast(Attacked(ef21({"topk 0.5"}), attack, HostileClients()), broadcast),
           {"frozen"}),
       {"update_sum_delta"}},
  };
}

class ForgetStates : public testing::TestWithParam<Forgetting> {
 protected:
  static RoundLoop Loop() {
    const LayoutPtr layout = *ParameterLayout::Make(
        {{.name = "frozen", .shape = {1}}, {.name = "w", .shape = {1}}}, DType::kF64);
    return {
        GetParam().rule, Q4(), {.steps = 3, .layout = layout, .cohort = CohortOf(3), .seed = 5}};
  }
};

TEST_P(ForgetStates, LeavesTheModelAndMakesTheSumsWhatTheyWereAtFirst) {
  RoundLoop loop = Loop();
  const ServerState first = loop.server().Save();
  ASSERT_TRUE(loop.ForgetStates().ok()) << "nothing is to be forgotten yet";
  ASSERT_TRUE(BeginsAnew(loop.schema()));
  ASSERT_TRUE(loop.Round({0, 1, 2}).ok());
  ASSERT_TRUE(loop.Round({1, 2, 3}).ok());
  const ServerState before = loop.server().Save();
  ASSERT_TRUE(loop.ForgetStates().ok());
  const ServerState after = loop.server().Save();
  ASSERT_EQ(after.vectors.size(), first.vectors.size());
  const auto is_sum = [](const std::string& name) {
    return testing::Matches(testing::Contains(name))(GetParam().sums);
  };
  for (const std::string& sum : GetParam().sums) {
    EXPECT_NE(DigestOfValues(before.vectors.at(sum).view()),
              DigestOfValues(first.vectors.at(sum).view()))
        << sum;
  }
  for (const auto& [name, vector] : after.vectors) {
    const ServerState& as = is_sum(name) ? first : before;
    EXPECT_EQ(DigestOfValues(vector.view()), DigestOfValues(as.vectors.at(name).view())) << name;
  }
  for (const auto& [name, number] : after.numbers)
    EXPECT_EQ(number, (is_sum(name) ? first : before).numbers.at(name)) << name;
  ASSERT_TRUE(loop.Round({0, 1, 3}).ok()) << "the run goes on";
}

INSTANTIATE_TEST_SUITE_P(Of, ForgetStates, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

// ---- what it is for

// Twice the run of four clients of which one loses its state after some rounds: as it goes on by
// itself, and as it begins anew.
struct ForgottenEnds {
  Numbers stays, anew;
};
ForgottenEnds AfterALoss(const Description& rule, const RoundLoop::Options& options, int rounds) {
  const auto end = [&](bool begins_anew) {
    RoundLoop loop(rule, Q4(), options);
    EXPECT_TRUE(loop.SampledRounds(20, options.cohort.size).ok());
    loop.LoseState(1);
    EXPECT_TRUE(loop.SampledRounds(1, options.cohort.size).ok());
    if (begins_anew) {
      EXPECT_TRUE(loop.ForgetStates().ok());
    }
    EXPECT_TRUE(loop.SampledRounds(rounds, options.cohort.size).ok());
    return loop.Model();
  };
  return {.stays = end(false), .anew = end(true)};
}

TEST(AClientThatHasLostItsState, BiasesScaffoldUntilAllBeginAnew) {
  const ForgottenEnds ends =
      AfterALoss(Builtin("scaffold"), {.steps = 3, .cohort = CohortOf(4)}, 3000);
  EXPECT_GT(Distance(ends.stays, Q4UniformOptimum()), 1e-3) << "nothing would be mended";
  EXPECT_LT(Distance(ends.anew, Q4UniformOptimum()), 1e-13);
}

TEST(AClientThatHasLostItsState, BiasesFedDynUntilAllBeginAnew) {
  const ForgottenEnds ends = AfterALoss(
      Builtin("feddyn"), {.steps = 7, .parameters = {{"alpha", 0.5}}, .cohort = CohortOf(4)}, 3000);
  EXPECT_GT(Distance(ends.stays, Q4UniformOptimum()), 1e-3) << "nothing would be mended";
  EXPECT_LT(Distance(ends.anew, Q4UniformOptimum()), 1e-13);
}

TEST(AClientThatHasLostItsState, BiasesEf21UntilAllBeginAnew) {
  const Description rule = Compressed(Builtin("fedavg"), Update({"topk 0.5"}, "ef21"));
  const RoundLoop::Options options = {.steps = 1, .lr = 0.05, .cohort = CohortOf(2)};
  RoundLoop undisturbed(rule, Q4(), options);
  ASSERT_TRUE(undisturbed.SampledRounds(4000, 2).ok());
  const ForgottenEnds ends = AfterALoss(rule, options, 4000);
  EXPECT_GT(Distance(ends.stays, undisturbed.Model()), 1e-3) << "nothing would be mended";
  EXPECT_LT(Distance(ends.anew, undisturbed.Model()), 1e-9);
}

}  // namespace
}  // namespace macaw::algorithms
