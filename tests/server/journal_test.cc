#include "server/journal/journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>

#include "core/files.h"
#include "core/status.h"
#include "proto/fleet/client_table.h"
#include "server/journal/holdings.h"
#include "server/journal/recovery.h"
#include "server/log/writer.h"
#include "testing/file_limit.h"

namespace macaw::server {
namespace {

class JournalTest : public testing::Test {
 protected:
  JournalTest()
      : folder_(testing::TempDir() + "/journal-" +
                testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(folder_);
  }

  static JournalNode NodeOf(uint32_t id) {
    fleet::ClientTable table{.rows = {3, 5, 8}};
    return {.node = WorkerId(id),
            .session = SessionId(1000 + id),
            .request = {.name = absl::StrCat("w", id),
                        .incarnation = id * 7,
                        .slots = 2,
                        .profile = {.trainer = "fused", .instruction_set = "avx2"},
                        .data_digest = DigestOf("data"),
                        .clients = 3,
                        .table = fleet::Blob::Of(table.Encode()),
                        .central_test_rows = 35}};
  }
  static JournalPart PartOf(uint32_t node, uint64_t commit, uint32_t round) {
    AlignedBuffer sums(1000);
    for (std::byte& byte : sums.bytes()) byte = static_cast<std::byte>(commit + round);
    fleet::Part part{.round = Round(round), .broadcast = DigestOf("broadcast")};
    part.included = {{.attempt = {ClientId(4), {2, 9}},
                      .multiplicity = 3,
                      .weight = 2.5,
                      .examples = 11,
                      .steps = 6,
                      .sums = {1, 2, 3},
                      .personal_sums = {4},
                      .train_seconds = 0.25,
                      .slot = 1,
                      .has_state = true}};
    part.left_out = {{.attempt = {ClientId(5), {2, 10}},
                      .reason = fleet::LeftOutReason::kNoData,
                      .message = "no rows"}};
    part.sums = fleet::Blob::Of(std::move(sums));
    return {.node = WorkerId(node), .node_name = "w", .commit = commit, .part = std::move(part)};
  }
  // The journal of a new run, in which NodeOf(1) is registered.
  static absl::StatusOr<Journal> JournalWithOneNode(const std::string& run) {
    std::filesystem::remove_all(run);
    MACAW_RETURN_IF_ERROR(MakeDirectories(run));
    MACAW_ASSIGN_OR_RETURN(Journal journal, Journal::Begin(JournalFolder(run), Round(1)));
    MACAW_RETURN_IF_ERROR(journal.Add(NodeOf(1)));
    return journal;
  }
  std::string NewestParts() const {
    std::string newest;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      const std::string path = entry.path().string();
      const bool parts = entry.path().filename().string().starts_with("parts-");
      if (parts && path.size() >= newest.size()) newest = std::max(newest, path);
    }
    return newest;
  }

