// Trackers that write files, and how rows come to trackers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "cli/track/crc32c.h"
#include "cli/track/delivery.h"
#include "cli/track/tracking.h"
#include "core/csv_cell.h"
#include "proto/track/tensorboard.pb.h"
#include "proto/track/wandb.pb.h"
#include "tests/cli/track_run.h"

namespace macaw::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kEver = std::chrono::hours(1);
constexpr auto kAtOnce = std::chrono::milliseconds(1);

// ---- rows

TEST(RowReader, ReadsARunThatGoesOn) {
  const TrackedRun run;
  RowReader reader(run.folder());
  EXPECT_THAT(*reader.Next(kNoRound, 10), ElementsAre());
  run.AddRows(1, 3);
  const std::vector<Row> rows = *reader.Next(kNoRound, 2);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[1].round, 2);
  ASSERT_EQ(rows[1].metrics.size(), 2u);
  EXPECT_EQ(rows[1].metrics[1].name, "train_loss");
  EXPECT_EQ(rows[1].metrics[1].value, 0.5);
  EXPECT_EQ(reader.Next(2, 10)->size(), 1u);
  EXPECT_THAT(*reader.Next(3, 10), ElementsAre());
}

TEST(RowReader, WaitsForTheRestOfALine) {
  const TrackedRun run;
  const std::string row = TrackedRun::RowText(1);
  run.Write("metrics.jsonl", row.substr(0, 20));
  RowReader reader(run.folder());
  EXPECT_THAT(*reader.Next(kNoRound, 10), ElementsAre());
  run.Write("metrics.jsonl", row);
  EXPECT_EQ(reader.Next(kNoRound, 10)->size(), 1u);
}

TEST(RowReader, PassesOverRowsThatAServerWritesAgain) {
  const TrackedRun run;
  run.AddRows(1, 9);
  RowReader reader(run.folder());
  EXPECT_EQ(reader.Next(kNoRound, 100)->size(), 9u);
  run.CutRowsAfter(5);
  EXPECT_THAT(*reader.Next(9, 100), ElementsAre());
  run.AddRows(6, 11);
  const std::vector<Row> rows = *reader.Next(9, 100);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].round, 10);
}

TEST(RowReader, NamesTheFileThatWasDamaged) {
  const TrackedRun run;
  run.Write("metrics.jsonl", "{\"round\":1}\nnonsense\n");
  RowReader reader(run.folder());
  EXPECT_THAT(reader.Next(kNoRound, 10).status().message(), HasSubstr("metrics.jsonl"));
}

// ---- csv

using Table2 = std::vector<std::vector<std::string>>;
Table2 TableOf(const std::string& csv) {
  Table2 table;
  for (const absl::string_view line : absl::StrSplit(csv, '\n', absl::SkipEmpty()))
    table.push_back(absl::StrSplit(line, ','));
  return table;
}

TEST(CsvTracker, GivesEarlierRowsEmptyCellsWhenAColumnComes) {
  const TrackedRun run;
  run.AddRows(1, 2);
  EXPECT_EQ(run.HandOver(*MakeCsvTracker()), 2u);
  EXPECT_EQ(TableOf(run.Read("metrics.csv"))[0].size(), 3u);
  run.AddRows(3, 4);
  EXPECT_EQ(run.HandOver(*MakeCsvTracker()), 2u);
  EXPECT_THAT(
      TableOf(run.Read("metrics.csv")),
      ElementsAre(ElementsAre("round", "clients", "train_loss", "test_loss", "test_accuracy"),
                  ElementsAre("1", "100", "1", "", ""), ElementsAre("2", "100", "0.5", "", ""),
                  ElementsAre("3", "100", "0.3333333333333333", "nan", "0.5"),
                  ElementsAre("4", "100", "0.25", "", "")));
}

TEST(CsvTracker, GoesOnBehindALineThatACrashHasTorn) {
  const TrackedRun run;
  run.AddRows(1, 4);
  run.HandOver(*MakeCsvTracker());
  const std::string whole = run.Read("metrics.csv");
  run.Write("metrics.csv", whole.substr(0, whole.size() - 5));
  EXPECT_EQ(run.HandOver(*MakeCsvTracker()), 1u);
  EXPECT_EQ(run.Read("metrics.csv"), whole);
}

