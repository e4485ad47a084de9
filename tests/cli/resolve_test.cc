#include "cli/config/resolve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/config/key_error.h"
#include "cli/config/writer.h"
#include "core/cores.h"
#include "core/safetensors.h"
#include "data/options.h"
#include "testing/temporary_folder.h"
#include "tests/cli/config_test_util.h"

namespace macaw::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing_support::TemporaryFolder;

data::DatasetInfo Images() {
  data::DatasetInfo info;
  info.name = "idx";
  info.feature_type = data::FeatureType::kU8;
  info.input_shape = {1, 28, 28};
  info.classes = 10;
  info.transform.scale = 0.5;
  info.transform.mean = {0.25};
  info.clients = 40;
  return info;
}

Config Get(const std::vector<std::string>& set = {}) {
  const auto config = Parse(kMinimal, set);
  EXPECT_TRUE(config.ok()) << config.status();
  return *config;
}

std::string ResolveError(const std::vector<std::string>& set,
                         const data::DatasetInfo& info = Images()) {
  Config config = Get(set);
  return std::string(Resolve(config, info, sdk::Catalogue::Builtins()).message());
}

TEST(Resolve, TakesFromTheDataWhatTheFileLeavesOut) {
  Config config = Get({"cohort.fraction=0.1", "local.lr_schedule=cosine", "run.rounds=9",
                       "data.augment.flip=true"});
  ASSERT_TRUE(Resolve(config, Images(), sdk::Catalogue::Builtins()).ok());
  EXPECT_EQ(config.run.task, TaskKind::kClassification);
  EXPECT_THAT(config.run.model.input_shape, ElementsAre(1, 28, 28));
  EXPECT_EQ(config.run.model.classes, 10);
  EXPECT_EQ(config.run.transform.scale, 0.5);
  EXPECT_TRUE(config.run.transform.flip);
  EXPECT_EQ(config.run.cohort.size, 4u);
  EXPECT_EQ(config.run.local.lr_schedule.rounds, 9u);
}

TEST(Resolve, RefusesOwnersThatLeaveTheOtherProcessNothing) {
  data::DatasetInfo info = Images();
  const std::vector<std::string> all = {"workers.owners=40", "cohort.size=4"};
  EXPECT_THAT(ResolveError(all, info), HasSubstr("take one owner less, or set data.test_fraction"));
  EXPECT_EQ(ResolveError({"workers.owners=39", "cohort.size=4"}, info), "");
  info.test_examples = 100;
  EXPECT_EQ(ResolveError(all, info), "");
}

TEST(Resolve, ChecksASamplingThatLearnsAsARunMakesIt) {
  for (const std::string sampling : {"oort", "power-of-choice", "ucb", "cyclic"}) {
    const std::string learning = "cohort.sampling=" + sampling;
    EXPECT_EQ(ResolveError({learning, "cohort.size=4"}), "") << sampling;
    EXPECT_THAT(ResolveError({learning, "cohort.size=4", "cohort.over_selection=2"}),
                HasSubstr("cohort.over_selection"));
    const std::string timed = ResolveError(
        {learning, "cohort.size=4", "cohort.over_selection=2", "devices.family=phones"});
    EXPECT_EQ(timed.empty(), sampling != "cyclic") << timed;
  }
  EXPECT_THAT(
      ResolveError({"cohort.sampling=power-of-choice", "cohort.size=4", "cohort.candidates=3"}),
      HasSubstr("cohort.candidates is 3"));
}

TEST(Resolve, SaysWhatRunsAFileWithoutData) {
  Config config = Get();
  EXPECT_TRUE(CheckNamesData(config).ok());
  config.node.data.source.clear();
  const absl::Status status = CheckNamesData(config);
  EXPECT_EQ(KeyErrorOf(status).key, "data.source");
  EXPECT_THAT(std::string(status.message()), HasSubstr("macaw-server --config"));
}

TEST(Resolve, RefusesToPredictNumbersWhereLabelsAreClasses) {
  EXPECT_THAT(ResolveError({"run.task=regression"}),
              testing::AllOf(HasSubstr("run.task"), HasSubstr("10 classes")));
}