  const std::string folder_;
};

// All fields of a message. That no field is missing in its list is tested with the conversions.
template <typename T>
std::string FieldsIn(const T& message) {
  ByteWriter out;
  out.Put(message);
  return std::move(out).Take();
}

// The last rows of an owner are those with which the run begins, also if it has had them before.
TEST_F(JournalTest, TheOwnersFileHasWhatAnOwnerBroughtLast) {
  ASSERT_TRUE(MakeDirectories(folder_).ok());
  const auto node = [](const std::string& name, const std::string& data) {
    JournalNode node = NodeOf(1);
    node.request.name = name;
    node.request.owner = true;
    node.request.data_digest = DigestOf(data);
    return node;
  };
  {
    auto holdings = Holdings::Open(folder_, /*fresh=*/true);
    ASSERT_TRUE(holdings.ok()) << holdings.status();
    for (const char* data : {"first", "first", "changed", "first", "first"})
      ASSERT_TRUE(holdings->Add(node("anna", data)).ok());
    ASSERT_TRUE(holdings->Add(node("bert", "his")).ok());
  }
  auto again = Holdings::Open(folder_, /*fresh=*/false);
  ASSERT_TRUE(again.ok()) << again.status();
  ASSERT_TRUE(again->Add(node("anna", "first")).ok()) << "the file has it";
  const auto members = ReadHoldings(folder_);
  ASSERT_TRUE(members.ok()) << members.status();
  std::vector<Digest> data;
  for (const Restored::Member& member : *members) data.push_back(member.request.data_digest);
  EXPECT_THAT(data, testing::ElementsAre(DigestOf("first"), DigestOf("changed"), DigestOf("first"),
                                         DigestOf("his")));
}

TEST_F(JournalTest, GivesBackWhatItWasGiven) {
  {
    Journal journal = *Journal::Begin(folder_, Round(1));
    for (uint32_t id = 1; id <= 3; ++id) ASSERT_TRUE(journal.Add(NodeOf(id)).ok());
    ASSERT_TRUE(journal.Add(PartOf(2, 5, 1)).ok());
    ASSERT_TRUE(journal.Sync().ok());
  }
  const JournalContent content = *ReadJournal(folder_);
  ASSERT_EQ(content.nodes.size(), 3u);
  const JournalNode& node = content.nodes.at(WorkerId(3));
  EXPECT_EQ(node.session, SessionId(1003));
  EXPECT_EQ(FieldsIn(node.request), FieldsIn(NodeOf(3).request));
  ASSERT_NE(node.request.table.bytes, nullptr) << "equal tables are kept once, for all of them";
  EXPECT_EQ(fleet::ClientTable::Decode(node.request.table.bytes->bytes(), 3)->rows,
            (std::vector<uint32_t>{3, 5, 8}));
  const fleet::Part written = PartOf(2, 5, 1).part;
  const fleet::Part& read = content.parts.at({WorkerId(2), 5}).part;
  EXPECT_EQ(FieldsIn(read), FieldsIn(written));
  const fleet::Blob sums = *ReadBlob(content.sums.at(written.sums.digest), written.sums.digest);
  EXPECT_EQ(sums.digest, written.sums.digest);
}

// A crash may cut the file at any byte. The parts before the cut can be read, and later parts can
// be appended.
TEST_F(JournalTest, ATornPartDoesNotCountAndIsWrittenOver) {
  std::vector<uint64_t> ends;
  {
    Journal journal = *Journal::Begin(folder_, Round(1));
    for (uint64_t commit = 1; commit <= 2; ++commit) {
      ASSERT_TRUE(journal.Add(PartOf(1, commit, 1)).ok());
      ends.push_back(*FileSize(NewestParts()));
    }
  }
  const std::string path = NewestParts();
  for (uint64_t size = ends[1] - 1; size >= ends[0]; size -= std::min<uint64_t>(97, size)) {
    std::filesystem::resize_file(path, size);
    const JournalContent content = *ReadJournal(folder_);
    EXPECT_EQ(content.parts.size(), 1u) << "cut at " << size;
  }
  Journal journal = *Journal::Continue(folder_);
  ASSERT_TRUE(journal.Add(PartOf(1, 3, 2)).ok());
  const JournalContent content = *ReadJournal(folder_);
  EXPECT_EQ(content.parts.size(), 2u);
  EXPECT_TRUE(content.parts.contains({WorkerId(1), 3}));
}

TEST_F(JournalTest, APartForWhichTheDiskHadNoRoomIsNotInTheWayOfTheNext) {
  Journal journal = *Journal::Begin(folder_, Round(1));
  ASSERT_TRUE(journal.Add(PartOf(1, 1, 1)).ok());
  {
    const testing_support::FileLimit full(*FileSize(NewestParts()) + 100);
    EXPECT_FALSE(journal.Add(PartOf(1, 2, 1)).ok());
  }
  ASSERT_TRUE(journal.Add(PartOf(1, 3, 1)).ok());
  const JournalContent content = *ReadJournal(folder_);
  EXPECT_EQ(content.parts.size(), 2u);
  EXPECT_TRUE(content.parts.contains({WorkerId(1), 3}));
}

TEST_F(JournalTest, APartWithAFlippedBitDoesNotCount) {
  {
    Journal journal = *Journal::Begin(folder_, Round(1));
    ASSERT_TRUE(journal.Add(PartOf(1, 1, 1)).ok());
  }
  const std::string path = NewestParts();
  const std::string good = *ReadFile(path);
  for (size_t at = 0; at < good.size(); at += 41) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 4);
    std::ofstream(path, std::ios::binary).write(bad.data(), static_cast<long>(bad.size()));
    const JournalContent content = *ReadJournal(folder_);
    EXPECT_TRUE(content.parts.empty()) << "byte " << at;
  }
}

TEST_F(JournalTest, KeepsThePartsThatTheOldestCheckpointNeeds) {
  Journal journal = *Journal::Begin(folder_, Round(1));
  for (uint32_t round = 1; round <= 6; ++round) {
    ASSERT_TRUE(journal.Add(PartOf(1, round, round)).ok());
    // Every second round has a checkpoint, and the newest two checkpoints are kept.
    if (round % 2 == 1) continue;
    ASSERT_TRUE(journal.OnCheckpoint(Round(round), Round(std::max(2u, round - 2))).ok());
  }
  std::vector<uint64_t> commits;
  const JournalContent content = *ReadJournal(folder_);
  for (const auto& [key, part] : content.parts) commits.push_back(key.second);
  EXPECT_EQ(commits, (std::vector<uint64_t>{5, 6})) << "after the checkpoint of round 4";
}

