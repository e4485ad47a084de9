#include "cli/config/notes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_join.h"
#include "cli/config/resolve.h"
#include "tests/cli/config_test_util.h"

namespace macaw::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Clients with the given numbers of training and test rows.
class SomeRows final : public data::Dataset {
 public:
  SomeRows(std::vector<uint32_t> train, std::vector<uint32_t> test, uint64_t central = 0)
      : train_(std::move(train)), test_(std::move(test)) {
    info_.test_examples = central;
    info_.name = "some";
    info_.input_shape = {4};
    info_.classes = 3;
    info_.clients = train_.size();
    for (const uint32_t rows : train_) info_.train_examples += rows;
  }
  const data::DatasetInfo& info() const override { return info_; }
  uint32_t Examples(ClientId client, data::Split split) const override {
    return split == data::Split::kTrain  ? train_[client.value]
           : split == data::Split::kTest ? test_[client.value]
                                         : 0;
  }
  absl::StatusOr<data::Rows> Client(ClientId, data::Split) const override {
    return absl::UnimplementedError("counts only");
  }
  data::Rows CentralTest() const override { return {}; }
  void set_classes(int64_t classes) { info_.classes = classes; }
  void set_central_validation(uint64_t rows) { info_.val_examples = rows; }
  void set_train_clients(uint64_t clients) { info_.train_clients = clients; }

 private:
  data::DatasetInfo info_;
  std::vector<uint32_t> train_, test_;
};

Config Read(const std::string& algorithm, std::vector<std::string> set,
            const sdk::Catalogue& catalogue) {
  std::vector<Override> overrides;
  set.insert(set.end(), {"cohort.size=2", "algorithm.name=" + algorithm});
  for (const std::string& one : set) overrides.push_back(*ParseOverride(one));
  auto config = ReadConfig(*ParseDocument(kMinimal, "exp.toml", "/configs"), overrides, catalogue);
  EXPECT_TRUE(config.ok()) << config.status();
  return *std::move(config);
}

std::string Notes(const std::string& algorithm, const data::Dataset& dataset,
                  std::vector<std::string> set = {}) {
  const sdk::Catalogue builtins = sdk::Catalogue::Builtins();
  Config config = Read(algorithm, std::move(set), builtins);
  const absl::Status resolved = Resolve(config, dataset, builtins);
  EXPECT_TRUE(resolved.ok()) << resolved;
  const auto spec = SpecOf(config);
  EXPECT_TRUE(spec.ok()) << spec.status();
  return absl::StrJoin(NotesOf(config, *spec, dataset, builtins.algorithms()), "\n");
}

// Why the run is refused.
std::string Error(const std::string& algorithm, const data::Dataset& dataset,
                  std::vector<std::string> set) {
  const sdk::Catalogue builtins = sdk::Catalogue::Builtins();
  Config config = Read(algorithm, std::move(set), builtins);
  return std::string(Resolve(config, dataset, builtins).message());
}

TEST(Notes, SayThatClientsThatJoinLaterHaveNothingToTuneOn) {
  SomeRows rows({20, 20, 0, 0}, {5, 5, 5, 5});
  rows.set_train_clients(2);
  const std::vector<std::string> tested = {"evaluation.heldout=true"};
  const std::vector<std::string> tuned = {"evaluation.heldout=true",
                                          "evaluation.fine_tune.steps=2"};
  const std::string note = "2 of 2 clients that join later have test rows and none to tune on";
  EXPECT_THAT(Notes("fedavg", rows, tuned), HasSubstr(note));
  EXPECT_THAT(Notes("fedavg", rows, tested), testing::Not(HasSubstr(note)));
}

TEST(Notes, SayWhichClientsAreTestedAndNotTuned) {
  const std::vector<std::string> tuned = {"evaluation.clients=true",
                                          "evaluation.fine_tune.steps=2"};
  const std::string note = "1 of 3 clients with test rows have no training rows to tune on";
  EXPECT_THAT(Notes("fedavg", SomeRows({20, 20, 0}, {5, 5, 5}), tuned), HasSubstr(note));
  EXPECT_THAT(Notes("fedavg", SomeRows({20, 20, 9}, {5, 5, 5}), tuned),
              testing::Not(HasSubstr("to tune on")));
  SomeRows apart({20, 20, 0}, {5, 5, 5});
  apart.set_train_clients(2);
  std::vector<std::string> heldout = tuned;
  heldout.emplace_back("evaluation.heldout=true");
  EXPECT_THAT(Notes("fedavg", apart, heldout), testing::Not(HasSubstr(note)));
}

