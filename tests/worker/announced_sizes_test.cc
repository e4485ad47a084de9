// What a device asks for, whatever sizes its server announces.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <stop_token>
#include <utility>
#include <vector>

#include "proto/fleet/compact_vector.h"
#include "proto/fleet/vector_codec.h"
#include "testing/forwarding.h"
#include "testing/local_link.h"
#include "worker/downloads.h"

namespace macaw::worker {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

LayoutPtr LayoutOfNumbers(int64_t size) {
  return *ParameterLayout::Make({{.name = "x", .shape = {size}}}, DType::kF32);
}

fleet::Blob Encoded(const FlatVector& vector) {
  const ConstVectorView view = vector.view();
  return fleet::Blob::Of(fleet::EncodeVectors({&view, 1}));
}

// As a message names it.
fleet::Blob Named(const fleet::Blob& blob, uint64_t size) {
  return {.digest = blob.digest, .size = size};
}

// A model with a frozen base.
std::shared_ptr<const algorithms::ModelParts> PartsOfAModel() {
  const LayoutPtr whole = *ParameterLayout::Make(
      {{.name = "base", .shape = {300}}, {.name = "head", .shape = {5}}}, DType::kF32);
  return std::make_shared<const algorithms::ModelParts>(
      whole, algorithms::ParameterGroup::Matching(whole, "base"));
}

// A server of these blobs. Remembers the sizes of those that it was asked for.
class BlobLink final : public fleet::ForwardingLink {
 public:
  explicit BlobLink(fleet::FleetLink& link) : ForwardingLink(link) {}
  absl::StatusOr<fleet::Blob> Fetch(const fleet::Blob& blob) override {
    asked.push_back(blob.size);
    for (const fleet::Blob& one : served)
      if (one.digest == blob.digest) return one;
    return absl::NotFoundError("no such blob");
  }

  std::vector<fleet::Blob> served;
  std::vector<uint64_t> asked;
};

class AnnouncedSizes : public testing::Test {
 protected:
  AnnouncedSizes() {
    FlatVector vector(layout_);
    for (size_t i = 0; i < 1000; ++i)
      vector.As<float>()[i] = i % 100 == 0 ? static_cast<float>(i) : 0.0f;
    vector_ = Encoded(vector);
    const ConstVectorView view = std::as_const(vector).view();
    short_form_ = fleet::Blob::Of(*fleet::EncodeCompact(view, {}));
    link_.served = {vector_, short_form_};
  }

  static constexpr uint64_t kTooMuch = uint64_t{1} << 40, kKept = uint64_t{1} << 30;

