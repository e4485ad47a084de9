#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/wire/limits.h"
#include "proto/wire/refusal.h"
#include "proto/wire/remote.h"
#include "proto/wire/shared_memory.h"
#include "testing/bad_network.h"
#include "testing/test_address.h"
#include "tests/proto/link_contract.h"

// Bulk data between a real client and a real server.
namespace macaw::wire {
namespace {

using fleet::Blob;
using fleet::ExpectSameBytes;
using fleet::FakeHandler;
using fleet::PartWith;
using fleet::RandomBlob;
using fleet::UploadVerdict;
using fleet::Verdict;
using testing::HasSubstr;
using testing_support::BadNetwork;
using testing_support::CutsAfter;

constexpr uint64_t kMiB = 1 << 20;

class RemoteBlob : public testing::Test {
 protected:
  void Start(ServerOptions options) {
    if (options.listen.empty()) options.listen = ":0";
    auto server = FleetServer::Start(options, handler_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    link_ = *Dial({.server = server_->address()});
  }

  FakeHandler handler_;
  std::unique_ptr<FleetServer> server_;
  std::unique_ptr<fleet::FleetLink> link_;
};

TEST_F(RemoteBlob, ABrokenUploadGoesOnWhereItStopped) {
  Start({});
  const Blob sums = RandomBlob(12 * kMiB + 77, 1);
  BadNetwork proxy(server_->address(), CutsAfter({3 * kMiB, 4 * kMiB, 5000}));
  const auto link = *Dial({.server = proxy.address()});
  const auto committed = link->Commit(PartWith(sums));
  ASSERT_TRUE(committed.ok()) << committed.status();
  EXPECT_EQ(committed->verdict, Verdict::kAccepted);
  ExpectSameBytes(handler_.TakeCommitted().at(0).part->sums, sums);
  EXPECT_EQ(proxy.faults(), 3);
  // Whole chunks are kept, and what a cut connection carried of the next one is lost.
  EXPECT_LT(proxy.up(), 18 * kMiB);  // 19 without
  EXPECT_GE(link->moved(), 13u) << "a chunk is progress, also of a worker that waits for the rest";
  EXPECT_GT(link->traffic().up, sums.size) << "what was sent again counts, too";
  EXPECT_LT(link->traffic().down, kMiB);
}

TEST_F(RemoteBlob, ABrokenDownloadGoesOnWhereItStopped) {
  Start({});
  const Blob broadcast = RandomBlob(12 * kMiB + 77, 1);
  handler_.Serve(broadcast);
  BadNetwork proxy(server_->address(), CutsAfter({3 * kMiB, 4 * kMiB}));
  const auto link = *Dial({.server = proxy.address()});
  const auto fetched = link->Fetch({broadcast.digest, broadcast.size, nullptr});
  ASSERT_TRUE(fetched.ok()) << fetched.status();
  ExpectSameBytes(*fetched, broadcast);
  EXPECT_EQ(proxy.faults(), 2);
  EXPECT_LT(proxy.down(), 15 * kMiB);
  EXPECT_GE(link->moved(), 13u);
  EXPECT_GT(link->traffic().down, broadcast.size);
  EXPECT_LT(link->traffic().up, kMiB);
}

TEST_F(RemoteBlob, GivesUpWhenNothingGetsThrough) {
  Start({});
  BadNetwork proxy(server_->address(),
                   CutsAfter(std::vector<uint64_t>(1000, 3000)));  // a chunk never makes it
  const auto link = *Dial({.server = proxy.address()});
  const auto committed = link->Commit(PartWith(RandomBlob(3 * kMiB, 1)));
  EXPECT_EQ(committed.status().code(), absl::StatusCode::kUnavailable) << committed.status();
}

TEST_F(RemoteBlob, AServersDeathDuringAnUploadIsSurvived) {
  const SocketFolder folder;
  Start({.listen = folder.address()});
  const Blob sums = RandomBlob(40 * kMiB, 1);
  absl::StatusOr<fleet::CommitReply> committed;
  std::thread worker([&] {
    // What a worker does: repeats the commit while the server cannot be reached.
    do committed = link_->Commit(PartWith(sums));
    while (absl::IsUnavailable(committed.status()));
  });
  while (handler_.offers().empty()) std::this_thread::yield();
  server_.reset();
  server_ = *FleetServer::Start({.listen = folder.address()}, handler_);
  worker.join();
  ASSERT_TRUE(committed.ok()) << committed.status();
  ExpectSameBytes(handler_.TakeCommitted().at(0).part->sums, sums);
}

TEST_F(RemoteBlob, BytesThatAreNotTheDigestsAreRefused) {
  Start({.max_inline_bytes = 0});
  Blob liar = RandomBlob(2 * kMiB, 1);
  liar.digest = DigestOf("something else");
  EXPECT_EQ(ReasonOf(link_->Commit(PartWith(liar)).status()), v1::Refusal::REASON_DIGEST_MISMATCH);
  EXPECT_TRUE(handler_.TakeCommitted().empty());
  handler_.ServeAs(liar.digest, liar.bytes);
  EXPECT_EQ(ReasonOf(link_->Fetch({liar.digest, liar.size, nullptr}).status()),
            v1::Refusal::REASON_DIGEST_MISMATCH);
}

// Bytes that travel inside a message and are not those of their digest, both ways.
Blob InlineLiar() {
  Blob liar = RandomBlob(1000, 1);
  liar.digest = DigestOf("something else");
  return liar;
}
fleet::LeaseReply LeaseOf(const Blob& broadcast) {
  fleet::LeaseReply reply{.next = fleet::Next::kWork};
  reply.training = fleet::TrainingLease{.round = Round(1)};
  reply.training->broadcast = fleet::Broadcast::Of({broadcast});
  return reply;
}

TEST_F(RemoteBlob, InlineBytesThatAreNotTheDigestsAreRefusedOverTcp) {
  Start({});
  EXPECT_EQ(ReasonOf(link_->Commit(PartWith(InlineLiar())).status()),
            v1::Refusal::REASON_DIGEST_MISMATCH);
  EXPECT_TRUE(handler_.TakeCommitted().empty());
  handler_.SetLease(LeaseOf(InlineLiar()));
  EXPECT_EQ(ReasonOf(link_->Lease({.session = SessionId(1)}).status()),
            v1::Refusal::REASON_DIGEST_MISMATCH);
  auto asking = PartWith(RandomBlob(1000, 2));
  asking.ask = fleet::LeaseRequest{.session = SessionId(1)};
  EXPECT_EQ(ReasonOf(link_->Commit(asking).status()), v1::Refusal::REASON_DIGEST_MISMATCH);
}

TEST_F(RemoteBlob, APrivateSocketTakesInlineBytesAtTheirDigestsWord) {
  const SocketFolder folder;
  Start({.listen = folder.address()});
  const Blob liar = InlineLiar();
  const auto committed = link_->Commit(PartWith(liar));
  ASSERT_TRUE(committed.ok()) << committed.status();
  ExpectSameBytes(handler_.TakeCommitted().at(0).part->sums, liar);
  handler_.SetLease(LeaseOf(liar));
  const auto leased = link_->Lease({.session = SessionId(1)});
  ASSERT_TRUE(leased.ok()) << leased.status();
  ExpectSameBytes(leased->training->broadcast.channels.at(0), liar);
  // The table of clients is checked here, too, since nodes share it by its digest.
  fleet::RegisterRequest request{.name = "anna", .clients = 200, .table = liar};
  EXPECT_EQ(ReasonOf(link_->Register(request).status()), v1::Refusal::REASON_DIGEST_MISMATCH);
}

TEST_F(RemoteBlob, AWrongSizeIsAnErrorAndNotAWait) {
  Start({});
  const Blob blob = RandomBlob(3 * kMiB, 1);
  handler_.Serve(blob);
  EXPECT_FALSE(link_->Fetch({blob.digest, blob.size - 1, nullptr}).ok());
  EXPECT_FALSE(link_->Fetch({blob.digest, blob.size + 1, nullptr}).ok());
  EXPECT_EQ(link_->Fetch({blob.digest, uint64_t{1} << 60, nullptr}).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(RemoteBlob, TheVerdictComesBeforeAnyByteMoves) {
  Start({.max_inline_bytes = 0, .max_blob_bytes = 4 * kMiB});
  BadNetwork proxy(server_->address());
  const auto link = *Dial({.server = proxy.address()});
  const Blob sums = RandomBlob(3 * kMiB, 1);
  const auto verdict_when = [&](UploadVerdict verdict) {
    handler_.SetVerdict(verdict);
    return link->Commit(PartWith(sums))->verdict;
  };
  EXPECT_EQ(verdict_when(UploadVerdict::kStale), Verdict::kStale);
  EXPECT_EQ(verdict_when(UploadVerdict::kNotNeeded), Verdict::kDuplicate);
  EXPECT_EQ(link->Commit(PartWith(RandomBlob(4 * kMiB + 1, 2)))->verdict, Verdict::kRefused);
  EXPECT_TRUE(handler_.TakeCommitted().empty());
  EXPECT_LT(proxy.up(), 100'000u);
  EXPECT_EQ(handler_.offers().at(0).digest, sums.digest);
  EXPECT_EQ(handler_.offers().at(0).session, SessionId(7));
  EXPECT_EQ(handler_.offers().at(0).round, Round(3));
  EXPECT_EQ(handler_.offers().at(0).commit_id, 1u);
  // What the server serves itself is nobody's sums: they are sent.
  handler_.Serve(sums);
  EXPECT_EQ(verdict_when(UploadVerdict::kHave), Verdict::kAccepted);
  EXPECT_GT(proxy.up(), 3 * kMiB);
}

TEST_F(RemoteBlob, ACommitInAnUnknownSessionMovesNoByteAndReachesNobody) {
  Start({.max_inline_bytes = 0});
  handler_.Forget(SessionId(7));
  BadNetwork proxy(server_->address());
  const auto link = *Dial({.server = proxy.address()});
  EXPECT_EQ(link->Commit(PartWith(RandomBlob(3 * kMiB, 1)))->verdict, Verdict::kStale);
  EXPECT_EQ(link->Commit(PartWith({}, 10))->verdict, Verdict::kRegister);
  EXPECT_LT(proxy.up(), 200'000u);
  EXPECT_TRUE(handler_.offers().empty());
  EXPECT_TRUE(handler_.TakeCommitted().empty());
}

TEST_F(RemoteBlob, AnotherSessionsUploadIsNotFound) {
  Start({.max_inline_bytes = 0});
  const Blob sums = RandomBlob(3 * kMiB, 1);
  auto first = PartWith(sums), second = PartWith(sums);
  second.session = SessionId(8);
  ASSERT_TRUE(link_->Commit(first).ok());
  ASSERT_TRUE(link_->Commit(second).ok());  // sent again
  const auto committed = handler_.TakeCommitted();
  ExpectSameBytes(committed.at(1).part->sums, sums);
  EXPECT_NE(committed[0].part->sums.bytes, committed[1].part->sums.bytes);
}

TEST_F(RemoteBlob, ABusyServerIsAskedAgain) {
  Start({.max_inline_bytes = 0, .upload_budget_bytes = 4 * kMiB});
  const Blob first = RandomBlob(3 * kMiB, 1), second = RandomBlob(3 * kMiB, 2);
  ASSERT_TRUE(link_->Commit(PartWith(first)).ok());
  auto held = handler_.TakeCommitted();  // the handler keeps the sums: memory is full
  const auto impatient = *Dial({.server = server_->address(), .call_timeout = FromSeconds(2)});
  auto others = PartWith(second);
  others.session = SessionId(8);
  const auto busy = impatient->Commit(others);
  EXPECT_EQ(busy.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(busy.status().message()), HasSubstr("no room for an upload"));
  const size_t asked = handler_.offers().size();
  absl::StatusOr<fleet::CommitReply> late;
  std::thread worker([&] { late = link_->Commit(others); });
  while (handler_.offers().size() == asked) std::this_thread::yield();
  held.clear();
  worker.join();
  ASSERT_TRUE(late.ok()) << late.status();
  EXPECT_EQ(late->verdict, Verdict::kAccepted);
}

TEST_F(RemoteBlob, ManyRecordsTravelAsABlob) {
  Start({});
  const Blob sums = RandomBlob(1000, 1);
  const auto request = PartWith(sums, 100'000);  // some 5 MB of records
  const auto committed = link_->Commit(request);
  ASSERT_TRUE(committed.ok()) << committed.status();
  const auto got = handler_.TakeCommitted();
  ASSERT_EQ(got.at(0).part->included.size(), 100'000u);
  EXPECT_EQ(got[0].part->included[99'999].attempt, request.part->included[99'999].attempt);
  EXPECT_EQ(got[0].part->included[99'999].sums, request.part->included[99'999].sums);
  ExpectSameBytes(got[0].part->sums, sums);
  EXPECT_EQ(got[0].commit_id, 1u);
  ASSERT_EQ(handler_.offers().size(), 1u);
  EXPECT_EQ(handler_.offers()[0].purpose, fleet::BlobPurpose::kRecords);
}

TEST_F(RemoteBlob, ManyRecordsAndLargeSumsTogether) {
  Start({.max_inline_bytes = 2000});
  const Blob sums = RandomBlob(2 * kMiB, 1);
  ASSERT_TRUE(link_->Commit(PartWith(sums, 5000)).ok());
  const auto got = handler_.TakeCommitted();
  EXPECT_EQ(got.at(0).part->included.size(), 5000u);
  ExpectSameBytes(got[0].part->sums, sums);
}

TEST_F(RemoteBlob, WorkersWithEqualDataUploadItsTableOnce) {
  Start({});
  fleet::RegisterRequest request;
  request.name = "worker-0";
  request.clients = kMiB;
  request.table = RandomBlob(8 + 4 * kMiB, 1);
  BadNetwork proxy(server_->address());
  const auto link = *Dial({.server = proxy.address()});
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(link->Register(request).ok());
  EXPECT_LT(proxy.up(), 5 * kMiB);  // the handler keeps the first, so the others are names only
  const auto registered = handler_.TakeRegistered();
  ExpectSameBytes(registered.at(2).table, request.table);
}

TEST_F(RemoteBlob, ShutdownEndsATransferInItsMiddle) {
  Start({});
  const Blob broadcast = RandomBlob(64 * kMiB, 1);
  handler_.Serve(broadcast);
  absl::Status status;
  BadNetwork proxy(server_->address());
  auto link = *Dial({.server = proxy.address()});
  std::thread worker([&] {
    status = link->Fetch({broadcast.digest, broadcast.size, nullptr}).status();
  });
  while (proxy.down() < kMiB) std::this_thread::yield();
  link->Shutdown();
  worker.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
  server_.reset();  // a stream that was left does not hold the server up
}

// As senders make a large one.
Blob ShareableBlob(size_t size, uint64_t seed) {
  const Blob blob = RandomBlob(size, seed);
  AlignedBuffer copy = AlignedBuffer::Shareable(size);
  std::ranges::copy(blob.bytes->bytes(), copy.bytes().begin());
  return Blob::Of(std::move(copy));
}

// Buffers that the other side reads where they lie, by its locks: it is this process, too.
int SharedBuffers() {
  std::ifstream locks("/proc/locks");
  const std::string ours = absl::StrCat(getpid());
  int readers = 0;
  for (std::string line; std::getline(locks, line);) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipWhitespace());
    readers += words.at(1) == "FLOCK" && words.at(3) == "READ" && words.at(4) == ours;
  }
  return readers;
}

TEST_F(RemoteBlob, SharesMemoryOverAPrivateSocket) {
  const SocketFolder folder;
  Start({.listen = folder.address(), .upload_budget_bytes = 5 * kMiB});
  const Blob blob = ShareableBlob(4 * kMiB + 8, 1), second = ShareableBlob(4 * kMiB + 8, 2);
  ASSERT_EQ(SharedBuffers(), 0);
  ASSERT_TRUE(link_->Commit(PartWith(blob)).ok());
  EXPECT_EQ(handler_.offers().size(), 0u) << "the commit itself says where they lie";
  EXPECT_EQ(SharedBuffers(), 1);
  // What the server has mapped counts against its budget until it lets go.
  const auto impatient = *Dial({.server = server_->address(), .call_timeout = FromSeconds(2)});
  EXPECT_TRUE(absl::IsUnavailable(impatient->Commit(PartWith(second)).status()));
  {
    const std::vector<fleet::CommitRequest> committed = handler_.TakeCommitted();
    ExpectSameBytes(committed.at(0).part->sums, blob);
  }
  EXPECT_TRUE(link_->Commit(PartWith(second)).ok());
  handler_.TakeCommitted();
  EXPECT_EQ(SharedBuffers(), 0);

  // Nobody serves this: it can only come from where it lies.
  const auto fetched = link_->Fetch({blob.digest, blob.size, nullptr, PublishShared(blob)});
  ASSERT_TRUE(fetched.ok()) << fetched.status();
  ExpectSameBytes(*fetched, blob);
}

TEST_F(RemoteBlob, SendsWhatCannotBeShared) {
  const Blob blob = ShareableBlob(4 * kMiB + 8, 1);
  const fleet::SharedPlace place = *PublishShared(blob),
                           nobodys = {.process = place.process, .file = 0};
  for (const bool unix_socket : {true, false}) {
    const SocketFolder folder;
    Start({.listen = unix_socket ? folder.address() : ":0", .share_memory = !unix_socket});
    ASSERT_TRUE(link_->Commit(PartWith(blob)).ok());
    ExpectSameBytes(handler_.TakeCommitted().at(0).part->sums, blob);
    EXPECT_EQ(SharedBuffers(), 0);
    handler_.Serve(blob);
    for (const fleet::SharedPlace& told : {place, nobodys}) {
      const auto fetched = link_->Fetch({blob.digest, blob.size, nullptr, told});
      ASSERT_TRUE(fetched.ok()) << fetched.status();
      ExpectSameBytes(*fetched, blob);
      // Over a private socket the client maps what it is told and finds there.
      EXPECT_EQ(SharedBuffers(), unix_socket && told == place ? 1 : 0);
    }
    server_.reset();
  }
}

TEST_F(RemoteBlob, ALimitedLinkMovesNoMoreThanItsLimitAfterTheFirstSecond) {
  Start({});
  constexpr uint64_t kRate = 300'000, kSize = 450'000;
  const auto link =
      *Dial({.server = server_->address(), .max_upload = kRate, .max_download = kRate});
  const Blob sums = RandomBlob(kSize, 1), broadcast = RandomBlob(kSize, 2);
  handler_.Serve(broadcast);
  const auto least = FromSeconds(static_cast<double>(kSize - kRate) / kRate);
  const TimePoint start = SteadyClock().Now();
  ASSERT_TRUE(link->Commit(PartWith(sums)).ok());
  const TimePoint middle = SteadyClock().Now();
  ASSERT_TRUE(link->Fetch({broadcast.digest, broadcast.size, nullptr}).ok());
  EXPECT_GE(middle - start, least);
  EXPECT_GE(SteadyClock().Now() - middle, least);
  EXPECT_FALSE(Dial({.server = server_->address(), .max_upload = 5}).ok());
}

TEST_F(RemoteBlob, Moves64MiBBothWays) {
  for (const bool unix_socket : {true, false}) {
    const SocketFolder folder;
    Start({.listen = unix_socket ? folder.address() : ":0"});
    const Blob blob = RandomBlob(64 * kMiB, 1);
    handler_.Serve(blob);
    const TimePoint start = SteadyClock().Now();
    ASSERT_TRUE(link_->Commit(PartWith(blob)).ok());
    const TimePoint middle = SteadyClock().Now();
    const auto fetched = link_->Fetch({blob.digest, blob.size, nullptr});
    const TimePoint end = SteadyClock().Now();
    ASSERT_TRUE(fetched.ok()) << fetched.status();
    ExpectSameBytes(*fetched, blob);
    ExpectSameBytes(handler_.TakeCommitted().at(0).part->sums, blob);
    std::printf("%s: 64 MiB up %.2f GB/s, down %.2f GB/s, digest check included\n",
                unix_socket ? "unix" : "tcp", blob.size / 1e9 / ToSeconds(middle - start),
                blob.size / 1e9 / ToSeconds(end - middle));
    server_.reset();
  }
}

}  // namespace
}  // namespace macaw::wire
