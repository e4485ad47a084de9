// The folder of a run: who gets it, how long it is held, and what --force removes.
#include "cli/simulate/run_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <latch>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/process/line_reader.h"
#include "cli/process/lock.h"
#include "core/child.h"
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

// Who gets a folder, and how long it is held.
class RunFolderTest : public ::testing::Test {
 protected:
  const testing_support::TemporaryFolder folder_;
  const std::string path_ = folder_.path();
};

TEST_F(RunFolderTest, ANewRunGetsTheNextFreeName) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(path_);
  const auto first = MakeRunFolder("", "exp", false);
  const auto second = MakeRunFolder("", "exp", false);
  const auto third = MakeRunFolder("", "exp", false);
  std::filesystem::current_path(before);
  ASSERT_TRUE(first.ok() && second.ok() && third.ok());
  EXPECT_EQ(first->path, "runs/exp");
  EXPECT_EQ(second->path, "runs/exp-2");
  EXPECT_EQ(third->path, "runs/exp-3");
}

// Locks exclude each other between the descriptors of one process, too.
TEST_F(RunFolderTest, RunsThatBeginAtOneMomentGetAFolderEach) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(path_);
  constexpr int kRuns = 8;
  for (int attempt = 0; attempt < 20; ++attempt) {
    std::filesystem::remove_all("runs");
    std::vector<absl::StatusOr<HeldFolder>> made(kRuns);
    std::latch begin(kRuns);
    std::vector<std::jthread> threads;
    for (int i = 0; i < kRuns; ++i) {
      threads.emplace_back([&, i] {
        begin.arrive_and_wait();
        made[i] = MakeRunFolder("", "exp", false);
      });
    }
    threads.clear();
    std::set<std::string> paths;
    for (const auto& folder : made) {
      ASSERT_TRUE(folder.ok()) << folder.status();
      paths.insert(folder->path);
    }
    ASSERT_EQ(paths.size(), size_t{kRuns});
    EXPECT_TRUE(paths.contains("runs/exp"));
  }
  std::filesystem::current_path(before);
}

TEST_F(RunFolderTest, OfTwoThatReplaceARunAtOneMomentOneIsRefused) {
  const std::string run = path_ + "/run";
  for (int attempt = 0; attempt < 20; ++attempt) {
    ASSERT_TRUE(MakeDirectories(run).ok());
    ASSERT_TRUE(AtomicWriteFile(run + "/config.toml", "").ok());
    ASSERT_TRUE(AtomicWriteFile(run + "/run-id", "").ok());
    std::vector<absl::StatusOr<HeldFolder>> made(2);
    std::latch begin(2);
    {
      std::vector<std::jthread> threads;
      for (int i = 0; i < 2; ++i) {
        threads.emplace_back([&, i] {
          begin.arrive_and_wait();
          made[i] = MakeRunFolder(run, "exp", true);
        });
      }
    }
    ASSERT_EQ(made[0].ok() + made[1].ok(), 1) << made[0].status() << made[1].status();
  }
}

TEST_F(RunFolderTest, AFolderWithALockAloneIsFree) {
  ASSERT_TRUE(AtomicWriteFile(path_ + "/.lock", "1\n").ok());  // a run that was killed at once
  const auto made = MakeRunFolder(path_, "exp", false);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_THAT(std::string(MakeRunFolder(path_, "exp", false).status().message()),
              testing::AnyOf(HasSubstr("not empty"), HasSubstr("another process")));
}

TEST_F(RunFolderTest, AFolderInUseOrOfSomebodyElseIsRefused) {
  const std::string run = path_ + "/run";
  {
    const auto made = MakeRunFolder(run, "exp", false);
    ASSERT_TRUE(made.ok()) << made.status();
    ASSERT_TRUE(AtomicWriteFile(run + "/config.toml", "").ok());
    ASSERT_TRUE(AtomicWriteFile(run + "/run-id", "").ok());
    EXPECT_THAT(std::string(MakeRunFolder(run, "exp", true).status().message()),
                HasSubstr("another process"));
    EXPECT_FALSE(OpenRunFolder(run).ok());
  }
  EXPECT_THAT(std::string(MakeRunFolder(run, "exp", false).status().message()),
              HasSubstr("--resume goes on with it"));
  EXPECT_TRUE(OpenRunFolder(run).ok());
  ASSERT_TRUE(AtomicWriteFile(path_ + "/thesis.tex", "").ok());
  EXPECT_THAT(std::string(MakeRunFolder(path_, "exp", false).status().message()),
              HasSubstr("not empty"));
  EXPECT_THAT(std::string(OpenRunFolder(path_).status().message()), HasSubstr("no run to resume"));
}

