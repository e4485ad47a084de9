#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "cli/config/writer.h"
#include "core/files.h"
#include "testing/temporary_folder.h"
#include "tests/cli/config_test_util.h"

namespace macaw::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Every key with a value that differs from its default.
// As many keys as have an effect together; needs_test.cc tries each of the others.
constexpr char kEverything[] = R"(
plugins = ["libmoon.so", "/abs/liba.so"]
[run]
name = "full \"quoted\" ö"
rounds = 77
clients = 500
train_clients = 450
train_examples = 9000
train_tokens = 70000
seed = 9223372036854775807
out = "results/here"
task = "binary"
dtype = "float64"
contribution_bound = 12.5
checkpoint_every = 3
client_records = true
stop = {metric = "test_accuracy", at_least = 0.93, patience = 4}
[data]
source = "csv"
path = "../rows.csv"
test_path = "/abs/test.csv"
seed = 11
test_fraction = 0.25
val_fraction = 0.1
heldout_clients = 0.2
classes = 2
class_names = ["no", "yes"]
label_column = 3
client_column = "user"
drop_columns = ["id", "when"]
client_noise = 0.3
normalise = {scale = 0.00392156862745098, mean = [0.1, 1e-30], std = [2, 3.5]}
augment = {pad_crop = 4, pad_mode = "reflect", flip = true}
[partition]
scheme = "dirichlet-class"
clients = 321
concentration = 0.3
min_size = 0
seed = 12
[model]
layers = ["conv 32 5 pad 2", "relu"]
init = "start.safetensors"
input_shape = [1, 28, 28]
classes = 1
buffers = "server"
[algorithm]
name = "other"
[algorithm.other]
option = "b"
[algorithm.fedprox]
mu = 1
[cohort]
straggler_fraction = 0.4
straggler_policy = "drop"
fraction = 0.125
sampling = "available"
availability = 0.75
availability_swing = 0.5
availability_day = 12
over_selection = 1.5
device_spread = 0.7
round_spread = 0.1
weight = "uniform"
seed = 14
[local]
steps = 5
batch_size = 7
lr = 0.3
lr_schedule = {kind = "cosine", rounds = 60, floor = 0.1, warmup_rounds = 3}
optimizer = "adamw"
beta1 = 0.8
beta2 = 0.99
epsilon = 1e-6
weight_decay = 1e-4
clip_norm = 10
clip = "corrected"
class_weights = [1, 2.5]
label_smoothing = 0.1
drop_last = true
shuffle = false
[workers]
processes = 3
backend = "fused"
instruction_set = "portable"
owners = 5
slots = 2
slowdown = [1, 5.0]
[emulation]
environment = "cos"
ratio = 0.5
pause_probability = 0.25
pause_seconds = 1.5
seed = 15
[scheduler]
policy = "random"
[evaluation]
every = 0
chunk = 333
central = false
clients = true
splits = ["test", "train"]
[server]
listen = "127.0.0.1:0"
durability = "commit"
lease_timeout = 2.5
workers = 2
[state]
store = "redis"
url = "redis://:p@host:7000/1"
keep = false
cache_mb = 0
)";

