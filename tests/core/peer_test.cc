// What a peer promises, whatever its process does. peer_program.cc is the process.
#include "core/peer/peer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/peer/json.h"
#include "core/peer/program.h"
#include "core/peer/shared_vectors.h"
#include "core/utf8.h"

namespace macaw::peer {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr double kLong = 60, kShort = 0.3;  // seconds

std::unique_ptr<Peer> That(const std::string& what) {
  absl::StatusOr<std::unique_ptr<Peer>> peer =
      Start({.name = "peer", .argv = {MACAW_PEER_PROGRAM, what}}, {.name = "its peer"});
  EXPECT_TRUE(peer.ok()) << peer.status();
  return *std::move(peer);
}

// Why a question has no answer. The process is gone then.
std::string Failure(const std::string& what, double seconds = kLong) {
  const std::unique_ptr<Peer> peer = That(what);
  const absl::Status status = peer->Ask("question", {seconds, "the limit"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_EQ(peer->Ask("again", {seconds, ""}).status().message(), "its peer has ended");
  EXPECT_TRUE(IsUtf8(status.message()));
  return std::string(status.message());
}

std::string Answer(Peer& peer, const std::string& question) {
  const absl::StatusOr<std::string> answer = peer.Ask(question, {kLong, ""});
  EXPECT_TRUE(answer.ok()) << answer.status();
  return answer.value_or("");
}

TEST(Peer, AnswersALineWithALine) {
  const auto peer = That("echoes");
  EXPECT_EQ(Answer(*peer, "one"), "one");
  EXPECT_EQ(Answer(*peer, ""), "");
  const std::string bytes = "\xff \x01 ä";
  EXPECT_EQ(Answer(*peer, bytes), bytes);
}

TEST(Peer, MayAnswerInPiecesOrMuch) {
  EXPECT_EQ(Answer(*That("answers in pieces"), "?"), "first second");
  const auto peer = That("answers much");
  for (int i = 0; i < 2; ++i) EXPECT_EQ(Answer(*peer, "?"), std::string(900'000, 'y'));
}

TEST(Peer, IsHeardWithoutAQuestion) {
  EXPECT_EQ(*That("speaks first")->Hear({kLong, ""}), "hello");
  const auto peer = That("answers twice");
  EXPECT_EQ(Answer(*peer, "?"), "one");
  EXPECT_EQ(*peer->Hear({kLong, ""}), "two");
}

TEST(Peer, ThatAnswersTwiceIsKilledAtTheNextQuestion) {
  const auto peer = That("answers twice");
  EXPECT_EQ(Answer(*peer, "?"), "one");
  EXPECT_EQ(peer->Ask("?", {kLong, ""}).status().message(),
            "its peer sent a line before it was asked, and was killed");
}

TEST(Peer, IsToldALongLine) {
  const std::string line(1'000'000, 'q');
  absl::StatusOr<std::unique_ptr<Peer>> peer =
      Start({.name = "peer", .argv = {MACAW_PEER_PROGRAM, "answers much"}}, {});
  ASSERT_TRUE(peer.ok());
  EXPECT_EQ(Answer(**peer, line).size(), 900'000u);
}

TEST(Peer, ThatDiesInAnAnswerSaysHow) {
  EXPECT_THAT(Failure("dies"), AllOf(HasSubstr("its peer ended: exit code 3"),
                                     HasSubstr("the disk is on fire | opening the rows")));
  EXPECT_THAT(Failure("is killed"), HasSubstr("signal 9"));
}

TEST(Peer, ThatDiesIsNoticedAlthoughItsChildKeepsTheChannel) {
  EXPECT_THAT(Failure("leaves a child"), HasSubstr("exit code 5"));
}

TEST(Peer, WhoseWordsAreNotUtf8IsQuotedInUtf8) {
  EXPECT_THAT(Failure("prints Latin-1"), HasSubstr("caf\\xe9 is closed"));
}

TEST(Peer, ThatTakesTooLongIsKilled) {
  for (const char* what : {"hangs", "does not listen"}) {
    EXPECT_EQ(Failure(what, kShort), "its peer took longer than 0.3 s (the limit) and was killed")
        << what;
  }
}

TEST(Peer, ThatDoesNotListenToALongLineIsKilled) {
  const auto peer = That("does not listen");
  const std::string line(5'000'000, 'q');
  EXPECT_THAT(std::string(peer->Ask(line, {kShort, ""}).status().message()),
              HasSubstr("longer than 0.3 s and was killed"));
}

TEST(Peer, ThatPrintsWithoutEndIsKilledInTime) {
  EXPECT_THAT(Failure("floods", kShort), HasSubstr("longer than"));
}

TEST(Peer, MayPrintMoreThanItsPipeHolds) {
  EXPECT_EQ(Answer(*That("floods and answers"), "?"), "done");
}

TEST(Peer, ThatAnswersWithoutEndIsKilled) {
  EXPECT_EQ(Failure("answers without end"),
            "its peer answered more than 1048576 bytes without an end of line");
}

TEST(Peer, ThatClosesItsChannelIsKilled) {
  EXPECT_EQ(Failure("closes its channel"),
            "its peer closed its channel, did not end and was killed");
}

TEST(Peer, ThatCannotBeStartedIsAnError) {
  const auto peer = Start({.name = "peer", .argv = {"/no/such/program"}}, {});
  EXPECT_THAT(std::string(peer.status().message()), HasSubstr("/no/such/program"));
}

TEST(Peer, CountsItsAnswersAsWork) {
  WorkCounter work;
  const auto peer = That("echoes");
  ASSERT_TRUE(peer->Ask("one", {kLong, ""}, {}, &work).ok());
  EXPECT_EQ(work.done(), 1u);
}

LayoutPtr Layout() {
  return *ParameterLayout::Make({{.name = "w", .shape = {3}}, {.name = "b", .shape = {2}}},
                                DType::kF32);
}

TEST(Peer, SharesVectors) {
  const auto vectors = *SharedVectors::Make("test", {Layout(), Layout()});
  const auto peer = That("writes into the file");
  const int file = vectors->file();
  ASSERT_EQ(*peer->Ask("?", {kLong, ""}, {&file, 1}), "written");
  EXPECT_EQ(vectors->At(0).As<float>()[1], 2.5F);
  EXPECT_EQ(vectors->At(1).As<float>()[1], 0.0F);
  EXPECT_EQ(vectors->OffsetOf(1), RoundUpToPage(Layout()->bytes()));
  EXPECT_EQ(vectors->bytes(), 2 * vectors->OffsetOf(1));
}

TEST(Peer, CannotChangeTheSizeOfVectors) {
  const auto vectors = *SharedVectors::Make("test", {Layout()});
  const auto peer = That("resizes the file");
  const int file = vectors->file();
  EXPECT_EQ(*peer->Ask("?", {kLong, ""}, {&file, 1}), "not shrunk not grown");
}

TEST(Peer, CannotShrinkMemoryThatGrows) {
  const auto memory = *SharedMemory::MakeGrowing("test");
  ASSERT_TRUE(memory->Grow(10).ok());
  memory->data()[9] = std::byte{7};
  const auto peer = That("resizes the file");
  const int file = memory->file();
  EXPECT_EQ(*peer->Ask("?", {kLong, ""}, {&file, 1}), "not shrunk grown");
  const size_t before = memory->bytes();
  ASSERT_TRUE(memory->Grow(before + 1).ok());
  EXPECT_GT(memory->bytes(), before);
  EXPECT_EQ(memory->data()[9], std::byte{7});
  memory->data()[memory->bytes() - 1] = std::byte{1};
}

TEST(SharedVectors, MayBeNone) { EXPECT_TRUE(SharedVectors::Make("test", {}).ok()); }

TEST(SharedVectors, LoseWhatIsBetweenTheirTensors) {
  const auto vectors = *SharedVectors::Make("test", {Layout()});
  const VectorView vector = vectors->At(0);
  std::ranges::fill(vector.As<float>(), 1.0F);
  ZeroGaps(vector);
  std::vector<float> expected(vector.size(), 0.0F);
  for (const LayoutEntry& entry : vector.layout->entries())
    std::fill_n(expected.begin() + static_cast<ptrdiff_t>(entry.offset), entry.size, 1.0F);
  EXPECT_THAT(vector.As<float>(), testing::ElementsAreArray(expected));
  EXPECT_GT(vector.size(), 5u) << "there are gaps";
}

TEST(PeerJson, RefusesWhatIsNoObjectInUtf8) {
  const std::string long_line = absl::StrCat(std::string(199, 'a'), "ä");
  for (const std::string& line :
       {Answer(*That("answers nonsense"), "?"), long_line, std::string("[1]"), std::string("null"),
        std::string(), std::string("{\"a\": \"caf\xe9\"}"), std::string("{} {}")}) {
    const absl::StatusOr<Json> json = ObjectIn(line, "its peer");
    EXPECT_THAT(std::string(json.status().message()),
                HasSubstr("its peer answered what cannot be understood (not a JSON object): "))
        << line;
    EXPECT_TRUE(IsUtf8(json.status().message()));
  }
  EXPECT_TRUE(ObjectIn("{\"a\": 1}", "").ok());
}

TEST(PeerJson, IsOneLineOfUtf8WhateverItHolds) {
  const std::string line = LineOf({{"a", "two\nlines \xe9"}});
  EXPECT_TRUE(IsUtf8(line));
  EXPECT_EQ(line.find('\n'), line.npos);
}

}  // namespace
}  // namespace macaw::peer
