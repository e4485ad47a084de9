// Rules in Python, as their authors meet them: a file that a configuration names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "core/files.h"
#include "testing/python.h"
#include "testing/temporary_folder.h"
#include "tests/system/simulation.h"
#include "tests/system/state_runs.h"

namespace macaw {
namespace {

using testing::HasSubstr;
using testing_support::AllGone;
using testing_support::ResumeWithoutPauses;
using testing_support::RoundDone;
using testing_support::Simulation;
using testing_support::WriteConfig;

const std::string kRules = MACAW_SOURCE_DIR "/examples/rules/";

class Rules : public testing::Test {
 protected:
  void SetUp() override {
    const std::string why = testing_support::WhyNoPython("numpy");
    if (!why.empty()) GTEST_SKIP() << why;
    ::setenv("MACAW_PYTHON", testing_support::Python().c_str(), 1);
  }

  static std::string Config(const std::string& name, const std::string& file) {
    return WriteConfig(file + ".of." + name, absl::StrCat("[algorithm]\nname = \"", name, "\"\n"));
  }
  static std::vector<std::string> With(const std::string& config, const std::string& file,
                                       std::vector<std::string> more = {}) {
    more.insert(more.begin(), {config, "--set", absl::StrCat("plugins=[\"", file, "\"]")});
    return more;
  }