TEST(CsvTracker, QuotesNames) {
  EXPECT_EQ(CsvCell("plain"), "plain");
  EXPECT_EQ(CsvCell("a,b"), "\"a,b\"");
  const TrackedRun run;
  run.Write("metrics.jsonl", "{\"round\":1,\"rule_a,\\\"b\\\"\":2}\n{\"round\":2,\"x\":3}\n");
  EXPECT_EQ(run.HandOver(*MakeCsvTracker()), 2u);
  EXPECT_EQ(run.Read("metrics.csv"), "round,\"rule_a,\"\"b\"\"\",x\n1,2,\n2,,3\n");
  EXPECT_EQ(run.HandOver(*MakeCsvTracker()), 0u);  // it reads its own head
}

TEST(CsvTracker, SaysThatItsFileWasChanged) {
  const TrackedRun run;
  run.AddRows(1, 1);
  run.Write("metrics.csv", "round,clients\nsome words\n");
  EXPECT_THAT(MakeCsvTracker()->Open(run.Facts()).status().message(), HasSubstr("metrics.csv"));
}

// ---- tensorboard

TEST(Crc32c, IsThatOfTheStandard) {
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);  // RFC 3720, B.4
  EXPECT_EQ(MaskedCrc32c("123456789"), 0xc78ab0e5u);
}

using track::tensorboard::Event;

uint64_t Little(const std::string& bytes, size_t at, size_t count) {
  uint64_t number = 0;
  for (size_t i = 0; i < count; ++i)
    number |= uint64_t{static_cast<uint8_t>(bytes[at + i])} << (8 * i);
  return number;
}

// Reads a TFRecord file with every checksum.
std::vector<Event> EventsOf(const std::string& bytes) {
  std::vector<Event> events;
  for (size_t at = 0; at < bytes.size();) {
    const size_t length = Little(bytes, at, 8);
    EXPECT_EQ(Little(bytes, at + 8, 4), MaskedCrc32c(bytes.substr(at, 8)));
    const std::string payload = bytes.substr(at + 12, length);
    EXPECT_EQ(payload.size(), length);
    EXPECT_EQ(Little(bytes, at + 12 + length, 4), MaskedCrc32c(payload));
    EXPECT_TRUE(events.emplace_back().ParseFromString(payload));
    at += 12 + length + 4;
  }
  return events;
}

// Step and value of a tag, in the order of the file.
std::vector<std::pair<int64_t, float>> ScalarsOf(const std::vector<Event>& events,
                                                 const std::string& tag) {
  std::vector<std::pair<int64_t, float>> scalars;
  for (const Event& event : events) {
    for (const auto& value : event.summary().value()) {
      if (value.tag() == tag && value.has_simple_value())
        scalars.emplace_back(event.step(), value.simple_value());
    }
  }
  return scalars;
}

constexpr char kEvents[] = "tensorboard/events.out.tfevents.macaw";

TEST(TensorBoardTracker, WritesEveryValueAndTheConfiguration) {
  const TrackedRun run;
  run.AddRows(1, 20);
  EXPECT_EQ(run.HandOver(*MakeTensorBoardTracker()), 20u);
  const std::vector<Event> events = EventsOf(run.Read(kEvents));
  EXPECT_EQ(events.at(0).file_version(), "brain.Event:2");
  const auto& text = events.at(1).summary().value(0);
  EXPECT_EQ(text.metadata().plugin_data().plugin_name(), "text");
  EXPECT_THAT(text.tensor().string_val(0), HasSubstr("local.lr = 0.1"));
  const auto losses = ScalarsOf(events, "train_loss");
  ASSERT_EQ(losses.size(), 20u);
  for (int64_t round = 1; round <= 20; ++round) {
    EXPECT_EQ(losses[static_cast<size_t>(round - 1)],
              std::pair(round, static_cast<float>(TrackedRun::LossOf(round))));
  }
  const auto evaluated = ScalarsOf(events, "test_loss");
  ASSERT_EQ(evaluated.size(), 6u);
  EXPECT_EQ(evaluated[0].first, 3);
  EXPECT_TRUE(std::isnan(evaluated[0].second));
}

TEST(TensorBoardTracker, HasNoRowTwiceWhenARunGoesOn) {
  const TrackedRun run;
  run.AddRows(1, 9);
  run.HandOver(*MakeTensorBoardTracker());
  run.CutRowsAfter(5);  // killed after round 9, resumed from the checkpoint of round 5
  EXPECT_EQ(run.HandOver(*MakeTensorBoardTracker()), 0u);
  run.AddRows(6, 12);
  EXPECT_EQ(run.HandOver(*MakeTensorBoardTracker()), 3u);
  std::vector<int64_t> steps;
  for (const auto& [step, value] : ScalarsOf(EventsOf(run.Read(kEvents)), "train_loss"))
    steps.push_back(step);
  EXPECT_THAT(steps, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12));
}

