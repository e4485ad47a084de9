#include "worker/state_keeper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "absl/synchronization/notification.h"
#include "state/memory_store.h"

namespace macaw::worker {
namespace {

using testing::HasSubstr;

const state::StateSchema kSchema = {ParameterLayout::Scalars("control", 65536, DType::kF32)};
const state::StateSchema kSmall = {ParameterLayout::Scalars("control", 4, DType::kF32)};
constexpr uint64_t kRoom = uint64_t{1} << 24;

Attempt Version(uint64_t client, uint64_t counter) { return {ClientId(client), {1, counter}}; }

FlatVector Vector(float value) {
  FlatVector vector(kSchema[0]);
  for (uint64_t i = 0; i < 4; ++i) vector.As<float>()[i] = value;
  return vector;
}

// A store that counts what it is asked, and fails or waits when told to.
class WatchedStore final : public state::ClientStateStore {
 public:
  struct Watch {
    std::atomic<int> gets = 0, puts = 0, flushes = 0;
    std::atomic<int> get_calls = 0, put_calls = 0;
    std::atomic<bool> full = false;
    std::unique_ptr<absl::Notification> gate;  // puts wait for it
  };
  explicit WatchedStore(Watch& watch, const state::StateSchema& schema = kSchema)
      : ClientStateStore(schema), watch_(watch), back_(schema, kRoom) {}

  absl::Status PutBlob(const Attempt& version, state::BlobPtr blob) override {
    if (watch_.gate != nullptr) watch_.gate->WaitForNotification();
    ++watch_.puts;
    if (watch_.full) return absl::ResourceExhaustedError("the disk is full");
    return back_.PutBlob(version, std::move(blob));
  }
  absl::StatusOr<state::BlobPtr> GetBlob(const Attempt& version) const override {
    ++watch_.gets;
    return back_.GetBlob(version);
  }
  absl::Status PutBlobs(std::span<const state::NamedBlob> blobs) override {
    ++watch_.put_calls;
    return ClientStateStore::PutBlobs(blobs);
  }
  std::vector<absl::StatusOr<state::BlobPtr>> GetBlobs(
      std::span<const Attempt> versions) const override {
    ++watch_.get_calls;
    return ClientStateStore::GetBlobs(versions);
  }
  absl::StatusOr<bool> Contains(const Attempt& version) const override {
    return back_.Contains(version);
  }
  absl::Status Flush() override {
    ++watch_.flushes;
    return back_.Flush();
  }
  absl::Status Delete(std::span<const Attempt> versions) override { return back_.Delete(versions); }
  absl::Status ForEach(const std::function<void(const Attempt&)>& visit) const override {
    return back_.ForEach(visit);
  }

 private:
  Watch& watch_;
  state::MemoryStateStore back_;
};

class StateKeeperTest : public testing::Test {
 protected:
  absl::Status Write(const Attempt& version, float value) {
    const FlatVector vector = Vector(value);
    const ConstVectorView views[] = {vector.view()};
    return keeper_.Write(version, views);
  }
  float Read(const Attempt& version) {
    const auto state = keeper_.Read(version);
    EXPECT_TRUE(state.ok()) << state.status();
    return state.ok() ? state->items[0].As<float>()[3] : -1;
  }

