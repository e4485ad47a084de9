#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "cli/track/facts.h"
#include "cli/track/tracker.h"
#include "core/digest.h"
#include "core/files.h"
#include "server/log/writer.h"
#include "testing/temporary_folder.h"

namespace macaw::cli {

// The folder of a run as far as trackers read it. Every third row has the columns of an evaluation.
class TrackedRun {
 public:
  TrackedRun() {
    Write("config.toml", "[run]\nname = \"a run\"\n[local]\nlr = 0.1\n");
    Write("run-id", "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n");
    Write("metrics.jsonl", "");
  }

  const std::string& folder() const { return folder_.path(); }
  std::string Path(const std::string& file) const { return absl::StrCat(folder(), "/", file); }

  static double LossOf(int64_t round) { return 1.0 / static_cast<double>(round); }
  static std::string RowText(int64_t round) {
    char loss[64];
    std::snprintf(loss, sizeof(loss), "%.17g", LossOf(round));
    std::string row = absl::StrCat("{\"round\":", round, ",\"clients\":100,\"train_loss\":", loss);
    if (round % 3 == 0) absl::StrAppend(&row, ",\"test_loss\":null,\"test_accuracy\":0.5");
    return row + "}\n";
  }
  // Appends the rows of these rounds.
  void AddRows(int64_t from, int64_t to) const {
    std::ofstream file(Path("metrics.jsonl"), std::ios::app);
    for (int64_t round = from; round <= to; ++round) file << RowText(round);
  }
  // As a server does that goes on from a checkpoint behind this round.
  void CutRowsAfter(int64_t round) const {
    uintmax_t bytes = 0;
    for (int64_t i = 1; i <= round; ++i) bytes += RowText(i).size();
    std::filesystem::resize_file(Path("metrics.jsonl"), bytes);
  }
  void End(server::log::End how) const {
    absl::StatusOr<server::log::Writer> log =
        server::log::Writer::Open(Path("rounds.log"), Digest{});
    ASSERT_TRUE(log.ok()) << log.status();
    log->Append(0, server::log::RunOpened{});
    server::log::RunEnded ended;
    ended.how = how;
    log->Append(0, ended);
    ASSERT_TRUE(log->Write().ok());
  }
  std::string Read(const std::string& file) const {
    const absl::StatusOr<std::string> text = ReadFile(Path(file));
    EXPECT_TRUE(text.ok()) << text.status();
    return text.value_or("");
  }
  void Write(const std::string& file, const std::string& text) const {
    std::ofstream(Path(file), std::ios::binary) << text;
  }
  RunFacts Facts() const {
    const absl::StatusOr<RunFacts> facts = ReadFacts(folder());
    EXPECT_TRUE(facts.ok()) << facts.status();
    return facts.value_or(RunFacts{});
  }

  // Hands a tracker what is there, as a program does that ends then. Returns how many rows it took.
  size_t HandOver(Tracker& tracker) const {
    const absl::StatusOr<int64_t> has = tracker.Open(Facts());
    EXPECT_TRUE(has.ok()) << has.status();
    if (!has.ok()) return 0;
    RowReader reader(folder());
    size_t taken = 0;
    int64_t last = *has;
    while (true) {
      const absl::StatusOr<std::vector<Row>> rows = reader.Next(last, 7);
      EXPECT_TRUE(rows.ok()) << rows.status();
      if (!rows.ok() || rows->empty()) break;
      const absl::Status delivered = tracker.Deliver(*rows);
      EXPECT_TRUE(delivered.ok()) << delivered;
      taken += rows->size();
      last = rows->back().round;
    }
    const absl::Status closed = tracker.Close(ReadEnd(folder()));
    EXPECT_TRUE(closed.ok()) << closed;
    return taken;
  }

 private:
  testing_support::TemporaryFolder folder_;
};

}  // namespace macaw::cli