TEST(Notes, SayThatADeadlineChangesNothingWhereARoundWaitsForAll) {
  const SomeRows rows({20, 20, 20, 20}, {5, 5, 5, 5});
  const auto is_noted = [&](std::vector<std::string> set) {
    set.insert(set.end(), {"devices.family=phones", "round.deadline=3"});
    return Notes("fedavg", rows, set).find("round.deadline changes nothing") != std::string::npos;
  };
  EXPECT_TRUE(is_noted({}));
  EXPECT_TRUE(is_noted({"round.quorum=0.9"})) << "of two clients both";
  EXPECT_TRUE(is_noted({"round.quorum=0.5", "round.enough=1"}));
  EXPECT_TRUE(is_noted({"round.quorum=0.5", "cohort.over_selection=2"})) << "two of four asked";
  EXPECT_FALSE(is_noted({"round.quorum=0.5"}));
  EXPECT_FALSE(is_noted({"round.quorum=0.25", "cohort.over_selection=2"}));
  EXPECT_FALSE(is_noted({"round.below_quorum=drop"}));
}

TEST(Notes, SayThatPersonalModelsAreNotEvaluatedWhereNoClientHasTestRows) {
  const SomeRows without({20, 20, 20}, {0, 0, 0}), with({20, 20, 20}, {0, 5, 0});
  const SomeRows held_out({20, 20, 0}, {0, 0, 5});  // clients with test rows never train
  const std::vector<std::string> evaluated = {"evaluation.clients=true"};
  for (const data::Dataset* nobody : {&without, &held_out}) {
    EXPECT_THAT(Notes("ditto", *nobody, evaluated),
                AllOf(HasSubstr("ditto"), HasSubstr("test rows"), HasSubstr("clients_test_*")));
    EXPECT_THAT(Notes("ditto", *nobody), HasSubstr("client_test"));
  }
  EXPECT_THAT(Notes("fedavg", without, evaluated), HasSubstr("set data.client_test_fraction"));
  EXPECT_EQ(Notes("fedavg", held_out, evaluated), "");
  EXPECT_EQ(Notes("fedavg", without), "");
  EXPECT_THAT(Notes("ditto", with, evaluated),
              AllOf(HasSubstr("2 of 3 clients that train have no test rows"),
                    HasSubstr("clients_test_clients"), HasSubstr("data.client_test_fraction")));
  EXPECT_THAT(Notes("ditto", with), HasSubstr("evaluation.clients = true"));
}

TEST(Notes, NamePatternsOfGroupsThatPutNoClientThere) {
  const SomeRows rows({20, 20, 20, 20}, {5, 5, 5, 5});  // their names are numbers
  const auto notes = [&](const std::string& groups) {
    return Notes("fedavg", rows, {"evaluation.clients=true", "evaluation.groups=" + groups});
  };
  EXPECT_EQ(notes(R"(["a=0","a=1","b=*"])"), "");
  EXPECT_THAT(notes(R"(["a=0","a=9?","b=*"])"), AllOf(HasSubstr("by 1 of 3 patterns (\"a=9?\")"),
                                                      HasSubstr(R"(named "0", "1", "2", …,)")));
  EXPECT_THAT(notes(R"(["b=*","b=1"])"), HasSubstr("(\"b=1\")")) << "behind another one";
}

// 8 bytes of a sum and 4 of a model for each of two clients, of the numbers that they send.
TEST(Notes, SayThatClientsAreNotTestedWhereNoneHasTestRows) {
  const SomeRows without({20, 20, 20}, {0, 0, 0}), with({20, 20, 20}, {0, 5, 0});
  EXPECT_THAT(Notes("fedavg", without, {"evaluation.clients=true"}),
              AllOf(HasSubstr("no client has test rows"), HasSubstr("data.client_test_fraction")));
  EXPECT_THAT(Notes("fedavg", with, {"evaluation.clients=true"}),
              testing::Not(HasSubstr("no client has test rows")));
  EXPECT_THAT(Notes("fedavg", without), testing::Not(HasSubstr("test rows")));
}

TEST(Notes, SayWhatLeavingOneOutTakesOfWhatIsTrained) {
  const SomeRows rows({20, 20, 20}, {0, 0, 0}, /*central=*/9);
  std::vector<std::string> set = {"evaluation.leave_one_out=2",
                                  "model.layers=[\"linear 100000\", \"relu\", \"linear 3\"]"};
  EXPECT_THAT(Notes("fedavg", rows, set),
              AllOf(HasSubstr("a round in 2"), HasSubstr("some 19 MB")));  // 800,003 numbers
  set.emplace_back("model.frozen=[\"0.*\"]");
  EXPECT_THAT(Notes("fedavg", rows, set), HasSubstr("some 7 MB"));  // 300,003
}