// A server that does six closed rounds again writes checkpoints of the first ones meanwhile.
TEST_F(JournalTest, KeepsThePartsOfRoundsThatAreDoneAgain) {
  {
    Journal journal = *Journal::Begin(folder_, Round(1));
    for (uint32_t round = 1; round <= 6; ++round)
      ASSERT_TRUE(journal.Add(PartOf(1, round, round)).ok());
  }
  const auto commits = [&] {
    std::vector<uint64_t> commits;
    const JournalContent content = *ReadJournal(folder_);
    for (const auto& [key, part] : content.parts) commits.push_back(key.second);
    return commits;
  };
  Journal journal = *Journal::Continue(folder_);
  for (uint32_t round = 1; round <= 5; ++round) {
    ASSERT_TRUE(journal.OnCheckpoint(Round(round), Round(std::max(2U, round) - 1)).ok());
    ASSERT_EQ(commits(), (std::vector<uint64_t>{1, 2, 3, 4, 5, 6})) << round;
  }
  ASSERT_TRUE(journal.Add(PartOf(1, 7, 7)).ok());  // of the open round
  ASSERT_TRUE(journal.OnCheckpoint(Round(6), Round(5)).ok());
  EXPECT_EQ(commits().size(), 7u);
  ASSERT_TRUE(journal.OnCheckpoint(Round(7), Round(6)).ok());
  ASSERT_TRUE(journal.Add(PartOf(1, 8, 8)).ok());
  ASSERT_TRUE(journal.OnCheckpoint(Round(8), Round(7)).ok());
  EXPECT_EQ(commits(), (std::vector<uint64_t>{8})) << "after the checkpoint of round 7";
}

TEST_F(JournalTest, OnlyItsOwnerMayReadIt) {
  Journal journal = *Journal::Begin(folder_, Round(1));
  ASSERT_TRUE(journal.Add(NodeOf(1)).ok());
  using std::filesystem::perms;
  const perms others = perms::group_all | perms::others_all;
  EXPECT_EQ(std::filesystem::status(folder_ + "/nodes").permissions() & others, perms::none);
}

TEST_F(JournalTest, DataThatIsLostOfASyncedRecordIsAnErrorAndOfOthersTheEndOfTheLog) {
  const std::string run = folder_ + "-run";
  absl::StatusOr<Journal> journal = JournalWithOneNode(run);
  ASSERT_TRUE(journal.ok()) << journal.status();
  absl::StatusOr<log::Writer> writer = log::Writer::Open(run + "/rounds.log", DigestOf("run"));
  ASSERT_TRUE(writer.ok()) << writer.status();
  const JournalNode first = NodeOf(1);
  writer->Append(0, log::RunOpened{.run = DigestOf("run"), .configuration = DigestOf("c")});
  writer->Append(0, log::NodeJoined{.node = first.node,
                                    .name = first.request.name,
                                    .incarnation = first.request.incarnation});
  ASSERT_TRUE(writer->Sync().ok());
  const uint64_t whole = writer->bytes();
  writer->Append(0, log::NodeJoined{.node = WorkerId(2), .name = "w2"});
  ASSERT_TRUE(writer->Sync().ok());

  ASSERT_TRUE(journal->NoteSynced(whole).ok());
  absl::StatusOr<Recovery> recovery = Recover(run, {.configurations = {DigestOf("c")}});
  ASSERT_TRUE(recovery.ok()) << recovery.status();
  EXPECT_EQ(recovery->end.cut, whole);
  EXPECT_THAT(recovery->cut, testing::HasSubstr("no registration of node 2 (w2)"));
  EXPECT_EQ(recovery->restored.members.size(), 1u);

  recovery = Recover(run, {.configurations = {DigestOf("now"), DigestOf("c")}});
  EXPECT_TRUE(recovery.ok()) << "the log is of a release with other keys: " << recovery.status();
  recovery = Recover(run, {.configurations = {DigestOf("now")}});
  EXPECT_THAT(std::string(recovery.status().message()),
              testing::HasSubstr("another configuration"));

  ASSERT_TRUE(journal->NoteSynced(writer->bytes()).ok());
  recovery = Recover(run, {.configurations = {DigestOf("c")}});
  ASSERT_FALSE(recovery.ok());
  EXPECT_THAT(std::string(recovery.status().message()), testing::HasSubstr("node 2 (w2)"));
}

