// A scripted module through the real programs: the run of the equal model of layers, to the byte.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "testing/temporary_folder.h"
#include "tests/models/written_script.h"
#include "tests/system/simulation.h"

namespace macaw {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing_support::Simulation;
using testing_support::TemporaryFolder;
using testing_support::WriteConfig;

class ScriptRun : public testing::Test {
 protected:
  ScriptRun() : config_(WriteConfig("script", "[evaluation]\nclients = true\n")) {
    torch::manual_seed(4);
    models::WrittenNet(28 * 28, 16, 10).Save(path());
  }
  std::string path() const { return folder_ / "net.pt"; }
  std::vector<std::string> Script(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all = {config_, "--set", "model.torchscript=" + path()};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  const TemporaryFolder folder_;
  const std::string config_;
};

TEST_F(ScriptRun, IsTheRunOfTheEqualLayers) {
  for (const std::string dtype : {"float32", "float64"}) {
    Simulation script("script",
                      Script({"--set", "run.dtype=" + dtype, "--processes", "2", "--slots", "2"}));
    ASSERT_EQ(script.Wait(), 0) << script.output();
    Simulation layers(
        "layers", {config_, "--set",
                   R"(model.layers=["flatten", "linear 16", "batchnorm", "relu", "linear 10"])",
                   "--set", absl::StrCat("model.init=", script.folder(), "/model-init.safetensors"),
                   "--set", "run.dtype=" + dtype, "--set", "workers.backend=torch"});
    ASSERT_EQ(layers.Wait(), 0) << layers.output();
    EXPECT_EQ(script.digest().size(), 64u);
    EXPECT_EQ(script.digest(), layers.digest());
    EXPECT_EQ(script.metrics(), layers.metrics());
  }
}

TEST_F(ScriptRun, WithCheckpointsIsTheSame) {
  Simulation plain("plain", Script());
  ASSERT_EQ(plain.Wait(), 0) << plain.output();
  Simulation again("again", Script({"--set", "local.checkpoint=true", "--processes", "2"}));
  ASSERT_EQ(again.Wait(), 0) << again.output();
  EXPECT_EQ(again.digest(), plain.digest());
  EXPECT_EQ(again.metrics(), plain.metrics());
  models::WrittenLinear("Flat", 28, 10).Save(path());
  Simulation flat("flat", Script({"--set", "local.checkpoint=true"}));
  EXPECT_NE(flat.Wait(), 0) << flat.output();
  EXPECT_THAT(flat.output(), HasSubstr("no part of the scripted module can be computed again"));
}

TEST_F(ScriptRun, GoesOnAfterAnInterruption) {
  Simulation whole("whole", Script({"--rounds", "5"}));
  ASSERT_EQ(whole.Wait(), 0) << whole.output();
  Simulation first("first", Script());
  ASSERT_EQ(first.Wait(), 0) << first.output();
  Simulation second("second", {"--resume", first.folder(), "--rounds", "5"});
  ASSERT_EQ(second.Wait(), 0) << second.output();
  EXPECT_EQ(second.digest(), whole.digest());
}

TEST_F(ScriptRun, AWorkerRefusesAnotherFile) {
  Simulation first("first", Script());
  ASSERT_EQ(first.Wait(), 0) << first.output();
  models::WrittenNet(28 * 28, 16, 10).Save(path());  // other numbers
  Simulation second("second", {"--resume", first.folder(), "--rounds", "5"});
  EXPECT_NE(second.Wait(), 0);
  EXPECT_THAT(second.output(),
              AllOf(HasSubstr("net.pt"), HasSubstr("is not the run's scripted module")));
}

TEST_F(ScriptRun, AScriptOfOtherShapesEndsAtItsFirstBatchWithTheLibrarysWords) {
  models::WrittenNet(100, 16, 10).Save(path());  // of other inputs
  Simulation inputs("inputs", Script());
  EXPECT_EQ(inputs.Wait(), 2) << inputs.output();
  EXPECT_THAT(inputs.output(), AllOf(HasSubstr("before the run"), HasSubstr("100"),
                                     testing::Not(HasSubstr("starting it again"))));
  models::WrittenNet(28 * 28, 16, 7).Save(path());  // of other outputs
  Simulation outputs("outputs", Script());
  EXPECT_EQ(outputs.Wait(), 2) << outputs.output();
  EXPECT_THAT(outputs.output(), AllOf(HasSubstr("before the run"), HasSubstr("7]")));
}

TEST_F(ScriptRun, CodeThatNamesTheNumberOfRowsIsRefusedBeforeTheRun) {
  models::WrittenScript net("Two");
  net.Inner("fc", models::WrittenLinear("Fc", 28 * 28, 10));
  net.Define("    return self.fc.forward(x.view([2, 784]))\n");
  net.Save(path());
  Simulation simulation("two", Script());
  EXPECT_EQ(simulation.Wait(), 2) << simulation.output();
  EXPECT_THAT(simulation.output(),
              AllOf(HasSubstr("before the run"), HasSubstr("a batch of shape [3, "),
                    HasSubstr("shape '[2, 784]' is invalid for input of size 2352"),
                    testing::Not(HasSubstr("starting it again"))));
}

TEST_F(ScriptRun, AFileThatIsNoScriptEndsBeforeAnythingStarts) {
  std::ofstream(path()) << "no archive";
  Simulation simulation("bad", Script());
  EXPECT_EQ(simulation.Wait(), 2);
  EXPECT_THAT(simulation.output(), AllOf(HasSubstr("model.torchscript"), HasSubstr("net.pt"),
                                         HasSubstr("does not read it as a scripted module")));
  EXPECT_FALSE(std::filesystem::exists(simulation.folder()));
}

// "embedding 97 8", "linear 97": a module of tokens with the names of those layers' tensors.
models::WrittenScript WrittenTokens() {
  models::WrittenScript table("Table"), net("Tokens");
  table.Parameter("weight", torch::randn({97, 8}));
  table.Define("    return torch.embedding(self.weight, x)\n");
  net.Inner("0", table).Inner("1", models::WrittenLinear("Last", 8, 97));
  net.Define("    return getattr(self, \"1\").forward(getattr(self, \"0\").forward(x))\n");
  return net;
}

TEST(TokenScript, IsTheRunOfTheEqualLayersForTheNextToken) {
  const TemporaryFolder folder;
  torch::manual_seed(4);
  WrittenTokens().Save(folder / "net.pt");
  nlohmann::json leaf = {{"users", {"ann", "bob"}}};
  for (const std::string name : {"ann", "bob"}) {
    leaf["user_data"][name]["x"] = {name + " says this", "and that", "and nothing"};
    leaf["user_data"][name]["y"] = {",", " ", "."};
  }
  folder.Write("play.json", leaf.dump());
  const std::string config = folder.Write("text.toml", R"([data]
source = "leaf"
path = "play.json"
[cohort]
size = 2
[local]
epochs = 2
batch_size = 2
[run]
rounds = 3
)");
  Simulation script("script", {config, "--set", "model.torchscript=" + (folder / "net.pt")});
  ASSERT_EQ(script.Wait(), 0) << script.output();
  Simulation layers("layers",
                    {config, "--set", R"(model.layers=["embedding 97 8", "linear 97"])", "--set",
                     absl::StrCat("model.init=", script.folder(), "/model-init.safetensors")});
  ASSERT_EQ(layers.Wait(), 0) << layers.output();
  EXPECT_EQ(script.digest().size(), 64u);
  EXPECT_EQ(script.digest(), layers.digest());
  EXPECT_EQ(script.metrics(), layers.metrics());

  // Classes of whole texts need another module.
  Simulation classes("classes", {config, "--set", "model.torchscript=" + (folder / "net.pt"),
                                 "--set", "run.task=classification"});
  EXPECT_EQ(classes.Wait(), 2) << classes.output();
  EXPECT_THAT(classes.output(), AllOf(HasSubstr("before the run"), HasSubstr("97]")));
}

}  // namespace
}  // namespace macaw
