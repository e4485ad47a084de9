#include "server/engine/version_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace macaw::server {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

Attempt Version(uint64_t client, uint32_t epoch, uint64_t counter) {
  return {ClientId(client), {epoch, counter}};
}

TEST(VersionIndex, RemembersOneVersionAClient) {
  VersionIndex index;
  EXPECT_EQ(index.Get(ClientId(5)).counter, 0u);
  EXPECT_TRUE(index.empty());
  index.Set(ClientId(5000), {3, 77});
  index.Set(ClientId(5), {1, 9});
  index.Set(ClientId(5), {16000000, (uint64_t{1} << 40) - 1});  // as large as they get
  EXPECT_EQ(index.Get(ClientId(5000)), (Fence{3, 77}));
  EXPECT_EQ(index.Get(ClientId(5)), (Fence{16000000, (uint64_t{1} << 40) - 1}));
  EXPECT_EQ(index.Get(ClientId(4)).counter, 0u);
  EXPECT_EQ(index.Get(ClientId(99999999)).counter, 0u);
  EXPECT_EQ(index.size(), 2u);
  index.Clear(ClientId(5));
  EXPECT_EQ(index.Get(ClientId(5)).counter, 0u);
  EXPECT_EQ(index.size(), 1u);
}

TEST(VersionIndex, ComesBackFromItsNumbersAndRefusesOthers) {
  VersionIndex index;
  for (const uint64_t client : {7, 1023, 1024, 900000}) index.Set(ClientId(client), {2, client});
  const std::vector<uint64_t> numbers = index.Encode();
  const auto read = VersionIndex::Decode(numbers, 1000000);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->Encode(), numbers);
  EXPECT_EQ(read->size(), 4u);
  EXPECT_FALSE(VersionIndex::Decode(numbers, 900000).ok()) << "a client beyond the population";
  std::vector<uint64_t> bad = numbers;
  bad[2] = 3;
  EXPECT_FALSE(VersionIndex::Decode(bad, 1000000).ok()) << "not by client";
  bad = numbers;
  bad[1] = 0;
  EXPECT_FALSE(VersionIndex::Decode(bad, 1000000).ok()) << "a version that is none";
  bad = numbers;
  bad.pop_back();
  EXPECT_FALSE(VersionIndex::Decode(bad, 1000000).ok());
}

class StateVersionsTest : public testing::Test {
 protected:
  void Round(uint32_t round, const std::vector<Attempt>& accepted, bool checkpoint) {
    for (const Attempt& version : accepted) versions_.Stage(version);
    if (checkpoint) kept_.push_back(versions_.Snapshot(StateVersions::Staged::kIncluded));
    versions_.Close(macaw::Round(round));
  }
  StateVersions versions_{VersionIndex(), 100};
  std::vector<VersionIndex> kept_;
};

TEST_F(StateVersionsTest, AVersionIsCurrentOnceItsRoundIsDone) {
  versions_.Stage(Version(1, 1, 5));
  EXPECT_EQ(versions_.Current(ClientId(1)).counter, 0u);
  EXPECT_EQ(versions_.Snapshot(StateVersions::Staged::kLeftOut).Get(ClientId(1)).counter, 0u);
  EXPECT_EQ(versions_.Snapshot(StateVersions::Staged::kIncluded).Get(ClientId(1)).counter, 5u);
  versions_.Close(macaw::Round(1));
  EXPECT_EQ(versions_.Current(ClientId(1)), (Fence{1, 5}));
}

TEST_F(StateVersionsTest, AReplacedVersionGoesWhenTheLastCheckpointThatNamesItHasGone) {
  Round(1, {Version(1, 1, 1), Version(2, 1, 2)}, true);
  Round(2, {Version(1, 1, 3)}, true);
  EXPECT_THAT(versions_.TakeDeletable(10), IsEmpty());
  versions_.CheckpointsFrom(macaw::Round(1));
  EXPECT_THAT(versions_.TakeDeletable(10), IsEmpty()) << "the checkpoint of round 1 names it";
  versions_.CheckpointsFrom(macaw::Round(2));
  EXPECT_THAT(versions_.TakeDeletable(10), ElementsAre(Version(1, 1, 1)));
  EXPECT_THAT(versions_.TakeDeletable(10), IsEmpty()) << "each is told once";
}

TEST_F(StateVersionsTest, WhatNoCheckpointEverNamedGoesAtOnce) {
  Round(1, {Version(1, 1, 1)}, true);
  Round(2, {Version(1, 1, 2), Version(2, 1, 3)}, false);
  EXPECT_THAT(versions_.TakeDeletable(10), IsEmpty());
  Round(3, {Version(1, 1, 4), Version(2, 1, 5)}, false);
  EXPECT_THAT(versions_.TakeDeletable(10),
              UnorderedElementsAre(Version(1, 1, 2), Version(2, 1, 3)));
}

TEST_F(StateVersionsTest, AllAreForgottenAfterARoundAndGoAsReplacedOnesDo) {
  Round(1, {Version(1, 1, 1), Version(2, 1, 2)}, true);
  Round(2, {Version(2, 1, 3)}, false);
  versions_.Stage(Version(1, 1, 4));
  versions_.CloseAndForgetAll(macaw::Round(3));
  EXPECT_FALSE(versions_.any());
  EXPECT_TRUE(versions_.Snapshot(StateVersions::Staged::kIncluded).empty());
  EXPECT_THAT(versions_.TakeDeletable(10), UnorderedElementsAre(Version(2, 1, 3), Version(1, 1, 4)))
      << "no checkpoint has them";
  versions_.CheckpointsFrom(macaw::Round(3));
  EXPECT_THAT(versions_.TakeDeletable(10),
              UnorderedElementsAre(Version(1, 1, 1), Version(2, 1, 2)));
  Round(4, {Version(2, 1, 5)}, true);
  EXPECT_EQ(versions_.Current(ClientId(2)), (Fence{1, 5}));
}

TEST_F(StateVersionsTest, ForgetsReplacedVersionsBeyondItsBound) {
  for (uint32_t round = 1; round <= 300; ++round) Round(round, {Version(1, 1, round)}, false);
  EXPECT_EQ(versions_.TakeDeletable(1000).size(), 100u);
}

}  // namespace
}  // namespace macaw::server