TEST_F(JournalTest, WhatAServerDecidedBeforeItWasKilledIsRecovered) {
  const std::string run = folder_ + "-run";
  absl::StatusOr<Journal> journal = JournalWithOneNode(run);
  ASSERT_TRUE(journal.ok()) << journal.status();
  const Attempt leased{ClientId(1), {1, 1}}, counted{ClientId(2), {1, 2}};
  for (const bool dropped : {false, true}) {
    std::filesystem::remove(run + "/rounds.log");
    absl::StatusOr<log::Writer> writer = log::Writer::Open(run + "/rounds.log", DigestOf("run"));
    ASSERT_TRUE(writer.ok()) << writer.status();
    const auto append = [&](log::Record record) { writer->Append(0, std::move(record)); };
    append(log::RunOpened{.run = DigestOf("run"), .epoch = 1, .configuration = DigestOf("c")});
    append(log::NodeJoined{.node = WorkerId(1), .name = "w1", .incarnation = 7});
    append(log::RoundOpened{.round = Round(1), .broadcast = DigestOf("model")});
    append(log::Leased{.round = Round(1), .node = WorkerId(1), .attempts = {leased, counted}});
    append(
        log::GaveUp{.round = Round(1),
                    .given_up = {{.attempt = leased, .reason = fleet::LeftOutReason::kTooSlow}}});
    if (dropped) append(log::RoundLost{.round = Round(1), .why = "too few", .dropped = true});
    ASSERT_TRUE(writer->Sync().ok());
    const absl::StatusOr<Recovery> recovery = Recover(run, {.configurations = {DigestOf("c")}});
    ASSERT_TRUE(recovery.ok()) << recovery.status();
    const Restored::PhaseStory& story = recovery->restored.phases.at({Round(1), Phase(0)});
    EXPECT_EQ(story.gave_up.size(), 1u);
    EXPECT_FALSE(story.leased.contains(leased));
    EXPECT_EQ(story.leased.contains(counted), !dropped);
    EXPECT_EQ(story.dropped, dropped ? "too few" : "");
  }
}

// `macaw state gc` must leave what the next server takes from here.
TEST_F(JournalTest, TheAttemptsSinceACheckpointAreThoseOfLaterRoundsAndOfOpenLeases) {
  const std::string run = folder_ + "-run", path = run + "/rounds.log";
  absl::StatusOr<Journal> journal = JournalWithOneNode(run);
  ASSERT_TRUE(journal.ok()) << journal.status();
  absl::StatusOr<log::Writer> writer = log::Writer::Open(path, DigestOf("run"));
  ASSERT_TRUE(writer.ok()) << writer.status();
  const auto append = [&](log::Record record) { writer->Append(0, std::move(record)); };
  const auto since = [&](uint32_t checkpoint) {
    EXPECT_TRUE(writer->Sync().ok());
    const absl::StatusOr<std::vector<Attempt>> attempts = AttemptsSince(run, Round(checkpoint));
    EXPECT_TRUE(attempts.ok()) << attempts.status();
    return attempts.value_or(std::vector<Attempt>());
  };
  const Attempt counted{ClientId(1), {1, 1}}, taken_back{ClientId(2), {1, 2}};
  const Attempt later{ClientId(3), {1, 3}}, trains{ClientId(4), {1, 4}};
  append(log::RunOpened{.run = DigestOf("run"), .epoch = 1});
  append(log::RoundOpened{.round = Round(1)});
  append(log::Leased{.round = Round(1), .attempts = {counted, taken_back}});
  append(log::Accepted{.round = Round(1), .commit = 1, .included = {counted}});
  append(log::Requeued{.round = Round(1), .attempts = {taken_back}});
  append(log::Closed{.round = Round(1), .last = true});
  append(log::RoundOpened{.round = Round(2)});
  append(log::Leased{.round = Round(2), .attempts = {later, trains}});
  append(log::Accepted{.round = Round(2), .commit = 2, .included = {later}});
  using testing::UnorderedElementsAre;
  EXPECT_THAT(since(1), UnorderedElementsAre(later, trains));
  EXPECT_THAT(since(0), UnorderedElementsAre(counted, later, trains));
  EXPECT_THAT(since(2), testing::IsEmpty());
  append(log::RunOpened{.run = DigestOf("run"), .epoch = 2, .goes_on = true});
  EXPECT_THAT(since(1), UnorderedElementsAre(later, trains)) << "the next server was killed, too";
  append(log::RunEnded{});
  EXPECT_THAT(since(1), testing::IsEmpty()) << "an ended run goes on from its checkpoint";
  append(log::RunOpened{.run = DigestOf("run"), .epoch = 3, .completed = Round(1)});
  append(log::RoundOpened{.round = Round(2)});
  append(log::Leased{.round = Round(2), .attempts = {trains}});
  EXPECT_THAT(since(1), UnorderedElementsAre(trains)) << "the rest is undone";
  std::filesystem::remove_all(JournalFolder(run));
  EXPECT_THAT(since(1), testing::IsEmpty()) << "a run without durable commits";
}

}  // namespace
}  // namespace macaw::server
