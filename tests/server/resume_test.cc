#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/files.h"
#include "proto/fleet/client_table.h"
#include "server/checkpoint.h"
#include "server/coordinator.h"
#include "tests/server/tiny_run.h"

// Runs that are interrupted or crash, and are then resumed.
namespace macaw::server {
namespace {

namespace fs = std::filesystem;
using fixtures::FakeWorker;
using fixtures::Finish;
using fixtures::RunBytes;
using fixtures::Slurp;
using fixtures::StartError;
using fixtures::StartTiny;
using fixtures::TinyExamples;
using fixtures::TinyOptions;
using testing::AllOf;
using testing::HasSubstr;
using testing_support::TemporaryFolder;
using Json = nlohmann::json;

class Interrupted : public testing::TestWithParam<uint32_t> {};

TEST_P(Interrupted, AndResumedGivesTheBytesOfAnUndisturbedRun) {
  const TemporaryFolder whole, parts;
  Options options = TinyOptions(whole.path(), 4);
  options.config.client_records = true;
  options.config.checkpoint_every = 3;
  Finish(options);

  options.run_dir = parts.path();
  const uint32_t committed = GetParam();
  {
    const auto coordinator = StartTiny(options);
    FakeWorker worker(*coordinator);
    ASSERT_TRUE(worker.Register().ok());
    if (committed > 0) worker.RunThrough(committed);
    ASSERT_TRUE(worker.WorkOnPart().has_value());  // inside a round; the previous row is still owed
    coordinator->Interrupt();
    EXPECT_FALSE(worker.Work().has_value());
    const auto outcome = coordinator->Wait();
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(outcome->kind, Outcome::Kind::kInterrupted);
    EXPECT_EQ(outcome->rounds, committed);
  }
  options.resume = true;
  const Outcome outcome = Finish(options);
  EXPECT_EQ(outcome.kind, Outcome::Kind::kFinished);
  EXPECT_EQ(outcome.rounds, 4u);
  EXPECT_EQ(RunBytes(whole.path()), RunBytes(parts.path()));
  EXPECT_EQ(Slurp(whole / "clients.jsonl"), Slurp(parts / "clients.jsonl"));
  EXPECT_EQ(Slurp(parts / "epoch"), "2\n");
}

INSTANTIATE_TEST_SUITE_P(After, Interrupted, testing::Values(0u, 1u, 2u, 3u));

TEST(Coordinator, GoesBackToTheCheckpointAfterACrash) {
  const TemporaryFolder whole, parts;
  Options options = TinyOptions(whole.path(), 4);
  options.config.checkpoint_every = 2;
  options.config.client_records = true;
  Finish(options);
  options.run_dir = parts.path();
  {
    const auto coordinator = StartTiny(options);
    FakeWorker worker(*coordinator);
    ASSERT_TRUE(worker.Register().ok());
    worker.RunThrough(3);
    // A crash writes no last checkpoint. So the folder is copied during the run, and only the copy
    // is used.
    ASSERT_TRUE(worker.WorkOnPart().has_value());
    coordinator->Interrupt();
    EXPECT_FALSE(worker.Work().has_value());
    ASSERT_TRUE(coordinator->Wait().ok());
    fs::remove(parts / "checkpoints/round-00000003.safetensors");
    ASSERT_TRUE(fs::exists(parts / "checkpoints/round-00000002.safetensors"));
    fs::remove(parts / "summary.json");
  }
  options.resume = true;
  Finish(options);
  EXPECT_EQ(RunBytes(whole.path()), RunBytes(parts.path()));
  EXPECT_EQ(Slurp(whole / "clients.jsonl"), Slurp(parts / "clients.jsonl"));
}

// Some rounds of four, then an interruption.
void RunHalf(const Options& options, uint32_t rounds = 2) {
  const auto coordinator = StartTiny(options);
  FakeWorker worker(*coordinator);
  ASSERT_TRUE(worker.Register().ok());
  worker.RunThrough(rounds);
  ASSERT_TRUE(worker.WorkOnPart().has_value());
  coordinator->Interrupt();
  EXPECT_FALSE(worker.Work().has_value());
  ASSERT_TRUE(coordinator->Wait().ok());
}

TEST(Resume, RefusesAnotherConfigurationByTheKeyThatDiffers) {
  const TemporaryFolder folder;
  Options options = TinyOptions(folder.path(), 4);
  RunHalf(options);
  options.resume = true;
  options.run.local.lr = 0.25;
  EXPECT_THAT(StartError(options).ToString(),
              AllOf(HasSubstr("local.lr"), HasSubstr("0.1"), HasSubstr("0.25")));
  EXPECT_EQ(Slurp(folder / "epoch"), "1\n") << "a refused start is no start";
  options.run = fixtures::TinyRun(4);
  options.run.algorithm.name = "fedprox";
  EXPECT_THAT(StartError(options).ToString(), HasSubstr("algorithm."));
  options.run = fixtures::TinyRun(6);  // more rounds are still the same configuration
  EXPECT_EQ(Finish(options).rounds, 6u);
}

TEST(Resume, RefusesADamagedCheckpointAndSaysWhatToDo) {
  const TemporaryFolder folder;
  Options options = TinyOptions(folder.path(), 4);
  RunHalf(options);
  const std::string path = folder / "checkpoints/round-00000002.safetensors";
  std::string bytes = Slurp(path);
  bytes[bytes.size() - 3] ^= 1;
  std::ofstream(path, std::ios::binary) << bytes;
  options.resume = true;
  EXPECT_THAT(StartError(options).ToString(),
              AllOf(HasSubstr(path), HasSubstr("damaged"), HasSubstr("remove it to resume from"),
                    HasSubstr("round-00000001")));
  fs::remove(path);
  EXPECT_EQ(Finish(options).rounds, 4u) << "the advice helps";
}

// The folder of a run that was killed before its first checkpoint: some rows, but no checkpoint.
void LoseCheckpoints(const TemporaryFolder& folder) {
  fs::remove_all(folder / "checkpoints");
  fs::remove(folder / "summary.json");
}

TEST(Resume, BeginsAgainWhenTheRunWasKilledBeforeItsFirstCheckpoint) {
  const TemporaryFolder whole, parts;
  Options options = TinyOptions(whole.path(), 4);
  options.config.checkpoint_every = 3;
  options.config.client_records = true;
  Finish(options);
  options.run_dir = parts.path();
  RunHalf(options);
  LoseCheckpoints(parts);
  const std::string name = Slurp(parts / "run-id");
  options.resume = true;
  EXPECT_EQ(Finish(options).rounds, 4u);
  EXPECT_EQ(RunBytes(whole.path()), RunBytes(parts.path()));
  EXPECT_EQ(Slurp(whole / "clients.jsonl"), Slurp(parts / "clients.jsonl"));
  EXPECT_EQ(Slurp(parts / "epoch"), "2\n");
  EXPECT_EQ(Slurp(parts / "run-id"), name) << "what its clients have left is still its own";
}

TEST(Resume, DoesNotThrowAwayWhatIsLeftOfARunThatHasLostItsCheckpoints) {
  const TemporaryFolder folder;
  Options options = TinyOptions(folder.path(), 4);
  options.config.checkpoint_every = 1;
  RunHalf(options, 3);
  LoseCheckpoints(folder);
  const std::string rows = Slurp(folder / "metrics.jsonl");
  options.resume = true;
  EXPECT_THAT(StartError(options).ToString(),
              AllOf(HasSubstr("no checkpoint"), HasSubstr("2 rounds"), HasSubstr("--force")));
  EXPECT_EQ(Slurp(folder / "metrics.jsonl"), rows);
  EXPECT_EQ(Slurp(folder / "epoch"), "1\n");
}

TEST(Resume, NamesTheWayOutWhenItsRowsAreLost) {
  const TemporaryFolder folder;
  Options options = TinyOptions(folder.path(), 4);
  RunHalf(options);
  options.resume = true;
  const std::string path = folder / "metrics.jsonl", rows = Slurp(path);
  fs::remove(path);
  EXPECT_THAT(StartError(options).ToString(),
              AllOf(HasSubstr(path), HasSubstr("put it back"), HasSubstr("--force")));
  EXPECT_FALSE(fs::exists(path)) << "a refused start changes nothing";
  EXPECT_EQ(Slurp(folder / "epoch"), "1\n");
  std::ofstream(path, std::ios::binary) << rows.substr(0, 10);
  EXPECT_THAT(StartError(options).ToString(), AllOf(HasSubstr(path), HasSubstr("has 10 bytes")));
  std::ofstream(path, std::ios::binary) << "x" + rows.substr(1);
  EXPECT_THAT(StartError(options).ToString(),
              AllOf(HasSubstr(path), HasSubstr("line 1 is not JSON"), HasSubstr("--force")));
  std::ofstream(path, std::ios::binary) << rows;
  EXPECT_EQ(Finish(options).rounds, 4u) << "the advice helps";
}

TEST(Resume, RemovesWhatAKilledServerWasStillWriting) {
  const TemporaryFolder folder;
  Options options = TinyOptions(folder.path(), 4);
  RunHalf(options);
  const std::string half = folder.Write(
                        "checkpoints/round-00000003.safetensors.00c0ffee00c0ffee.part", "half"),
                    mine = folder.Write("my.notes.part", "a person's");
  options.resume = true;
  Finish(options);
  EXPECT_FALSE(fs::exists(half));
  EXPECT_TRUE(fs::exists(mine));
}

TEST(Resume, RefusesAnEmptyFolderAndAFinishedRun) {
  const TemporaryFolder folder;
  Options options = TinyOptions(folder.path(), 2);
  options.resume = true;
  EXPECT_THAT(StartError(options).ToString(), HasSubstr("no checkpoint"));
  options.resume = false;
  Finish(options);
  options.resume = true;
  EXPECT_THAT(StartError(options).ToString(), AllOf(HasSubstr("2 rounds"), HasSubstr("--rounds")));
  options.run.rounds = 3;
  EXPECT_EQ(Finish(options).rounds, 3u);
}

// Whether its worker has come or not.
TEST(Resume, InterruptedBeforeItHasDoneAnythingLeavesTheResult) {
  for (const bool comes : {false, true}) {
    const TemporaryFolder folder;
    Options options = TinyOptions(folder.path(), 2);
    Finish(options);
    const std::string summary = Slurp(folder / "summary.json");
    const RunBytes before(folder.path());
    options.resume = true;
    options.run.rounds = 4;
    {
      const auto coordinator = StartTiny(options);
      FakeWorker worker(*coordinator);
      if (comes) {
        ASSERT_TRUE(worker.Register().ok());
        ASSERT_TRUE(worker.WorkOnPart().has_value());  // inside round 3
      }
      coordinator->Interrupt();
      if (comes) {
        EXPECT_FALSE(worker.Work().has_value());
      }
      const auto outcome = coordinator->Wait();
      ASSERT_TRUE(outcome.ok()) << outcome.status();
      EXPECT_EQ(outcome->kind, Outcome::Kind::kInterrupted);
    }
    EXPECT_EQ(Slurp(folder / "summary.json"), summary);
    EXPECT_EQ(RunBytes(folder.path()), before);
    EXPECT_EQ(Finish(options).rounds, 4u);
    EXPECT_EQ(Json::parse(Slurp(folder / "summary.json"))["end"], "finished");
  }
}

// The row of a round that one session has done may be all that the next one adds.
TEST(Resume, InterruptedAfterARowHasAResultWithIt) {
  const TemporaryFolder folder;
  Options options = TinyOptions(folder.path(), 4);
  {
    const auto coordinator = StartTiny(options);
    FakeWorker worker(*coordinator);
    ASSERT_TRUE(worker.Register().ok());
    worker.RunThrough(2);
    ASSERT_TRUE(worker.WorkOnPart().has_value());
    coordinator->Interrupt();
    EXPECT_FALSE(worker.Work().has_value());
    ASSERT_TRUE(coordinator->Wait().ok());
  }
  ASSERT_EQ(Json::parse(Slurp(folder / "summary.json"))["final_round"], 1);
  options.resume = true;
  {
    const auto coordinator = StartTiny(options);
    FakeWorker worker(*coordinator);
    ASSERT_TRUE(worker.Register().ok());
    auto request = worker.WorkOnPart();
    ASSERT_TRUE(request.has_value());
    ASSERT_FALSE(request->evaluations.empty());  // of round 2
    request->part.reset();
    EXPECT_EQ(worker.Commit(*request).verdict, fleet::Verdict::kAccepted);
    coordinator->Interrupt();
    EXPECT_FALSE(worker.Work().has_value());
    ASSERT_TRUE(coordinator->Wait().ok());
  }
  const Json summary = Json::parse(Slurp(folder / "summary.json"));
  EXPECT_EQ(summary["rounds"], 2);
  EXPECT_FALSE(summary.contains("final_round"));
}

TEST(Resume, KnowsNoStatesOfTheRoundThatWasCutShort) {
  const TemporaryFolder folder;
  Options options = TinyOptions(folder.path(), 4);
  options.run.algorithm.name = "ditto";  // same messages as FedAvg, but with client states
  VersionIndex first_round;
  {
    const auto coordinator = StartTiny(options);
    FakeWorker worker(*coordinator);
    ASSERT_TRUE(worker.Register().ok());
    for (const bool whole : {true, false}) {
      auto request = worker.WorkOnPart();
      ASSERT_TRUE(request.has_value());
      std::vector<fleet::ClientRecord>& records = request->part->included;
      if (!whole) records.resize(records.size() / 2);
      std::vector<fixtures::Summand> summands;
      for (fleet::ClientRecord& record : records) {
        record.has_state = true;
        summands.push_back({record.attempt.client, record.weight});
        if (whole) first_round.Set(record.attempt.client, record.attempt.fence);
      }
      request->part->sums = worker.Sums(summands);
      ASSERT_EQ(worker.Commit(*request).verdict, fleet::Verdict::kAccepted);
    }
    coordinator->Interrupt();
    EXPECT_FALSE(worker.Work().has_value());
    ASSERT_TRUE(coordinator->Wait().ok());
  }
  const auto kept = ReadKeptVersions(folder.path());
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(kept->back().round, Round(1));
  EXPECT_EQ(kept->back().versions.size(), 4u);
  EXPECT_EQ(kept->back().versions.Encode(), first_round.Encode());
}

TEST(Resume, RemembersTheProfilesOfEarlierWorkers) {
  for (const std::string libraries : {"1", "2"}) {
    const TemporaryFolder folder;
    Options options = TinyOptions(folder.path(), 4);
    RunHalf(options);
    options.resume = true;
    options.config.mixed_profiles = true;
    const auto coordinator = StartTiny(options);
    FakeWorker worker(*coordinator);
    worker.identity().profile.libraries = libraries;
    ASSERT_TRUE(worker.Register().ok());
    worker.RunToEnd();
    ASSERT_TRUE(coordinator->Wait().ok());
    const auto summary = nlohmann::json::parse(*ReadFile(folder / "summary.json"));
    const bool same = libraries == "1";
    EXPECT_EQ(summary["reproducible"], same);
    EXPECT_EQ(summary["profile"]["libraries"], "1") << "of the first worker";
    EXPECT_EQ(summary.contains("profiles"), !same);
    if (!same) {
      EXPECT_EQ(summary["profiles"][1]["libraries"], "2");
    }
  }
}

TEST(Resume, RefusesWorkersWithOtherDataOrAnotherProfile) {
  const TemporaryFolder folder;
  Options options = TinyOptions(folder.path(), 4);
  RunHalf(options);
  options.resume = true;
  const auto coordinator = StartTiny(options);
  FakeWorker data(*coordinator, "data"), profile(*coordinator, "profile"), fits(*coordinator);
  data.identity().data_digest = DigestOf("something else");
  EXPECT_THAT(data.Register().status().ToString(), HasSubstr("what the checkpoint was trained on"));
  // A test set that an older version did not cut off the clients' rows.
  std::vector<uint32_t> rows = TinyExamples();
  --rows.front();
  data.identity().table = fleet::Blob::Of(fleet::ClientTable{.rows = rows}.Encode());
  data.identity().central_test_rows = 1;
  EXPECT_THAT(data.Register().status().ToString(), HasSubstr("data.test_fraction now cuts"));
  profile.identity().profile.libraries = "2";
  EXPECT_THAT(profile.Register().status().ToString(), HasSubstr("differs from the run's"));
  ASSERT_TRUE(fits.Register().ok());
  fits.RunToEnd();
  EXPECT_TRUE(coordinator->Wait().ok());
}

TEST(Coordinator, CountsTheEpochUpWithEachStart) {
  const TemporaryFolder folder;
  Options options = TinyOptions(folder.path(), 3);
  for (uint32_t epoch = 1; epoch <= 3; ++epoch) {
    options.resume = epoch > 1;
    const auto coordinator = StartTiny(options);
    EXPECT_EQ(Slurp(folder / "epoch"), absl::StrCat(epoch, "\n")) << "before the first lease";
    FakeWorker worker(*coordinator);
    const auto reply = worker.Register();
    ASSERT_TRUE(reply.ok());
    EXPECT_EQ(reply->epoch, epoch);
    const auto request = worker.WorkOnPart();
    ASSERT_TRUE(request.has_value());
    EXPECT_EQ(request->part->included[0].attempt.fence.epoch, epoch);
    ASSERT_EQ(worker.Commit(*request).verdict, fleet::Verdict::kAccepted);
    if (epoch == 3) break;
    ASSERT_TRUE(worker.WorkOnPart().has_value());
    coordinator->Interrupt();
    EXPECT_FALSE(worker.Work().has_value());
  }
}

TEST(Coordinator, DoesNotStartAfreshOverTheCheckpointsOfAnotherRun) {
  const TemporaryFolder folder;
  const Options options = TinyOptions(folder.path(), 4);
  RunHalf(options);
  const std::string rows = Slurp(folder / "metrics.jsonl");
  EXPECT_THAT(StartError(options).ToString(), AllOf(HasSubstr(folder.path()), HasSubstr("resume")));
  EXPECT_EQ(Slurp(folder / "metrics.jsonl"), rows);
  EXPECT_EQ(Slurp(folder / "epoch"), "1\n");
}

}  // namespace
}  // namespace macaw::server