TEST(Notes, SayHowManyStepsTheQuadraticRuleGives) {
  const SomeRows rows({20, 20, 20}, {1, 1, 1});
  const auto notes = [&](std::vector<std::string> set) {
    set.insert(set.end(), {"local.steps=2", "local.lr=0.1", "local.qsr=0.2", "run.rounds=3"});
    return Notes("fedavg", rows, set);
  };
  const std::vector<std::string> halves = {"local.lr_schedule=exponential",
                                           "local.lr_schedule.gamma=0.5"};
  const auto with = [&](const std::string& more) {
    std::vector<std::string> set = halves;
    set.push_back(more);
    return notes(set);
  };
  EXPECT_EQ(notes(halves), "local.qsr: 4 local steps in round 1, 64 in round 3");
  EXPECT_THAT(with("local.lr_schedule.warmup_rounds=1"),
              AllOf(HasSubstr("2 local steps in round 1, 16 in round 3"), HasSubstr("warm-up")));
  EXPECT_THAT(notes({}), AllOf(HasSubstr("4 local steps in round 1, 4 in round 3"),
                               HasSubstr("local.steps = 4 says the same")));
  EXPECT_THAT(Notes("fedavg", rows, {"local.steps=9", "local.lr=0.1", "local.qsr=0.2"}),
              AllOf(HasSubstr("local.qsr"), HasSubstr("changes nothing")));
  EXPECT_THAT(notes({"local.lr_schedule=exponential", "local.lr_schedule.gamma=0.001"}),
              AllOf(HasSubstr("1000000 in round 3"), HasSubstr("local.lr_schedule.floor")));
}

TEST(Notes, SayWhichClientsTakeNoStepOrOne) {
  const SomeRows rows({3, 12, 25, 0}, {1, 1, 1, 1});
  EXPECT_EQ(Notes("fedavg", rows), "");
  EXPECT_THAT(Notes("fedavg", rows, {"local.drop_last=true"}),
              HasSubstr("1 of 3 clients have fewer training rows than a batch of 10"));
  EXPECT_THAT(Notes("fedavg", rows, {"cohort.straggler_fraction=0.5"}),
              HasSubstr("1 of 3 clients take one step"));
  EXPECT_THAT(Notes("fedavg", rows, {"cohort.straggler_fraction=0.5", "local.batch_size=0"}),
              HasSubstr("3 of 3 clients take one step"));
  // A last batch of one row joins the one before where the model has batch norm.
  const SomeRows eleven({11, 25}, {1, 1});
  const std::string halves = "cohort.straggler_fraction=0.5";
  EXPECT_EQ(Notes("fedavg", eleven, {halves}), "");
  EXPECT_THAT(
      Notes("fedavg", eleven, {halves, R"(model.layers=["linear 3", "batchnorm", "linear 3"])"}),
      HasSubstr("1 of 2 clients take one step"));
  EXPECT_EQ(Notes("fedavg", rows, {"cohort.straggler_fraction=0.5", "local.epochs=2"}), "");
}

TEST(Notes, SayWhichClientsHaveTooFewBatchesForAStepOfTheRule) {
  const SomeRows rows({3, 12, 25, 0}, {1, 1, 1, 1});
  EXPECT_THAT(Notes("perfedavg", rows),
              AllOf(HasSubstr("1 of 3 clients have fewer in a round"),
                    HasSubstr("local.epochs = 2"), HasSubstr("local.batch_size")));
  EXPECT_EQ(Notes("perfedavg", rows, {"local.epochs=2"}), "");
  EXPECT_EQ(Notes("perfedavg", rows, {"local.steps=4", "local.batch_size=0"}), "");
  EXPECT_THAT(Error("perfedavg", rows, {"local.batch_size=0"}),
              HasSubstr("no client has so many in a round, so the model would never move"));
}

TEST(Notes, SayThatTheCentralValidationSetIsNotUsedWithoutACommonModel) {
  SomeRows rows({20, 20, 20}, {5, 5, 5});
  rows.set_central_validation(7);
  const std::vector<std::string> set = {"evaluation.clients=true"};
  for (const char* rule : {"ifca", "local"}) {
    EXPECT_THAT(Notes(rule, rows, set), AllOf(HasSubstr("the central validation set (7 rows)"),
                                              HasSubstr("data.central_val_fraction = 0")));
  }
  EXPECT_EQ(Notes("fedavg", rows, set), "");
}

