#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/files.h"
#include "server/log/reader.h"
#include "server/log/writer.h"
#include "testing/random_record.h"
#include "testing/temporary_folder.h"

namespace macaw::server::log {
namespace {

using fixtures::RandomRecord;
using macaw::testing_support::TemporaryFolder;
using testing::HasSubstr;

const Digest kRun = DigestOf("this run");

RunOpened Opening(uint32_t epoch, int64_t wall_ns = 1'000) {
  return {.run = kRun, .epoch = epoch, .wall_ns = wall_ns};
}

void Replace(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

struct ReadAll {
  std::vector<Entry> entries;
  absl::Status status;
};
ReadAll Read(const std::string& path) {
  ReadAll all;
  absl::StatusOr<Reader> reader = Reader::Open(path);
  all.status = reader.status();
  while (all.status.ok()) {
    absl::StatusOr<std::optional<Entry>> entry = reader->Next();
    all.status = entry.status();
    if (!entry.ok() || !entry->has_value()) break;
    all.entries.push_back(**std::move(entry));
  }
  return all;
}

// A log of a few random records, with the offset of each record and of the end.
struct Sample {
  TemporaryFolder folder;
  std::string path = folder / "rounds.log";
  std::vector<uint64_t> places;
  std::string bytes;

  explicit Sample(uint64_t seed, int records = 4) {
    auto writer = *Writer::Open(path, kRun);
    RandomRecord random(seed);
    for (int i = 0; i < records; ++i) {
      places.push_back(*FileSize(path));
      Record record = random.Any();
      while (std::holds_alternative<RunOpened>(record)) record = random.Any();
      writer.Append(i, i == 0 ? Record(Opening(1)) : std::move(record));
      EXPECT_TRUE(writer.Write().ok());
    }
    places.push_back(*FileSize(path));
    bytes = *ReadFile(path);
  }
};

TEST(LogFile, IsReadAsItWasWritten) {
  const TemporaryFolder folder;
  const std::string path = folder / "rounds.log";
  std::vector<Record> written;
  for (uint32_t session = 1; session <= 3; ++session) {
    auto writer = Writer::Open(path, kRun);
    ASSERT_TRUE(writer.ok()) << writer.status();
    EXPECT_EQ(writer->cut_bytes(), 0u);
    EXPECT_EQ(writer->first_wall_ns(), session == 1 ? 0 : 1'000);
    written.emplace_back(Opening(session));
    RandomRecord random(session);
    for (int i = 0; i < 40; ++i) written.push_back(random.Any());
    for (Record& record : written) {  // all in one run
      if (auto* opened = std::get_if<RunOpened>(&record)) opened->run = kRun;
    }
    for (size_t i = written.size() - 41; i < written.size(); ++i)
      writer->Append((session - 1) * 1'000, written[i]);
    ASSERT_TRUE(writer->Sync().ok());
  }
  const ReadAll read = Read(path);
  ASSERT_TRUE(read.status.ok()) << read.status;
  ASSERT_EQ(read.entries.size(), written.size());
  for (size_t i = 0; i < written.size(); ++i) {
    EXPECT_EQ(read.entries[i].sequence, i + 1);
    EXPECT_EQ(read.entries[i].ns, static_cast<int64_t>(1'000 * (i / 41)));
    EXPECT_EQ(read.entries[i].record, written[i]);
  }
}

// Of bytes that were never synced, a crash of the machine may keep any part.
TEST(LogFile, DamageBehindTheSyncedBytesIsTheEndOfTheLog) {
  Sample sample(7);
  const uint64_t synced = sample.places[2];
  for (uint64_t at = kFileHead; at < sample.bytes.size(); at += 5) {
    std::string bytes = sample.bytes;
    bytes[at] = static_cast<char>(bytes[at] ^ 4);
    Replace(sample.path, bytes);
    const auto writer = Writer::Open(sample.path, kRun, {.synced = synced});
    EXPECT_EQ(writer.ok(), at >= synced) << "damage at " << at << ": " << writer.status();
    if (writer.ok()) {
      EXPECT_GE(writer->bytes(), synced);
    }
  }
  Replace(sample.path, sample.bytes);
  const auto writer = Writer::Open(sample.path, kRun, {.cut = synced});
  ASSERT_TRUE(writer.ok()) << writer.status();
  EXPECT_EQ(writer->bytes(), synced);
  EXPECT_EQ(writer->cut_bytes(), sample.bytes.size() - synced);
}

TEST(LogFile, ATornRecordIsCutOffWhereverItEnds) {
  for (uint64_t seed = 0; seed < 3; ++seed) {
    Sample sample(seed);
    for (size_t size = 0; size < sample.bytes.size(); ++size) {
      Replace(sample.path, sample.bytes.substr(0, size));
      size_t whole = 0;
      while (whole + 1 < sample.places.size() && sample.places[whole + 1] <= size) ++whole;
      if (size >= kFileHead) {
        const ReadAll read = Read(sample.path);
        ASSERT_TRUE(read.status.ok()) << read.status << " at " << size;
        ASSERT_EQ(read.entries.size(), whole) << "at " << size;
      }
      auto writer = Writer::Open(sample.path, kRun);
      ASSERT_TRUE(writer.ok()) << writer.status() << " at " << size;
      const uint64_t kept = size < kFileHead ? 0 : sample.places[whole];
      EXPECT_EQ(writer->cut_bytes(), size - kept);
      writer->Append(99, Opening(2));
      ASSERT_TRUE(writer->Write().ok());
      const ReadAll again = Read(sample.path);
      ASSERT_TRUE(again.status.ok()) << again.status << " at " << size;
      ASSERT_EQ(again.entries.size(), whole + 1);
      EXPECT_EQ(again.entries.back().record, Record(Opening(2)));
    }
  }
}

TEST(LogFile, ARecordWhoseEndWasNeverWrittenIsTorn) {
  // Some file systems leave such a file when the machine crashes: its size is right, its bytes are
  // missing.
  for (uint64_t seed = 0; seed < 3; ++seed) {
    Sample sample(seed);
    const uint64_t last = sample.places[sample.places.size() - 2];
    for (uint64_t from = last; from <= sample.bytes.size() - kRecordFoot; ++from) {
      for (const size_t more : {0, 100}) {
        std::string bytes = sample.bytes.substr(0, from);
        bytes.resize(sample.bytes.size() + more);
        Replace(sample.path, bytes);
        const ReadAll read = Read(sample.path);
        // A partly written head looks like a damaged one.
        if (!read.status.ok() && from > last && from < last + kRecordHead) continue;
        ASSERT_TRUE(read.status.ok()) << read.status << " from " << from;
        EXPECT_EQ(read.entries.size(), 3u);
      }
    }
  }
}

TEST(LogFile, AFlippedBitAnywhereIsFound) {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    Sample sample(seed);
    for (size_t at = 0; at < sample.bytes.size(); ++at) {
      std::string bytes = sample.bytes;
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << (at % 8)));
      Replace(sample.path, bytes);
      const ReadAll read = Read(sample.path);
      ASSERT_FALSE(read.status.ok()) << "at " << at;
      if (at < kFileHead) continue;
      size_t record = 0;
      while (sample.places[record + 1] <= at) ++record;
      EXPECT_EQ(read.entries.size(), record);
      EXPECT_THAT(read.status.message(), HasSubstr(sample.path));
      EXPECT_THAT(read.status.message(), HasSubstr(absl::StrCat("record ", record + 1, ",")));
      EXPECT_THAT(read.status.message(), HasSubstr(absl::StrCat("byte ", sample.places[record])));
      EXPECT_FALSE(Writer::Open(sample.path, kRun).ok()) << "nothing is written behind damage";
      EXPECT_EQ(*ReadFile(sample.path), bytes) << "damage stays as it is, to be looked at";
    }
  }
}

TEST(LogFile, AMissingOrRepeatedRecordIsFound) {
  Sample sample(5);
  const auto piece = [&](size_t record) {
    return sample.bytes.substr(sample.places[record],
                               sample.places[record + 1] - sample.places[record]);
  };
  const std::string head = sample.bytes.substr(0, kFileHead);
  for (const std::string& bytes : {head + piece(0) + piece(2), head + piece(0) + piece(0),
                                   head + piece(1), head + piece(0) + piece(2) + piece(1)}) {
    Replace(sample.path, bytes);
    EXPECT_EQ(Read(sample.path).status.code(), absl::StatusCode::kDataLoss);
  }
}

TEST(LogFile, AnotherVersionIsRefusedByItsNumber) {
  Sample sample(1);
  std::string head = sample.bytes.substr(0, 16);
  head[8] = 9;
  const uint64_t checksum = Checksum(BytesOf(absl::string_view(head)));
  head.append(reinterpret_cast<const char*>(&checksum), sizeof(checksum));
  Replace(sample.path, head + sample.bytes.substr(kFileHead));
  const ReadAll read = Read(sample.path);
  EXPECT_EQ(read.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(read.status.message(), HasSubstr("version 9"));
  EXPECT_FALSE(Writer::Open(sample.path, kRun).ok());
}

TEST(LogFile, WhatIsNoLogIsNotTakenForOne) {
  const TemporaryFolder folder;
  const std::string path = folder.Write("rounds.log", std::string(100, 'x'));
  EXPECT_THAT(Read(path).status.message(), HasSubstr(path));
  EXPECT_FALSE(Writer::Open(path, kRun).ok());
  EXPECT_EQ(*ReadFile(path), std::string(100, 'x'));
  EXPECT_FALSE(Reader::Open(folder / "none").ok());
}

TEST(LogFile, TheLogOfAnotherRunIsNotGoneOnWith) {
  Sample sample(2);
  const auto writer = Writer::Open(sample.path, DigestOf("another run"));
  ASSERT_FALSE(writer.ok());
  EXPECT_THAT(writer.status().message(), HasSubstr(sample.path));
  EXPECT_EQ(*ReadFile(sample.path), sample.bytes);
}

TEST(LogFile, ItIsReadWhileItIsWritten) {
  const TemporaryFolder folder;
  const std::string path = folder / "rounds.log";
  auto writer = *Writer::Open(path, kRun);
  auto reader = *Reader::Open(path);
  RandomRecord random(11);
  std::string whole = *ReadFile(path);
  for (int i = 0; i < 200; ++i) {
    EXPECT_FALSE(reader.Next()->has_value());
    const Record record = random.Any();
    AppendFramed({.sequence = reader.sequence() + 1, .ns = i, .record = record}, whole);
    // Half of the record is there, then all of it.
    Replace(path, whole.substr(0, (*FileSize(path) + whole.size()) / 2));
    EXPECT_FALSE(reader.Next()->has_value());
    Replace(path, whole);
    const absl::StatusOr<std::optional<Entry>> entry = reader.Next();
    ASSERT_TRUE(entry.ok() && entry->has_value()) << entry.status();
    EXPECT_EQ((*entry)->record, record);
  }
}

}  // namespace
}  // namespace macaw::server::log
