// What `macaw verify` refuses before it runs anything. Whole verifications: tests/system.
#include "cli/verify/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_replace.h"
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
    const std::string folder = WriteHandRun(folder_, "run", run);
    const auto packed = PackBundle({.run = folder, .out = folder_ / "x.zip"});
    EXPECT_TRUE(packed.ok()) << packed.status();
    const auto bundle = Bundle::Open(folder_ / "x.zip");
    EXPECT_TRUE(bundle.ok()) << bundle.status();
    const auto done = Verify(*bundle, options);
    EXPECT_FALSE(done.ok());
    return std::string(done.status().message());
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
  const auto bundle = Bundle::Open(folder_ / "x.zip");
  ASSERT_TRUE(bundle.ok()) << bundle.status();
  std::map<std::string, std::string> files = bundle->files();
  files[kManifestFile] = absl::StrReplaceAll(
      files[kManifestFile],
      {{"\"rounds\": 2", "\"rounds\": 0"}, {"\"finished\"", "\"interrupted\""}});
  std::vector<data::ZipEntry> entries;
  for (const auto& [name, bytes] : files)
    entries.push_back({.name = name, .bytes = BytesOf(absl::string_view(bytes))});
  ASSERT_TRUE(data::WriteStoredZip(folder_ / "cut.zip", entries).ok());
  const auto cut = Bundle::Open(folder_ / "cut.zip");
  ASSERT_TRUE(cut.ok()) << cut.status();
  EXPECT_THAT(std::string(Verify(*cut, {}).status().message()),
              AllOf(HasSubstr("cut.zip"), HasSubstr("interrupted before its first round")));
}

TEST_F(Refusals, ARunWhoseServerHadNoData) {
  EXPECT_THAT(Of("[run]\nrounds = 2\n"), HasSubstr("--config names the simulation"));
}

}  // namespace
}  // namespace macaw::cli
