// `macaw replay --without`: what must be the run's own, and what is said where runs end otherwise.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "core/files.h"
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
using testing_support::Simulation;
using testing_support::TemporaryFolder;

constexpr int kAllClients = 8, kCohort = 3;

class ReplayWithout : public ::testing::Test {
 protected:
  void SetUp() override { WriteRows(0); }

  // Rows of eight clients; `shift` changes their features.
  void WriteRows(int shift) {
    std::string rows = "a,b,kind,client\n";
    for (int client = 0; client < kAllClients; ++client) {
      for (int row = 0; row < 12; ++row)
        absl::StrAppend(&rows, (client + row) % 5 + shift, ",", (row * 3 + client) % 7, ",",
                        row % 2 == 0 ? "yes" : "no", ",c", client, "\n");
    }
    folder_.Write("rows.csv", rows);
  }

  std::vector<std::string> Job(const std::string& more = "") {
    const std::string config = folder_.Write("run.toml", absl::StrCat(R"([run]
name = "without"
rounds = 6
seed = 3
[data]
source = "csv"
path = ")",
                                                                      folder_ / "rows.csv", R"("
label_column = "kind"
client_column = "client"
test_fraction = 0.2
[model]
name = "logistic"
[cohort]
size = 3
[local]
lr = 0.2
[evaluation]
every = 1
)",
                                                                      more));
    return {config, "--processes", "1", "--slots", "1"};
  }

  static Printed Replay(const Simulation& run, const std::string& more) {
    static int replays = 0;
    return RunMacaw(absl::StrCat("replay ", run.folder(), " --quiet --out ", run.folder(), "-",
                                 ++replays, " --without ", more));
  }

  // The clients that a round draws.
  static std::set<int> CohortOf(const Simulation& run, int round) {
    std::set<int> clients;
    const Printed printed = RunMacaw(absl::StrCat("log --json --round ", round, " ", run.folder()));
    for (const absl::string_view line : absl::StrSplit(printed.text, '\n', absl::SkipEmpty())) {
      const json record = json::parse(line);
      if (record["record"] != "round_opened") continue;
      for (const json& member : record["cohort"]) clients.insert(member["client"].get<int>());
    }
    return clients;
  }

  // A client that round 2 draws, and round 1 does not.
  static int LaterClientOf(const Simulation& run) {
    const std::set<int> first = CohortOf(run, 1);
    for (const int client : CohortOf(run, 2)) {
      if (!first.contains(client)) return client;
    }
    ADD_FAILURE() << "rounds 1 and 2 draw the same clients: choose another seed";
    return 0;
  }

  const TemporaryFolder folder_;
};

TEST_F(ReplayWithout, KeepsWhatDecidesTheResult) {
  Simulation run("run", Job());
  ASSERT_EQ(run.Wait(), 0) << run.output();
  const int client = LaterClientOf(run);
  const Printed faster = Replay(run, absl::StrCat(client, " --set local.lr=0.3"));
  EXPECT_EQ(faster.exit, 2) << faster.text;
  EXPECT_THAT(faster.text, HasSubstr("--set local.lr=0.3: a run without a client keeps local.lr"));
  const Printed elsewhere =
      Replay(run, absl::StrCat(client, " --set workers.slots=2 --set run.checkpoint_every=1"));
  EXPECT_EQ(elsewhere.exit, 0) << elsewhere.text;
  EXPECT_THAT(elsewhere.text, AllOf(HasSubstr("test_accuracy"), Not(HasSubstr("(round "))));
  EXPECT_THAT(elsewhere.text, Not(HasSubstr("gone on")));
  EXPECT_THAT(elsewhere.text,
              HasSubstr(absl::StrCat("client ", client, " (c", client, "), which")));

  // The file of the configuration, which --config takes as it is.
  const std::string file = run.folder() + "/config.toml";
  const std::string config = *ReadFile(file);
  ASSERT_TRUE(
      AtomicWriteFile(file, absl::StrReplaceAll(config, {{"\nlr = 0.2\n", "\nlr = 0.3\n"}})).ok());
  const Printed edited = Replay(run, absl::StrCat(client));
  EXPECT_EQ(edited.exit, 1) << edited.text;
  EXPECT_THAT(edited.text, HasSubstr("config.toml is not what the log was written with"));
  EXPECT_EQ(Replay(run, absl::StrCat(client, " --config ", file)).exit, 0);
  ASSERT_TRUE(AtomicWriteFile(file, config).ok());

  // With --config at least the first round must be the run's.
  const Printed seeded =
      Replay(run, absl::StrCat(client, " --config ", file, " --set model.init=", run.folder(),
                               "/model.safetensors"));
  EXPECT_EQ(seeded.exit, 1) << seeded.text;
  EXPECT_THAT(seeded.text, HasSubstr("another model is sent to the clients"));

  WriteRows(1);
  const Printed changed = Replay(run, absl::StrCat(client));
  EXPECT_EQ(changed.exit, 1) << changed.text;
  EXPECT_THAT(changed.text, HasSubstr("these are not the data of the run"));
  const Printed whole =
      RunMacaw(absl::StrCat("replay ", run.folder(), " --out ", folder_ / "whole"));
  EXPECT_EQ(whole.exit, 2) << whole.text;
  EXPECT_THAT(whole.text, HasSubstr("cannot be repeated: these are not the data of the run"));
  EXPECT_FALSE(FileExists(folder_ / "whole")) << "nothing is trained";
  folder_.Write("rows.csv", "a,b,kind,client\n1,2\n");
  const Printed broken = Replay(run, absl::StrCat(client));
  EXPECT_EQ(broken.exit, 2) << broken.text;
  EXPECT_THAT(broken.text, HasSubstr("--without: "));
}

