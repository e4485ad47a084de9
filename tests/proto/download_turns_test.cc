#include "proto/wire/download_turns.h"

#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <vector>

#include "proto/wire/bulk_stream.h"
#include "proto/wire/chunk.h"
#include "proto/wire/convert.h"
#include "proto/wire/limits.h"
#include "proto/wire/remote.h"
#include "testing/fake_clock.h"
#include "testing/fake_handler.h"
#include "tests/proto/link_contract.h"

namespace macaw::wire {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing_support::FakeClock;

class DownloadTurnsTest : public testing::Test {
 protected:
  uint64_t Enter(const std::string& node, uint8_t blob = 1) {
    Digest digest;
    digest.bytes[0] = blob;
    return turns_.Enter(node, digest, [this, node] { began_.push_back(node); });
  }

  FakeClock clock_;
  DownloadTurns turns_{{.at_once = 2, .from = 100, .turn = seconds(60), .gone = seconds(10)},
                       clock_};
  std::vector<std::string> began_;
};

TEST_F(DownloadTurnsTest, TwoBeginAndTheNextFollowsWhoeverHasTheLastByte) {
  Enter("anna");
  const uint64_t ben = Enter("ben");
  Enter("carl");
  Enter("dora");
  EXPECT_THAT(began_, ElementsAre("anna", "ben"));
  turns_.Leave(ben, true);
  EXPECT_THAT(began_, ElementsAre("anna", "ben", "carl"));
}

TEST_F(DownloadTurnsTest, ANodeKeepsItsTurnAndItsPlaceBetweenTwoSlices) {
  const uint64_t anna = Enter("anna");
  Enter("ben");
  const uint64_t carl = Enter("carl");
  turns_.Leave(carl, false);  // it was sent a little
  Enter("dora");
  turns_.Leave(anna, false);
  EXPECT_THAT(began_, ElementsAre("anna", "ben"));
  Enter("carl");
  turns_.Leave(Enter("anna"), true);
  EXPECT_THAT(began_, ElementsAre("anna", "ben", "anna", "carl"));
}

TEST_F(DownloadTurnsTest, ATurnIsForANodeThatIsThere) {
  const uint64_t anna = Enter("anna");
  Enter("ben");
  turns_.Leave(Enter("carl"), false);
  Enter("dora");
  turns_.Leave(anna, true);
  EXPECT_THAT(began_, ElementsAre("anna", "ben", "dora"));
}

TEST_F(DownloadTurnsTest, ANodeHasOneTurnWhateverItFetches) {
  Enter("anna", 1);
  Enter("anna", 2);
  Enter("anna", 3);
  Enter("ben");
  Enter("carl");
  EXPECT_THAT(began_, ElementsAre("anna", "anna", "anna", "ben"));
}

TEST_F(DownloadTurnsTest, ANodeThatHasABlobGetsItsNextOneBeforeThoseThatHaveNone) {
  const uint64_t anna = Enter("anna", 1);
  const uint64_t ben = Enter("ben", 1);
  Enter("carl", 1);
  Enter("dora", 1);
  turns_.Leave(anna, true);
  Enter("anna", 2);
  EXPECT_THAT(began_, ElementsAre("anna", "ben", "carl")) << "it makes way for one";
  turns_.Leave(ben, true);
  EXPECT_THAT(began_, ElementsAre("anna", "ben", "carl", "anna"));
}

TEST_F(DownloadTurnsTest, AllBlobsOfANodeAreOneTurnLong) {
  const uint64_t anna = Enter("anna", 1);
  Enter("ben");
  Enter("carl");
  Enter("dora");
  clock_.Advance(seconds(40));
  turns_.Moved(anna);
  turns_.Leave(anna, true);  // "ben" has gone
  EXPECT_THAT(began_, ElementsAre("anna", "ben", "carl", "dora"));
  clock_.Advance(seconds(9));
  const uint64_t more = Enter("anna", 2);
  clock_.Advance(seconds(2));
  turns_.Look();
  EXPECT_THAT(began_, ElementsAre("anna", "ben", "carl", "dora", "anna"));
  Enter("elsa");
  Enter("finn");
  EXPECT_EQ(began_.back(), "elsa") << "two have a turn";
  for (int i = 0; i < 2; ++i) {
    clock_.Advance(seconds(9));
    turns_.Moved(more);
    turns_.Moved(more + 1);  // "elsa"
  }
  turns_.Look();
  EXPECT_EQ(began_.back(), "elsa");
  clock_.Advance(seconds(3));
  turns_.Look();
  EXPECT_EQ(began_.back(), "finn") << "40 s and 21 s";
}

TEST_F(DownloadTurnsTest, ANodeThatComesAgainInALaterRoundHasAWholeTurn) {
  const uint64_t anna = Enter("anna", 1);
  clock_.Advance(seconds(55));
  turns_.Moved(anna);
  turns_.Leave(anna, true);
  clock_.Advance(seconds(20));  // nobody fetches in between, so nobody has looked
  const uint64_t again = Enter("anna", 2);
  const uint64_t ben = Enter("ben", 2);
  Enter("carl", 2);
  clock_.Advance(seconds(8));
  turns_.Moved(again);
  turns_.Moved(ben);
  turns_.Look();
  EXPECT_THAT(began_, ElementsAre("anna", "anna", "ben")) << "her turn is 60 s long";
}

TEST_F(DownloadTurnsTest, ABlobThatTookLongerThanATurnIsFollowedByOneMoreInASecondTurn) {
  const uint64_t anna = Enter("anna", 1);
  const uint64_t ben = Enter("ben", 1);
  Enter("carl");
  Enter("dora");
  clock_.Advance(seconds(61));
  turns_.Moved(anna);  // slowly
  turns_.Moved(ben);
  turns_.Look();
  turns_.Leave(anna, true);
  Enter("elsa");
  const uint64_t second = Enter("anna", 2);
  EXPECT_THAT(began_, ElementsAre("anna", "ben", "carl", "dora"));
  clock_.Advance(seconds(11));
  turns_.Look();  // "carl" and "dora" have gone
  EXPECT_THAT(began_, ElementsAre("anna", "ben", "carl", "dora", "anna", "elsa"));
  clock_.Advance(seconds(61));
  turns_.Moved(second);
  const uint64_t finn = Enter("finn");
  Enter("gina");
  turns_.Leave(second, true);
  Enter("hugo");
  Enter("anna", 3);
  turns_.Leave(finn, true);
  EXPECT_EQ(began_.back(), "hugo") << "there is no third turn in a row";
}

TEST_F(DownloadTurnsTest, TellsHowLongANodeWaits) {
  const uint64_t anna = Enter("anna", 1);
  Enter("ben");
  const uint64_t carl = Enter("carl", 1);
  clock_.Advance(seconds(4));
  const uint64_t beside = Enter("carl", 2);
  clock_.Advance(seconds(4));
  EXPECT_EQ(turns_.TakeWaited(carl), seconds(8));
  EXPECT_EQ(turns_.TakeWaited(beside), seconds(0)) << "it is the same time";
  EXPECT_EQ(turns_.TakeWaited(anna), seconds(0)) << "it has its turn";
  turns_.Leave(carl, false);  // it was sent a little, and asks again
  clock_.Advance(seconds(1));
  EXPECT_EQ(turns_.TakeWaited(Enter("carl", 1)), seconds(1));
  turns_.Leave(anna, true);
  EXPECT_EQ(turns_.TakeWaited(beside), seconds(0)) << "its turn has come";
}

TEST_F(DownloadTurnsTest, ATurnThatIsOverIsForNoOtherBlob) {
  const uint64_t anna = Enter("anna", 1);
  Enter("ben");
  Enter("carl");
  clock_.Advance(seconds(61));
  turns_.Moved(anna);  // slowly
  turns_.Look();
  Enter("dora");
  Enter("elsa");
  EXPECT_THAT(began_, ElementsAre("anna", "ben", "carl", "dora"));
  Enter("anna", 1);  // the rest of what it has begun
  Enter("anna", 2);
  EXPECT_THAT(began_, ElementsAre("anna", "ben", "carl", "dora", "anna"));
}

TEST_F(DownloadTurnsTest, ANodeThatDoesNotReadKeepsNoTurn) {
  Enter("anna");
  const uint64_t ben = Enter("ben");
  Enter("carl");
  Enter("dora");
  clock_.Advance(seconds(6));
  turns_.Moved(ben);
  clock_.Advance(seconds(5));
  turns_.Look();
  EXPECT_THAT(began_, ElementsAre("anna", "ben", "carl"));
}

TEST_F(DownloadTurnsTest, ANodeThatHasGoneGivesItsTurnOn) {
  turns_.Leave(Enter("anna"), false);
  Enter("ben");
  Enter("carl");
  clock_.Advance(seconds(10));
  turns_.Look();
  EXPECT_THAT(began_, ElementsAre("anna", "ben"));
  clock_.Advance(seconds(1));
  turns_.Look();
  EXPECT_THAT(began_, ElementsAre("anna", "ben", "carl"));
}

TEST_F(DownloadTurnsTest, ASlowNodeKeepsOthersForOneTurnOnly) {
  Enter("anna");
  Enter("ben");
  Enter("carl");
  clock_.Advance(seconds(61));
  turns_.Look();
  EXPECT_THAT(began_, ElementsAre("anna", "ben", "carl"));
}

TEST_F(DownloadTurnsTest, SmallBlobsNeedNoneAndWithoutALimitNoBlobDoes) {
  EXPECT_TRUE(turns_.IsFor(100));
  EXPECT_FALSE(turns_.IsFor(99));
  EXPECT_FALSE(DownloadTurns({}, clock_).IsFor(UINT64_MAX));
}

constexpr uint64_t kBytes = 32 << 20;  // more than a connection buffers

// A server that sends one large blob at a time, and callers by the names of their tokens.
class TurnsOfAServer : public testing::Test {
 protected:
  void Start(Duration pulse) {
    handler_.Serve(blob_);
    const auto identify = [](absl::string_view token) {
      return std::make_shared<const fleet::Caller>(
          fleet::Caller{.role = fleet::Role::kNode, .node = std::string(token)});
    };
    // However long the test takes to read on, a node has not gone.
    const TurnLimits turns = {
        .at_once = 1, .from = 1 << 20, .turn = hours(1), .gone = hours(1), .pulse = pulse};
    server_ = *FleetServer::Start({.listen = ":0", .turns = turns, .identify = identify}, handler_);
    channel_ = grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials());
  }