  WatchedStore::Watch watch_;
  StateKeeper keeper_{std::make_unique<WatchedStore>(watch_), 2};
};

TEST_F(StateKeeperTest, AClientWithoutAStateBeginsWithZeros) {
  EXPECT_EQ(Read({ClientId(7), {}}), 0);
  EXPECT_EQ(watch_.gets, 0);
}

TEST_F(StateKeeperTest, WhatWasWrittenIsThereAfterTheFence) {
  for (uint64_t client = 0; client < 20; ++client)
    ASSERT_TRUE(Write(Version(client, 1 + client), static_cast<float>(client)).ok());
  ASSERT_TRUE(keeper_.Fence().ok());
  EXPECT_EQ(watch_.puts, 20);
  EXPECT_EQ(watch_.flushes, 1) << "one for all of them";
  for (uint64_t client = 0; client < 20; ++client)
    EXPECT_EQ(Read(Version(client, 1 + client)), static_cast<float>(client));
}

TEST_F(StateKeeperTest, ASlotDoesNotWaitForTheStoreAndTheFenceDoes) {
  watch_.gate = std::make_unique<absl::Notification>();
  ASSERT_TRUE(Write(Version(1, 1), 1).ok());  // returns although the store does not answer
  ASSERT_TRUE(Write(Version(2, 2), 2).ok());
  EXPECT_EQ(watch_.puts, 0);
  std::jthread opens([&] { watch_.gate->Notify(); });
  ASSERT_TRUE(keeper_.Fence().ok());
  EXPECT_EQ(watch_.puts, 2);
}

TEST_F(StateKeeperTest, WhatGathersWhileTheStoreIsBusyIsWrittenTogether) {
  watch_.gate = std::make_unique<absl::Notification>();
  for (uint64_t client = 0; client < 20; ++client)
    ASSERT_TRUE(Write(Version(client, 1 + client), static_cast<float>(client)).ok());
  watch_.gate->Notify();
  ASSERT_TRUE(keeper_.Fence().ok());
  EXPECT_EQ(watch_.puts, 20);
  EXPECT_LE(watch_.put_calls, 2);
}

TEST(StateKeeper, ReadsSmallStatesManyAtATime) {
  WatchedStore::Watch watch;
  StateKeeper keeper(std::make_unique<WatchedStore>(watch, kSmall), 2);
  const FlatVector vector(kSmall[0]);
  const ConstVectorView views[] = {vector.view()};
  std::vector<Attempt> versions;
  for (uint64_t client = 0; client < 320; ++client) {
    versions.push_back(Version(client, 1 + client));
    ASSERT_TRUE(keeper.Write(versions.back(), views).ok());
  }
  ASSERT_TRUE(keeper.Fence().ok());
  const uint64_t writing = keeper.work_done();
  EXPECT_GT(writing, 0u);
  keeper.Expect(versions);
  for (const Attempt& version : versions) EXPECT_TRUE(keeper.Read(version).ok());
  EXPECT_EQ(watch.gets, 320);
  EXPECT_EQ(watch.get_calls, 10);
  EXPECT_EQ(keeper.work_done(), writing + 10);
}

TEST_F(StateKeeperTest, AnErrorOfTheStoreComesOutAtTheFence) {
  watch_.full = true;
  EXPECT_TRUE(Write(Version(1, 1), 1).ok());
  EXPECT_THAT(std::string(keeper_.Fence().message()), HasSubstr("the disk is full"));
  EXPECT_EQ(watch_.flushes, 0);
  // The disk has room again: what is stored from now on counts.
  watch_.full = false;
  EXPECT_TRUE(Write(Version(1, 2), 1).ok());
  EXPECT_TRUE(keeper_.Fence().ok());
  EXPECT_EQ(watch_.flushes, 1);
}

TEST_F(StateKeeperTest, ReadsAheadAFewAtATimeInTheOrderExpected) {
  std::vector<Attempt> versions;
  for (uint64_t client = 0; client < 30; ++client) {
    versions.push_back(Version(client, 1 + client));
    ASSERT_TRUE(Write(versions.back(), static_cast<float>(client)).ok());
  }
  ASSERT_TRUE(keeper_.Fence().ok());
  versions.insert(versions.begin() + 3, {ClientId(99), {}});  // a new client has nothing to read
  keeper_.Expect(versions);
  for (const Attempt& version : versions) {
    EXPECT_EQ(Read(version),
              version.fence.counter == 0 ? 0 : static_cast<float>(version.client.value));
    EXPECT_LE(watch_.gets,
              static_cast<int>(version.client.value == 99 ? 3 : version.client.value) + 1 + 4);
  }
  EXPECT_EQ(watch_.gets, 30) << "nothing is read twice";
}

TEST_F(StateKeeperTest, ReadsWhatWasNotExpectedAndInAnyOrder) {
  std::vector<Attempt> versions;
  for (uint64_t client = 0; client < 10; ++client) {
    versions.push_back(Version(client, 1 + client));
    ASSERT_TRUE(Write(versions.back(), static_cast<float>(client)).ok());
  }
  ASSERT_TRUE(keeper_.Fence().ok());
  keeper_.Expect(std::span(versions).first(8));
  for (size_t i = versions.size(); i > 0; --i)
    EXPECT_EQ(Read(versions[i - 1]), static_cast<float>(i - 1));
  // A client that is evaluated while it trains.
  keeper_.Expect(std::span(versions).first(2));
  keeper_.Expect(std::span(versions).first(2));
  EXPECT_EQ(Read(versions[0]), 0);
  EXPECT_EQ(Read(versions[0]), 0);
}

TEST_F(StateKeeperTest, TheFenceForgetsWhatWasNeverAskedFor) {
  std::vector<Attempt> versions;
  for (uint64_t client = 0; client < 6; ++client) {
    versions.push_back(Version(client, 1 + client));
    ASSERT_TRUE(Write(versions.back(), static_cast<float>(client)).ok());
  }
  keeper_.Expect(std::span(versions).first(5));  // then they are given to somebody else
  ASSERT_TRUE(keeper_.Fence().ok());
  keeper_.Expect(std::span(versions).last(1));
  EXPECT_EQ(Read(versions[5]), 5);
}

TEST_F(StateKeeperTest, AMissingStateIsAnErrorThatNamesTheClient) {
  keeper_.Expect(std::vector<Attempt>{Version(7, 3)});
  const absl::Status status = keeper_.Read(Version(7, 3)).status();
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("client 7"));
}

}  // namespace
}  // namespace macaw::worker