TEST(Notes, SayThatTheCommonModelsRowsChooseWhereClientsHavePersonalOnes) {
  SomeRows rows({20, 20, 20}, {5, 5, 5});
  rows.set_central_validation(7);
  const std::vector<std::string> set = {"evaluation.clients=true"};
  for (const char* rule : {"ditto", "pfedme"}) {
    EXPECT_THAT(
        Notes(rule, rows, set),
        AllOf(HasSubstr("val_* (7 rows, data.central_val_fraction)"),
              HasSubstr(absl::StrCat(rule, "'s common model")), HasSubstr("clients_val_*")));
    EXPECT_EQ(Notes(rule, rows,
                    {"evaluation.clients=true", "run.stop.metric=clients_test_accuracy",
                     "run.stop.patience=3"}),
              "")
        << "a metric that is named";
  }
  const SomeRows without({20, 20, 20}, {5, 5, 5});
  EXPECT_EQ(Notes("ditto", without, set), "");
}

TEST(Notes, SayWhatAConceptShiftDoesToTheTestMetrics) {
  const SomeRows rows({20, 40, 60}, {1, 1, 1});
  EXPECT_THAT(Notes("fedavg", rows,
                    {"data.concept_shift=label-permutation", "data.concept_shift_groups=3"}),
              AllOf(HasSubstr("3 groups"), HasSubstr("test_group0_* to test_group2_*")));
}

TEST(Notes, SayThatARateIsLargeForAdam) {
  const SomeRows rows({20, 40, 60}, {1, 1, 1});
  EXPECT_EQ(Notes("fedavg", rows, {"local.optimizer=adam"}), "");
  EXPECT_THAT(Notes("fedavg", rows, {"local.optimizer=adamw", "local.lr=0.1"}),
              HasSubstr("local.lr = 0.1 is large for adamw"));
  EXPECT_EQ(Notes("fedavg", rows, {"local.lr=0.1"}), "");
}

TEST(Notes, SayThatACohortIsTooSmallForAGpu) {
  const std::vector<uint32_t> rows(200, 5), none(200, 0);
  const SomeRows many(rows, none);
  EXPECT_THAT(Notes("fedavg", many, {"workers.backend=cuda"}),
              AllOf(HasSubstr("2 clients a round"), HasSubstr("cohort.size")));
  EXPECT_EQ(Notes("fedavg", many, {"workers.backend=fused"}), "");
  EXPECT_EQ(Notes("fedavg", many), "");
}

TEST(Notes, SayWhatDoublesCostBesideCodecs) {
  const SomeRows rows({20, 40, 60}, {0, 0, 5});
  const std::string up = "update.codec=[\"bits 8\"]", down = "broadcast.codec=[\"bits 8\"]";
  const std::string note = "Set run.dtype = \"float32\"";
  EXPECT_THAT(Notes("fedavg", rows, {up, down}), testing::Not(HasSubstr(note)));
  EXPECT_THAT(Notes("fedavg", rows, {"run.dtype=float64"}), testing::Not(HasSubstr(note)));
  EXPECT_THAT(Notes("fedavg", rows, {"run.dtype=float64", up}),
              AllOf(HasSubstr(note), testing::Not(HasSubstr("broadcast.codec saves nothing"))));
  EXPECT_THAT(Notes("fedavg", rows, {"run.dtype=float64", down}),
              AllOf(HasSubstr(note), HasSubstr("broadcast.codec saves nothing")));
}

TEST(Notes, SayThatEpsilonIsNotOfTheNumbersOfNormalise) {
  const SomeRows rows({20, 40, 60}, {0, 0, 5});
  const std::vector<std::string> set = {"privacy.mechanism=gaussian", "privacy.clip=1",
                                        "privacy.noise=1", "cohort.sampling=poisson",
                                        "cohort.weight=uniform"};
  std::vector<std::string> scaled = set;
  scaled.emplace_back("data.normalise.mean=[0.5]");
  const std::string note = "privacy: data.normalise";
  EXPECT_THAT(Notes("fedavg", rows, scaled), HasSubstr(note));
  EXPECT_THAT(Notes("fedavg", rows, set), testing::Not(HasSubstr(note)));
  EXPECT_THAT(Notes("fedavg", rows, {"data.normalise.mean=[0.5]"}), testing::Not(HasSubstr(note)));
}