TEST(TensorBoardTracker, EndsTheSameWhereverACrashHasTornTheFile) {
  const TrackedRun run;
  run.AddRows(1, 3);
  run.HandOver(*MakeTensorBoardTracker());
  const std::string whole = run.Read(kEvents);
  const size_t expected = ScalarsOf(EventsOf(whole), "train_loss").size();
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    run.Write(kEvents, whole.substr(0, bytes));
    run.HandOver(*MakeTensorBoardTracker());
    const std::vector<Event> events = EventsOf(run.Read(kEvents));
    ASSERT_EQ(ScalarsOf(events, "train_loss").size(), expected) << bytes;
  }
}

// ---- wandb

using track::wandb::Record;

constexpr uint64_t kBlock = 32768;

// Reads a file of wandb with every checksum, block by block.
std::vector<Record> RecordsOf(const std::string& bytes) {
  EXPECT_EQ(bytes.substr(0, 7), std::string("\x3aW&B\xe1\xbe\x00", 7));
  std::vector<Record> records;
  std::string whole;
  for (size_t at = 7; at < bytes.size();) {
    const size_t room = kBlock - at % kBlock;
    if (room < 7) {
      at += room;
      continue;
    }
    const size_t length = Little(bytes, at + 4, 2);
    EXPECT_LE(length, room - 7);
    const std::string checked = bytes.substr(at + 6, 1 + length);  // kind and bytes
    EXPECT_EQ(Little(bytes, at, 4), ::crc32(0, reinterpret_cast<const Bytef*>(checked.data()),
                                            static_cast<uInt>(checked.size())));
    whole += checked.substr(1);
    at += 7 + length;
    if (checked[0] == 1 || checked[0] == 4) {
      EXPECT_TRUE(records.emplace_back().ParseFromString(whole));
      EXPECT_EQ(records.back().num(), static_cast<int64_t>(records.size()));
      whole.clear();
    }
  }
  EXPECT_EQ(whole, "");
  return records;
}

std::string WandbFile(const TrackedRun& run) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(run.Path("wandb"))) {
    if (entry.path().extension() == ".wandb") {
      return std::filesystem::relative(entry.path(), run.folder()).string();
    }
  }
  return "";
}

std::vector<int64_t> WandbSteps(const TrackedRun& run) {
  std::vector<int64_t> steps;
  for (const Record& record : RecordsOf(run.Read(WandbFile(run)))) {
    if (record.has_history()) steps.push_back(record.history().step().num());
  }
  return steps;
}

std::unique_ptr<Tracker> Wandb() {
  TrackConfig config;
  config.wandb_project = "a project";
  return MakeWandbTracker(config);
}

TEST(WandbTracker, WritesTheRunAndEveryValue) {
  const TrackedRun run;
  run.AddRows(1, 2000);  // over several blocks
  run.End(server::log::End::kFinished);
  EXPECT_EQ(run.HandOver(*Wandb()), 2000u);
  const std::vector<Record> records = RecordsOf(run.Read(WandbFile(run)));
  EXPECT_TRUE(records.at(0).has_header());
  EXPECT_EQ(records.at(1).run().run_id(), "001122334455");
  EXPECT_EQ(records.at(1).run().project(), "a project");
  EXPECT_EQ(records.at(1).run().display_name(), "a run");
  EXPECT_EQ(records.at(1).run().config().update(0).key(), "local.lr");
  EXPECT_EQ(records.at(1).run().config().update(0).value_json(), "0.1");
  EXPECT_TRUE(records.back().has_exit());
  int64_t round = 0;
  for (const Record& record : records) {
    if (!record.has_history()) continue;
    ++round;
    for (const auto& item : record.history().item()) {
      if (item.nested_key(0) == "train_loss") {
        EXPECT_EQ(std::stod(item.value_json()), TrackedRun::LossOf(round));
      } else if (item.nested_key(0) == "test_loss") {
        EXPECT_EQ(item.value_json(), "NaN");
      }
    }
  }
  EXPECT_EQ(round, 2000);
}

