#include "proto/wire/outline.h"

#include <gtest/gtest.h>

#include <string>

#include "proto/wire/chunk.h"
#include "proto/wire/refusal.h"
#include "testing/random_message.h"

namespace macaw::wire {
namespace {

template <typename Message>
absl::StatusOr<Outline> OutlineOf(const std::string& bytes, uint64_t most = 1000) {
  return ReadOutline(*Message::descriptor(), FromString(bytes), most);
}

TEST(Outline, SaysWhoCallsWhereverTheSessionStands) {
  v1::CommitRequest session, id;
  session.set_session(UINT64_MAX - 3);
  id.set_commit_id(9);
  const std::string first = session.SerializeAsString(), second = id.SerializeAsString();
  for (const std::string& bytes : {first + second, second + first})
    EXPECT_EQ(OutlineOf<v1::CommitRequest>(bytes)->session, SessionId(UINT64_MAX - 3));
  EXPECT_EQ(OutlineOf<v1::CommitRequest>(second)->session, SessionId(0));
  // Of several, the last counts, as protobuf has it.
  session.set_session(5);
  EXPECT_EQ(OutlineOf<v1::CommitRequest>(first + session.SerializeAsString())->session,
            SessionId(5));
}

TEST(Outline, CountsEntriesAtAnyDepthBeforeTheyAreObjects) {
  v1::CommitRequest commit;
  for (int i = 0; i < 10; ++i) commit.mutable_part()->add_left_out();
  for (int i = 0; i < 20; ++i) commit.add_evaluations()->mutable_task()->add_states();
  const std::string bytes = commit.SerializeAsString();
  const uint64_t objects = 1 + 10 + 3 * 20;
  EXPECT_EQ(OutlineOf<v1::CommitRequest>(bytes)->objects, objects);
  EXPECT_TRUE(OutlineOf<v1::CommitRequest>(bytes, objects).ok());
  EXPECT_EQ(ReasonOf(OutlineOf<v1::CommitRequest>(bytes, objects - 1).status()),
            v1::Refusal::REASON_TOO_LARGE);
}

TEST(Outline, PackedNumbersAreNoObjects) {
  v1::CommitRequest commit;
  for (int i = 0; i < 5000; ++i) commit.mutable_part()->mutable_included()->add_client(i);
  EXPECT_EQ(OutlineOf<v1::CommitRequest>(commit.SerializeAsString())->objects, 2u);
}

TEST(Outline, RefusesWhatIsNoMessage) {
  v1::CommitRequest commit;
  commit.mutable_part()->set_round(3);
  const std::string good = commit.SerializeAsString();
  EXPECT_TRUE(OutlineOf<v1::CommitRequest>(good).ok());
  EXPECT_TRUE(OutlineOf<v1::CommitRequest>("").ok());
  for (const std::string& bytes : {good.substr(0, good.size() - 1), std::string("\x1a\x7f", 2),
                                   std::string(100, '\xff'), std::string("\x1b")}) {
    EXPECT_EQ(ReasonOf(OutlineOf<v1::CommitRequest>(bytes).status()),
              v1::Refusal::REASON_MALFORMED);
  }
}

TEST(Outline, AcceptsEveryMessageThatCanBeConverted) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    RandomMessage random(seed);
    ForEachConvertedMessage(random, [](const auto& message, auto) {
      using Message = std::decay_t<decltype(message)>;
      EXPECT_TRUE(OutlineOf<Message>(message.SerializeAsString()).ok());
    });
  }
}

}  // namespace
}  // namespace macaw::wire
