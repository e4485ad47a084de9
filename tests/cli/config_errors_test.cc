#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/cli/config_test_util.h"

namespace macaw::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// The minimal file has 6 lines; what is appended starts on line 7.
std::string With(const std::string& more) { return absl::StrCat(kMinimal, more); }

TEST(ConfigErrors, NameAnUnknownKeyItsLineAndTheNearestOne) {
  EXPECT_EQ(Refusal(With("[local]\nepoch = 3\n")),
            "exp.toml:8: unknown key local.epoch; did you mean local.epochs?");
  EXPECT_EQ(Refusal(With("[run]\nruonds = 3\n")),
            "exp.toml:8: unknown key run.ruonds; did you mean run.rounds?");
}

TEST(ConfigErrors, KnowWhatOtherSystemsCallAKey) {
  const std::pair<const char*, const char*> cases[] = {
      {"[local]\nlearning_rate = 0.1", "local.lr"},
      {"[run]\ncomm_round = 3", "run.rounds"},
      {"[run]\nclient_num_per_round = 10", "cohort.size"},
      {"[run]\nfraction-fit = 0.1", "cohort.fraction"},
      {"[local]\nlocal_epochs = 1", "local.epochs"},
      {"[partition]\npartition_alpha = 0.3", "partition.concentration"},
      {"[run]\nnum_clients = 100", "partition.clients"},
      {"[local]\nbatch = 32", "local.batch_size"},
  };
  for (const auto& [text, meant] : cases) {
    EXPECT_THAT(Refusal(With(text)), AllOf(StartsWith("exp.toml:8: unknown key"),
                                           HasSubstr(absl::StrCat("did you mean ", meant, "?"))))
        << text;
  }
  EXPECT_EQ(Refusal(absl::StrCat("comm_round = 3\n", kMinimal)),
            "exp.toml:1: unknown key comm_round; did you mean run.rounds?");
}

TEST(ConfigErrors, FindTheKeyInAnotherTable) {
  EXPECT_EQ(Refusal(With("[run]\nmomentum = 0.9\n")),
            "exp.toml:8: unknown key run.momentum; did you mean local.momentum?");
}

TEST(ConfigErrors, NameAnUnknownTable) {
  EXPECT_EQ(Refusal(With("[locale]\nepochs = 3\n")),
            "exp.toml:7: unknown table [locale]; did you mean [local]?");
  EXPECT_EQ(Refusal(With("[zzzzzzzz]\n")), "exp.toml:7: unknown table [zzzzzzzz]");
}

// In bytes or nanoseconds these do not fit into 64 bits.
TEST(ConfigErrors, RefuseSizesAndTimesThatCannotBeMeant) {
  for (const char* text : {"[state]\nstore = \"memory\"\nmemory_mb = 17592186044416\n",
                           "[state]\nstore = \"disk\"\ncache_mb = 17592186044416\n",
                           "[emulation]\npause_probability = 0.5\npause_seconds = 1e10\n",
                           "[workers]\nbackend = \"process\"\nturn_seconds = 1e10\n",
                           "[accept]\nrun_when = \"true\"\nrun_when_every = 1e10\n"})
    EXPECT_THAT(Refusal(With(text)), HasSubstr(", 1e+09]")) << text;
}

// The wire would refuse it, in the run's first minute.
TEST(ConfigErrors, RefuseATextThatIsTooLongForTheWire) {
  const auto with = [](size_t size) {
    return With(absl::StrCat("[run]\nname = \"", std::string(size, 'x'), "\"\n"));
  };
  EXPECT_EQ(Refusal(with(4097)),
            "exp.toml:8: run.name has a text of more than 4096 bytes, which no node takes: write a "
            "shorter one");
  EXPECT_TRUE(Parse(with(4096)).ok());
}