  // A download of the blob from `offset` on that has been asked for.
  struct Download {
    Download(const std::shared_ptr<grpc::Channel>& channel, const std::string& token,
             const Digest& digest, uint64_t offset)
        : stub(channel) {
      context.AddMetadata(kTokenKey, token);
      stream.emplace(stub, "/macaw.v1.Fleet/Download", context, FromSeconds(60));
      v1::DownloadRequest request;
      request.set_digest(ToWire(digest));
      request.set_offset(offset);
      EXPECT_TRUE(stream->Write(FromString(request.SerializeAsString())));
      EXPECT_TRUE(stream->WritesDone());
    }
    // Bytes of its next chunk; 0: there is none.
    uint64_t Next() {
      auto message = stream->Read();
      return message.has_value() ? DecodeChunk(*message)->size : 0;
    }
    uint64_t All() {
      uint64_t bytes = 0;
      while (const uint64_t some = Next()) bytes += some;
      return bytes;
    }

    grpc::GenericStub stub;
    grpc::ClientContext context;
    std::optional<BulkStream> stream;
  };
  std::unique_ptr<Download> Ask(const std::string& node, uint64_t offset = 0) {
    return std::make_unique<Download>(channel_, node, blob_.digest, offset);
  }

  const fleet::Blob blob_ = fleet::RandomBlob(kBytes, 1);
  fleet::FakeHandler handler_;
  std::unique_ptr<FleetServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(TurnsOfAServer, ANodeThatWaitsGetsALittleAndTheRestInItsTurn) {
  Start(milliseconds(50));
  const auto first = Ask("anna");
  ASSERT_EQ(first->Next(), kChunkBytes);
  const auto second = Ask("ben");
  EXPECT_EQ(second->All(), 64u << 10);
  EXPECT_TRUE(second->stream->Finish().ok());
  EXPECT_FALSE(handler_.waited().contains("anna"));
  EXPECT_TRUE(handler_.waited().contains("ben"));
  EXPECT_EQ(first->All(), kBytes - kChunkBytes);
  EXPECT_TRUE(first->stream->Finish().ok());
  EXPECT_EQ(Ask("ben", 64 << 10)->All(), kBytes - (64 << 10));
}

TEST_F(TurnsOfAServer, ANodeThatWaitsBeginsOnceTheOneBeforeHasTheLastByte) {
  Start(hours(1));
  const auto first = Ask("anna");
  ASSERT_EQ(first->Next(), kChunkBytes);
  const auto second = Ask("ben");
  EXPECT_EQ(first->All(), kBytes - kChunkBytes);
  EXPECT_EQ(second->All(), kBytes);
  EXPECT_TRUE(second->stream->Finish().ok());
}

TEST_F(TurnsOfAServer, AProgramFetchesItAfterAll) {
  Start(milliseconds(50));
  const auto first = Ask("anna");
  ASSERT_EQ(first->Next(), kChunkBytes);
  const auto link = *Dial({.server = server_->address(), .token = "ben"});
  auto fetched = std::async(std::launch::async, [&] {
    return link->Fetch({blob_.digest, blob_.size, nullptr});
  });
  EXPECT_EQ(first->All(), kBytes - kChunkBytes);
  const auto blob = fetched.get();
  ASSERT_TRUE(blob.ok()) << blob.status();
  fleet::ExpectSameBytes(*blob, blob_);
}

TEST_F(TurnsOfAServer, WhoeverGivesUpWaitingLeavesNoPlaceBehind) {
  Start(hours(1));
  const auto first = Ask("anna");
  ASSERT_EQ(first->Next(), kChunkBytes);
  const auto second = Ask("ben");
  second->context.TryCancel();
  EXPECT_EQ(second->All(), 0u);
  EXPECT_TRUE(absl::IsCancelled(second->stream->Finish()));
  const auto third = Ask("carl");
  EXPECT_EQ(first->All(), kBytes - kChunkBytes);
  EXPECT_EQ(third->All(), kBytes) << "the second one's place is given on";
}

TEST_F(TurnsOfAServer, AServerEndsWhileANodeWaits) {
  Start(hours(1));
  const auto first = Ask("anna");
  ASSERT_EQ(first->Next(), kChunkBytes);
  const auto second = Ask("ben");
  server_.reset();
  EXPECT_EQ(second->All(), 0u);
  EXPECT_FALSE(second->stream->Finish().ok());
}

}  // namespace
}  // namespace macaw::wire
