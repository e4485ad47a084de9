// Blobs over networks that are slow, break, go silent and damage what they carry, over TLS and in
// plain text.
#include "testing/bad_network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "proto/wire/link_pace.h"
#include "proto/wire/remote.h"
#include "testing/temporary_folder.h"
#include "tests/proto/link_contract.h"
#include "tests/proto/test_authority.h"

namespace macaw::wire {
namespace {

using fleet::Blob;
using fleet::ExpectSameBytes;
using fleet::PartWith;
using fleet::RandomBlob;
using fleet::Verdict;
using testing_support::BadNetwork;
using testing_support::BadNetworkOptions;
using testing_support::CutsAfter;
using testing_support::Fault;

constexpr uint64_t kMegabyte = 1 << 20;

enum class Security : uint8_t { kPlain, kTls };

class OverABadNetwork : public testing::TestWithParam<Security> {
 protected:
  OverABadNetwork() { StartServer(); }

  void StartServer() {
    server_.reset();
    ServerOptions options{.listen = "127.0.0.1:0", .partial_uploads = folder_ / "uploads"};
    if (GetParam() == Security::kTls) options.authority = authority_.get();
    auto server = FleetServer::Start(options, handler_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    if (network_ != nullptr) network_->Redirect(server_->address());
  }
  void UseNetwork(BadNetworkOptions options) {
    network_ = std::make_unique<BadNetwork>(server_->address(), std::move(options));
  }
  std::unique_ptr<fleet::FleetLink> DialThrough(ClientOptions options = {}) {
    options.server = network_->address();
    if (GetParam() == Security::kTls) options.identity = identity_;
    return *Dial(options);
  }
  void CommitArrives(const Blob& sums, ClientOptions options = {}) {
    const auto link = DialThrough(std::move(options));
    absl::StatusOr<fleet::CommitReply> committed;
    do committed = link->Commit(PartWith(sums));  // as a worker repeats it
    while (absl::IsUnavailable(committed.status()) || absl::IsDeadlineExceeded(committed.status()));
    ASSERT_TRUE(committed.ok()) << committed.status();
    EXPECT_EQ(committed->verdict, Verdict::kAccepted);
    const auto arrived = handler_.TakeCommitted();
    ASSERT_EQ(arrived.size(), 1u) << "counted once";
    ExpectSameBytes(arrived[0].part->sums, sums);
  }
  void BroadcastArrives(const Blob& broadcast, ClientOptions options = {}) {
    handler_.Serve(broadcast);
    const auto link = DialThrough(std::move(options));
    absl::StatusOr<Blob> fetched;
    do fetched = link->Fetch({broadcast.digest, broadcast.size, nullptr});
    while (absl::IsUnavailable(fetched.status()) || absl::IsDeadlineExceeded(fetched.status()));
    ASSERT_TRUE(fetched.ok()) << fetched.status();
    ExpectSameBytes(*fetched, broadcast);
  }

  const testing_support::TemporaryFolder folder_;
  TestAuthority authority_;
  const identity::IdentityFiles identity_ = authority_.Certified("w", identity::Role::kWorker);
  fleet::FakeHandler handler_;
  std::unique_ptr<FleetServer> server_;
  std::unique_ptr<BadNetwork> network_;
};

INSTANTIATE_TEST_SUITE_P(, OverABadNetwork, testing::Values(Security::kPlain, Security::kTls),
                         [](const auto& info) {
                           return info.param == Security::kTls ? "Tls" : "Plain";
                         });

// What a cut connection carried of a chunk that did not arrive is lost, and each connection begins
// with a handshake.
constexpr uint64_t kLostByACut = kMegabyte + 20'000;

TEST_P(OverABadNetwork, AnUploadThatIsCutSendsNoByteTwiceBeyondAChunk) {
  const std::vector<uint64_t> cuts = {3 * kMegabyte, 2 * kMegabyte, 9000, 1 * kMegabyte};
  UseNetwork(CutsAfter(cuts));
  CommitArrives(RandomBlob(8 * kMegabyte + 77, 1));
  EXPECT_EQ(network_->faults(), 4);
  EXPECT_LT(network_->up(), 8 * kMegabyte + cuts.size() * kLostByACut);
}

TEST_P(OverABadNetwork, ADownloadThatIsCutSendsNoByteTwiceBeyondAChunk) {
  const std::vector<uint64_t> cuts = {3 * kMegabyte, 2 * kMegabyte, 9000, 1 * kMegabyte};
  UseNetwork(CutsAfter(cuts));
  BroadcastArrives(RandomBlob(8 * kMegabyte + 77, 1));
  EXPECT_EQ(network_->faults(), 4);
  EXPECT_LT(network_->down(), 8 * kMegabyte + cuts.size() * kLostByACut);
}

// What fits a message at the speed of the connection does not fit what a connection carries.
TEST_P(OverABadNetwork, SumsThatConnectionsNeverCarryInOneMessageArriveInSlices) {
  UseNetwork({.faults = {{Fault::Kind::kCut, 9 * kMegabyte}, {Fault::Kind::kCut, 300'000}},
              .again = true});
  const auto link = DialThrough();
  for (const uint64_t size : {8 * kMegabyte, kMegabyte / 2, kMegabyte / 2, kMegabyte / 2}) {
    absl::StatusOr<fleet::CommitReply> committed;
    do committed = link->Commit(PartWith(RandomBlob(size, 1)));
    while (absl::IsUnavailable(committed.status()));
    ASSERT_TRUE(committed.ok()) << committed.status();
    EXPECT_EQ(handler_.TakeCommitted().size(), 1u);
  }
  EXPECT_GE(network_->faults(), 3);
}

TEST_P(OverABadNetwork, ThatHoldsBytesBackADownloadWaits) {
  UseNetwork({});
  network_->HoldDown(kMegabyte);
  std::thread download([&] { BroadcastArrives(RandomBlob(3 * kMegabyte, 1)); });
  while (network_->down() < kMegabyte) std::this_thread::yield();
  EXPECT_LT(network_->down(), 2 * kMegabyte);
  network_->HoldDown(~uint64_t{0});
  download.join();
  EXPECT_GE(network_->down(), 3 * kMegabyte);
}

// A connection whose bytes vanish looks well for a minute: it is left when nothing moves.
TEST_P(OverABadNetwork, AConnectionThatGoesSilentIsLeftForANewOne) {
  const auto soon = std::chrono::milliseconds(500);
  const ClientOptions impatient{.call_timeout = soon, .stall_timeout = soon};
  const BadNetworkOptions silent = {
      .faults = {{Fault::Kind::kStall, 300'000}, {Fault::Kind::kStall, 5500}}};
  UseNetwork(silent);
  CommitArrives(RandomBlob(2 * kMegabyte, 1), impatient);
  EXPECT_EQ(network_->faults(), 2);
  UseNetwork(silent);
  BroadcastArrives(RandomBlob(2 * kMegabyte, 2), impatient);
  EXPECT_EQ(network_->faults(), 2);
}

TEST_P(OverABadNetwork, DamagedBytesAreNeverCounted) {
  BadNetworkOptions options;
  for (const uint64_t at : {40'000, 700'000, 100'000, 1'500'000})
    options.faults.push_back({Fault::Kind::kCorrupt, at});
  UseNetwork(options);
  CommitArrives(RandomBlob(3 * kMegabyte, 1));
  EXPECT_GE(network_->faults(), 1);
  UseNetwork(options);
  BroadcastArrives(RandomBlob(3 * kMegabyte, 2));
  EXPECT_GE(network_->faults(), 1);
}

// Of what had arrived nothing is sent again beyond a chunk: a restarted server has it on its disk.
TEST_P(OverABadNetwork, AnUploadContinuesAfterARestartOfTheServer) {
  const uint64_t size = 4 * kMegabyte, before = 3 * kMegabyte;
  UseNetwork({.bytes_per_second = 6 * kMegabyte});
  std::thread worker([&] { CommitArrives(RandomBlob(size, 1)); });
  while (network_->up() < before) std::this_thread::yield();
  StartServer();
  worker.join();
  EXPECT_GE(network_->connections(), 2);
  EXPECT_LT(network_->up(), size + 2 * kLostByACut);
}

// However long it is: the worker tries again and again.
TEST_P(OverABadNetwork, AnOutageCostsNoByteBeyondAChunk) {
  const uint64_t size = 4 * kMegabyte, before = 3 * kMegabyte;
  UseNetwork({.bytes_per_second = 6 * kMegabyte});
  std::thread worker([&] { CommitArrives(RandomBlob(size, 1)); });
  while (network_->up() < before) std::this_thread::yield();
  network_->Down(true);
  const int tries = 3, connections = network_->connections();
  while (network_->connections() < connections + tries) std::this_thread::yield();
  network_->Down(false);
  worker.join();
  EXPECT_LT(network_->up(), size + 2 * kLostByACut);
}

TEST_P(OverABadNetwork, ADownloadContinuesAfterARestartOfTheWorker) {
  const uint64_t size = 4 * kMegabyte, before = 3 * kMegabyte;
  UseNetwork({.bytes_per_second = 6 * kMegabyte});
  const ClientOptions worker{.partial_downloads = folder_ / "downloads"};
  const Blob broadcast = RandomBlob(size, 1);
  handler_.Serve(broadcast);
  {
    const auto first = DialThrough(worker);
    std::thread end([&] {
      while (network_->down() < before) std::this_thread::yield();
      first->Shutdown();
    });
    const Blob name{broadcast.digest, broadcast.size, nullptr};
    EXPECT_EQ(first->Fetch(name).status().code(), absl::StatusCode::kCancelled);
    end.join();
  }
  BroadcastArrives(broadcast, worker);
  EXPECT_LT(network_->down(), size + 2 * kLostByACut);
  EXPECT_TRUE(std::filesystem::is_empty(folder_ / "downloads"));
}

// At this rate the whole blob takes much longer than the time in which something has to move.
TEST_P(OverABadNetwork, ASlowTransferGetsAsMuchTimeAsItNeeds) {
  const ClientOptions impatient{.call_timeout = FromSeconds(1), .stall_timeout = FromSeconds(1)};
  UseNetwork({.bytes_per_second = 96'000});
  CommitArrives(RandomBlob(150'000, 1), impatient);
  // The same bytes in the other direction.
  BroadcastArrives(RandomBlob(150'000, 2), impatient);
  EXPECT_LT(network_->up() + network_->down(), 300'000 + 2 * LinkPace::kFirstSlice);
}

TEST_P(OverABadNetwork, HeartbeatsComeThroughBesideASlowTransferAndTellOfIt) {
  UseNetwork({.bytes_per_second = 64'000, .delay = std::chrono::milliseconds(50)});
  // A slice of the transfer takes a part of the stall timeout.
  const ClientOptions options{.call_timeout = FromSeconds(30), .stall_timeout = FromSeconds(6)};
  const auto link = DialThrough(options);
  std::atomic<bool> sent = false;
  std::thread worker([&] {
    EXPECT_TRUE(link->Commit(PartWith(RandomBlob(150'000, 1))).ok());
    sent = true;
  });
  std::set<uint64_t> progress;
  while (!sent) {
    const auto beat = link->Heartbeat({.session = SessionId(7)});
    EXPECT_TRUE(beat.ok()) << beat.status();
    progress.insert(link->moved());
  }
  worker.join();
  EXPECT_GE(progress.size(), 4u) << "a server sees bytes move before they have all arrived";
}

}  // namespace
}  // namespace macaw::wire