TEST(Resolve, CountsOnlyTheClientsThatCanTakeAStep) {
  const auto dataset = data::OpenDataset(
      {.source = "synthetic", .test_fraction = 0, .synthetic = {.clients = 40}}, {});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  uint64_t clients = 0, examples = 0;
  for (uint64_t c = 0; c < 40; ++c) {
    const uint32_t rows = (*dataset)->Examples(ClientId(c), data::Split::kTrain);
    if (rows >= 100) ++clients, examples += rows;
  }
  ASSERT_TRUE(clients > 5 && clients < 40);
  Config config = Get({"cohort.size=5", "local.batch_size=100", "local.drop_last=true"});
  ASSERT_TRUE(Resolve(config, **dataset, sdk::Catalogue::Builtins()).ok());
  EXPECT_EQ(config.run.train_clients, clients);
  EXPECT_EQ(config.run.train_examples, examples);
  Config whole = Get({"cohort.size=5", "local.batch_size=100"});
  ASSERT_TRUE(Resolve(whole, **dataset, sdk::Catalogue::Builtins()).ok());
  EXPECT_EQ(whole.run.train_clients, 40u);
  Config none = Get({"cohort.size=5", "local.batch_size=1000000", "local.drop_last=true"});
  EXPECT_THAT(std::string(Resolve(none, **dataset, sdk::Catalogue::Builtins()).message()),
              HasSubstr("local.drop_last"));
}

// Who can take a step on 100 rows is not known before the data are open.
TEST(Resolve, ComparesTheRuleWithTheClientsThatHaveRows) {
  const auto dataset = data::OpenDataset(
      {.source = "synthetic", .test_fraction = 0, .synthetic = {.clients = 40}}, {});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  std::optional<uint64_t> few, enough;
  for (uint64_t c = 0; c < 40; ++c) {
    const bool steps = (*dataset)->Examples(ClientId(c), data::Split::kTrain) >= 100;
    (steps ? enough : few) = c;
  }
  ASSERT_TRUE(few.has_value() && enough.has_value());
  const auto refusal = [&](std::vector<std::string> set) {
    set.insert(set.end(), {"cohort.size=5", "local.batch_size=100", "local.drop_last=true"});
    std::vector<Override> overrides;
    for (const std::string& one : set) overrides.push_back(*ParseOverride(one));
    const sdk::Catalogue builtins = sdk::Catalogue::Builtins();
    auto config = ReadConfig(*ParseDocument(kMinimal, "exp.toml", "/configs"), overrides, builtins);
    EXPECT_TRUE(config.ok()) << config.status();
    return std::string(Resolve(*config, **dataset, builtins).message());
  };
  EXPECT_THAT(refusal({"algorithm.name=afl"}), HasSubstr("numbers the clients that train"));
  const auto root = [](uint64_t client) { return absl::StrCat("algorithm.fltrust.root=", client); };
  EXPECT_THAT(refusal({"algorithm.name=fltrust", root(*few)}),
              HasSubstr(absl::StrCat("algorithm.fltrust.root = ", *few)));
  EXPECT_EQ(refusal({"algorithm.name=fltrust", root(*enough)}), "");
}

TEST(Resolve, CountsOnlyTheClientsThatCanTrain) {
  data::DatasetInfo info = Images();
  info.train_clients = 30;
  info.train_examples = 900;
  Config config = Get({"cohort.fraction=0.1"});
  ASSERT_TRUE(Resolve(config, info, sdk::Catalogue::Builtins()).ok());
  EXPECT_EQ(config.run.cohort.size, 3u);
  EXPECT_EQ(TrainClients(config.run), 30u);
  config = Get({"cohort.size=40", "cohort.weight=uniform"});
  ASSERT_TRUE(Resolve(config, info, sdk::Catalogue::Builtins()).ok());
  EXPECT_EQ(config.run.cohort.size, 30u) << "everybody is everybody who can train";
  EXPECT_EQ(TotalWeight(config.run), 30);
}

TEST(Resolve, RefusesARoundThatNeverHasEnough) {
  EXPECT_THAT(ResolveError({"cohort.size=4", "round.enough=5"}), HasSubstr("round.enough = 5"));
  EXPECT_THAT(ResolveError({"cohort.fraction=0.1", "round.enough=5"}),
              HasSubstr("at most 4 clients"));
  data::DatasetInfo info = Images();
  info.train_clients = 30;
  Config config = Get({"cohort.size=40", "round.enough=35"});
  ASSERT_TRUE(Resolve(config, info, sdk::Catalogue::Builtins()).ok());
  EXPECT_EQ(config.node.server.round.enough, 30u) << "everybody is everybody who can train";
}