  // What a run with this rule says; the body is that of a class derived from Rule.
  static std::string Said(const std::string& name, const std::string& body, int exit) {
    const testing_support::TemporaryFolder folder;
    const std::string file = folder / (name + ".py");
    EXPECT_TRUE(AtomicWriteFile(file, absl::StrCat("import os, signal, time\nimport numpy as np\n"
                                                   "from macaw.rules import *\n"
                                                   "class Broken(Rule):\n",
                                                   body))
                    .ok());
    Simulation run(name, With(Config("broken", name), file));
    EXPECT_EQ(run.Wait(), exit) << run.output();
    return run.output();
  }
};

TEST_F(Rules, InPythonEndWithTheBitsOfTheBuiltins) {
  for (const std::string name : {"fedprox", "scaffold"}) {
    Simulation builtin("builtin-" + name, {Config(name, "builtin")});
    ASSERT_EQ(builtin.Wait(), 0) << builtin.output();
    for (const std::string slots : {"1", "3"}) {
      for (const std::string processes : {"1", "2"}) {
        Simulation python(absl::StrCat("python-", name, slots, processes),
                          With(Config("py_" + name, "python"), kRules + "py_" + name + ".py",
                               {"--slots", slots, "--processes", processes}));
        ASSERT_EQ(python.Wait(), 0) << python.output();
        EXPECT_EQ(python.digest(), builtin.digest()) << name << " " << slots << " " << processes;
      }
    }
  }
}

// [update] and [privacy] add channels and client states, which the rule does not see.
TEST_F(Rules, InPythonEndWithTheBitsOfTheBuiltinUnderCodecsAndPrivacy) {
  const std::vector<std::vector<std::string>> around = {
      {R"(update.codec=["bits 8"])"},
      {R"(update.codec=["topk 0.1"])"},
      {R"(update.codec=["topk 0.1"])", "update.feedback=residual"},
      {R"(update.codec=["acpsgd 2"])", "update.feedback=residual"},
      {R"(update.codec=["powersgd 2"])"},
      {"privacy.mechanism=gaussian", "privacy.clip=1", "privacy.noise=1", "privacy.delta=0.001",
       "privacy.clip_quantile=0.5", "cohort.sampling=poisson", "cohort.weight=uniform"}};
  for (const std::vector<std::string>& settings : around) {
    SCOPED_TRACE(settings.back());
    std::vector<std::string> more = {"--set", "model.name=mlp", "--set", "partition.clients=40",
                                     "--set", "cohort.size=12"};
    for (const std::string& setting : settings) more.insert(more.end(), {"--set", setting});
    std::vector<std::string> arguments = more;
    arguments.insert(arguments.begin(), Config("fedprox", "builtin"));
    Simulation builtin("builtin", arguments);
    ASSERT_EQ(builtin.Wait(), 0) << builtin.output();
    more.insert(more.end(), {"--processes", "2", "--slots", "2"});
    Simulation python(
        "python", With(Config("py_fedprox", "python"), kRules + "py_fedprox.py", std::move(more)));
    ASSERT_EQ(python.Wait(), 0) << python.output();
    EXPECT_EQ(python.digest(), builtin.digest());
  }
}

TEST_F(Rules, WithAStateThatMayMirrorWhatIsSentAreRefusedUnderACodec) {
  Simulation run("mirrors", With(Config("py_scaffold", "mirrors"), kRules + "py_scaffold.py",
                                 {"--set", R"(update.codec=["bits 8"])"}));
  EXPECT_EQ(run.Wait(), 2) << run.output();
  EXPECT_THAT(run.output(),
              testing::AllOf(HasSubstr("update.codec"), HasSubstr("has_independent_state = True"),
                             testing::Not(HasSubstr("state_follows_sent"))));
  EXPECT_FALSE(FileExists(run.folder()));
}

TEST_F(Rules, KilledAndResumedEndWithTheSameBitsAndLeaveNoProcess) {
  Simulation builtin("whole", {Config("scaffold", "whole"), "--rounds", "12"});
  ASSERT_EQ(builtin.Wait(), 0) << builtin.output();
  Simulation killed(
      "killed", With(Config("py_scaffold", "killed"), kRules + "py_scaffold.py",
                     {"--rounds", "12", "--processes", "2", "--slots", "1", "--set",
                      "emulation.pause_probability=1", "--set", "emulation.pause_seconds=0.1"}));
  ASSERT_TRUE(killed.WaitForEvent(RoundDone(2))) << killed.output();
  std::vector<pid_t> python;
  for (const pid_t worker : killed.Children("macaw-worker")) {
    const auto said = testing_support::RunShell(absl::StrCat("pgrep -P ", worker));
    for (pid_t child = ::atoi(said.text.c_str()); child > 0;) {
      python.push_back(child);
      child = ::atoi(testing_support::RunShell(absl::StrCat("pgrep -P ", child)).text.c_str());
    }
  }
  EXPECT_GE(python.size(), 4U) << "an interpreter and a slot's process for each worker";
  killed.Signal(SIGKILL);
  EXPECT_NE(killed.Wait(), 0);
  EXPECT_TRUE(AllGone(python));
  Simulation resumed("resumed", ResumeWithoutPauses(killed));
  ASSERT_EQ(resumed.Wait(), 0) << resumed.output();
  EXPECT_EQ(resumed.digest(), builtin.digest());
}

// A state that is given up: the server's sum is forgotten with it.
TEST_F(Rules, InPythonBeginAnewAsTheBuiltin) {
  const auto after = [&](const std::string& name, const std::vector<std::string>& arguments,
                         const std::vector<std::string>& given_up) {
    Simulation first(name, arguments);
    EXPECT_EQ(first.Wait(), 0) << first.output();
    std::vector<std::string> more = {"--resume", first.folder(), "--rounds", "6"};
    more.insert(more.end(), given_up.begin(), given_up.end());
    Simulation second(name + "-on", more);
    EXPECT_EQ(second.Wait(), 0) << second.output();
    return second.digest();
  };
  // So many clients a round that everybody has a state.
  const std::vector<std::string> all = {
      "--rounds", "3", "--set", "partition.clients=8", "--set", "cohort.size=8"};
  std::vector<std::string> builtin = all;
  builtin.insert(builtin.begin(), Config("scaffold", "anew"));
  const auto python = With(Config("py_scaffold", "anew"), kRules + "py_scaffold.py", all);
  const std::vector<std::string> one = {"--state-reset", "3"};
  const std::string forgotten = after("builtin-anew", builtin, one);
  EXPECT_EQ(after("python-anew", python, one), forgotten);
  EXPECT_NE(after("python-kept", python, {}), forgotten);
}

TEST_F(Rules, InPythonTakeAsLongAsTheBuiltinOnDevices) {
  for (const std::string option : {"1", "2"}) {
    const auto seconds = [&](const std::string& rule, std::vector<std::string> arguments) {
      for (const std::string& setting :
           {std::string("devices.family=lognormal"), "algorithm." + rule + ".option=" + option})
        arguments.insert(arguments.end(), {"--set", setting});
      Simulation run(rule + option, arguments);
      EXPECT_EQ(run.Wait(), 0) << run.output();
      return run.summary().value("virtual_seconds", 0.0);
    };
    const double builtin = seconds("scaffold", {Config("scaffold", "devices")});
    EXPECT_GT(builtin, 0);
    EXPECT_EQ(
        seconds("py_scaffold", With(Config("py_scaffold", "devices"), kRules + "py_scaffold.py")),
        builtin)
        << option;
  }
}

TEST_F(Rules, AnotherFileIsAnotherRun) {
  const testing_support::TemporaryFolder folder;
  const std::string file = folder / "another.py";
  ASSERT_TRUE(AtomicWriteFile(file, *ReadFile(kRules + "py_fedprox.py")).ok());
  Simulation first("another", With(Config("py_fedprox", "another"), file));
  ASSERT_EQ(first.Wait(), 0) << first.output();
  ASSERT_TRUE(AtomicWriteFile(file, *ReadFile(kRules + "py_fedprox.py") + "\n").ok());
  Simulation resumed("another-resumed", {"--resume", first.folder(), "--rounds", "4"});
  EXPECT_NE(resumed.Wait(), 0);
  EXPECT_THAT(resumed.output(), HasSubstr("plugins"));
}

TEST_F(Rules, MistakesAreErrorsThatNameThem) {
  EXPECT_THAT(Said("raises", "    def prepare(self, ctx):\n        return 1 / 0\n", 2),
              testing::AllOf(HasSubstr("ZeroDivisionError"), HasSubstr("raises.py:6 in prepare")));
  EXPECT_THAT(Said("shape",
                   "    def conclude(self, ctx, out):\n        return {'delta': "
                   "np.zeros(3, np.float32)}\n",
                   2),
              testing::AllOf(HasSubstr("'delta'"), HasSubstr("(3,)")));
  EXPECT_THAT(Said("dtype",
                   "    def conclude(self, ctx, out):\n        return {'delta': "
                   "out[0].end.astype(np.float64)}\n",
                   2),
              testing::AllOf(HasSubstr("'delta'"), HasSubstr("float64")));
  EXPECT_THAT(Said("nan",
                   "    def conclude(self, ctx, out):\n        return {'delta': "
                   "out[0].end * np.float32('nan')}\n",
                   2),
              testing::AllOf(HasSubstr("'delta'"), HasSubstr("nan")));
  EXPECT_THAT(Said("channel",
                   "    def conclude(self, ctx, out):\n        return {'dleta': "
                   "out[0].end}\n",
                   2),
              testing::AllOf(HasSubstr("'dleta'"), HasSubstr("delta")));
  EXPECT_THAT(Said("exits", "    def prepare(self, ctx):\n        os._exit(3)\n", 2),
              HasSubstr("exit code 3"));
  EXPECT_THAT(Said("killed",
                   "    def prepare(self, ctx):\n"
                   "        os.kill(os.getpid(), signal.SIGSEGV)\n",
                   2),
              HasSubstr("signal 11"));
  EXPECT_THAT(Said("hangs",
                   "    seconds = 5\n    def prepare(self, ctx):\n"
                   "        time.sleep(1000)\n",
                   2),
              HasSubstr("longer than 5 s"));
  EXPECT_THAT(Said("server",
                   "    def apply(self, ctx, aggregate):\n"
                   "        ctx.model[:] = np.inf\n",
                   1),
              testing::AllOf(HasSubstr("'model'"), HasSubstr("inf")));
  const std::string late = Said("late",
                                "    def prepare(self, ctx):\n"
                                "        if ctx.round == 2: raise KeyError('lost')\n"
                                "        return [Train(ctx.model)]\n",
                                2);
  EXPECT_THAT(late, testing::AllOf(HasSubstr("KeyError"), HasSubstr("late.py:6 in prepare"),
                                   testing::Not(HasSubstr("starting it again"))));
  EXPECT_THAT(Said("syntax", "    def prepare(self, ctx:\n", 1), HasSubstr("syntax.py:5"));
}

TEST_F(Rules, AParameterThatIsNotThereIsAnErrorBeforeTheRunHasAFolder) {
  Simulation run("mistyped", With(Config("py_fedprox", "mistyped"), kRules + "py_fedprox.py",
                                  {"--set", "algorithm.py_fedprox.nu=0.1"}));
  EXPECT_EQ(run.Wait(), 2);
  EXPECT_THAT(run.output(), testing::AllOf(HasSubstr("nu"), HasSubstr("algorithm.py_fedprox.mu")));
  EXPECT_FALSE(FileExists(run.folder()));
}

TEST_F(Rules, WithoutPythonOrNumPyThereIsNoRun) {
  for (const char* python : {"/nowhere/python", "/bin/true"}) {
    ::setenv("MACAW_PYTHON", python, 1);
    Simulation run("no-python", With(Config("py_fedprox", "no"), kRules + "py_fedprox.py"));
    EXPECT_EQ(run.Wait(), 1) << run.output();  // as for a library that cannot be loaded
    EXPECT_THAT(run.output(), HasSubstr(python));
    EXPECT_FALSE(FileExists(run.folder()));
  }
}

}  // namespace
}  // namespace macaw