TEST(ConfigErrors, SayWhatIsExpectedAndWhatWasFound) {
  EXPECT_EQ(Refusal(With("[local]\nlr = \"fast\"\n")),
            "exp.toml:8: local.lr must be a number > 0, found \"fast\"");
  EXPECT_EQ(Refusal(With("[local]\nlr = 0\n")),
            "exp.toml:8: local.lr must be a number > 0, found 0");
  EXPECT_EQ(Refusal(With("[local]\nlr = nan\n")),
            "exp.toml:8: local.lr must be a number > 0, found nan");
  EXPECT_EQ(Refusal(With("[local]\nepochs = 1.5\n")),
            "exp.toml:8: local.epochs must be an integer >= 1, found 1.5");
  EXPECT_EQ(
      Refusal(With("[local]\nepochs = 5000000000\n")),
      "exp.toml:8: local.epochs must be an integer >= 1 and at most 4294967295, found 5000000000");
  EXPECT_THAT(Refusal(With("[attack]\nscale = 2000000000000\n")),
              testing::Not(testing::HasSubstr("at most")));
  EXPECT_EQ(Refusal(With("[local]\nmomentum = 1.0\n")),
            "exp.toml:8: local.momentum must be a number in [0, 1), found 1.0");
  EXPECT_EQ(Refusal(With("[local]\ndrop_last = 1\n")),
            "exp.toml:8: local.drop_last must be true or false, found 1");
  EXPECT_EQ(Refusal(With("[run]\nseed = -1\n")),
            "exp.toml:8: run.seed must be an integer >= 0, found -1");
  EXPECT_EQ(Refusal(With("[run]\nname = 1979-05-27\n")),
            "exp.toml:8: run.name must be a string, found a date or time");
  EXPECT_EQ(Refusal(With("[run]\nname = \"a/b\"\n")),
            "exp.toml: run.name must not contain \"/\" (it names a folder), found \"a/b\"");
  EXPECT_EQ(Refusal(With("[run]\nname = \"a\\nb\"\n")),
            "exp.toml: run.name must not contain control characters (it names a folder), found "
            "\"a\\nb\"");
  for (const std::string name : {".", ".."}) {
    EXPECT_EQ(Refusal(With("[run]\nname = \"" + name + "\"\n")),
              "exp.toml: run.name must not be \".\" or \"..\", which are other folders (it names a "
              "folder), found \"" +
                  name + "\"");
  }
  EXPECT_EQ(Refusal(With("[run]\nname = \"-v\"\n")),
            "exp.toml: run.name must not begin with \"-\" (it names a folder), found \"-v\"");
  EXPECT_EQ(Refusal(With("[local]\nclass_weights = [1, \"x\"]\n")),
            "exp.toml:8: local.class_weights must be a list of numbers > 0, found [1, \"x\"]");
  EXPECT_EQ(Refusal(With("[local]\nlr = {a = 1}\n")),
            "exp.toml:8: local.lr must be a number > 0, found a table");
}

TEST(ConfigErrors, ListTheWordsOfAChoiceAndTheNearestOne) {
  EXPECT_EQ(Refusal(With("[run]\ntask = \"classificaton\"\n")),
            "exp.toml:8: run.task must be \"auto\" | \"classification\" | \"binary\" | "
            "\"regression\" | \"next-token\" | \"reconstruction\", found "
            "\"classificaton\"; did you mean \"classification\"?");
}

TEST(ConfigErrors, NameBothKindsOfDurability) {
  EXPECT_THAT(
      Refusal(With("[server]\ndurability = \"comit\"\n")),
      AllOf(StartsWith("exp.toml:8: server.durability must be "),
            HasSubstr("\"checkpoint\" | \"commit\""), HasSubstr("did you mean \"commit\"?")));
}

TEST(ConfigErrors, RefuseATableAndAValueInEachOthersPlace) {
  EXPECT_EQ(Refusal(absl::StrCat("local = 3\n", kMinimal)),
            "exp.toml:1: local must be a table, found 3");
  EXPECT_THAT(Refusal(With("[run.seed]\n")),
              StartsWith("exp.toml:7: run.seed must be an integer >= 0, found a table"));
}