TEST(Resolve, TakesSequencesForTheNextTokenTask) {
  data::DatasetInfo text = Images();
  text.name = "leaf";
  text.feature_type = data::FeatureType::kI32;
  text.input_shape = {80};
  text.classes = 97;
  text.train_tokens = 4000;
  text.transform = {};
  Config config = Get({"cohort.weight=tokens", "model.name=char_lstm"});
  ASSERT_TRUE(Resolve(config, text, sdk::Catalogue::Builtins()).ok());
  EXPECT_EQ(config.run.task, TaskKind::kNextToken);
  EXPECT_EQ(config.run.model.classes, 97);
  EXPECT_EQ(TotalWeight(config.run), 4000);
  EXPECT_TRUE(SpecOf(config).ok()) << SpecOf(config).status();
  EXPECT_THAT(ResolveError({"run.task=next-token"}), HasSubstr("are not sequences of tokens"));
  EXPECT_THAT(ResolveError({"cohort.weight=tokens"}), HasSubstr("cohort.weight = \"tokens\""));
}

TEST(Resolve, TakesAsManyOutputsAsThereAreFeaturesForAReconstruction) {
  data::DatasetInfo rows = Images();
  Config config = Get({"run.task=reconstruction", "model.layers=[\"flatten\", \"linear 784\"]"});
  ASSERT_TRUE(Resolve(config, rows, sdk::Catalogue::Builtins()).ok());
  EXPECT_EQ(config.run.model.classes, 784);
  EXPECT_TRUE(SpecOf(config).ok()) << SpecOf(config).status();
  EXPECT_THAT(ResolveError({"run.task=reconstruction", "model.classes=10"}),
              HasSubstr("needs 784"));
  rows.input_shape = {80};
  rows.feature_type = data::FeatureType::kI32;
  config = Get({"run.task=reconstruction"});
  EXPECT_THAT(std::string(Resolve(config, rows, sdk::Catalogue::Builtins()).message()),
              HasSubstr("sequences"));
}

