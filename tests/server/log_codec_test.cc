#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/log/codec.h"
#include "server/log/json.h"
#include "server/log/reader.h"
#include "testing/random_record.h"

namespace macaw::server::log {
namespace {

using fixtures::RandomRecord;

std::string Encoded(const Entry& entry) {
  std::string bytes;
  Encode(entry, bytes);
  return bytes;
}

TEST(LogCodec, EveryRecordComesBackAsItWas) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    RandomRecord random(seed);
    for (Record& record : random.OneOfEach()) {
      const Entry entry{
          .sequence = 7, .ns = static_cast<int64_t>(seed * 1'000'003), .record = std::move(record)};
      const absl::StatusOr<Entry> read = Decode(Encoded(entry), 7);
      ASSERT_TRUE(read.ok()) << read.status() << " seed " << seed << ": " << JsonOf(entry);
      EXPECT_EQ(*read, entry) << "seed " << seed << ": " << JsonOf(entry);
    }
  }
}

TEST(LogCodec, NoBytesMakeItFail) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    RandomStream stream({.seed = seed});
    std::string bytes = Encoded({.ns = 5, .record = RandomRecord(seed).Any()});
    for (int changes = 0; changes < 4; ++changes)
      bytes[stream.Below(bytes.size())] = static_cast<char>(stream.NextU32());
    bytes.resize(1 + stream.Below(bytes.size()));
    const absl::StatusOr<Entry> read = Decode(bytes, 1);  // returns an error or any record
    if (read.ok()) {
      EXPECT_TRUE(nlohmann::json::accept(JsonOf(*read)));
    }
  }
}

TEST(LogCodec, KindsAndFieldsOfALaterVersionArePassedOver) {
  // A NodeLost record with two unknown fields: a number (100) and a text (101).
  std::string record = Encoded({.ns = 9, .record = NodeLost{.node = WorkerId(3), .why = "gone"}});
  std::string payload = record.substr(4);  // behind time and the payload's tag and length
  ASSERT_EQ(static_cast<size_t>(record[3]), payload.size());
  payload += std::string("\xa0\x06\x05", 3) + std::string("\xaa\x06\x02hi", 5);
  record = record.substr(0, 3) + static_cast<char>(payload.size()) + payload;
  const absl::StatusOr<Entry> read = Decode(record, 1);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->record, Record(NodeLost{.node = WorkerId(3), .why = "gone"}));

  const Entry later{.ns = 9, .record = Unknown{.kind = 77}};
  const absl::StatusOr<Entry> unknown = Decode(Encoded(later), 0);
  ASSERT_TRUE(unknown.ok()) << unknown.status();
  EXPECT_EQ(*unknown, later);
}

TEST(LogCodec, ARoundOfAThousandClientsCostsTensOfKilobytes) {
  RandomStream stream({.seed = 3});
  RoundOpened opened{.round = Round(70)};
  Leased leased{.round = Round(70), .node = WorkerId(2)};
  Accepted accepted{.round = Round(70), .node = WorkerId(2), .commit = 12, .seconds = 1.5};
  std::vector<fleet::LeftOut> left_out;
  uint64_t client = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    client += 1 + stream.Below(2000);  // of a population of a million
    const Attempt attempt{ClientId(client), {4, 70'000 + i}};
    opened.cohort.push_back({.client = attempt.client});
    leased.attempts.push_back(attempt);
    if (i % 2 == 0) {
      accepted.included.push_back(attempt);
    } else {  // each has its own long message
      left_out.push_back({.attempt = attempt,
                          .message = absl::StrCat("client ", i, ": ", std::string(5000, 'x'))});
    }
  }
  EXPECT_LT(Encoded({.record = opened}).size(), 3'000u);
  EXPECT_LT(Encoded({.record = leased}).size(), 4'000u);
  EXPECT_LT(Encoded({.record = accepted}).size(), 2'000u);
  accepted.given_up = GivenUpOf(left_out);
  EXPECT_LT(Encoded({.record = accepted}).size(), 90'000u);
  for (fleet::LeftOut& left : left_out) left.message = std::string(5000, 'x');
  accepted.given_up = GivenUpOf(left_out);
  EXPECT_LT(Encoded({.record = accepted}).size(), 9'000u) << "equal messages are kept once";
}

TEST(LogCodec, ALongMessageKeepsItsBeginningAndItsEnd) {
  const std::string middle(6000, '-');
  const auto given_up = GivenUpOf({{.message = "RuntimeError: " + middle + " in line 7"},
                                   {.message = "short"},
                                   {.message = std::string(1023, 'a') + "äöü" + middle + "äöü"}});
  ASSERT_EQ(given_up.size(), 3u);
  EXPECT_TRUE(given_up[0].message.starts_with("RuntimeError: -"));
  EXPECT_TRUE(given_up[0].tail.ends_with("- in line 7"));
  EXPECT_LT(given_up[0].message.size() + given_up[0].tail.size(), 2100u);
  EXPECT_EQ(given_up[1].message, "short");
  EXPECT_EQ(given_up[1].tail, "");
  EXPECT_EQ(given_up[2].message, std::string(1023, 'a')) << "a character is kept whole or not";
}

TEST(LogJson, ALineHasEveryFieldByItsName) {
  const Attempt attempt{ClientId(17), {2, 5}};
  const auto line = nlohmann::json::parse(
      JsonOf({.sequence = 12,
              .ns = 1'500'000'000,
              .record = Accepted{.round = Round(3),
                                 .phase = Phase(1),
                                 .node = WorkerId(2),
                                 .commit = 9,
                                 .included = {attempt},
                                 .given_up = {{.attempt = {ClientId(4), {2, 6}},
                                               .reason = fleet::LeftOutReason::kNoData,
                                               .message = "no rows"}},
                                 .sums = DigestOf("sums")}}));
  EXPECT_EQ(line["seq"], 12);
  EXPECT_EQ(line["t"], 1.5);
  EXPECT_EQ(line["record"], "accepted");
  EXPECT_EQ(line["round"], 3);
  EXPECT_EQ(line["phase"], 1);
  EXPECT_EQ(line["node"], 2);
  EXPECT_EQ(line["included"][0]["client"], 17);
  EXPECT_EQ(line["included"][0]["fence"], "2.5");
  EXPECT_EQ(line["given_up"][0]["reason"], "no_data");
  EXPECT_EQ(line["given_up"][0]["message"], "no rows");
  EXPECT_EQ(line["sums"], DigestOf("sums").Hex());
}

TEST(LogJson, AnyRecordIsALineOfJson) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    for (Record& record : RandomRecord(seed).OneOfEach()) {
      const std::string line = JsonOf({.sequence = 1, .record = std::move(record)});
      EXPECT_TRUE(nlohmann::json::accept(line)) << line;
      EXPECT_EQ(line.find('\n'), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace macaw::server::log