TEST(WandbTracker, HasNoRowTwiceWhenARunGoesOn) {
  const TrackedRun run;
  run.AddRows(1, 9);
  run.End(server::log::End::kInterrupted);
  run.HandOver(*Wandb());
  EXPECT_TRUE(RecordsOf(run.Read(WandbFile(run))).back().has_exit());
  run.CutRowsAfter(5);
  run.AddRows(6, 11);
  run.End(server::log::End::kFinished);
  EXPECT_EQ(run.HandOver(*Wandb()), 2u);
  EXPECT_THAT(WandbSteps(run), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
  size_t exits = 0;
  for (const Record& record : RecordsOf(run.Read(WandbFile(run)))) exits += record.has_exit();
  EXPECT_EQ(exits, 1u);
}

TEST(WandbTracker, GoesOnInItsFolderWhateverTheTimeInTheName) {
  const TrackedRun run;
  run.AddRows(1, 3);
  run.HandOver(*Wandb());
  std::filesystem::rename(run.Path(WandbFile(run)).substr(0, run.Path(WandbFile(run)).rfind('/')),
                          run.Path("wandb/offline-run-20200102_030405-001122334455"));
  run.AddRows(4, 5);
  EXPECT_EQ(run.HandOver(*Wandb()), 2u);
  EXPECT_THAT(WandbSteps(run), ElementsAre(1, 2, 3, 4, 5));
}

TEST(WandbTracker, EndsTheSameWhereverACrashHasTornTheFile) {
  const TrackedRun run;
  run.AddRows(1, 3);
  run.HandOver(*Wandb());
  const std::string file = WandbFile(run), whole = run.Read(file);
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    run.Write(file, whole.substr(0, bytes));
    run.HandOver(*Wandb());
    ASSERT_THAT(WandbSteps(run), ElementsAre(1, 2, 3)) << bytes;
  }
}

// ---- deliveries

// What a tracker of a test is told, and what it does then.
struct Script {
  absl::Mutex mutex;
  std::vector<int64_t> rounds ABSL_GUARDED_BY(mutex);
  int opened ABSL_GUARDED_BY(mutex) = 0;
  std::string end ABSL_GUARDED_BY(mutex);
  int fail ABSL_GUARDED_BY(mutex) = 0;       // so many further calls of Deliver fail
  bool late ABSL_GUARDED_BY(mutex) = false;  // … after they have taken the rows
  bool hang ABSL_GUARDED_BY(mutex) = false;  // Deliver returns when it is interrupted
  bool interrupted ABSL_GUARDED_BY(mutex) = false;

  void Await(size_t count) {
    const absl::MutexLock lock(&mutex);
    const auto enough = [&]()
                            ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { return rounds.size() >= count; };
    mutex.Await(absl::Condition(&enough));
  }
  std::vector<int64_t> Rounds() {
    const absl::MutexLock lock(&mutex);
    return rounds;
  }
};

class ScriptedTracker final : public Tracker {
 public:
  explicit ScriptedTracker(Script& script) : script_(script) {}
  absl::StatusOr<int64_t> Open(const RunFacts&) override {
    const absl::MutexLock lock(&script_.mutex);
    ++script_.opened;
    return script_.rounds.empty() ? kNoRound : script_.rounds.back();
  }
  absl::Status Deliver(const std::vector<Row>& rows) override {
    const absl::MutexLock lock(&script_.mutex);
    if (script_.hang) {
      script_.mutex.Await(absl::Condition(&script_.interrupted));
      return absl::CancelledError("interrupted");
    }
    const bool fails = script_.fail > 0;
    if (fails) --script_.fail;
    if (!fails || script_.late) {
      for (const Row& row : rows) script_.rounds.push_back(row.round);
    }
    return fails ? absl::UnavailableError("nobody is there") : absl::OkStatus();
  }
  absl::Status Close(const RunEnd& end) override {
    const absl::MutexLock lock(&script_.mutex);
    script_.end = end.end;
    return absl::OkStatus();
  }
  void Interrupt() override {
    const absl::MutexLock lock(&script_.mutex);
    script_.interrupted = true;
  }

 private:
  Script& script_;
};

class Lines {
 public:
  void Say(const std::string& line) {
    const absl::MutexLock lock(&mutex_);
    lines_.push_back(line);
  }
  std::vector<std::string> Await(size_t count) {
    const absl::MutexLock lock(&mutex_);
    const auto enough = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return lines_.size() >= count;
    };
    mutex_.Await(absl::Condition(&enough));
    return lines_;
  }

 private:
  absl::Mutex mutex_;
  std::vector<std::string> lines_ ABSL_GUARDED_BY(mutex_);
};

DeliveryOptions OptionsFor(const TrackedRun& run, Lines& lines) {
  DeliveryOptions options;
  options.folder = run.folder();
  options.name = "test";
  options.say = [&lines](const std::string& line) { lines.Say(line); };
  options.look_every = kAtOnce;
  options.retry_after = kAtOnce;
  options.rows_at_once = 4;
  return options;
}

