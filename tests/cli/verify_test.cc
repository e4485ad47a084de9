// What `macaw verify` refuses before it runs anything. Whole verifications: tests/system.
#include "cli/verify/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_replace.h"
#include "cli/config/inputs.h"
#include "cli/verify/evaluated_rounds.h"
#include "core/digest.h"
#include "core/files.h"
#include "core/sha256.h"
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

// A value of --set is TOML, as everywhere.
TEST_F(Refusals, FilesThatMovedAreGivenAsValuesAndMatchedByTheirDigests) {
  const auto write = [&](const std::string& name, const std::string& text) {
    return folder_.Write(name, text);
  };
  const std::string table = write("devices.csv", "samples_per_s,down_kB_s,up_kB_s\n1,1,1\n");
  const std::string moved = write("elsewhere.csv", *ReadFile(table));
  const std::string devices =
      absl::StrCat(config_, "[devices]\nfamily = \"file\"\nfile = \"", table, "\"\n");
  for (const std::string& value : {moved, "\"" + moved + "\""})
    EXPECT_THAT(Of(devices, {.set = {"devices.file=" + value}}), HasSubstr("--set data.path=PATH"));

  const std::string a = write("a.py", "a"), b = write("b.py", "b"), c = write("c.py", "c");
  const std::string there_a = write("there/a.py", "a"), there_b = write("there/b.py", "b");
  const auto list = [](const std::string& first, const std::string& second) {
    return absl::StrCat("plugins=[\"", first, "\", \"", second, "\"]");
  };
  const std::string plugins = absl::StrCat("plugins = [\"", a, "\", \"", b, "\"]\n", config_);
  const auto with = [&](const std::string& set) {
    return Of(plugins, {.set = {set}, .trust = true});
  };
  EXPECT_THAT(with(list(there_a, there_b)), HasSubstr("--set data.path=PATH"));
  EXPECT_THAT(with(list(there_b, there_a)), HasSubstr("--set data.path=PATH"));
  EXPECT_THAT(with(list(there_a, c)),
              HasSubstr(c + " is not the file that the run had: its sha256 is not " +
                        Sha256Hex(BytesOf(absl::string_view("b")))));
  EXPECT_THAT(with(list(there_a, a)), HasSubstr(a + " is not the file that the run had"));
  EXPECT_THAT(with(list(there_a, folder_ / "none.py")), HasSubstr("there is no"));
  EXPECT_THAT(with("plugins=[\"" + there_a + "\"]"),
              HasSubstr("the run had 2 files, and --set names 1"));
}

// A summary has no digest of a file that could not be read: the next file's is not taken for it.
TEST_F(Refusals, NoFileForTheDigestOfAnother) {
  const std::string one = folder_.Write("a.so", "one"), two = folder_.Write("b.so", "two");
  HandRun run;
  run.config = absl::StrCat("plugins = [\"", one, "\", \"", two, "\"]\n", config_);
  const std::string folder = WriteHandRun(folder_, "unread", run);
  auto summary = nlohmann::json::parse(*ReadFile(folder + "/summary.json"));
  const auto packed = [&](const std::string& stated) {
    summary["inputs"] = {{"plugins", stated}};
    folder_.Write("unread/summary.json", summary.dump());
    return PackBundle({.run = folder, .out = folder_ / "unread.zip"}).status();
  };
  EXPECT_TRUE(packed(DigestOfInput(two)).ok()) << packed(DigestOfInput(two));
  EXPECT_FALSE(packed(DigestOfInput(two) + DigestOfInput(one)).ok());
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

// Its other files say what the run was.
TEST_F(Refusals, ABundleWhoseManifestTellsAnotherStory) {
  Of(config_);
  const std::string rows = DigestOf(absl::string_view("rows")).Hex();
  const std::pair<std::pair<std::string, std::string>, std::string> edits[] = {
      {{"\"by hand\"", "\"by foot\""}, "summary.json the run's name is by hand"},
      {{"\"algorithm\": \"fedavg\"", "\"algorithm\": \"fedprox\""},
       "the algorithm is fedavg, and by its bundle.json fedprox"},
      {{"\"finished\"", "\"stopped\""},
       "the run's end is finished, and by its bundle.json stopped"},
      {{"\"rounds\": 2", "\"rounds\": 3"}, "the run's rounds are 2, and by its bundle.json 3"},
      {{"macaw-server 9.9.9", "macaw-server 9.9.8"}, "the program is macaw-server 9.9.9"},
      {{"\"model_digest\": \"", "\"model_digest\": \"0"}, "the model's digest is"},
      {{rows, std::string(64, '0')}, "the data's digest is " + rows},
      {{"\"run.seed\": \"7\"", "\"run.seed\": \"8\""},
       "config.toml run.seed is 7, and by its bundle.json 8"},
      {{"\"run.seed\": \"7\"", ""}, "config.toml run.seed is 7, and by its bundle.json nothing"},
      {{"\"seeds\": {", "\"seeds\": {\"model.seed\": \"1\","},
       "config.toml model.seed is nothing, and by its bundle.json 1"},
      {{"\"csv\"", "\"hdf5\""}, "config.toml data.source is csv"},
      {{"/none/rows.csv", "/none/other.csv"}, "config.toml data.path is /none/rows.csv"}};
  for (const auto& [edit, expected] : edits) {
    EXPECT_THAT(OfEdited({edit}),
                AllOf(HasSubstr("edited.zip contradicts itself: by its "), HasSubstr(expected)));
  }
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
