#include "server/served_blobs.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

#include "proto/fleet/vector_codec.h"
#include "testing/fake_clock.h"

namespace macaw::server {
namespace {

using testing_support::FakeClock;

// A blob of a few bytes that says it had `size`.
fleet::Blob BlobOf(uint64_t size, uint8_t number) {
  AlignedBuffer bytes(4);
  bytes.bytes()[0] = static_cast<std::byte>(number);
  fleet::Blob blob = fleet::Blob::Of(std::move(bytes));
  blob.size = size;
  return blob;
}

TEST(ServedBlobs, KeepsAFewSmallBroadcasts) {
  ServedBlobs served(std::nullopt);
  std::vector<Digest> digests;
  for (uint8_t round = 0; round < 6; ++round) {
    fleet::Blob blob = BlobOf(100, round);
    digests.push_back(blob.digest);
    served.Serve({std::move(blob)});
  }
  for (size_t i = 0; i < digests.size(); ++i)
    EXPECT_EQ(served.Find(digests[i]) != nullptr, i + ServedBlobs::kRecent >= digests.size()) << i;
}

TEST(ServedBlobs, ForgetsALargeOneThatNobodyHolds) {
  ServedBlobs served(std::nullopt);
  fleet::Blob first = BlobOf(ServedBlobs::kMostBytes + 1, 1);
  const Digest digest = first.digest;
  const std::weak_ptr<const AlignedBuffer> bytes = first.bytes;
  served.Serve({std::move(first)});
  EXPECT_NE(served.Find(digest), nullptr) << "the newest is kept, whatever its size";
  served.Serve({BlobOf(100, 2)});
  EXPECT_EQ(served.Find(digest), nullptr);
  EXPECT_TRUE(bytes.expired());
}

TEST(ServedBlobs, ServesALargeOneWhileAnEvaluationHoldsIt) {
  ServedBlobs served(std::nullopt);
  std::optional<fleet::Blob> evaluated = BlobOf(ServedBlobs::kMostBytes + 1, 1);
  const Digest digest = evaluated->digest;
  served.Serve({*evaluated});
  for (uint8_t round = 2; round < 9; ++round) served.Serve({BlobOf(100, round)});
  EXPECT_EQ(served.Find(digest), evaluated->bytes);
  evaluated.reset();
  EXPECT_EQ(served.Find(digest), nullptr);
}

TEST(ServedBlobs, ServesTheShortFormOfAForgottenOneWhileItIsHeld) {
  ServedBlobs served(std::nullopt);
  const fleet::Blob form = BlobOf(100, 7);
  fleet::Blob whole = BlobOf(ServedBlobs::kMostBytes + 1, 1);
  whole.compact.push_back({{}, form.digest, form.size, form.bytes});
  served.Serve({std::move(whole)});
  served.Serve({BlobOf(100, 2)});
  EXPECT_EQ(served.Find(form.digest), form.bytes);
}

// A model with frozen tensors.
std::shared_ptr<const SplitModel> SmallSplit() {
  const LayoutPtr layout = *ParameterLayout::Make(
      {{.name = "base", .shape = {300}}, {.name = "head", .shape = {5}}}, DType::kF32);
  const auto parts = std::make_shared<const algorithms::ModelParts>(
      layout, algorithms::ParameterGroup::Matching(layout, "base"));
  FlatVector base(parts->base.layout());
  std::ranges::fill(base.As<float>().first(300), 2.0f);
  return std::make_shared<const SplitModel>(parts, base.view());
}

// So many versions of it, which are served one after the other.
std::vector<fleet::Blob> ServeVersions(const std::shared_ptr<const SplitModel>& split,
                                       size_t versions, ServedBlobs& served) {
  WholeNames names(split);
  FlatVector trained(split->parts().trained.layout());
  std::vector<fleet::Blob> models;
  for (size_t i = 0; i < versions; ++i) {
    trained.As<float>()[0] = static_cast<float>(i);
    const ConstVectorView view = std::as_const(trained).view();
    models.push_back(names.Of(fleet::Blob::Of(fleet::EncodeVectors({&view, 1}))));
    served.Serve({models.back()});
  }
  return models;
}

// Its parts, and for a worker of release 0.1.0 the whole.
TEST(ServedBlobs, ServesThePartsOfAModelAndTheWhole) {
  const auto split = SmallSplit();
  ServedBlobs served(std::nullopt, split);
  std::vector<fleet::Blob> models = ServeVersions(split, ServedBlobs::kRecent + 1, served);
  EXPECT_EQ(served.Find(split->base().digest), split->base().bytes);
  for (size_t i = 0; i < models.size(); ++i) {
    EXPECT_EQ(served.Find(models[i].trained().digest), models[i].trained().bytes);
    const auto whole = served.Find(models[i].digest);
    ASSERT_NE(whole, nullptr);
    EXPECT_EQ(BlobDigest(whole->bytes()), models[i].digest);
    EXPECT_EQ(served.Find(models[i].digest), whole) << "it is made once";
  }
  // The first is not among the recent ones; an evaluation may still hold it.
  const Digest first = models.front().digest, of_first = models.front().trained().digest;
  models.erase(models.begin());
  EXPECT_EQ(served.Find(first), nullptr) << "no longer served";
  EXPECT_EQ(served.Find(of_first), nullptr);
  EXPECT_NE(served.Find(models.front().digest), nullptr);
}

// A caller that asks for the versions in turn, and reads none, costs one whole model a version.
TEST(ServedBlobs, MakesAWholeModelOnceAsLongAsACallerHoldsIt) {
  const auto split = SmallSplit();
  FakeClock clock;
  ServedBlobs served(std::nullopt, split, {}, clock);
  const std::vector<fleet::Blob> models = ServeVersions(split, ServedBlobs::kRecent, served);
  std::vector<std::shared_ptr<const AlignedBuffer>> held;
  for (const fleet::Blob& model : models) held.push_back(served.Find(model.digest));
  for (size_t turn = 0; turn < 3; ++turn) {
    for (size_t i = 0; i < models.size(); ++i)
      EXPECT_EQ(served.Find(models[i].digest), held[i]) << "turn " << turn << ", model " << i;
  }
  const std::weak_ptr<const AlignedBuffer> first = held[0];
  held.clear();
  clock.Advance(ServedBlobs::kJoinedFor + FromSeconds(1));
  served.Serve({BlobOf(100, 1)});
  EXPECT_TRUE(first.expired()) << "the newest alone stay in memory";
  EXPECT_EQ(BlobDigest(served.Find(models[1].digest)->bytes()), models[1].digest);
}

// One that gives each up at once has none of them made again for some seconds.
TEST(ServedBlobs, MakesFewWholeModelsForACallerThatHoldsNone) {
  const auto split = SmallSplit();
  FakeClock clock;
  ServedBlobs served(std::nullopt, split, {}, clock);
  const std::vector<fleet::Blob> models = ServeVersions(split, ServedBlobs::kRecent, served);
  std::vector<std::weak_ptr<const AlignedBuffer>> made;
  for (const fleet::Blob& model : models) made.emplace_back(served.Find(model.digest));
  for (int turn = 0; turn < 3; ++turn) {
    clock.Advance(FromSeconds(3));
    for (size_t i = 0; i < models.size(); ++i)
      EXPECT_EQ(served.Find(models[i].digest), made[i].lock()) << "turn " << turn;
  }
}

}  // namespace
}  // namespace macaw::server
