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

TEST_F(ScriptRun, AFileThatIsNoScriptEndsBeforeAnythingStarts) {
  std::ofstream(path()) << "no archive";
  Simulation simulation("bad", Script());
  EXPECT_EQ(simulation.Wait(), 2);
  EXPECT_THAT(simulation.output(), AllOf(HasSubstr("model.torchscript"), HasSubstr("net.pt"),
                                         HasSubstr("does not read it as a scripted module")));
  EXPECT_FALSE(std::filesystem::exists(simulation.folder()));
}

}  // namespace
}  // namespace macaw