TEST_F(RunFolderTest, ForceRemovesTheFilesOfARunAndNothingElse) {
  ASSERT_TRUE(MakeDirectories(path_ + "/checkpoints").ok());
  for (const char* name :
       {"/config.toml", "/run-id", "/metrics.jsonl", "/checkpoints/1", "/thesis.tex"}) {
    ASSERT_TRUE(AtomicWriteFile(path_ + name, "x").ok());
  }
  ASSERT_TRUE(MakeRunFolder(path_, "exp", true).ok());
  EXPECT_FALSE(FileExists(path_ + "/config.toml"));
  EXPECT_FALSE(FileExists(path_ + "/metrics.jsonl"));
  EXPECT_FALSE(FileExists(path_ + "/checkpoints"));
  EXPECT_TRUE(FileExists(path_ + "/thesis.tex"));
}

TEST(SocketFolder, IsShortPrivateAndGoesAway) {
  std::string path;
  {
    const auto folder = SocketFolder::Make();
    ASSERT_TRUE(folder.ok());
    path = std::filesystem::path(folder->socket()).parent_path().string();
    EXPECT_LT(folder->socket().size(), 107u);
    EXPECT_EQ(std::filesystem::status(path).permissions(), std::filesystem::perms::owner_all);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(SocketFolder, OfAKilledProcessIsSweptByTheNextOne) {
  PipePair pipe = *MakePipe();
  const pid_t child = ::fork();
  if (child == 0) {
    const auto folder = SocketFolder::Make();
    const std::string path = folder.ok() ? folder->socket() : "";
    [[maybe_unused]] const ssize_t ignored = ::write(pipe.write.get(), path.data(), path.size());
    ::kill(::getpid(), SIGKILL);
  }
  pipe.write.Close();
  char socket[256] = "";
  ASSERT_GT(::read(pipe.read.get(), socket, sizeof(socket) - 1), 0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  const std::filesystem::path left = std::filesystem::path(socket).parent_path();
  ASSERT_TRUE(std::filesystem::exists(left));
  const auto first = SocketFolder::Make();
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_FALSE(std::filesystem::exists(left)) << "nobody holds it any more";
  const auto second = SocketFolder::Make();
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_TRUE(std::filesystem::exists(std::filesystem::path(first->socket()).parent_path()))
      << "somebody lives there";
}

TEST_F(RunFolderTest, IsHeldUntilTheLastProcessThatHasItsLockEnds) {
  absl::StatusOr<Fd> lock = LockFolder(path_);
  ASSERT_TRUE(lock.ok()) << lock.status();
  EXPECT_THAT(std::string(LockFolder(path_).status().message()),
              testing::AllOf(HasSubstr(path_), HasSubstr(absl::StrCat("pid ", ::getpid()))));
  PipePair pipe = *MakePipe();
  const pid_t child = ::fork();  // has a copy of it
  if (child == 0) {
    pipe.write.Close();
    char byte;
    [[maybe_unused]] const ssize_t ignored = ::read(pipe.read.get(), &byte, 1);
    ::_exit(0);
  }
  lock->Close();
  EXPECT_FALSE(LockFolder(path_).ok()) << "the child still has it";
  pipe.write.Close();
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(LockFolder(path_).ok());
}

TEST_F(RunFolderTest, IsFreeOnceTheChildrenOfAKilledHolderHaveEnded) {
  for (int i = 0; i < 20; ++i) {
    PipePair ready = *MakePipe();
    const pid_t holder = ::fork();
    if (holder == 0) {
      const absl::StatusOr<Fd> lock = LockFolder(path_);
      const pid_t parent = ::getpid();
      if (::fork() == 0) {  // ends with its parent, by the kernel, a moment later
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() != parent) ::_exit(1);
        [[maybe_unused]] const ssize_t ignored =
            ::write(ready.write.get(), lock.ok() ? "y" : "n", 1);
      }
      while (true) ::pause();
    }
    char locked = 'n';
    ASSERT_EQ(::read(ready.read.get(), &locked, 1), 1);
    EXPECT_EQ(locked, 'y');
    ::kill(holder, SIGKILL);
    ASSERT_EQ(::waitpid(holder, nullptr, 0), holder);
    const absl::StatusOr<Fd> lock = LockFolder(path_);
    EXPECT_TRUE(lock.ok()) << lock.status();
  }
}

}  // namespace
}  // namespace macaw::cli