TEST(Delivery, FollowsARunAndTellsItsEnd) {
  const TrackedRun run;
  Script script;
  Lines lines;
  Delivery delivery(OptionsFor(run, lines), std::make_unique<ScriptedTracker>(script));
  run.AddRows(1, 5);
  script.Await(5);
  run.AddRows(6, 7);
  run.End(server::log::End::kFinished);
  delivery.NoMoreRows();
  EXPECT_TRUE(delivery.Finish(kEver));
  EXPECT_THAT(script.Rounds(), ElementsAre(1, 2, 3, 4, 5, 6, 7));
  const absl::MutexLock lock(&script.mutex);
  EXPECT_EQ(script.end, "finished");
  EXPECT_EQ(script.opened, 1);
}

TEST(Delivery, OpensNothingForARunWithoutARound) {
  const TrackedRun run;
  Script script;
  Lines lines;
  Delivery delivery(OptionsFor(run, lines), std::make_unique<ScriptedTracker>(script));
  delivery.NoMoreRows();
  EXPECT_TRUE(delivery.Finish(kEver));
  const absl::MutexLock lock(&script.mutex);
  EXPECT_EQ(script.opened, 0);
}

TEST(Delivery, SaysOnceThatItFailsAndOnceThatItGoesOn) {
  const TrackedRun run;
  run.AddRows(1, 10);
  Script script;
  {
    const absl::MutexLock lock(&script.mutex);
    script.fail = 3;
  }
  Lines lines;
  Delivery delivery(OptionsFor(run, lines), std::make_unique<ScriptedTracker>(script));
  script.Await(10);
  delivery.NoMoreRows();
  EXPECT_TRUE(delivery.Finish(kEver));
  EXPECT_THAT(script.Rounds(), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
  EXPECT_THAT(lines.Await(2),
              ElementsAre(HasSubstr("10 rows must wait to be delivered: nobody is there"),
                          HasSubstr("go on")));
}

TEST(Delivery, AsksTheTrackerWhatItHasAfterAnErrorThatCameLate) {
  const TrackedRun run;
  run.AddRows(1, 10);
  Script script;
  {
    const absl::MutexLock lock(&script.mutex);
    script.fail = 2;
    script.late = true;  // the rows arrive, and the answer does not
  }
  Lines lines;
  Delivery delivery(OptionsFor(run, lines), std::make_unique<ScriptedTracker>(script));
  delivery.NoMoreRows();
  EXPECT_TRUE(delivery.Finish(kEver));
  EXPECT_THAT(script.Rounds(), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
}

TEST(Delivery, SaysWhatIsLeftWhenATrackerHangs) {
  const TrackedRun run;
  run.AddRows(1, 10);
  Script script;
  {
    const absl::MutexLock lock(&script.mutex);
    script.hang = true;
  }
  Lines lines;
  Delivery delivery(OptionsFor(run, lines), std::make_unique<ScriptedTracker>(script));
  delivery.NoMoreRows();
  EXPECT_FALSE(delivery.Finish(kAtOnce));
  EXPECT_THAT(lines.Await(1),
              ElementsAre(::testing::AllOf(
                  HasSubstr("10 rows are not delivered"),
                  HasSubstr(absl::StrCat("macaw track ", run.folder(), " --to test")))));
}

TEST(Delivery, ExcludesASecondOneToTheSameTracker) {
  const TrackedRun run;
  run.AddRows(1, 3);
  Script first, second;
  Lines lines, others;
  Delivery delivery(OptionsFor(run, lines), std::make_unique<ScriptedTracker>(first));
  first.Await(3);
  Delivery intruder(OptionsFor(run, others), std::make_unique<ScriptedTracker>(second));
  EXPECT_THAT(others.Await(1), ElementsAre(HasSubstr("another program")));
  EXPECT_THAT(second.Rounds(), ElementsAre());
}

TEST(Tracking, RefusesAnUnknownTracker) {
  TrackConfig config;
  config.to = {"excel"};
  EXPECT_THAT(CheckTrackers(config).message(), HasSubstr("excel"));
}

TEST(Tracking, ReadsItsKeysFromTheFolder) {
  const TrackedRun run;
  run.Write("config.toml", "[run]\nname = \"r\"\ntrack = [\"csv\", \"tensorboard\"]\n");
  run.AddRows(1, 6);
  const absl::StatusOr<TrackConfig> config = ReadTrackConfig(run.folder());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->to, ElementsAre("csv", "tensorboard"));
  const auto tracking = Tracking::Start(run.folder(), *config);
  ASSERT_TRUE(tracking.ok()) << tracking.status();
  EXPECT_TRUE((*tracking)->Finish(kEver));
  EXPECT_EQ(TableOf(run.Read("metrics.csv")).size(), 7u);
  EXPECT_EQ(ScalarsOf(EventsOf(run.Read(kEvents)), "clients").size(), 6u);
}

}  // namespace
}  // namespace macaw::cli
