#include "server/leave_one_out.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "server/contributions.h"
#include "server/coordinator.h"
#include "server/log/history.h"
#include "server/model_keeper.h"
#include "tests/server/keeper_rounds.h"
#include "tests/server/tiny_run.h"

// The models of a round without each of its clients.
namespace macaw::server {
namespace {

using fixtures::ContributionsOf;
using fixtures::FakeWorker;
using fixtures::Finish;
using fixtures::kCohort;
using fixtures::Lines;
using fixtures::OrderOf;
using fixtures::RefusalOf;
using fixtures::Registry;
using fixtures::RunBytes;
using fixtures::SendApart;
using fixtures::Slurp;
using fixtures::StartError;
using fixtures::StartTiny;
using fixtures::TinyDelta;
using fixtures::TinyLayout;
using fixtures::TinyOptions;
using fixtures::TrainedRules;
using testing::HasSubstr;
using testing_support::TemporaryFolder;

// ---- the arithmetic

class LeftOutOnce : public fixtures::KeeperRounds {
 protected:
  ModelKeeper Keeper(uint32_t leave_one_out) const {
    return KeeperRounds::Keeper({.leave_one_out = leave_one_out});
  }

  // Of client k: its rows, or 1 where a rule takes all updates alike, or what it has reported.
  static double WeightInTheSum(uint64_t k) {
    const std::set<std::string> alike = {
        "afl",    "centered_clipping", "feddyn",   "fltrust",     "krum",
        "median", "qfedavg",           "scaffold", "trimmed_mean"};
    if (alike.contains(GetParam())) return 1;
    const bool reports = GetParam() == "geometric_median" || GetParam() == "norm_bound";
    return reports ? static_cast<double>(k + 1) / 8 : static_cast<double>(k + 2);
  }
};

// The client that is left out is one that the round had not counted.
TEST_P(LeftOutOnce, GivesTheModelOfTheRoundWithoutTheClient) {
  run_.evaluation.leave_one_out = 1;
  const absl::Status accepted = CheckLeaveOneOut(run_, *rule_, schema_);
  if (const std::string words = RefusalOf(GetParam()); !words.empty()) {
    EXPECT_THAT(accepted.ToString(), HasSubstr(words));
    return;
  }
  ASSERT_TRUE(accepted.ok()) << accepted;
  const std::vector<uint64_t> all = {3, 0, 4, 1, 2};
  ModelKeeper keeper = Keeper(1), plain = Keeper(0);
  for (const uint32_t round : {1, 2}) {
    std::vector<ModelKeeper> without;
    for (uint64_t left_out = 0; left_out < kCohort; ++left_out) {
      ModelKeeper other = Keeper(0);
      ASSERT_TRUE(other.Load(plain.Save()).ok());
      std::vector<uint64_t> others = all;
      std::erase(others, left_out);
      Do(other, round, others, /*apart=*/false);
      without.push_back(std::move(other));
    }
    Do(keeper, round, all, /*apart=*/true);
    Do(plain, round, all, /*apart=*/false);
    EXPECT_EQ(keeper.ModelBlob().digest, plain.ModelBlob().digest) << "the model itself";
    ASSERT_EQ(keeper.without().size(), kCohort);
    for (uint64_t k = 0; k < kCohort; ++k) {
      const WithoutClient& one = keeper.without()[k];
      EXPECT_EQ(one.client, ClientId(k));
      EXPECT_EQ(one.weight, WeightInTheSum(k));
      EXPECT_EQ(one.model.digest, without[k].ModelBlob().digest) << "round " << round << ", " << k;
      EXPECT_EQ(one.digest, DigestOfValues(without[k].Model()));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Of, LeftOutOnce, testing::ValuesIn(TrainedRules()),
                         [](const auto& info) { return info.param; });

class LeftOutOfFedAvg : public LeftOutOnce {};

TEST_P(LeftOutOfFedAvg, NeedsAPartForEachClient) {
  ModelKeeper keeper = Keeper(2);
  ASSERT_TRUE(keeper.Open(OrderOf(1)).ok());
  EXPECT_TRUE(keeper.Decode(PartOf({0, 1}, 1, keeper)).ok()) << "not due";
  ASSERT_TRUE(keeper.Open(OrderOf(2)).ok());
  EXPECT_THAT(keeper.Decode(PartOf({0, 1}, 2, keeper)).status().ToString(),
              HasSubstr("a part for each client"));
  EXPECT_TRUE(keeper.Decode(PartOf({0}, 2, keeper)).ok());
}

// A session may have two uploads that are in use: a third part would wait for ever.
TEST_P(LeftOutOfFedAvg, KeepsNoBytesThatAPartCameIn) {
  ModelKeeper keeper = Keeper(1);
  ASSERT_TRUE(keeper.Open(OrderOf(1)).ok());
  for (const uint64_t client : {0, 1, 2}) {
    fleet::Part part = PartOf({client}, 1, keeper);
    const std::weak_ptr<const AlignedBuffer> bytes = part.sums.bytes;
    ASSERT_TRUE(keeper.Add(*keeper.Decode(part), ClientId(client)).ok());
    part = {};
    EXPECT_TRUE(bytes.expired()) << client;
  }
  ASSERT_TRUE(keeper.Apply(Round(1), Phase(0)).ok());
  EXPECT_EQ(keeper.without().size(), 3u);
}

// A checkpoint is written while the models wait for their evaluation.
TEST_P(LeftOutOfFedAvg, IsKeptInASavedState) {
  ModelKeeper keeper = Keeper(1), resumed = Keeper(1);
  Do(keeper, 1, {4, 1}, /*apart=*/true);
  ASSERT_TRUE(resumed.Load(keeper.Save()).ok());
  ASSERT_EQ(resumed.without().size(), 2u);
  for (const size_t i : {0, 1}) {
    EXPECT_EQ(resumed.without()[i].client, keeper.without()[i].client);
    EXPECT_EQ(resumed.without()[i].model.digest, keeper.without()[i].model.digest);
  }
  EXPECT_EQ(resumed.ModelBlob().digest, keeper.ModelBlob().digest);
  keeper.ForgetWithout();
  ASSERT_TRUE(resumed.Load(keeper.Save()).ok());
  EXPECT_TRUE(resumed.without().empty());
}

// Alone, a client is the mean; a dropped round has nobody.
TEST_P(LeftOutOfFedAvg, MovesNothingWithoutItsOnlyClient) {
  ModelKeeper keeper = Keeper(1);
  const Digest before = keeper.ModelBlob().digest;
  Do(keeper, 1, {3}, /*apart=*/true);
  ASSERT_EQ(keeper.without().size(), 1u);
  EXPECT_EQ(keeper.without()[0].model.digest, before);
  EXPECT_NEAR(keeper.without()[0].cosine, 1, 1e-12);
  ASSERT_TRUE(keeper.Open(OrderOf(2)).ok());
  ASSERT_TRUE(keeper.Add(*keeper.Decode(PartOf({3}, 2, keeper)), ClientId(3)).ok());
  keeper.DropSum();
  ASSERT_TRUE(keeper.Apply(Round(2), Phase(0)).ok());
  EXPECT_TRUE(keeper.without().empty());
}

// Two clients, v_0 and v_1 with weights 2 and 3: the mean is (2 v_0 + 3 v_1)/5.
TEST_P(LeftOutOfFedAvg, ComparesEachClientWithTheMean) {
  ModelKeeper keeper = Keeper(1);
  const FlatVector start = FlatVector::CopyOf(keeper.Model(), TinyLayout());
  Do(keeper, 1, {0, 1}, /*apart=*/true);
  const FlatVector a = TinyDelta(ClientId(0), start.view()),
                   b = TinyDelta(ClientId(1), start.view());
  double own = 0, mean = 0, both = 0;
  for (uint64_t i = 0; i < TinyLayout()->size(); ++i) {
    const double x = a.As<float>()[i], m = (2 * x + 3.0 * b.As<float>()[i]) / 5;
    own += x * x;
    mean += m * m;
    both += x * m;
  }
  EXPECT_NEAR(keeper.without()[0].cosine, both / std::sqrt(own * mean), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Of, LeftOutOfFedAvg, testing::Values(std::string("fedavg")));

// ---- runs

Options LeavingOut(const std::string& folder, uint32_t rounds, uint32_t every) {
  Options options = TinyOptions(folder, rounds);
  options.run.evaluation.leave_one_out = every;
  return options;
}

TEST(LeaveOneOut, WritesALineForEachRoundThatIsDue) {
  const TemporaryFolder folder, plain;
  Options options = LeavingOut(folder.path(), 5, 2);
  options.run.evaluation.every = 5;
  Finish(options);
  const std::vector<nlohmann::json> lines = ContributionsOf(folder);
  ASSERT_EQ(lines.size(), 2u);
  const std::vector<std::string> rows = Lines(folder / "metrics.jsonl");
  for (const size_t i : {0, 1}) {
    const nlohmann::json& line = lines[i];
    EXPECT_EQ(line["round"], 2 * (i + 1));
    ASSERT_EQ(line["client"].size(), 4u);
    const nlohmann::json row = nlohmann::json::parse(rows.at(2 * i + 1));
    ASSERT_TRUE(row.contains("test_accuracy")) << "the round is evaluated, too";
    bool some = false;
    for (size_t k = 0; k < 4; ++k) {
      const double without = line["test_accuracy"][k], delta = line["delta_test_accuracy"][k];
      EXPECT_NEAR(row["test_accuracy"].get<double>() - without, delta, 1e-12);
      EXPECT_EQ(line["delta_test_loss"][k], 0) << "the fake worker's loss is that of no model";
      some = some || std::fabs(delta) > 1e-6;
    }
    EXPECT_TRUE(some);
  }
  Options without = TinyOptions(plain.path(), 5);
  without.run.evaluation.every = 5;
  Finish(without);
  EXPECT_EQ(RunBytes(plain.path()).digest, RunBytes(folder.path()).digest)
      << "it changes nothing of the result";
}

// The law: what is recorded for a client is the model of a run that gives the client up.
TEST(LeaveOneOut, IsTheRunThatIsRepeatedWithoutTheClient) {
  const TemporaryFolder folder;
  Finish(LeavingOut(folder.path(), 1, 1));
  const nlohmann::json line = ContributionsOf(folder).at(0);
  const auto history = log::ReadHistory(folder / "rounds.log");
  ASSERT_TRUE(history.ok()) << history.status();
  for (size_t k = 0; k < line["client"].size(); ++k) {
    const TemporaryFolder again;
    Options options = TinyOptions(again.path(), 1);
    options.replays = history->sessions().front().run;
    options.decisions = history->decisions();
    log::LeaveOut({ClientId(line["client"][k].get<uint64_t>())}, *history, options.decisions);
    Finish(options);
    EXPECT_EQ(RunBytes(again.path()).digest, line["model"][k].get<std::string>());
  }
}

class LeaveOneOutInterrupted : public testing::TestWithParam<bool> {};

// With durable commits the server goes on inside the round. Without, the evaluation of the models
// without a client is owed in the checkpoint.
TEST_P(LeaveOneOutInterrupted, GivesTheSameLines) {
  for (const uint32_t rounds : {1, 2, 3}) {
    const TemporaryFolder whole, parts;
    Options options = LeavingOut(whole.path(), 4, 1);
    options.config.checkpoint_every = 3;
    if (GetParam()) options.config.durability = "commit";
    Finish(options);
    options.run_dir = parts.path();
    {
      const auto coordinator = StartTiny(options);
      FakeWorker worker(*coordinator);
      SendApart(worker);
      ASSERT_TRUE(worker.Register().ok());
      worker.RunThrough(rounds);
      if (GetParam()) {
        ASSERT_TRUE(worker.WorkOnPart().has_value());  // inside the next round
        coordinator->Suspend();
      } else {
        coordinator->Interrupt();
        EXPECT_FALSE(worker.Work().has_value());
      }
      ASSERT_TRUE(coordinator->Wait().ok());
    }
    options.resume = true;
    Finish(options);
    EXPECT_EQ(RunBytes(parts.path()), RunBytes(whole.path())) << rounds;
    EXPECT_EQ(Slurp(parts / "contributions.jsonl"), Slurp(whole / "contributions.jsonl")) << rounds;
  }
}

INSTANTIATE_TEST_SUITE_P(Durable, LeaveOneOutInterrupted, testing::Bool());

// A client that cannot be trained is in no line.
TEST(LeaveOneOut, HasNoClientThatDidNotCount) {
  const TemporaryFolder folder;
  Options options = LeavingOut(folder.path(), 1, 1);
  const auto coordinator = StartTiny(options);
  FakeWorker worker(*coordinator);
  SendApart(worker);
  ASSERT_TRUE(worker.Register().ok());
  auto request = worker.WorkOnPart();
  ASSERT_TRUE(request.has_value());
  const Attempt lost = request->part->included.back().attempt;
  request->part->included.pop_back();
  request->part->left_out.push_back({.attempt = lost, .message = "no memory"});
  EXPECT_EQ(worker.CommitApart(*request).verdict, fleet::Verdict::kAccepted);
  worker.RunToEnd();
  ASSERT_TRUE(coordinator->Wait().ok());
  const nlohmann::json line = ContributionsOf(folder).at(0);
  EXPECT_EQ(line["client"].size(), 3u);
  for (const auto& client : line["client"]) EXPECT_NE(client, lost.client.value);
}

TEST(LeaveOneOut, IsRefusedWhereARoundCannotDoWithoutAClient) {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& algorithm) {
    Options options = LeavingOut(folder.path(), 1, 1);
    options.run.algorithm = *Registry().Complete({algorithm, {}});
    return std::string(StartError(options).message());
  };
  EXPECT_THAT(refused("mime"), HasSubstr("several phases"));
  EXPECT_THAT(refused("local"), HasSubstr("no common model"));
  Options options = LeavingOut(folder.path(), 1, 1);
  options.run.asynchronous.mode = "buffered";
  const algorithms::Description& rule = **Registry().Find("fedavg");
  const algorithms::Schema schema =
      *algorithms::SchemaOf(rule, algorithms::SetupOf(TinyOptions("", 1).run, TinyLayout()));
  EXPECT_THAT(CheckLeaveOneOut(options.run, rule, schema).ToString(), HasSubstr("round.mode"));
  options = LeavingOut(folder.path(), 1, 1);
  options.run.privacy.mechanism = "gaussian";
  EXPECT_THAT(CheckLeaveOneOut(options.run, rule, schema).ToString(), HasSubstr("[privacy]"));
}

// A folder may be anybody's.
TEST(Contributions, OfAClientThatIsNoNumberAreNotKnown) {
  EvaluationSums sums{.round = Round(2), .central = {10, 5, 8}};
  sums.without.push_back({.client = ClientId(3), .sums = {10, 6, 7}});
  const std::string line = R"({"round":2,"client":[3,"3",-1,null]})";
  const auto whole =
      nlohmann::json::parse(WithEvaluation(line, sums, TaskKind::kClassification), nullptr, false);
  ASSERT_TRUE(whole.is_object());
  EXPECT_EQ(whole["test_accuracy"], nlohmann::json({0.7, nullptr, nullptr, nullptr}));
  for (const char* round : {R"("2")", "-2", "2.5", "{}"}) {
    const std::string torn = absl::StrCat(R"({"round":)", round, "}");
    EXPECT_TRUE(ContributionLines(absl::StrCat(torn, "\n", line)).empty()) << torn;
  }
  EXPECT_EQ(ContributionLines(line).size(), 1u);
}

}  // namespace
}  // namespace macaw::server