  fleet::AnsweringHandler handler_;
  const std::unique_ptr<fleet::FleetLink> local_ = fleet::MakeLocalLink(handler_);
  BlobLink link_{*local_};
  const PatientCalls calls_{{}, std::stop_token()};
  RunContext context_;
  Downloads downloads_{link_, calls_, context_, "", kKept};
  const LayoutPtr layout_ = LayoutOfNumbers(1000);
  fleet::Blob vector_, short_form_;
};

// A server that announces a terabyte costs a device nothing.
TEST_F(AnnouncedSizes, AsksForNoMoreThanAVectorHas) {
  for (const uint64_t size : {kTooMuch, vector_.size + 1, vector_.size - 1, uint64_t{0}}) {
    fleet::Blob blob = Named(vector_, size);
    const auto vector = downloads_.Vector(blob, layout_);
    EXPECT_TRUE(absl::IsInvalidArgument(vector.status())) << vector.status();
    EXPECT_THAT(std::string(vector.status().message()), HasSubstr("announces"));
    fleet::Blob again = Named(vector_, size);
    EXPECT_FALSE(downloads_.Vectors(again, {layout_}).ok());
  }
  EXPECT_THAT(link_.asked, IsEmpty());
  fleet::Blob blob = Named(vector_, vector_.size);
  EXPECT_TRUE(downloads_.Vector(blob, layout_).ok());
  EXPECT_THAT(link_.asked, ElementsAre(vector_.size));
}

TEST_F(AnnouncedSizes, ReadsAShortFormThatIsShorter) {
  ASSERT_LT(short_form_.size, vector_.size);
  for (const uint64_t size : {short_form_.size, kTooMuch, vector_.size}) {
    link_.asked.clear();
    Downloads downloads(link_, calls_, context_, "", kKept);
    fleet::Blob blob = Named(vector_, vector_.size);
    blob.compact.push_back({.base = {}, .digest = short_form_.digest, .size = size, .bytes = {}});
    const auto vector = downloads.Vector(blob, layout_);
    ASSERT_TRUE(vector.ok()) << vector.status();
    EXPECT_EQ(vector->As<float>()[300], 300);
    EXPECT_THAT(link_.asked, ElementsAre(std::min(size, vector_.size)));
  }
}

TEST_F(AnnouncedSizes, TakesNoBaseThatIsLongerThanTheModels) {
  const auto parts = PartsOfAModel();
  WholeModels models(parts);
  context_.whole = &models;
  const fleet::Blob base = Encoded(FlatVector(parts->base.layout())),
                    trained = Encoded(FlatVector(parts->trained.layout()));
  link_.served = {base, trained};
  const auto get = [&](uint64_t base_bytes) {
    fleet::Blob model{.digest = vector_.digest, .size = fleet::EncodedBytes(*parts->whole)};
    model.parts = {Named(trained, trained.size), Named(base, base_bytes)};
    TrainedPart part;
    return downloads_.Model(model, part).status();
  };
  EXPECT_THAT(std::string(get(kTooMuch).message()), HasSubstr("announces"));
  EXPECT_THAT(link_.asked, IsEmpty());
  EXPECT_TRUE(models.base().IsZero());
  EXPECT_TRUE(get(base.size).ok());
  EXPECT_EQ(models.base(), base.digest);
}

// Clients that wait would train from what is trained of one model and the base of another.
TEST_F(AnnouncedSizes, TakesNoOtherBaseInTheSameSession) {
  const auto parts = PartsOfAModel();
  WholeModels models(parts);
  context_.whole = &models;
  FlatVector ones(parts->base.layout());
  std::ranges::fill(ones.As<float>(), 1.0f);
  const fleet::Blob base = Encoded(FlatVector(parts->base.layout())), another = Encoded(ones),
                    trained = Encoded(FlatVector(parts->trained.layout()));
  link_.served = {base, another, trained};
  const auto get = [&](Downloads& downloads, const fleet::Blob& of) {
    fleet::Blob model{.digest = vector_.digest, .size = fleet::EncodedBytes(*parts->whole)};
    model.parts = {Named(trained, trained.size), Named(of, of.size)};
    TrainedPart part;
    return downloads.Model(model, part).status();
  };
  EXPECT_TRUE(get(downloads_, base).ok());
  const absl::Status refused = get(downloads_, another);
  EXPECT_THAT(std::string(refused.message()), HasSubstr(another.digest.Hex()));
  EXPECT_EQ(models.base(), base.digest);
  EXPECT_TRUE(get(downloads_, base).ok());
  Downloads next(link_, calls_, context_, "", kKept);  // of the next session
  EXPECT_TRUE(get(next, another).ok());
  EXPECT_EQ(models.base(), another.digest);
}

TEST(EncodedBytes, AreThoseOfEncodeVectors) {
  std::vector<LayoutPtr> layouts;
  std::vector<FlatVector> vectors;
  for (const int64_t size : {3, 100, 17, 1}) {
    layouts.push_back(LayoutOfNumbers(size));
    vectors.emplace_back(layouts.back());
    std::vector<ConstVectorView> views;
    for (const FlatVector& vector : vectors) views.push_back(vector.view());
    EXPECT_EQ(fleet::EncodedBytes(layouts), fleet::EncodeVectors(views).size());
  }
}

}  // namespace
}  // namespace macaw::worker