TEST(Config, TakesKeysOfEverySection) {
  const absl::StatusOr<Config> config = Parse(kEverything);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->run.name, "full \"quoted\" ö");
  EXPECT_EQ(config->run.rounds, 77u);
  EXPECT_EQ(config->run.dtype, DType::kF64);
  EXPECT_EQ(config->run.task, TaskKind::kBinary);
  EXPECT_EQ(config->node.server.out, "/configs/results/here");
  EXPECT_EQ(config->node.server.stop.metric, "test_accuracy");
  EXPECT_EQ(config->node.server.stop.at_least, 0.93);
  EXPECT_EQ(config->node.server.stop.patience, 4u);
  EXPECT_EQ(config->node.data.path, "/rows.csv");  // relative to the file's folder, one folder up
  EXPECT_EQ(config->node.data.test_path, "/abs/test.csv");
  EXPECT_EQ(config->node.data.label_column, "3");
  EXPECT_THAT(config->run.transform.mean, ElementsAre(0.1, 1e-30));
  EXPECT_EQ(config->run.transform.pad_crop, 4);
  EXPECT_EQ(config->run.transform.pad_mode, PadMode::kReflect);
  EXPECT_TRUE(config->run.transform.flip);
  EXPECT_EQ(config->run.model.name, "layers");
  EXPECT_THAT(config->run.model.layers, ElementsAre("conv 32 5 pad 2", "relu"));
  EXPECT_EQ(config->run.cohort.weight, WeightPolicy::kUniform);
  EXPECT_EQ(config->run.cohort.fraction, 0.125);
  EXPECT_EQ(config->run.local.steps, 5u);
  EXPECT_EQ(config->run.local.lr_schedule.kind, "cosine");
  EXPECT_EQ(config->run.local.lr_schedule.warmup_rounds, 3u);
  EXPECT_THAT(config->node.workers.emulation.slowdown, ElementsAre(1.0, 5.0));
  EXPECT_EQ(config->node.workers.emulation.environment, "cos");
  EXPECT_EQ(config->node.server.scheduling_policy, "random");
  EXPECT_TRUE(config->node.server.keeps_commits());
  EXPECT_EQ(config->node.server.lease_timeout, 2.5);
  EXPECT_THAT(config->node.plugins, ElementsAre("/configs/libmoon.so", "/abs/liba.so"));
  EXPECT_EQ(config->node.state.store, "redis");
  EXPECT_EQ(config->node.state.url, "redis://:p@host:7000/1");
  EXPECT_FALSE(config->node.state.keep);
  EXPECT_EQ(config->node.state.cache_mb, 0u);
  EXPECT_EQ(std::get<std::string>(config->run.algorithm.parameters.at("option")), "b");
  EXPECT_EQ(std::get<int64_t>(config->run.algorithm.parameters.at("count")),
            3);  // the default, filled in
}

TEST(Config, ReadsItsEffectiveFileBackToTheSameConfig) {
  for (const char* text : {kEverything, kMinimal}) {
    const absl::StatusOr<Config> config = Parse(text);
    ASSERT_TRUE(config.ok()) << config.status();
    const std::string effective = EffectiveToml(*config);
    // Read from another folder: the effective file has absolute paths.
    const absl::StatusOr<Config> again = Parse(effective, {}, "/elsewhere");
    ASSERT_TRUE(again.ok()) << again.status() << "\n" << effective;
    EXPECT_EQ(EffectiveToml(*again), effective);
    for (const Field& field : AllFields()) {
      const std::optional<Value> before = field.get(*config), after = field.get(*again);
      ASSERT_EQ(before.has_value(), after.has_value()) << field.key;
      if (!before.has_value()) continue;
      EXPECT_EQ(ToToml(*before), ToToml(*after)) << field.key;
    }
  }
}

TEST(Config, AnEffectiveFileTakesARuleThatPoolsAndOneThatDoesNot) {
  const auto pooled = Parse(kMinimal, {"algorithm.name=pooling"});
  ASSERT_TRUE(pooled.ok()) << pooled.status();
  EXPECT_TRUE(pooled->node.partition.train_together);
  EXPECT_THAT(NodeToml(pooled->node), HasSubstr("train_together = true"));
  const auto apart = Parse(EffectiveToml(*pooled), {"algorithm.name=fedavg"});
  ASSERT_TRUE(apart.ok()) << apart.status();
  EXPECT_FALSE(apart->node.partition.train_together);
  // The file of a run without pooling says train_together = false, which was never asked for.
  const auto again = Parse(EffectiveToml(*Parse(kMinimal)), {"algorithm.name=pooling"});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(again->node.partition.train_together);
}

TEST(Config, SeedsEverythingFromTheRunUnlessASectionHasItsOwn) {
  const auto config = Parse(kMinimal, {"data.source=idx", "run.seed=7", "partition.seed=8"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->node.data.seed, 7u);
  EXPECT_EQ(config->node.partition.seed, 8u);
  EXPECT_EQ(config->run.model.seed, 7u);
  EXPECT_EQ(config->run.cohort.seed, 7u);
}

TEST(Config, ASeedOfTheWordRunFollowsTheRunsSeedAgain) {
  const std::string file = absl::StrCat(kMinimal, "[partition]\nseed = 3\n");
  EXPECT_EQ(Parse(file, {"data.source=idx", "run.seed=7"})->node.partition.seed, 3u);
  const auto config =
      Parse(file, {"data.source=idx", "run.seed=7", "partition.seed=run", "model.seed=\"run\""});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->node.partition.seed, 7u);
  EXPECT_EQ(config->run.model.seed, 7u);
  EXPECT_FALSE(Parse(kMinimal, {"run.seed=run"}).ok());
  EXPECT_FALSE(Parse(kMinimal, {"partition.seed=ran"}).ok());
}

