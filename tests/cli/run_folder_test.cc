// What --force removes, and what it leaves alone.
#include "cli/simulate/run_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "core/files.h"
#include "testing/temporary_folder.h"

namespace macaw::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::FieldsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class ForcedFolder : public ::testing::Test {
 protected:
  // What is in the folder, sorted.
  std::vector<std::string> Names(const std::string& name) const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_ / name))
      names.push_back(entry.path().filename().string());
    std::ranges::sort(names);
    return names;
  }
  absl::Status Force(const std::string& name, const std::vector<NamedInput>& inputs = {}) const {
    return MakeRunFolder(folder_ / name, "", /*force=*/true, inputs).status();
  }
  std::string Refusal(const std::string& name, bool force = true) const {
    return std::string(MakeRunFolder(folder_ / name, "", force).status().message());
  }
  // A run that a server has begun, beside a file of the user's.
  void WriteBegunRun(const std::string& name) const {
    for (const char* file : {"config.toml", "node.toml", "run-id", "rounds.log", "metrics.jsonl",
                             "model.safetensors", "models/last.safetensors", "journal/nodes",
                             "checkpoints/1.safetensors", "state/store", "notes.txt"})
      folder_.Write(name + "/" + file, "x");
  }

  const testing_support::TemporaryFolder folder_;
};

TEST_F(ForcedFolder, OfNoRunKeepsTheUsersOwnFolders) {
  folder_.Write("proj/models/my.pt", "x");
  folder_.Write("proj/wandb/kept", "x");
  EXPECT_THAT(Refusal("proj"), AllOf(HasSubstr("proj holds no run, but has models"),
                                     HasSubstr("name another --out")));
  EXPECT_THAT(Names("proj"), ElementsAre("models", "wandb")) << "nor is there a lock";
  EXPECT_TRUE(FileExists(folder_ / "proj/models/my.pt"));
  EXPECT_THAT(Refusal("proj", /*force=*/false),
              AllOf(HasSubstr("models"), Not(HasSubstr("force"))));
  for (const char* file : {"config.toml", "node.toml", "summary.json", "logs/own.log"}) {
    SCOPED_TRACE(file);
    const std::string name = std::string("with-") + fs::path(file).stem().string();
    folder_.Write(name + "/" + file, "the user's own");
    EXPECT_FALSE(Force(name).ok());
    EXPECT_EQ(*ReadFile(folder_ / name + "/" + file), "the user's own");
  }
}

TEST_F(ForcedFolder, OfNoRunIsUsedWhereNoNameIsTaken) {
  folder_.Write("proj/train.py", "x");
  folder_.Write("proj/base.safetensors", "not a run's");
  ASSERT_TRUE(MakeDirectories(folder_ / "proj/logs").ok());
  EXPECT_THAT(Refusal("proj", /*force=*/false), HasSubstr("--force to run in it"));
  ASSERT_TRUE(Force("proj").ok());
  EXPECT_THAT(Names("proj"), ElementsAre(".lock", "base.safetensors", "logs", "train.py"));
}

TEST_F(ForcedFolder, OfARunIsEmptiedOfTheRunAlone) {
  WriteBegunRun("run");
  EXPECT_THAT(Refusal("run", /*force=*/false), HasSubstr("holds a run already"));
  ASSERT_TRUE(Force("run").ok());
  EXPECT_THAT(Names("run"), ElementsAre(".lock", "logs", "notes.txt"));
  // Its server was never started.
  folder_.Write("killed/node.toml", std::string(kNodeFileHeading) + "\n[data]\n");
  folder_.Write("killed/model-init.safetensors", "x");
  ASSERT_TRUE(Force("killed").ok());
  EXPECT_THAT(Names("killed"), ElementsAre(".lock", "logs"));
}

TEST_F(ForcedFolder, IsRefusedWhereTheRunReadsWhatWouldBeRemoved) {
  WriteBegunRun("run");
  fs::create_directory_symlink(folder_ / "run", folder_ / "link");
  const std::vector<std::string> before = Names("run");
  for (const char* path : {"run/model.safetensors", "run/models/last.safetensors", "run/models",
                           "run/../run/model.safetensors", "link/model.safetensors"}) {
    SCOPED_TRACE(path);
    const absl::Status status = Force("run", {{"model.init", folder_ / path}});
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("model.init is "), HasSubstr(path), HasSubstr("--force would")));
  }
  EXPECT_EQ(Names("run"), before);
  const std::vector<NamedInput> stay = {{"data.path", folder_ / "run/notes.txt"},
                                        {"plugins", folder_ / "run/model.safetensors.bak"},
                                        {"partition.path", folder_ / "elsewhere/models/x"}};
  EXPECT_TRUE(Force("run", stay).ok());
}

// A run of a TorchScript module that was killed before its server began.
TEST_F(ForcedFolder, OfARunThatHasJustBegunIsEmptiedOfIt) {
  folder_.Write("run/model-init.safetensors", "x");
  ASSERT_TRUE(MarkAsRun(folder_ / "run").ok());
  EXPECT_TRUE(Force("run").ok());
  EXPECT_FALSE(FileExists(folder_ / "run/model-init.safetensors"));
}

// The user's own base.safetensors is not removed, so a run may begin from it.
TEST_F(ForcedFolder, OfNoRunMayHoldWhatTheRunReads) {
  const std::string own = folder_.Write("proj/base.safetensors", "x");
  EXPECT_TRUE(Force("proj", {{"model.init", own}}).ok());
  WriteBegunRun("run");
  const std::string beside = folder_.Write("run/base.safetensors", "x");
  EXPECT_TRUE(Force("run", {{"model.init", beside}}).ok());
  EXPECT_TRUE(FileExists(own) && FileExists(beside));
}

TEST(InputsOf, AreWhatARunReadsWithoutItsOwnFolders) {
  Config config;
  config.run.model.seed = 3;
  config.node.model_init = "/kept/w-{seed}.safetensors";
  config.node.plugins = {"/own/rule.py", "/own/rules.so"};
  config.node.server.out = "/runs/x";
  config.node.state.path = "/runs/x/state";
  const std::vector<NamedInput> inputs = InputsOf(config);
  EXPECT_THAT(inputs, Contains(FieldsAre("model.init", "/kept/w-3.safetensors")));
  EXPECT_THAT(inputs, Contains(FieldsAre("plugins", "/own/rule.py")));
  EXPECT_THAT(inputs, Contains(FieldsAre("plugins", "/own/rules.so")));
  for (const NamedInput& input : inputs)
    EXPECT_THAT(input.path, Not(HasSubstr("/runs"))) << input.key;
  config.node.model_init = "zero";
  EXPECT_THAT(InputsOf(config), Not(Contains(FieldsAre("model.init", "zero"))));
}

}  // namespace
}  // namespace macaw::cli
