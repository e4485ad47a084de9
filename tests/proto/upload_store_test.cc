#include "proto/wire/upload_store.h"

#include <gtest/gtest.h>

#include <thread>

#include "core/mutex.h"
#include "proto/wire/refusal.h"
#include "tests/proto/fake_handler.h"

namespace macaw::wire {
namespace {

using fleet::Blob;
using fleet::RandomBlob;
using fleet::UploadVerdict;

class FakeClock final : public Clock {
 public:
  TimePoint Now() const override { return TimePoint(Duration(now_.load())); }
  void Advance(Duration d) { now_ += d.count(); }

 private:
  std::atomic<int64_t> now_{1'000'000'000'000};
};

class UploadStoreTest : public testing::Test {
 protected:
  absl::Status Send(const Blob& blob, uint64_t offset, uint64_t size) {
    const auto upload = store_.Find(blob.digest);
    if (upload == nullptr) return absl::NotFoundError("not begun");
    const std::span<const std::byte> data = blob.bytes->bytes().subspan(offset, size);
    // In three pieces, as the network may deliver it.
    const std::array pieces = {data.first(size / 3), data.subspan(size / 3, 0),
                               data.subspan(size / 3)};
    return upload->Append(offset, Checksum(data), pieces);
  }
  absl::Status AwaitComplete(const Blob& blob) {
    Notification done;
    absl::Status result;
    store_.Find(blob.digest)->WhenComplete([&](absl::Status status) {
      result = status;
      done.Notify();
    });
    done.Wait();
    return result;
  }

