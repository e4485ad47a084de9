// macaw verify on runs that were ended from outside between two rounds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/files.h"
#include "testing/program.h"
#include "testing/temporary_folder.h"
#include "tests/system/simulation.h"

namespace macaw {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing_support::Printed;
using testing_support::RunMacaw;
using testing_support::RunShell;
using testing_support::TemporaryFolder;

class VerifiedCut : public ::testing::Test {
 protected:
  // A run of 60 rounds that ends after its third: because its caller stops it, or closes the pipe.
  std::string EndedAfterThree(const std::string& name, const std::string& settings, bool stops) {
    const std::string config = folder_.Write(
        "job.toml",
        "[run]\nrounds = 60\nseed = 1\n[data]\nsource = \"synthetic\"\n[data.synthetic]\n"
        "clients = 12\n[model]\nname = \"logistic\"\n[cohort]\nsize = 4\n[local]\nlr = 0.05\n"
        "[workers]\nprocesses = 1\nslots = 1\n");
    const std::string run = folder_ / name;
    // Up to a minute for each step. A stop is repeated until the run waits, and hears of it.
    const std::string third = absl::StrCat("test \"$(grep -c . ", run, "/metrics.jsonl)\" = 3");
    const std::string until = "for i in $(seq 600); do ",
                      sleep = " && break; sleep 0.1; done 2>/dev/null";
    const Printed ended = RunShell(absl::StrCat(
        "(echo go 3; ", until, third, sleep, "; ",
        stops ? absl::StrCat(until, "echo stop enough; test -f ", run, "/summary.json", sleep)
              : "true",
        ") | " MACAW_BIN_DIR "/macaw simulate ", config, " ", settings, " --out ", run,
        " --step --json 2>&1"));
    const auto summary = json::parse(ReadFile(run + "/summary.json").value_or(""), nullptr, false);
    if (!summary.is_object()) {
      ADD_FAILURE() << ended.text;
      return run;
    }
    EXPECT_EQ(summary["rounds"], 3) << ended.text;
    EXPECT_EQ(summary["end"], stops ? "stopped" : "interrupted") << ended.text;
    EXPECT_EQ(summary.value("stopped_by", ""), stops ? "caller" : "");
    return run;
  }

  Printed Verify(const std::string& run) {
    const std::string bundle = run + ".zip";
    const Printed packed = RunMacaw(absl::StrCat("bundle ", run, " --out ", bundle));
    EXPECT_EQ(packed.exit, 0) << packed.text;
    return RunMacaw(absl::StrCat("verify ", bundle, " --quiet"));
  }

  const TemporaryFolder folder_;
};

TEST_F(VerifiedCut, ARunThatWasInterruptedIsTheSameWhateverItHasEvaluated) {
  const std::string settings[] = {
      "--set evaluation.every=2 --set run.stop.metric=test_accuracy --set run.stop.patience=10",
      "--set evaluation.every=4", "--set evaluation.every=0"};
  int runs = 0;
  for (const std::string& set : settings) {
    const Printed same = Verify(EndedAfterThree(absl::StrCat("cut", ++runs), set, false));
    EXPECT_EQ(same.exit, 0) << set << "\n" << same.text;
    EXPECT_THAT(same.text, HasSubstr("same       3 rounds")) << set;
  }
}

TEST_F(VerifiedCut, ARunThatItsCallerStoppedIsNotMadeAgainToItsRulesEnd) {
  const std::string run = EndedAfterThree(
      "stopped",
      "--set evaluation.every=2 --set run.stop.metric=test_accuracy --set run.stop.patience=20",
      true);
  const Printed same = Verify(run);
  EXPECT_EQ(same.exit, 0) << same.text;
  EXPECT_THAT(same.text, HasSubstr("same       3 rounds"));
  // That its rule had stopped it is found out.
  json summary = json::parse(*ReadFile(run + "/summary.json"));
  summary["stopped_by"] = "rule";
  ASSERT_TRUE(AtomicWriteFile(run + "/summary.json", summary.dump()).ok());
  const Printed forged = Verify(run);
  EXPECT_EQ(forged.exit, 1) << forged.text;
  EXPECT_THAT(forged.text, HasSubstr("rounds is 3 in the bundle"));
}

// Keys that the verification has set itself, or the user: where the files are here.
TEST_F(VerifiedCut, ABundleThatDiffersNamesNoKeyThatTheVerificationSet) {
  const std::string first = EndedAfterThree("first", "--set evaluation.every=0", true);
  const std::string run = EndedAfterThree(
      "second",
      absl::StrCat("--set evaluation.every=0 --set model.init=", first, "/model.safetensors"),
      true);
  const std::string rows = *ReadFile(run + "/metrics.jsonl");
  const size_t at = rows.find("\"train_loss\":") + 13;
  ASSERT_TRUE(
      AtomicWriteFile(run + "/metrics.jsonl", rows.substr(0, at) + "1" + rows.substr(at)).ok());
  const Printed differs = Verify(run);
  EXPECT_EQ(differs.exit, 1) << differs.text;
  EXPECT_THAT(differs.text, AllOf(HasSubstr("differ"), Not(HasSubstr("model.init"))));
}

}  // namespace
}  // namespace macaw
