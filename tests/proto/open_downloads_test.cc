#include "proto/wire/open_downloads.h"

#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "proto/wire/bulk_stream.h"
#include "proto/wire/chunk.h"
#include "proto/wire/convert.h"
#include "proto/wire/limits.h"
#include "proto/wire/remote.h"
#include "testing/fake_clock.h"
#include "testing/fake_handler.h"

namespace macaw::wire {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;
using testing_support::FakeClock;

class OpenDownloadsTest : public testing::Test {
 protected:
  uint64_t Enter(const std::string& name) {
    const int call = ++begun_;
    return downloads_.Enter(name, [this, call] { ended_.push_back(call); });
  }

  FakeClock clock_;
  OpenDownloads downloads_{{.of_name = 2, .stall = seconds(10)}, clock_};
  int begun_ = 0;
  std::vector<int> ended_;
};

TEST_F(OpenDownloadsTest, AFurtherOneOfANameEndsItsOldest) {
  Enter("phone-1");
  Enter("phone-2");
  const uint64_t third = Enter("phone-1");
  EXPECT_THAT(ended_, IsEmpty());
  Enter("phone-1");
  EXPECT_THAT(ended_, ElementsAre(1));
  Enter("phone-1");
  EXPECT_THAT(ended_, ElementsAre(1, 3)) << "one that was ended counts no longer";
  downloads_.Leave(third);
  for (int i = 0; i < 5; ++i) Enter("");
  EXPECT_THAT(ended_, ElementsAre(1, 3)) << "a caller without a name has any number";
}

TEST_F(OpenDownloadsTest, OneThatIsStalledIsEndedWhenTheNextBegins) {
  Enter("phone-1");
  const uint64_t moves = Enter("phone-2");
  const uint64_t leaves = Enter("phone-3");
  clock_.Advance(seconds(8));
  downloads_.Moved(moves);
  clock_.Advance(seconds(8));
  downloads_.Leave(leaves);
  downloads_.Moved(leaves);
  Enter("phone-4");
  EXPECT_THAT(ended_, ElementsAre(1));
  Enter("phone-5");
  EXPECT_THAT(ended_, ElementsAre(1)) << "once";
}

// A node that begins one download after another and reads none.
TEST(Downloads, ANodeThatReadsNothingHoldsFewBlobs) {
  fleet::FakeHandler handler;
  const auto identify = [](absl::string_view) {
    return std::make_shared<const fleet::Caller>(
        fleet::Caller{.role = fleet::Role::kNode, .node = "anna"});
  };
  const auto server = *FleetServer::Start(
      {.listen = ":0", .downloads = {.of_name = 2}, .identify = identify}, handler);
  std::vector<std::weak_ptr<const AlignedBuffer>> blobs;
  std::vector<Digest> digests;
  constexpr size_t kBlobs = 5;
  for (size_t i = 0; i < kBlobs; ++i) {  // more than a connection buffers
    fleet::Blob blob = fleet::RandomBlob(64 << 20, i);
    blobs.push_back(blob.bytes);
    digests.push_back(blob.digest);
    handler.Serve(blob);
  }
  const auto channel = grpc::CreateChannel(server->address(), grpc::InsecureChannelCredentials());
  grpc::GenericStub stub(channel);
  std::list<grpc::ClientContext> contexts;
  std::list<BulkStream> streams;
  for (const Digest& digest : digests) {
    BulkStream& stream = streams.emplace_back(stub, "/macaw.v1.Fleet/Download",
                                              contexts.emplace_back(), FromSeconds(20));
    v1::DownloadRequest request;
    request.set_digest(ToWire(digest));
    ASSERT_TRUE(stream.Write(FromString(request.SerializeAsString())));
    ASSERT_TRUE(stream.WritesDone());
    ASSERT_TRUE(stream.Read().has_value()) << "it has begun";
    handler.ServeAs(digest, nullptr);  // the round is over
  }
  size_t ended = 0;
  for (BulkStream& stream : streams) {
    if (++ended > kBlobs - 2) break;
    while (stream.Read().has_value()) {
    }
    EXPECT_TRUE(absl::IsCancelled(stream.Finish()));
  }
  const auto held = [&] {
    return std::ranges::count_if(blobs, [](const auto& blob) { return !blob.expired(); });
  };
  for (int i = 0; i < 200 && held() > 2; ++i) absl::SleepFor(absl::Milliseconds(50));
  EXPECT_EQ(held(), 2);
}

}  // namespace
}  // namespace macaw::wire
