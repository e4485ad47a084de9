// What `macaw verify` refuses before it runs anything. Whole verifications: tests/system.
#include "cli/verify/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_replace.h"
#include "cli/verify/evaluated_rounds.h"
#include "core/digest.h"
#include "data/zip_writer.h"
#include "tests/cli/run_files.h"

namespace macaw::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing_support::TemporaryFolder;

class Refusals : public ::testing::Test {
 protected:
  // Why a run with this configuration is not made again.
  std::string Of(const std::string& config, const VerifyOptions& options = {}) {
    HandRun run;
    run.config = config;
    return Of(run, options);
  }
  std::string Of(const HandRun& run, const VerifyOptions& options = {}) {
    const std::string folder = WriteHandRun(folder_, "run", run);
    const auto packed = PackBundle({.run = folder, .out = folder_ / "x.zip"});
    EXPECT_TRUE(packed.ok()) << packed.status();
    const auto bundle = Bundle::Open(folder_ / "x.zip");
    EXPECT_TRUE(bundle.ok()) << bundle.status();
    const auto done = Verify(*bundle, options);
    EXPECT_FALSE(done.ok());
    return std::string(done.status().message());
  }

  // Why the bundle that Of has packed is not, after these edits of its bundle.json.
  std::string OfEdited(const std::vector<std::pair<std::string, std::string>>& edits) {
    const auto bundle = Bundle::Open(folder_ / "x.zip");
    EXPECT_TRUE(bundle.ok()) << bundle.status();
    std::map<std::string, std::string> files = bundle->files();
    files[kManifestFile] = absl::StrReplaceAll(files[kManifestFile], edits);
    std::vector<data::ZipEntry> entries;
    for (const auto& [name, bytes] : files)
      entries.push_back({.name = name, .bytes = BytesOf(absl::string_view(bytes))});
    EXPECT_TRUE(data::WriteStoredZip(folder_ / "edited.zip", entries).ok());
    const auto edited = Bundle::Open(folder_ / "edited.zip");
    EXPECT_TRUE(edited.ok()) << edited.status();
    return std::string(Verify(*edited, {}).status().message());
  }

  const TemporaryFolder folder_;
  const std::string config_ =
      "[run]\nrounds = 2\nseed = 7\n[data]\nsource = \"csv\"\npath = \"/none/rows.csv\"\n"
      "[model]\nname = \"logistic\"\n";
};

TEST_F(Refusals, CodeOfTheBundle) {
  EXPECT_THAT(Of("plugins = [\"/none/evil.so\"]\n" + config_),
              AllOf(HasSubstr("plugins = [\"/none/evil.so\"]"), HasSubstr("--trust")));
  EXPECT_THAT(Of(config_ + "[workers]\nbackend = \"process\"\ncommand = \"rm -r /\"\n"),
              AllOf(HasSubstr("workers.command"), HasSubstr("--trust")));
  EXPECT_THAT(Of(config_ + "[workers]\nbackend = \"/none/evil.so\"\n"), HasSubstr("--trust"));
}

TEST_F(Refusals, KeysThatDecideTheResult) {
  for (const char* key : {"local.lr=0.3", "run.seed=8", "round.deadline=1", "run.rounds=1",
                          "algorithm.fedprox.mu=1", "local={lr=0.3}", "round={deadline=1}"})
    EXPECT_THAT(Of(config_, {.set = {key}}), HasSubstr("which decides the result")) << key;
  EXPECT_THAT(Of(config_, {.set = {"nonsense"}}), HasSubstr("nonsense"));
}

TEST_F(Refusals, FilesThatAreGoneOrOthers) {
  EXPECT_THAT(Of(config_), HasSubstr("--set data.path=PATH"));
  const std::string table =
      folder_.Write("devices.csv", "samples_per_s,down_kB_s,up_kB_s\n1,1,1\n");
  const std::string devices =
      absl::StrCat(config_, "[devices]\nfamily = \"file\"\nfile = \"", table, "\"\n");
  const std::string other = folder_.Write("other.csv", "samples_per_s,down_kB_s,up_kB_s\n2,1,1\n");
  EXPECT_THAT(Of(devices, {.set = {"devices.file=" + other}}),
              HasSubstr("is not the file that the run had"));
  EXPECT_THAT(Of(devices, {.set = {absl::StrCat("devices.file=", folder_ / "none.csv")}}),
              HasSubstr("there is no"));
}

TEST_F(Refusals, DataOfAnotherDigest) {
  const std::string rows = folder_.Write("rows.csv", "a,kind\n1,x\n2,y\n3,x\n4,y\n5,x\n6,y\n");
  EXPECT_THAT(Of(config_ + "[partition]\nclients = 2\n[cohort]\nsize = 1\n",
                 {.set = {"data.path=" + rows}}),
              HasSubstr("these are not the data of the run"));
}

// As an earlier release has packed it.
TEST_F(Refusals, ABundleOfARunWithoutARound) {
  Of(config_);
  EXPECT_THAT(OfEdited({{"\"rounds\": 2", "\"rounds\": 0"}, {"\"finished\"", "\"interrupted\""}}),
              AllOf(HasSubstr("edited.zip"), HasSubstr("interrupted before its first round")));
}

// What it says of the profile decides how closely it is compared.
TEST_F(Refusals, ABundleWhoseFilesNameDifferentProfiles) {
  HandRun run;
  run.config = config_;
  run.joined = "(fused, avx2, glibc 2.31)";
  const std::string other = Of(run);
  EXPECT_THAT(other, AllOf(HasSubstr("contradicts itself"), HasSubstr("avx2, glibc 2.36"),
                           HasSubstr("rounds.log (fused, avx2, glibc 2.31)")));
  run.joined = "(fused, avx2, glibc 2.36)";
  EXPECT_THAT(Of(run), HasSubstr("--set data.path=PATH"));
  EXPECT_THAT(OfEdited({{"\"avx2\"", "\"sse4\""}}),
              AllOf(HasSubstr("contradicts itself"), HasSubstr("bundle.json fused, sse4")));
}

// Round 2 was the last one of a session, as the rows or the log say; 3 and 4 are asked for.
TEST(EvaluatedRounds, ThatNoKeyAsksForAreFoundInTheRowsAndInTheLog) {
  Trace run;
  run.settings = {{"evaluation.every", "4"}, {"evaluation.leave_one_out", "3"}};
  run.rows = {{1, {{"train_loss", 1}, {"virtual_seconds", 1}}},
              {2, {{"train_loss", 1}, {"clients_test_accuracy", 1}}},
              {3, {{"test_loss", 1}}},
              {4, {{"test_loss", 1}}},
              {5, {{"test_loss", 1}}}};
  EXPECT_EQ(EvaluatedBesides(run, 5), std::vector<uint32_t>{2});
  run.history.emplace();
  run.history->Add(server::log::Evaluated{.round = Round(1)});
  EXPECT_EQ(EvaluatedBesides(run, 5), (std::vector<uint32_t>{1, 2}));
  run.settings = {};  // each round
  EXPECT_THAT(EvaluatedBesides(run, 5), ::testing::IsEmpty());
}

TEST_F(Refusals, ARunWhoseServerHadNoData) {
  EXPECT_THAT(Of("[run]\nrounds = 2\n"), HasSubstr("--config names the simulation"));
}

}  // namespace
}  // namespace macaw::cli