TEST(Notes, SayThatAllRowsHaveOneClass) {
  SomeRows rows({20, 40}, {0, 0});
  EXPECT_EQ(Notes("fedavg", rows), "");
  rows.set_classes(1);
  EXPECT_THAT(Notes("fedavg", rows), HasSubstr("all rows have one class"));
}

TEST(Notes, NameKeysThatDataModelOrRuleLeaveWithoutAnEffect) {
  const SomeRows rows({20, 40, 60}, {0, 0, 5});
  const auto note = [&](std::vector<std::string> set, const std::string& rule = "fedavg") {
    set.insert(set.begin(), "data.source=leaf");  // clients of its own
    return Notes(rule, rows, set);
  };
  EXPECT_EQ(note({}), "");
  EXPECT_EQ(note({"partition.clients=100"}), "");  // the default
  EXPECT_THAT(note({"partition.clients=50"}), HasSubstr("partition.clients has no effect on data"));
  EXPECT_EQ(note({"partition.clients=3", "partition.scheme=iid"}), "");
  EXPECT_THAT(note({"model.buffers=server"}), HasSubstr("model.buffers has no effect"));
  EXPECT_THAT(note({"state.cache_mb=7"}), HasSubstr("state.cache_mb has no effect"));
  EXPECT_EQ(note({"state.cache_mb=7", "algorithm.scaffold.weighted=true"}, "scaffold"), "");
  EXPECT_THAT(note({"run.clients=7"}), HasSubstr("run.clients has no effect beside the data"));
  EXPECT_EQ(note({"run.clients=3"}), "");
  EXPECT_THAT(note({"algorithm.fedprox.mu=7"}), HasSubstr("algorithm.fedprox.mu is not used"));
  // What an override took from a file.
  EXPECT_THAT(note({"local.momentum=0.9", "local.nesterov=true", "local.momentum=0"}),
              HasSubstr("local.nesterov has no effect without local.momentum above 0"));
}

TEST(Notes, SayThatThereAreNoValidationRows) {
  const SomeRows rows({20, 40, 60}, {0, 0, 0});
  EXPECT_THAT(Notes("fedavg", rows, {R"(evaluation.splits=["test", "validation"])"}),
              HasSubstr("data.val_fraction"));
}

TEST(Notes, SayThatMetricsHaveNothingToCount) {
  const SomeRows rows({20, 40, 60}, {0, 0, 5});  // without a central test set
  const std::string metrics = R"(evaluation.metrics=["f1"])";
  EXPECT_THAT(Notes("fedavg", rows, {metrics}), HasSubstr("nothing to count"));
  EXPECT_THAT(Notes("fedavg", rows, {metrics, "evaluation.clients=true"}),
              ::testing::Not(HasSubstr("nothing to count")));
}

TEST(Notes, SayWhatTheAlgorithmHasToSay) {
  const SomeRows rows({20, 40, 60}, {0, 0, 0});
  EXPECT_THAT(Notes("scaffold", rows), HasSubstr("plain mean"));
  EXPECT_EQ(Notes("scaffold", rows, {"algorithm.scaffold.weighted=true"}), "");
}

TEST(Notes, SayFromWhichRoundOnNothingIsLearnt) {
  const SomeRows data({20, 20, 20}, {0, 0, 0});
  const auto of = [&](const std::vector<std::string>& set) {
    std::vector<std::string> all = {"run.rounds=10"};
    all.insert(all.end(), set.begin(), set.end());
    return Notes("fedavg", data, all);
  };
  EXPECT_EQ(of({"local.lr_schedule=cosine"}), "");
  EXPECT_EQ(of({"local.lr_schedule=cosine", "local.lr_schedule.rounds=12"}), "");
  EXPECT_EQ(
      of({"local.lr_schedule=cosine", "local.lr_schedule.rounds=6", "local.lr_schedule.floor=0.1"}),
      "");
  EXPECT_THAT(of({"local.lr_schedule=cosine", "local.lr_schedule.rounds=6"}),
              AllOf(HasSubstr("local.lr_schedule"), HasSubstr("from round 7 on"),
                    HasSubstr("last 4 of 10 rounds")));
  EXPECT_THAT(of({"algorithm.fedavg.server_lr_schedule=cosine rounds 8"}),
              AllOf(HasSubstr("algorithm.fedavg.server_lr_schedule"), HasSubstr("from round 9 on"),
                    HasSubstr("the model stays")));
}

}  // namespace
}  // namespace macaw::cli