  FakeClock clock_;
  Executor executor_{"test", 2};
  UploadStore store_{{.max_blob_bytes = 10'000, .budget_bytes = 25'000}, clock_, executor_};
};

TEST_F(UploadStoreTest, KeepsChunksAndGivesTheBlobBack) {
  const Blob blob = RandomBlob(9000, 1);
  EXPECT_EQ(store_.Begin(blob.digest, 9000).verdict, UploadVerdict::kSend);
  EXPECT_TRUE(Send(blob, 0, 4000).ok());
  EXPECT_EQ(store_.Get(blob.digest), nullptr);
  EXPECT_EQ(store_.Begin(blob.digest, 9000).offset, 4000u);  // resume
  EXPECT_TRUE(Send(blob, 0, 4000).ok());                     // a repeat is skipped
  EXPECT_TRUE(Send(blob, 4000, 5000).ok());
  EXPECT_TRUE(AwaitComplete(blob).ok());
  EXPECT_EQ(store_.Begin(blob.digest, 9000).verdict, UploadVerdict::kHave);
  EXPECT_TRUE(std::ranges::equal(store_.Get(blob.digest)->bytes(), blob.bytes->bytes()));
}

TEST_F(UploadStoreTest, RefusesGapsOverrunsAndDamage) {
  const Blob blob = RandomBlob(9000, 1);
  store_.Begin(blob.digest, 9000);
  EXPECT_EQ(ReasonOf(Send(blob, 1, 100)), v1::Refusal::REASON_OFFSET);
  EXPECT_TRUE(Send(blob, 0, 100).ok());
  EXPECT_EQ(ReasonOf(Send(blob, 50, 100)), v1::Refusal::REASON_OFFSET);
  const auto upload = store_.Find(blob.digest);
  const std::array<std::span<const std::byte>, 1> rest = {blob.bytes->bytes().subspan(100)};
  EXPECT_EQ(ReasonOf(upload->Append(101, 0, rest)), v1::Refusal::REASON_OFFSET);
  EXPECT_EQ(ReasonOf(upload->Append(~uint64_t{0}, 0, rest)), v1::Refusal::REASON_OFFSET);
  EXPECT_EQ(ReasonOf(upload->Append(100, 1234, rest)), v1::Refusal::REASON_CHECKSUM);
  EXPECT_EQ(upload->received(), 100u);  // what was good stays
  EXPECT_TRUE(Send(blob, 100, 8900).ok());
  EXPECT_TRUE(AwaitComplete(blob).ok());
}

TEST_F(UploadStoreTest, ThrowsAwayWhatTheDigestDoesNotName) {
  Blob liar = RandomBlob(3000, 1);
  liar.digest = DigestOf("something else");
  store_.Begin(liar.digest, 3000);
  EXPECT_TRUE(Send(liar, 0, 2999).ok());
  const auto upload = store_.Find(liar.digest);
  EXPECT_TRUE(Send(liar, 2999, 1).ok());
  Notification done;
  upload->WhenComplete([&](absl::Status status) {
    EXPECT_EQ(ReasonOf(status), v1::Refusal::REASON_DIGEST_MISMATCH);
    done.Notify();
  });
  done.Wait();
  EXPECT_EQ(store_.Find(liar.digest), nullptr);
  EXPECT_EQ(store_.Begin(liar.digest, 3000).offset, 0u);  // from the start
}

TEST_F(UploadStoreTest, WithoutVerifyingTakesTheDigestAtItsWordAndChunksNot) {
  UploadStore store({.max_blob_bytes = 10'000, .budget_bytes = 25'000, .verify = false}, clock_,
                    executor_);
  Blob liar = RandomBlob(3000, 1);
  liar.digest = DigestOf("something else");
  store.Begin(liar.digest, 3000);
  const auto upload = store.Find(liar.digest);
  const std::array<std::span<const std::byte>, 1> all = {liar.bytes->bytes()};
  EXPECT_EQ(ReasonOf(upload->Append(0, 1234, all)), v1::Refusal::REASON_CHECKSUM);
  EXPECT_FALSE(upload->complete());
  absl::Status outcome = absl::UnknownError("not yet");
  upload->WhenComplete([&](absl::Status status) { outcome = status; });
  EXPECT_TRUE(upload->Append(0, Checksum(all[0]), all).ok());
  EXPECT_TRUE(outcome.ok()) << outcome;
  EXPECT_TRUE(std::ranges::equal(store.Get(liar.digest)->bytes(), all[0]));
}

TEST_F(UploadStoreTest, CountsMemoryUntilTheLastUserHasGone) {
  const Blob a = RandomBlob(10'000, 1), b = RandomBlob(10'000, 2), c = RandomBlob(10'000, 3);
  EXPECT_EQ(store_.Begin(DigestOf("x"), 10'001).verdict, UploadVerdict::kTooLarge);
  EXPECT_EQ(store_.Begin(DigestOf("x"), ~uint64_t{0}).verdict, UploadVerdict::kTooLarge);
  store_.Begin(a.digest, 10'000);
  store_.Begin(b.digest, 10'000);
  EXPECT_EQ(store_.Begin(c.digest, 10'000).verdict, UploadVerdict::kBusy);
  ASSERT_TRUE(Send(a, 0, 10'000).ok());
  ASSERT_TRUE(AwaitComplete(a).ok());
  executor_.WaitIdle();
  auto bytes = store_.Get(a.digest);
  store_.Claim(a.digest);
  EXPECT_EQ(store_.Begin(c.digest, 10'000).verdict,
            UploadVerdict::kBusy);  // `bytes` still holds it
  EXPECT_EQ(store_.Begin(a.digest, 10'000).verdict, UploadVerdict::kHave);
  bytes = nullptr;
  EXPECT_EQ(store_.Begin(c.digest, 10'000).verdict, UploadVerdict::kSend);
  EXPECT_EQ(store_.used_bytes(), 20'000u);
}

TEST_F(UploadStoreTest, WhatIsMappedIsCompleteAndKeepsItsBytes) {
  const Blob blob = RandomBlob(9000, 1);
  EXPECT_EQ(store_.Begin(blob.digest, 9000, blob.bytes).verdict, UploadVerdict::kHave);
  EXPECT_EQ(store_.Get(blob.digest).get(), blob.bytes.get());
  EXPECT_EQ(store_.used_bytes(), 9000u);
  // Somebody sends it all the same: a repeat, to the end and past it.
  EXPECT_TRUE(Send(blob, 0, 4000).ok());
  EXPECT_TRUE(Send(blob, 9000, 0).ok());
  const std::array<std::span<const std::byte>, 1> all = {blob.bytes->bytes()};
  EXPECT_EQ(ReasonOf(store_.Find(blob.digest)->Append(1, 0, all)), v1::Refusal::REASON_OFFSET);
  EXPECT_TRUE(AwaitComplete(blob).ok());
  EXPECT_TRUE(std::ranges::equal(store_.Get(blob.digest)->bytes(), blob.bytes->bytes()));
}

TEST_F(UploadStoreTest, DropsWhatNobodyTouches) {
  const Blob a = RandomBlob(10'000, 1), b = RandomBlob(10'000, 2);
  store_.Begin(a.digest, 10'000);
  clock_.Advance(FromSeconds(50));
  store_.Begin(b.digest, 10'000);
  clock_.Advance(FromSeconds(50));
  store_.Begin(DigestOf("x"), 1);
  EXPECT_EQ(store_.Find(a.digest), nullptr);
  EXPECT_NE(store_.Find(b.digest), nullptr);
  EXPECT_EQ(store_.used_bytes(), 10'001u);
}

TEST_F(UploadStoreTest, TakesOneBlobFromManySendersAtOnce) {
  const Blob blob = RandomBlob(9999, 1);
  std::vector<std::thread> senders;
  for (int t = 0; t < 4; ++t) {
    senders.emplace_back([&] {
      // The budget holds two such blobs and there are four senders: one buffer serves them all.
      EXPECT_NE(store_.Begin(blob.digest, 9999).verdict, UploadVerdict::kBusy);
      for (uint64_t at = 0; at < 9999; at += 101)
        EXPECT_TRUE(Send(blob, at, std::min<uint64_t>(101, 9999 - at)).ok());
    });
  }
  for (std::thread& sender : senders) sender.join();
  EXPECT_TRUE(AwaitComplete(blob).ok());
}

}  // namespace
}  // namespace macaw::wire