TEST(Resolve, StartsAtZeroButForRunningStatistics) {
  Config config =
      Get({"model.layers=[\"batchnorm\", \"flatten\", \"linear 10\"]", "model.init=zero"});
  ASSERT_TRUE(Resolve(config, Images(), sdk::Catalogue::Builtins()).ok());
  const auto spec = SpecOf(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  const auto weights = InitialWeights(config, *spec);
  ASSERT_TRUE(weights.ok()) << weights.status();
  for (const LayoutEntry& entry : spec->layout->entries()) {
    EXPECT_EQ(weights->As<float>()[entry.offset], entry.name == "0.running_var" ? 1 : 0)
        << entry.name;
  }
}

TEST(Resolve, StartsFromTheFileOfItsSeed) {
  const testing_support::TemporaryFolder folder;
  Config config = Get({"model.layers=[\"flatten\", \"linear 10\"]"});
  ASSERT_TRUE(Resolve(config, Images(), sdk::Catalogue::Builtins()).ok());
  const auto spec = SpecOf(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  for (const uint64_t seed : {1, 2}) {
    const FlatVector weights = models::InitialModel(*spec, seed);
    ASSERT_TRUE(
        WriteModel(folder / absl::StrCat("w-", seed, ".safetensors"), weights.view(), {}).ok());
  }
  config.node.model_init = folder / "w-{seed}.safetensors";
  config.run.seed = config.run.model.seed = 2;
  const auto weights = InitialWeights(config, *spec);
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_EQ(DigestOfValues(weights->view()), DigestOfValues(models::InitialModel(*spec, 2).view()));
  EXPECT_TRUE(InitFollowsTheSeed(config));
  config.run.seed = 3;
  EXPECT_FALSE(InitFollowsTheSeed(config)) << "model.seed is its own";
  config.run.model.seed = 3;
  EXPECT_THAT(InitialWeights(config, *spec).status().ToString(), HasSubstr("w-3.safetensors"));
}

TEST(Resolve, GivesAFileThatStandsAloneAndResolvesToItself) {
  Config config = Get({"cohort.fraction=0.1"});
  ASSERT_TRUE(Resolve(config, Images(), sdk::Catalogue::Builtins()).ok());
  const std::string effective = EffectiveToml(config);
  auto again = Parse(effective);
  ASSERT_TRUE(again.ok()) << again.status();
  ASSERT_TRUE(Resolve(*again, Images(), sdk::Catalogue::Builtins()).ok());
  EXPECT_EQ(EffectiveToml(*again), effective);
  EXPECT_THAT(effective, HasSubstr("input_shape = [1, 28, 28]"));
}

TEST(Resolve, EachKeyOfNormaliseHasItsOwnDefaultFromTheData) {
  const auto resolved = [](const std::string& normalise) {
    Config config = Get({"data.normalise=" + normalise});
    EXPECT_TRUE(Resolve(config, Images(), sdk::Catalogue::Builtins()).ok());
    EXPECT_TRUE(IsResolved(config.run));
    return config.run.transform;
  };
  const TransformConfig standardised = resolved("{mean = [0.1307], std = [0.3081]}");
  EXPECT_EQ(standardised.scale, 0.5);  // from the data; for bytes it would be 1/255
  EXPECT_THAT(standardised.mean, ElementsAre(0.1307));
  EXPECT_THAT(standardised.std, ElementsAre(0.3081));
  const TransformConfig scaled = resolved("{scale = 2, std = [3]}");
  EXPECT_EQ(scaled.scale, 2);
  EXPECT_THAT(scaled.mean, ElementsAre(0.25));  // the data's
  EXPECT_THAT(scaled.std, ElementsAre(3));
  EXPECT_THAT(resolved("{mean = [0]}").mean, ElementsAre(0));  // and not the data's
}

TEST(Resolve, ClassNamesAreTheDatasUnlessGivenAndNameEveryClass) {
  data::DatasetInfo pets = Images();
  pets.classes = 2;
  pets.class_names = {"cat", "dog"};
  Config config = Get();
  ASSERT_TRUE(Resolve(config, pets, sdk::Catalogue::Builtins()).ok());
  EXPECT_THAT(config.node.data.class_names, ElementsAre("cat", "dog"));
  EXPECT_THAT(EffectiveToml(config), HasSubstr(R"(class_names = ["cat", "dog"])"));
  Config own = Get({"data.class_names=[\"miau\", \"wau\"]"});
  ASSERT_TRUE(Resolve(own, pets, sdk::Catalogue::Builtins()).ok());
  EXPECT_THAT(own.node.data.class_names, ElementsAre("miau", "wau"));
  EXPECT_THAT(ResolveError({"data.class_names=[\"one\"]"}, pets),
              HasSubstr("data.class_names has 1 names"));
}

TEST(Resolve, AnEmptyListOfNormaliseIsRefused) {
  EXPECT_THAT(Refusal(kMinimal, {"data.normalise.mean=[]"}),
              HasSubstr("data.normalise.mean must be a list of numbers, not empty ([0] and [1] "
                        "change nothing), found []"));
}

TEST(Resolve, TellsTheNormalisationInEffectAsAFormula) {
  EXPECT_EQ(NormaliseText({}), "x, as stored");
  EXPECT_EQ(NormaliseText({.scale = 1.0 / 255}), "x / 255");
  EXPECT_EQ(NormaliseText({.scale = 1.0 / 255, .mean = {0.1307}, .std = {0.3081}}),
            "(x / 255 - 0.1307) / 0.3081");
  EXPECT_EQ(NormaliseText({.scale = 0.3, .std = {2, 3}}), "(x * 0.3) / [2, 3]");
  EXPECT_EQ(NormaliseText({.std = {4}}), "x / 4");
}

TEST(Resolve, NamesWhatDoesNotFit) {
  EXPECT_THAT(ResolveError({"cohort.size=41"}),
              HasSubstr("cohort.size is 41, but there are only 40 clients"));
  EXPECT_THAT(ResolveError({"run.task=binary"}), HasSubstr("idx has 10 classes"));
  EXPECT_THAT(ResolveError({"model.classes=9"}),
              HasSubstr("model.classes is 9, but idx has 10 classes"));
  EXPECT_THAT(ResolveError({"model.input_shape=[3, 28, 28]"}),
              HasSubstr("model.input_shape is [3, 28, 28]"));
  EXPECT_THAT(ResolveError({"local.class_weights=[1, 2]"}),
              HasSubstr("local.class_weights has 2 numbers"));
  EXPECT_THAT(ResolveError({"data.normalise.mean=[1, 2, 3]"}), HasSubstr("data.normalise"));
  EXPECT_EQ(ResolveError({"data.augment.pad_crop=27", "data.augment.pad_mode=reflect"}), "");
  EXPECT_THAT(ResolveError({"data.augment.pad_crop=28", "data.augment.pad_mode=reflect"}),
              HasSubstr("data.augment.pad_crop is 28"));
  data::DatasetInfo rows = Images();
  rows.input_shape = {60};
  rows.classes = 0;
  EXPECT_THAT(ResolveError({"data.augment.flip=true"}, rows),
              HasSubstr("data.augment needs images"));
  EXPECT_THAT(ResolveError({"run.task=classification"}, rows),
              HasSubstr("the labels of idx are numbers"));
}

TEST(Resolve, RegressesOnNumbers) {
  data::DatasetInfo rows = Images();
  rows.input_shape = {60};
  rows.classes = 0;
  Config config = Get();
  ASSERT_TRUE(Resolve(config, rows, sdk::Catalogue::Builtins()).ok());
  EXPECT_EQ(config.run.task, TaskKind::kRegression);
  EXPECT_EQ(config.run.model.classes, 1);
}

TEST(SlotsPerProcess, ShareOutTheCores) {
  EXPECT_EQ(SlotsPerProcess({.processes = 1, .slots = 3}), 3u);
  EXPECT_GE(SlotsPerProcess({.processes = 1, .slots = 0}),
            SlotsPerProcess({.processes = 1000, .slots = 0}));
  EXPECT_EQ(SlotsPerProcess({.processes = 1000000, .slots = 0}), 1u);
  EXPECT_EQ(SlotsPerProcess({.processes = 1}), UsableCores());
}

TEST(SlotsPerProcess, AreManyForEachDevice) {
  EXPECT_EQ(SlotsPerProcess({.processes = 2}, 1), worker::kDeviceSlots);
  EXPECT_EQ(SlotsPerProcess({.processes = 1}, 3), 3 * worker::kDeviceSlots);
  EXPECT_EQ(SlotsPerProcess({.processes = 1}, 8), 8 * worker::kDeviceSlots);
  EXPECT_EQ(SlotsPerProcess({.processes = 1}, 64), worker::kMostSlots) << "what a server takes";
  EXPECT_EQ(SlotsPerProcess({.processes = 1, .slots = 5}, 2), 5u);
}

// Ten clients: "big-0" … "big-3" with 40 rows each, "small-4" … "small-8" with 10, and one with
// none.
class BigAndSmall final : public data::Dataset {
 public:
  BigAndSmall() {
    info_ = Images();
    info_.clients = 10;
    info_.train_clients = 9;
    info_.train_examples = 210;
  }
  const data::DatasetInfo& info() const override { return info_; }
  uint32_t Examples(ClientId client, data::Split split) const override {
    if (split != data::Split::kTrain || client.value == 9) return 0;
    return client.value < 4 ? 40 : 10;
  }
  absl::StatusOr<data::Rows> Client(ClientId, data::Split) const override {
    return absl::UnimplementedError("counts only");
  }
  data::Rows CentralTest() const override { return {}; }
  std::string ClientName(ClientId client) const override {
    return absl::StrCat(client.value < 4 ? "big-" : "small-", client.value);
  }

 private:
  data::DatasetInfo info_;
};

// N and Σ w_i, which rules divide by, are those of the clients that a round can draw.
TEST(Resolve, CountsOnlyTheClientsThatCanBeDrawn) {
  const BigAndSmall data;
  const auto totals = [&](const std::vector<std::string>& set) {
    Config config = Get(set);
    const absl::Status status = Resolve(config, data, sdk::Catalogue::Builtins());
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(config.run.clients, 10u);
    return std::vector<uint64_t>{TrainClients(config.run), config.run.train_examples,
                                 config.run.cohort.size};
  };
  EXPECT_THAT(totals({"cohort.size=2"}), ElementsAre(9, 210, 2));
  EXPECT_THAT(totals({"cohort.size=2", "cohort.min_rows=20"}), ElementsAre(4, 160, 2));
  EXPECT_THAT(totals({"cohort.size=2", "cohort.eligible=[\"small-*\"]"}), ElementsAre(5, 50, 2));
  EXPECT_THAT(totals({"cohort.size=2", "cohort.eligible=[\"*-4\",\"*-3\"]"}),
              ElementsAre(2, 50, 2));
  EXPECT_THAT(totals({"cohort.fraction=1", "cohort.min_rows=20"}), ElementsAre(4, 160, 4));
  EXPECT_THAT(totals({"cohort.size=10"}), ElementsAre(9, 210, 9));
  EXPECT_THAT(totals({"cohort.size=2", "cohort.max_weight=20"}), ElementsAre(9, 130, 2));
  EXPECT_THAT(totals({"cohort.size=2", "cohort.min_rows=20", "cohort.max_weight=1"}),
              ElementsAre(4, 4, 2));
}

TEST(Resolve, RefusesAGroupWithoutClients) {
  const auto refusal = [](const std::string& groups, std::vector<std::string> more = {}) {
    more.insert(more.end(), {"evaluation.clients=true", "evaluation.groups=" + groups});
    Config config = Get(more);
    return std::string(Resolve(config, BigAndSmall(), sdk::Catalogue::Builtins()).message());
  };
  EXPECT_EQ(refusal("[\"a=big-*\",\"b=small-*\"]"), "");
  EXPECT_THAT(refusal("[\"a=big-*\",\"b=tiny-*\"]"),
              testing::AllOf(HasSubstr("the group \"b\""), HasSubstr("\"big-0\"")));
  EXPECT_THAT(refusal("[\"a=*\",\"b=small-*\"]"), HasSubstr("first pattern that matches"));
  EXPECT_THAT(
      refusal("[\"a=big-*\"]", {"workers.owners=2"}),
      AllOf(HasSubstr("named \"0\""), HasSubstr("with workers.owners clients are named by")));
  EXPECT_EQ(refusal("[\"a=3\"]", {"workers.owners=2"}), "");
}

// A worker would tell it the server, which would end the run.
TEST(Resolve, RefusesANameThatNoServerTakesWhereNamesCount) {
  const TemporaryFolder folder;
  const auto refusal = [&](const std::string& name, const std::string& key,
                           const std::string& more = "cohort.size=1") {
    const std::string path =
        folder.Write("a.csv", absl::StrCat("who,x,y\nann,1,0\n\"", name, "\",2,1\n"));
    const auto dataset = data::OpenDataset(
        {.source = "csv", .path = path, .test_fraction = 0, .client_column = "who"}, {});
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    Config config = Get({"cohort.size=1", key, more});
    return std::string(Resolve(config, **dataset, sdk::Catalogue::Builtins()).message());
  };
  const std::string eligible = "cohort.eligible=[\"a*\"]";
  EXPECT_EQ(refusal("bob", eligible), "");
  EXPECT_THAT(refusal("bo\nb", eligible),
              AllOf(HasSubstr("cohort.eligible"), HasSubstr("client 1, \"bo\\nb\""),
                    HasSubstr("line break")));
  EXPECT_THAT(refusal("bo\tb", "evaluation.groups=[\"a=a*\"]", "evaluation.clients=true"),
              AllOf(HasSubstr("evaluation.groups"), HasSubstr("\"bo\\tb\"")));
  EXPECT_THAT(refusal(std::string(129, 'b'), eligible), HasSubstr("129 bytes"));
  EXPECT_EQ(refusal("bo\nb", "cohort.min_rows=1"), "") << "no name counts";
  EXPECT_EQ(refusal("bo\nb", "cohort.eligible=[\"0\"]", "workers.owners=1"), "") << "numbers do";
}

TEST(Resolve, RefusesACohortThatTheKeysLeaveTooFewClientsFor) {
  Config config = Get({"cohort.size=5", "cohort.min_rows=20"});
  EXPECT_THAT(
      std::string(Resolve(config, BigAndSmall(), sdk::Catalogue::Builtins()).message()),
      testing::AllOf(HasSubstr("cohort.min_rows leave 4 of 10 clients"), HasSubstr("asks 5")));
}

TEST(CheckForFleet, RefusesWhatOnlyASimulationCanHave) {
  RunPlan plan;
  EXPECT_TRUE(CheckForFleet(plan).ok());
  plan.privacy.mechanism = "gaussian";
  EXPECT_THAT(CheckForFleet(plan).message(), HasSubstr("privacy.mechanism"));
  plan.privacy = {};
  plan.attack = {.kind = "sign-flip", .fraction = 0.1};
  EXPECT_THAT(CheckForFleet(plan).message(), HasSubstr("attack.kind"));
  plan = {};
  plan.devices.family = "phones";
  EXPECT_THAT(CheckForFleet(plan).message(), HasSubstr("devices.family"));
}

}  // namespace
}  // namespace macaw::cli