TEST(Config, AStopRuleMayLeaveItsMetricToTheData) {
  const auto config = Parse(kMinimal, {"run.stop.patience=3"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->node.server.stop.metric, "");
  EXPECT_FALSE(Parse(kMinimal, {"run.stop.metric=test_loss"}).ok()) << "it would never stop";
}

TEST(Config, TakesZeroForAStartThatIsNoPath) {
  EXPECT_EQ(Parse(kMinimal, {"model.init=zero"})->node.model_init, "zero");
  const auto file =
      Parse(absl::StrCat(kMinimal, "[evaluation]\nsplits = [\"train\"]\n"), {"model.init=./zero"});
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->node.model_init, (std::filesystem::current_path() / "zero").string());
  EXPECT_EQ(Parse(EffectiveToml(*Parse(kMinimal, {"model.init=zero"})))->node.model_init, "zero");
}

TEST(Config, TakesAScriptedModuleInsteadOfANamedModel) {
  const auto config =
      Parse(kMinimal, {"model.torchscript=/nets/net.pt", "model.script_digest=0a1b",
                       "model.tensors=[\"parameter fc.weight 10 784\", \"buffer mean 10\"]"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->node.model_script, "/nets/net.pt");
  EXPECT_EQ(config->run.model.name, "torchscript");
  EXPECT_EQ(config->run.model.script_digest, "0a1b");
  EXPECT_THAT(config->run.model.tensors,
              ElementsAre("parameter fc.weight 10 784", "buffer mean 10"));
  const std::string effective = EffectiveToml(*config);
  const auto again = Parse(effective);
  ASSERT_TRUE(again.ok()) << again.status() << "\n" << effective;
  EXPECT_EQ(EffectiveToml(*again), effective);
  EXPECT_EQ(again->run.model.tensors, config->run.model.tensors);
  // The command line replaces the file's way of naming a model; each may use only one.
  const auto layers = Parse(
      "[data]\nsource = \"synthetic\"\n[model]\ntorchscript = \"net.pt\"\n[cohort]\nsize = 10\n",
      {"model.layers=[\"linear 10\"]"});
  ASSERT_TRUE(layers.ok()) << layers.status();
  EXPECT_EQ(layers->run.model.name, "layers");
  EXPECT_EQ(layers->node.model_script, "");
  EXPECT_THAT(Refusal(kMinimal, {"model.torchscript=net.pt", "model.layers=[\"linear 10\"]"}),
              HasSubstr("model.layers and model.torchscript say the same thing"));
}

TEST(Config, EvaluatesTheSplitsThatAreNamed) {
  const auto usual = Parse(kMinimal);
  EXPECT_TRUE(usual->run.evaluation.central);
  EXPECT_FALSE(usual->run.evaluation.train);
  const auto both = Parse(kMinimal, {"evaluation.splits=[\"train\", \"test\"]"});
  EXPECT_TRUE(both->run.evaluation.central);
  EXPECT_TRUE(both->run.evaluation.train);
  const auto train = Parse(kMinimal, {"evaluation.splits=[\"train\"]"});
  EXPECT_FALSE(train->run.evaluation.central);
  EXPECT_TRUE(train->run.evaluation.train);
  const auto validation = Parse(kMinimal, {"evaluation.splits=[\"validation\"]"});
  EXPECT_TRUE(validation->run.evaluation.validation);
  EXPECT_FALSE(validation->run.evaluation.central);
  for (const char* bad : {"[]", "[\"valid\"]", "[\"test\", \"test\"]", "\"train\""}) {
    EXPECT_THAT(
        Parse(kMinimal, {absl::StrCat("evaluation.splits=", bad)}).status().message(),
        HasSubstr("evaluation.splits must be a list of \"test\" | \"validation\" | \"train\", "
                  "each once, found"))
        << bad;
  }
}

TEST(Config, UnlearnsEachClientOnce) {
  const auto config = Parse(kMinimal, {"evaluation.unlearn=[7, 0, 4]"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->run.evaluation.unlearn, ElementsAre(7, 0, 4));
  for (const char* bad : {"[7, 0, 7]", "[3, 3]", "[-1]", "7"}) {
    EXPECT_THAT(Refusal(kMinimal, {absl::StrCat("evaluation.unlearn=", bad)}),
                AllOf(HasSubstr("evaluation.unlearn must be"), HasSubstr("each once"),
                      HasSubstr(absl::StrCat("found ", bad))));
  }
}

TEST(Config, AsksForTheMetricsOfClassesThatAreNamed) {
  EXPECT_FALSE(Parse(kMinimal)->run.evaluation.metrics.any());
  const auto some = Parse(kMinimal, {"evaluation.metrics=[\"auc\", \"confusion\"]"});
  EXPECT_EQ(some->run.evaluation.metrics, (EvaluationMetrics{.auc = true, .confusion = true}));
  EXPECT_FALSE(Parse(kMinimal, {"evaluation.metrics=[]"})->run.evaluation.metrics.any());
  for (const char* bad : {"[\"recall\"]", "[\"f1\", \"f1\"]", "\"f1\""}) {
    EXPECT_THAT(Parse(kMinimal, {absl::StrCat("evaluation.metrics=", bad)}).status().message(),
                HasSubstr("evaluation.metrics must be a list of"))
        << bad;
  }
  EXPECT_THAT(Parse(kMinimal, {"evaluation.metrics=f1"}).status().message(),
              HasSubstr("did you mean [\"f1\"]?"));
  EXPECT_THAT(Parse(kMinimal, {"evaluation.metrics=[\"auc\", \"F1\"]"}).status().message(),
              HasSubstr("did you mean \"f1\"?"));
}

TEST(Config, AdamHasARateOfItsOwnWhereNoneIsGiven) {
  const auto rate = [](const std::vector<std::string>& set) {
    const auto config = Parse(kMinimal, set);
    EXPECT_TRUE(config.ok()) << config.status();
    // A run that goes on reads its effective file.
    EXPECT_EQ(Parse(EffectiveToml(*config))->run.local.lr, config->run.local.lr);
    return config->run.local.lr;
  };
  EXPECT_EQ(rate({}), 0.1);
  EXPECT_EQ(rate({"local.optimizer=adam"}), 0.001);
  EXPECT_EQ(rate({"local.optimizer=adamw"}), 0.001);
  EXPECT_EQ(rate({"local.optimizer=adam", "local.lr=0.1"}), 0.1);
  EXPECT_EQ(rate({"local.lr=0.02", "local.optimizer=adamw"}), 0.02);
}

TEST(Config, TakesANameForASchedule) {
  const auto config = Parse(absl::StrCat(kMinimal, "[local]\nlr_schedule = \"cosine\"\n"));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->run.local.lr_schedule.kind, "cosine");
  // A schedule with the factor 1 would do nothing.
  EXPECT_THAT(Parse(kMinimal, {"local.lr_schedule=exponential"}).status().message(),
              HasSubstr("needs local.lr_schedule.gamma"));
}

TEST(Config, RefusesAKeyThatWouldBeIgnored) {
  EXPECT_THAT(
      Parse(kMinimal, {"cohort.availability=0.5"}).status().message(),
      HasSubstr("cohort.availability has no effect without cohort.sampling = \"available\""));
  EXPECT_THAT(Parse(kMinimal, {"cohort.round_spread=1"}).status().message(),
              HasSubstr("has no effect without cohort.over_selection above 1"));
  EXPECT_TRUE(Parse(kMinimal, {"cohort.availability=0.5", "cohort.sampling=available"}).ok());
  const auto why = [](const std::vector<std::string>& overrides) {
    return std::string(Parse(kMinimal, overrides).status().message());
  };
  EXPECT_THAT(why({"attack.kind=sign-flip"}), HasSubstr("needs attack.fraction"));
  EXPECT_EQ(why({"attack.kind=sign-flip", "attack.fraction=0"}), "");
  EXPECT_EQ(why({"attack.kind=none", "attack.fraction=0"}), "");  // switches an attack off
  EXPECT_THAT(why({"attack.kind=none", "attack.fraction=0.1"}), HasSubstr("without attack.kind"));
  EXPECT_THAT(why({"privacy.mechanism=gaussian"}), HasSubstr("needs privacy.clip"));
  EXPECT_THAT(why({"privacy.mechanism=gaussian", "privacy.clip=1"}), HasSubstr("privacy.noise"));
  EXPECT_THAT(why({"privacy.clip=1"}), HasSubstr("without privacy.mechanism"));
  EXPECT_THAT(why({"privacy.mechanism=gaussian", "privacy.clip=1", "privacy.noise=1",
                   "privacy.clip_rate=0.1"}),
              HasSubstr("without privacy.clip_quantile"));
  EXPECT_THAT(why({"update.feedback=residual"}), HasSubstr("without update.codec"));
  EXPECT_THAT(why({"broadcast.of=model"}), HasSubstr("without broadcast.codec"));
  EXPECT_EQ(why({"update.codec=[\"topk 0.1\", \"bits 8\"]", "update.feedback=residual"}), "");
  EXPECT_THAT(why({"update.codec=[\"topk 0.1\"]", "update.residual_decay=0"}),
              HasSubstr("update.residual_decay"));
  EXPECT_THAT(why({"update.residual_decay=0.5"}), HasSubstr("without update.codec"));
  EXPECT_THAT(
      why({"update.codec=[\"topk 0.1\"]", "update.feedback=ef21", "update.residual_decay=0.5"}),
      HasSubstr("without update.feedback = \"residual\""));
  for (const char* codec : {"[\"topk 0.1\"]", "[]", "[\"rotate\", \"sign\"]"}) {
    EXPECT_THAT(
        why({absl::StrCat("update.codec=", codec), "update.adapt=10"}),
        AllOf(HasSubstr("update.adapt"), HasSubstr("without update.codec = [\"acpsgd RANK")))
        << codec;
  }
  EXPECT_EQ(why({"update.codec=[\"acpsgd 4\"]", "update.adapt=10"}), "");
  EXPECT_EQ(why({"update.codec=[\"powersgd 4\"]", "update.adapt=10"}), "");
  EXPECT_THAT(why({"local.qsr=0.1"}), HasSubstr("without local.steps"));
  EXPECT_THAT(why({"local.qsr=0.1", "local.epochs=2"}), HasSubstr("without local.steps"));
  EXPECT_THAT(why({"local.qsr=0.1", "local.steps=2", "local.optimizer=adam"}),
              HasSubstr("without local.optimizer = \"sgd\""));
  EXPECT_THAT(why({"local.qsr=-1", "local.steps=2"}), HasSubstr("local.qsr"));
  EXPECT_EQ(why({"local.qsr=0.1", "local.steps=2"}), "");
  EXPECT_THAT(why({"run.contribution_bound=1e100"}), HasSubstr("run.contribution_bound"));
  EXPECT_THAT(why({"evaluation.clients=true", "evaluation.fine_tune.lr=0.1"}),
              HasSubstr("has no effect without evaluation.fine_tune.steps"));
  EXPECT_THAT(why({"evaluation.sample=3"}), HasSubstr("without clients to evaluate"));
  EXPECT_EQ(why({"evaluation.sample=3", "evaluation.clients=true"}), "");
  EXPECT_EQ(why({"evaluation.sample=3", "evaluation.splits=[\"validation\"]"}), "");
  for (const char* key : {"clients", "heldout", "central"}) {
    EXPECT_THAT(why({"evaluation.splits=[\"train\"]", absl::StrCat("evaluation.", key, "=true")}),
                HasSubstr(absl::StrCat("evaluation.", key, " has no effect without \"test\"")));
  }
  EXPECT_THAT(why({"evaluation.central=false", "evaluation.metrics=[\"f1\"]"}),
              HasSubstr("without something to evaluate"));
}

TEST(Config, LetsTheLastOverrideWinAndReplaceARival) {
  const auto config =
      Parse(kMinimal, {"local.lr=1", "local.lr=0.5", "cohort.fraction=0.5", "local.steps=3",
                       "model.layers=[\"linear 10\"]", "run.name=2024",
                       "local.lr_schedule={kind = \"step\", gamma = 0.5}", "data.synthetic.alpha=0",
                       "algorithm.fedprox.mu=2", "algorithm.name=fedprox"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->run.local.lr, 0.5);
  EXPECT_EQ(config->run.cohort.size, 0u);
  EXPECT_EQ(config->run.cohort.fraction, 0.5);
  EXPECT_EQ(config->run.local.steps, 3u);
  EXPECT_EQ(config->run.model.name, "layers");
  EXPECT_EQ(config->run.name, "2024");
  EXPECT_EQ(config->run.local.lr_schedule.kind, "step");
  EXPECT_EQ(config->node.data.synthetic.alpha, 0);
  EXPECT_EQ(std::get<double>(config->run.algorithm.parameters.at("mu")), 2);
}

TEST(Config, StartsRelativePathsOfOverridesAtTheCurrentFolder) {
  const auto config = Parse(kMinimal, {"data.source=csv", "data.path=rows.csv"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->node.data.path, (std::filesystem::current_path() / "rows.csv").string());
}

// The effective file has the groups themselves. Other columns are ignored, and clients without a
// group are in none.
TEST(Config, TakesGroupsOfClientsFromATable) {
  const testing_support::TemporaryFolder folder;
  const auto write = [&](const char* text) {
    ASSERT_TRUE(AtomicWriteFile(folder / "groups.csv", text).ok());
  };
  const std::string text = absl::StrCat(
      kMinimal, "[evaluation]\nclients = true\ngroups = [\"a=x*\", \"@groups.csv\"]\n");
  write("region;client;group\n1;c 1;b\n2;\"c;2\";a\n2;c3;\n");
  const Config config = *Parse(text, {}, folder.path());
  EXPECT_THAT(config.run.evaluation.groups, ElementsAre("a=x*", "b=c 1", "a=c;2"));
  EXPECT_EQ(Parse(EffectiveToml(config))->run.evaluation.groups, config.run.evaluation.groups);
  const auto refusal = [&] {
    return std::string(Parse(text, {}, folder.path()).status().message());
  };
  write("client,kind\nc1,a\n");
  EXPECT_THAT(refusal(), testing::AllOf(HasSubstr("groups.csv:1"), HasSubstr("\"group\"")));
  write("client,group\nc1,a\nc2\n");
  EXPECT_THAT(refusal(), HasSubstr("groups.csv:3"));
  write(
      "\xEF\xBB\xBF"
      "client,group\nc1,a\nc2,b=c\n");
  EXPECT_THAT(refusal(), testing::AllOf(HasSubstr("groups.csv:3"), HasSubstr("b=c")));
  write("client,group\n,a\n");
  EXPECT_THAT(refusal(), HasSubstr("groups.csv:2"));
  write("");
  EXPECT_THAT(refusal(), HasSubstr("groups.csv is empty"));
  std::filesystem::remove(folder / "groups.csv");
  EXPECT_THAT(refusal(), testing::AllOf(HasSubstr("evaluation.groups"), HasSubstr("groups.csv")));
}

TEST(Config, ReadsEveryExample) {
  const sdk::Catalogue catalogue = sdk::Catalogue::Builtins();
  size_t examples = 0;
  for (const auto& entry : std::filesystem::directory_iterator(MACAW_SOURCE_DIR "/examples")) {
    if (entry.path().extension() != ".toml") continue;
    const auto document = OpenDocument(entry.path().string());
    ASSERT_TRUE(document.ok()) << document.status();
    const auto config = ReadConfig(*document, {}, catalogue);
    EXPECT_TRUE(config.ok()) << config.status();
    ++examples;
  }
  EXPECT_GE(examples, 4u);
}

TEST(Config, IsNamedAfterItsFile) {
  const auto config = Parse(kMinimal);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->run.name, "exp");
}

TEST(Config, ExplainsTheParametersOfTheAlgorithms) {
  EXPECT_THAT(ConfigHelp(TestCatalogue().algorithms()),
              HasSubstr("[algorithm.fedprox]\nmu = 0.01"));
}

TEST(Config, AnOverrideThatSwitchesTheAttackOffMeansAllOfTheFilesAttack) {
  const std::string attacked =
      std::string(kMinimal) + "[attack]\nkind = \"scaling\"\nfraction = 0.2\nscale = 3.0\n";
  const auto off = Parse(attacked, {"attack.kind=none"});
  ASSERT_TRUE(off.ok()) << off.status();
  EXPECT_EQ(off->run.attack, AttackConfig());
  EXPECT_EQ(Parse(attacked, {"attack.kind=sign-flip"})->run.attack.fraction, 0.2);
  EXPECT_EQ(Parse(attacked, {"attack.kind=none", "attack.kind=sign-flip", "attack.fraction=0.1"})
                ->run.attack,
            (AttackConfig{.kind = "sign-flip", .fraction = 0.1}));
  EXPECT_THAT(Refusal(attacked, {"attack.kind=none", "attack.fraction=0.1"}),
              HasSubstr("without attack.kind"));
}

}  // namespace
}  // namespace macaw::cli