TEST_F(ReplayWithout, KeepsTheDataOfOwners) {
  std::vector<std::string> job = Job();
  job.insert(job.end(), {"--set", "workers.owners=2"});
  Simulation run("run", job);
  ASSERT_EQ(run.Wait(), 0) << run.output();
  const int client = LaterClientOf(run);
  const Printed same = Replay(run, absl::StrCat(client));
  EXPECT_EQ(same.exit, 0) << same.text;
  WriteRows(1);
  const Printed changed = Replay(run, absl::StrCat(client));
  EXPECT_EQ(changed.exit, 1) << changed.text;
  EXPECT_THAT(changed.text, HasSubstr("the data are others"));
}

TEST_F(ReplayWithout, SaysHowManyClientsThereAre) {
  Simulation run("run", Job());
  ASSERT_EQ(run.Wait(), 0) << run.output();
  const Printed none = Replay(run, "99");
  EXPECT_EQ(none.exit, 2) << none.text;
  EXPECT_THAT(none.text, HasSubstr("--without 99: "));
  EXPECT_THAT(none.text, HasSubstr("has 8 clients, with the numbers 0 to 7"));
}

// The first round that had the client has two without it, so the rule ends the new run there.
TEST_F(ReplayWithout, ThatStopsEarlierNamesBothRounds) {
  // Of three clients 366 bytes, of two 244.
  Simulation run("run", Job("[run.stop]\nmetric = \"bytes_up\"\nat_least = 300\n"));
  ASSERT_EQ(run.Wait(), 0) << run.output();
  ASSERT_EQ(run.summary()["rounds"], 6);
  const Printed earlier = Replay(run, absl::StrCat(LaterClientOf(run)));
  EXPECT_EQ(earlier.exit, 0) << earlier.text;
  EXPECT_THAT(earlier.text, HasSubstr("end        stopped after round 2: "));
  EXPECT_THAT(earlier.text, HasSubstr("; the log ends after round 6"));
  EXPECT_THAT(earlier.text, ::testing::ContainsRegex("test_accuracy.*round 6.*round 2"));
}

// The run has counted three clients in round 1, and without one of them the new run has not.
TEST_F(ReplayWithout, ThatWouldHaveGoneOnSaysSo) {
  Simulation run("run",
                 Job(absl::StrCat("[run.stop]\nmetric = \"clients\"\nat_least = ", kCohort, "\n")));
  ASSERT_EQ(run.Wait(), 0) << run.output();
  ASSERT_EQ(run.summary()["rounds"], 1);
  const Printed cut = Replay(run, absl::StrCat(*CohortOf(run, 1).begin()));
  EXPECT_EQ(cut.exit, 0) << cut.text;
  EXPECT_THAT(cut.text, HasSubstr("the run would have gone on; the log ends after round 1"));
}

}  // namespace
}  // namespace macaw