TEST(ConfigErrors, RefuseTwoWaysToSayOneThing) {
  EXPECT_EQ(Refusal(absl::StrCat(kMinimal, "fraction = 0.5\n")),
            "exp.toml:7: cohort.fraction and cohort.size say the same thing in two ways; give one "
            "of them");
  EXPECT_THAT(Refusal(With("[local]\nepochs = 1\nsteps = 5\n")),
              StartsWith("exp.toml:9: local.steps and local.epochs"));
  // One override replaces the file's key; two of them are two ways.
  EXPECT_TRUE(Parse(With("[local]\nepochs = 2\n"), {"local.steps=5"}).ok());
  for (const std::vector<std::string>& both :
       {std::vector<std::string>{"local.epochs=2", "local.steps=5"},
        {"local.steps=5", "local.epochs=2"},
        {"local={steps = 5, epochs = 2}"},
        {"cohort.size=2", "cohort.fraction=0.5"}}) {
    EXPECT_THAT(std::string(Parse(kMinimal, both).status().message()),
                HasSubstr("say the same thing in two ways"))
        << both.front();
  }
}

TEST(ConfigErrors, NameWhatIsMissing) {
  EXPECT_THAT(Refusal(""), HasSubstr("data.source is missing"));
  EXPECT_THAT(Refusal("[data]\nsource = \"idx\"\n"), HasSubstr("model.name is missing"));
  EXPECT_THAT(Refusal("[data]\nsource = \"idx\"\n[model]\nname = \"cnn\"\n"),
              HasSubstr("cohort.size or cohort.fraction is missing"));
  EXPECT_THAT(Refusal(With("[run]\nstop = {metric = \"test_accuracy\"}\n")),
              HasSubstr("run.stop.metric has no effect without run.stop.at_least or"));
}

TEST(ConfigErrors, GiveTheLineOfASyntaxErrorAndOfARepeatedKey) {
  EXPECT_THAT(Refusal(With("[local]\nlr = = 3\n")), StartsWith("exp.toml:8: "));
  EXPECT_THAT(Refusal(With("[local]\nlr = 1\nlr = 2\n")), StartsWith("exp.toml:9: "));
}

TEST(ConfigErrors, CheckTheTablesOfEveryAlgorithm) {
  EXPECT_THAT(
      Refusal(With("[algorithm.fedprox]\nmuu = 1\n")),
      StartsWith(
          "exp.toml:8: unknown key algorithm.fedprox.muu; did you mean algorithm.fedprox.mu?"));
  EXPECT_EQ(Refusal(With("[algorithm.fedprox]\nmu = \"big\"\n")),
            "exp.toml:8: algorithm.fedprox.mu must be a number, found \"big\"");
  EXPECT_THAT(Refusal(With("[algorithm.fedprox]\nmu = -1.0\n")),
              AllOf(StartsWith("exp.toml:8: "), HasSubstr("algorithm.fedprox.mu")));
  EXPECT_THAT(Refusal(With("[algorithm.fedporx]\nmu = 1\n")),
              AllOf(StartsWith("exp.toml:7: [algorithm.fedporx]"), HasSubstr("fedprox")));
  EXPECT_THAT(Refusal(With("[algorithm]\nname = \"fedporx\"\n")),
              AllOf(StartsWith("exp.toml:8: "), HasSubstr("fedprox")));
  EXPECT_EQ(Refusal(With("[algorithm.other]\ncount = 1.5\n")),
            "exp.toml:8: algorithm.other.count must be an integer, found 1.5");
}

TEST(ConfigErrors, PointAtTheSetThatIsWrong) {
  EXPECT_EQ(Refusal(kMinimal, {"local.lr=fast"}),
            "--set local.lr=fast: local.lr must be a number > 0, found \"fast\"");
  EXPECT_EQ(
      Refusal(kMinimal, {"local.learning_rate=0.1"}),
      "--set local.learning_rate=0.1: unknown key local.learning_rate; did you mean local.lr?");
  EXPECT_EQ(Refusal(kMinimal, {"local.lr"}), "--set local.lr: expected section.key=value");
  EXPECT_THAT(Refusal(kMinimal, {"model.layers=[\"relu\""}),
              StartsWith("--set model.layers=[\"relu\": "));
}

}  // namespace
}  // namespace macaw::cli
