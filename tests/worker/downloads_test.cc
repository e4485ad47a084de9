#include "worker/downloads.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "proto/fleet/vector_codec.h"

namespace macaw::worker {
namespace {

// Gives the blobs that it has, and counts.
class ServingLink final : public fleet::FleetLink {
 public:
#define MACAW_REFUSE(Name)                                                        \
  absl::StatusOr<fleet::Name##Reply> Name(const fleet::Name##Request&) override { \
    return absl::UnimplementedError(#Name);                                       \
  }
  MACAW_FLEET_CALLS(MACAW_REFUSE)
#undef MACAW_REFUSE
  absl::StatusOr<fleet::Blob> Fetch(const fleet::Blob& blob) override {
    ++fetched_;
    return blobs_.at(blob.digest.Hex());
  }
  void Shutdown() override {}

  // As a lease names it, without its bytes.
  fleet::Blob Serve(const FlatVector& vector) {
    const ConstVectorView view = vector.view();
    const fleet::Blob blob = fleet::Blob::Of(fleet::EncodeVectors({&view, 1}));
    blobs_[blob.digest.Hex()] = blob;
    return {blob.digest, blob.size, nullptr};
  }
  int fetched() const { return fetched_; }

 private:
  std::map<std::string, fleet::Blob> blobs_;
  int fetched_ = 0;
};

class DownloadsTest : public testing::Test {
 protected:
  DownloadsTest() {
    context_.schema.down = {{"model", large_}, {"rate", small_}};
    channels_ = {link_.Serve(FlatVector(large_)), link_.Serve(FlatVector(small_))};
  }
  void BeginRound() {
    downloads_.BeginLease(channels_);
    const std::vector<LayoutPtr> layouts = {large_, small_};
    for (size_t i = 0; i < layouts.size(); ++i) {
      fleet::Blob blob = channels_[i];
      const auto vector = downloads_.Vector(blob, layouts[i]);
      ASSERT_TRUE(vector.ok()) << vector.status();
      EXPECT_EQ(vector->size(), layouts[i]->size());
    }
  }

  const LayoutPtr large_ = ParameterLayout::Scalars("w", 1000, DType::kF32);
  const LayoutPtr small_ = ParameterLayout::Scalars("r", 10, DType::kF32);
  ServingLink link_;
  const PatientCalls calls_{{}, {}};
  RunContext context_;
  std::vector<fleet::Blob> channels_;
  Downloads downloads_{link_, calls_, context_, "", /*most_kept=*/2000};
};

TEST_F(DownloadsTest, OfALeaseStayHoweverLargeTheyAre) {
  BeginRound();
  BeginRound();
  EXPECT_EQ(link_.fetched(), 2);
  EXPECT_EQ(downloads_.Have().size(), 2u);
}

TEST_F(DownloadsTest, LetGoOfWhatIsTooLargeToBeKeptAndFetchItAgain) {
  BeginRound();
  EXPECT_TRUE(downloads_.LetGoOfLarge());
  EXPECT_EQ(downloads_.Have(), std::vector<Digest>{channels_[1].digest});
  EXPECT_FALSE(downloads_.LetGoOfLarge());
  BeginRound();
  EXPECT_EQ(link_.fetched(), 3);
}

}  // namespace
}  // namespace macaw::worker
