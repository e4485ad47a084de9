// Tests of the log that a run leaves, with different workers, and with or without interruptions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "core/files.h"
#include "server/coordinator.h"
#include "server/log/history.h"
#include "server/log/reader.h"
#include "tests/server/log_law.h"
#include "tests/server/tiny_run.h"

namespace macaw::server {
namespace {

using fixtures::FakeWorker;
using fixtures::Finish;
using fixtures::LogLaw;
using fixtures::Slurp;
using fixtures::StartError;
using fixtures::StartTiny;
using fixtures::TinyOptions;
using testing::HasSubstr;
using testing_support::TemporaryFolder;

std::vector<log::Record> RecordsOf(const TemporaryFolder& folder) {
  std::vector<log::Record> records;
  auto reader = log::Reader::Open(folder / "rounds.log");
  EXPECT_TRUE(reader.ok()) << reader.status();
  int64_t time = 0;
  while (reader.ok()) {
    const auto entry = reader->Next();
    EXPECT_TRUE(entry.ok()) << entry.status();
    if (!entry.ok() || !entry->has_value()) break;
    EXPECT_GE((*entry)->ns, time);
    time = (*entry)->ns;
    records.push_back((*entry)->record);
  }
  return records;
}

// The records that do not depend on which worker trained which client, and when.
template <typename T>
std::vector<T> Of(const std::vector<log::Record>& records) {
  std::vector<T> found;
  for (const log::Record& record : records) {
    if (const auto* one = std::get_if<T>(&record)) found.push_back(*one);
  }
  return found;
}
std::vector<log::Closed> Untimed(std::vector<log::Closed> closed) {
  for (log::Closed& one : closed) one.seconds = static_cast<double>(one.requeued = 0);
  return closed;
}

std::string DigestIn(const TemporaryFolder& folder) {
  return nlohmann::json::parse(Slurp(folder / "summary.json"))["model_digest"];
}

TEST(RunLog, TellsEveryRoundAndTheModelAtTheEnd) {
  const TemporaryFolder folder;
  Finish(TinyOptions(folder.path(), 4));
  const auto records = RecordsOf(folder);
  LogLaw law;
  for (const log::Record& record : records) law.Add(record);
  EXPECT_EQ(law.rounds(), 4u);
  EXPECT_EQ(law.settled(), 16u);
  ASSERT_FALSE(records.empty());
  const auto* opened = std::get_if<log::RunOpened>(&records.front());
  ASSERT_NE(opened, nullptr);
  EXPECT_EQ(opened->epoch, 1u);
  EXPECT_EQ(opened->completed, Round(0));
  EXPECT_EQ(opened->run.Hex() + "\n", Slurp(folder / "run-id"));
  const auto* ended = std::get_if<log::RunEnded>(&records.back());
  ASSERT_NE(ended, nullptr);
  EXPECT_EQ(ended->how, log::End::kFinished);
  EXPECT_EQ(ended->rounds, 4u);
  EXPECT_EQ(ended->model.Hex(), DigestIn(folder));
  const auto closed = Of<log::Closed>(records);
  ASSERT_EQ(closed.size(), 4u);
  for (uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(closed[i].round, Round(i + 1));
    EXPECT_TRUE(closed[i].last);
    EXPECT_EQ(closed[i].counted, 4u);
    EXPECT_FALSE(closed[i].model.IsZero()) << "the evaluation of every round is due";
  }
  EXPECT_EQ(Of<log::Evaluated>(records).size(), 4u);
}

TEST(RunLog, OpensAndClosesTheSameRoundsWhoeverTrains) {
  const TemporaryFolder one, two;
  Finish(TinyOptions(one.path(), 3));
  {
    Options options = TinyOptions(two.path(), 3);
    options.config.workers = 2;
    const auto coordinator = StartTiny(std::move(options));
    FakeWorker first(*coordinator, "first"), second(*coordinator, "second");
    ASSERT_TRUE(first.Register().ok());
    ASSERT_TRUE(second.Register().ok());
    ASSERT_TRUE(first.WorkOnPart().has_value());
    first.GiveBackEverything();
    std::thread beside([&] { second.RunToEnd(); });
    first.RunToEnd();
    beside.join();
    EXPECT_TRUE(coordinator->Wait().ok());
  }
  const auto a = RecordsOf(one), b = RecordsOf(two);
  EXPECT_FALSE(Of<log::Requeued>(b).empty()) << "the first gave its clients back";
  EXPECT_EQ(Of<log::RoundOpened>(a).size(), 3u);
  EXPECT_EQ(Of<log::RoundOpened>(a), Of<log::RoundOpened>(b));
  EXPECT_EQ(Untimed(Of<log::Closed>(a)), Untimed(Of<log::Closed>(b)));
  EXPECT_EQ(Of<log::RunOpened>(a)[0].configuration, Of<log::RunOpened>(b)[0].configuration);
}

TEST(RunLog, ARunThatWentDownAndGoesOnTellsEachRoundOnce) {
  const TemporaryFolder whole, parts;
  Options options = TinyOptions(whole.path(), 5);
  options.config.checkpoint_every = 2;
  Finish(options);
  options.run_dir = parts.path();
  {
    const auto coordinator = StartTiny(options);
    FakeWorker worker(*coordinator);
    ASSERT_TRUE(worker.Register().ok());
    worker.RunThrough(3);
    ASSERT_TRUE(worker.WorkOnPart().has_value());
    coordinator->Interrupt();
    EXPECT_TRUE(coordinator->Wait().ok());
  }
  // The state after a crash in round 4: the newest checkpoint is of round 2, the log goes further.
  ASSERT_TRUE(std::filesystem::remove(parts / "checkpoints/round-00000003.safetensors"));
  options.resume = true;
  Finish(options);
  const auto done = log::ReadHistory(parts / "rounds.log");
  const auto expected = log::ReadHistory(whole / "rounds.log");
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_EQ(done->sessions().size(), 2u);
  EXPECT_EQ(done->completed(), Round(5));
  ASSERT_EQ(done->rounds().size(), 5u);
  for (const auto& [round, phases] : expected->rounds()) {
    const auto& phase = done->rounds().at(round).at(Phase(0));
    EXPECT_EQ(phase.opened, phases.at(Phase(0)).opened) << "round " << round;
    ASSERT_TRUE(phase.closed.has_value());
    EXPECT_EQ(phase.closed->model, phases.at(Phase(0)).closed->model);
  }
  EXPECT_EQ(done->ended()->model, expected->ended()->model);
}

TEST(RunLog, ATornRecordDoesNotKeepARunFromGoingOnAndDamageDoes) {
  const TemporaryFolder folder;
  Options options = TinyOptions(folder.path(), 2);
  Finish(options);
  const std::string whole = Slurp(folder / "rounds.log");
  options.run.rounds = 3;
  options.resume = true;
  std::string damaged = whole;
  damaged[damaged.size() / 2] ^= 1;
  folder.Write("rounds.log", damaged);
  const absl::Status refused = StartError(options);
  EXPECT_EQ(refused.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(refused.message(), HasSubstr(folder / "rounds.log"));
  EXPECT_EQ(Slurp(folder / "epoch"), "1\n") << "a refusal leaves the folder as it was";

  folder.Write("rounds.log", whole.substr(0, whole.size() - 3));
  EXPECT_EQ(Finish(options).rounds, 3u);
  const auto history = log::ReadHistory(folder / "rounds.log");
  ASSERT_TRUE(history.ok()) << history.status();
  EXPECT_EQ(history->completed(), Round(3));
}

TEST(RunLog, WithoutItsLogARunGoesOnWithANewOne) {
  const TemporaryFolder folder;
  Options options = TinyOptions(folder.path(), 2);
  Finish(options);
  std::filesystem::remove(folder / "rounds.log");
  options.run.rounds = 3;
  options.resume = true;
  EXPECT_EQ(Finish(options).rounds, 3u);
  const auto history = log::ReadHistory(folder / "rounds.log");
  ASSERT_TRUE(history.ok()) << history.status();
  EXPECT_EQ(history->sessions().front().completed, Round(2));
  EXPECT_EQ(history->rounds().size(), 1u);
}

}  // namespace
}  // namespace macaw::server
