#include "proto/wire/upload_store.h"

#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <string>
#include <thread>

#include "absl/synchronization/notification.h"
#include "proto/wire/refusal.h"
#include "testing/fake_clock.h"
#include "testing/fake_handler.h"

namespace macaw::wire {
namespace {

using fleet::Blob;
using fleet::BlobPurpose;
using fleet::RandomBlob;
using fleet::UploadVerdict;
using testing_support::FakeClock;

constexpr SessionId kSession(7), kOther(8), kThird(9), kNobody(0);

class UploadStoreTest : public testing::Test {
 protected:
  UploadStore::Begun Begin(const Digest& digest, uint64_t size, SessionId session = kSession,
                           BlobPurpose purpose = BlobPurpose::kSums, Round round = Round(1)) {
    return store_.Begin({.purpose = purpose,
                         .session = session,
                         .digest = digest,
                         .size = size,
                         .round = purpose == BlobPurpose::kPopulation ? Round(0) : round});
  }
  std::shared_ptr<const AlignedBuffer> Get(const Blob& blob) {
    return store_.Get(kSession, BlobPurpose::kSums, blob.digest);
  }
  absl::Status Send(const Blob& blob, uint64_t offset, uint64_t size,
                    SessionId session = kSession) {
    const auto upload = store_.Find(session, blob.digest);
    if (upload == nullptr) return absl::NotFoundError("not begun");
    const std::span<const std::byte> data = blob.bytes->bytes().subspan(offset, size);
    // In three pieces, as the network may deliver it.
    const std::array pieces = {data.first(size / 3), data.subspan(size / 3, 0),
                               data.subspan(size / 3)};
    return upload->Append(offset, Checksum(data), pieces);
  }
  absl::Status AwaitComplete(const Blob& blob, SessionId session = kSession) {
    absl::Notification done;
    absl::Status result;
    store_.Find(session, blob.digest)->WhenComplete([&](absl::Status status) {
      result = status;
      done.Notify();
    });
    done.WaitForNotification();
    return result;
  }

  FakeClock clock_;
  Executor executor_{"test", 2};
  std::set<SessionId> ended_;
  UploadStore store_{
      {.max_blob_bytes = 10'000, .budget_bytes = 25'000, .population_budget_bytes = 15'000},
      [this](SessionId session) { return !ended_.contains(session); },
      clock_,
      executor_};
};

TEST_F(UploadStoreTest, KeepsChunksAndGivesTheBlobBack) {
  const Blob blob = RandomBlob(9000, 1);
  EXPECT_EQ(Begin(blob.digest, 9000).verdict, UploadVerdict::kSend);
  EXPECT_TRUE(Send(blob, 0, 4000).ok());
  EXPECT_EQ(Get(blob), nullptr);
  EXPECT_EQ(Begin(blob.digest, 9000).offset, 4000u);  // resume
  EXPECT_TRUE(Send(blob, 0, 4000).ok());              // a repeat is skipped
  EXPECT_TRUE(Send(blob, 4000, 5000).ok());
  EXPECT_TRUE(AwaitComplete(blob).ok());
  EXPECT_EQ(Begin(blob.digest, 9000).verdict, UploadVerdict::kHave);
  EXPECT_TRUE(std::ranges::equal(Get(blob)->bytes(), blob.bytes->bytes()));
}

TEST_F(UploadStoreTest, RefusesGapsOverrunsAndDamage) {
  const Blob blob = RandomBlob(9000, 1);
  Begin(blob.digest, 9000);
  EXPECT_EQ(ReasonOf(Send(blob, 1, 100)), v1::Refusal::REASON_OFFSET);
  EXPECT_TRUE(Send(blob, 0, 100).ok());
  EXPECT_EQ(ReasonOf(Send(blob, 50, 100)), v1::Refusal::REASON_OFFSET);
  const auto upload = store_.Find(kSession, blob.digest);
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
  Begin(liar.digest, 3000);
  EXPECT_TRUE(Send(liar, 0, 2999).ok());
  const auto upload = store_.Find(kSession, liar.digest);
  EXPECT_TRUE(Send(liar, 2999, 1).ok());
  absl::Notification done;
  upload->WhenComplete([&](absl::Status status) {
    EXPECT_EQ(ReasonOf(status), v1::Refusal::REASON_DIGEST_MISMATCH);
    done.Notify();
  });
  done.WaitForNotification();
  EXPECT_EQ(store_.Find(kSession, liar.digest), nullptr);
  EXPECT_EQ(Begin(liar.digest, 3000).offset, 0u);  // from the start
}

TEST_F(UploadStoreTest, ChecksEveryLeafOfALargeBlob) {
  constexpr uint64_t kMiB = 1 << 20, kSize = 19 * kMiB + 5;
  UploadStore store(
      {.max_blob_bytes = 2 * kSize, .budget_bytes = 2 * kSize}, [](SessionId) { return true; },
      clock_, executor_);
  const Blob blob = RandomBlob(kSize, 1);
  const auto bytes = blob.bytes->bytes();
  // Sends the blob with one byte changed, or none, and returns the store's judgement.
  const auto send = [&](std::optional<uint64_t> wrong) {
    store.Begin({.session = kSession, .digest = blob.digest, .size = kSize});
    const auto upload = store.Find(kSession, blob.digest);
    for (uint64_t at = 0; at < kSize; at += kMiB) {
      std::vector<std::byte> chunk(bytes.begin() + at, bytes.begin() + std::min(kSize, at + kMiB));
      if (wrong >= at && wrong < at + chunk.size()) chunk[*wrong - at] ^= std::byte{1};
      const std::array<std::span<const std::byte>, 1> pieces = {chunk};
      EXPECT_TRUE(upload->Append(at, Checksum(pieces[0]), pieces).ok());
    }
    absl::Notification done;
    absl::Status result;
    upload->WhenComplete([&](absl::Status status) {
      result = status;
      done.Notify();
    });
    done.WaitForNotification();
    executor_.WaitIdle();  // until it no longer holds the bytes
    return result;
  };
  for (const uint64_t wrong : {uint64_t{0}, 8 * kMiB, 19 * kMiB - 1, kSize - 1})
    EXPECT_EQ(ReasonOf(send(wrong)), v1::Refusal::REASON_DIGEST_MISMATCH) << wrong;
  EXPECT_TRUE(send(std::nullopt).ok());
}

TEST_F(UploadStoreTest, WithoutVerifyingTakesTheDigestAtItsWordAndChunksNot) {
  UploadStore store(
      {.max_blob_bytes = 10'000, .budget_bytes = 25'000, .verify = false},
      [](SessionId) { return true; }, clock_, executor_);
  Blob liar = RandomBlob(3000, 1);
  liar.digest = DigestOf("something else");
  store.Begin({.session = kSession, .digest = liar.digest, .size = 3000});
  const auto upload = store.Find(kSession, liar.digest);
  const std::array<std::span<const std::byte>, 1> all = {liar.bytes->bytes()};
  EXPECT_EQ(ReasonOf(upload->Append(0, 1234, all)), v1::Refusal::REASON_CHECKSUM);
  EXPECT_FALSE(upload->complete());
  absl::Status outcome = absl::UnknownError("not yet");
  upload->WhenComplete([&](absl::Status status) { outcome = status; });
  EXPECT_TRUE(upload->Append(0, Checksum(all[0]), all).ok());
  EXPECT_TRUE(outcome.ok()) << outcome;
  EXPECT_TRUE(
      std::ranges::equal(store.Get(kSession, BlobPurpose::kSums, liar.digest)->bytes(), all[0]));
}

TEST_F(UploadStoreTest, CountsMemoryUntilTheLastUserHasGone) {
  const Blob a = RandomBlob(10'000, 1), b = RandomBlob(10'000, 2), c = RandomBlob(10'000, 3);
  EXPECT_EQ(Begin(DigestOf("x"), 10'001).verdict, UploadVerdict::kTooLarge);
  EXPECT_EQ(Begin(DigestOf("x"), ~uint64_t{0}).verdict, UploadVerdict::kTooLarge);
  Begin(a.digest, 10'000);
  Begin(b.digest, 10'000, kOther);
  EXPECT_EQ(Begin(c.digest, 10'000, kThird).verdict, UploadVerdict::kBusy);
  ASSERT_TRUE(Send(a, 0, 10'000).ok());
  ASSERT_TRUE(AwaitComplete(a).ok());
  executor_.WaitIdle();
  auto bytes = Get(a);
  store_.Claim(kSession, BlobPurpose::kSums, a.digest);
  EXPECT_EQ(Begin(c.digest, 10'000, kThird).verdict,
            UploadVerdict::kBusy);  // `bytes` still holds it
  EXPECT_EQ(Begin(a.digest, 10'000).verdict, UploadVerdict::kHave);
  bytes = nullptr;
  EXPECT_EQ(Begin(c.digest, 10'000, kThird).verdict, UploadVerdict::kSend);
  EXPECT_EQ(store_.used_bytes(), 20'000u);
}

TEST_F(UploadStoreTest, ASessionHoldsOneUploadOfEachPurposeHoweverManyItBegins) {
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(Begin(DigestOf(std::to_string(i)), 10'000).verdict, UploadVerdict::kSend);
    EXPECT_LE(store_.used_bytes(), 10'000u);
  }
  EXPECT_EQ(store_.Find(kSession, DigestOf("98")), nullptr);
  EXPECT_NE(store_.Find(kSession, DigestOf("99")), nullptr);
  // So others always find room.
  EXPECT_EQ(Begin(DigestOf("sums"), 10'000, kOther).verdict, UploadVerdict::kSend);
  EXPECT_EQ(Begin(DigestOf("records"), 5'000, kOther, BlobPurpose::kRecords).verdict,
            UploadVerdict::kSend);
  EXPECT_NE(store_.Find(kOther, DigestOf("sums")), nullptr);
}

TEST_F(UploadStoreTest, AStreamThatIsLeftOpenKeepsNoMemory) {
  const Blob blob = RandomBlob(9000, 1);
  Begin(blob.digest, 9000);
  const auto stream = store_.Find(kSession, blob.digest);
  absl::Status outcome;
  stream->WhenComplete([&](absl::Status status) { outcome = status; });
  Begin(DigestOf("another"), 5000);
  EXPECT_EQ(store_.used_bytes(), 5000u);
  EXPECT_EQ(ReasonOf(outcome), v1::Refusal::REASON_NOT_BEGUN);
  const std::array<std::span<const std::byte>, 1> all = {blob.bytes->bytes()};
  EXPECT_EQ(ReasonOf(stream->Append(0, Checksum(all[0]), all)), v1::Refusal::REASON_NOT_BEGUN);
  EXPECT_EQ(stream->bytes(), nullptr);
}

TEST_F(UploadStoreTest, TakesASessionsNextUploadWhileTheHandlerHoldsOneAndNotTwo) {
  const auto bring = [&](const Blob& blob) {
    EXPECT_EQ(Begin(blob.digest, 6000).verdict, UploadVerdict::kSend);
    EXPECT_TRUE(Send(blob, 0, 6000).ok());
    EXPECT_TRUE(AwaitComplete(blob).ok());
    executor_.WaitIdle();
    auto bytes = Get(blob);
    store_.Claim(kSession, BlobPurpose::kSums, blob.digest);
    return bytes;
  };
  const Blob one = RandomBlob(6000, 1), two = RandomBlob(6000, 2);
  auto first = bring(one);
  const auto second = bring(two);
  EXPECT_EQ(Begin(DigestOf("next"), 6000).verdict, UploadVerdict::kBusy);
  EXPECT_TRUE(std::ranges::equal(first->bytes(), one.bytes->bytes()));
  EXPECT_TRUE(std::ranges::equal(second->bytes(), two.bytes->bytes()));
  first = nullptr;
  EXPECT_EQ(Begin(DigestOf("next"), 6000).verdict, UploadVerdict::kSend);
}

TEST_F(UploadStoreTest, NobodyReachesWhatAnotherSessionOrPurposeHasBrought) {
  const Blob blob = RandomBlob(9000, 1);
  Begin(blob.digest, 9000);
  EXPECT_EQ(store_.Find(kOther, blob.digest), nullptr);
  // Who offers the same name with another size hinders nobody.
  EXPECT_EQ(Begin(blob.digest, 8000, kOther).verdict, UploadVerdict::kSend);
  ASSERT_TRUE(Send(blob, 0, 9000).ok());
  ASSERT_TRUE(AwaitComplete(blob).ok());
  EXPECT_NE(Get(blob), nullptr);
  EXPECT_EQ(store_.Get(kSession, BlobPurpose::kRecords, blob.digest), nullptr);
  EXPECT_EQ(store_.Get(kOther, BlobPurpose::kSums, blob.digest), nullptr);
  EXPECT_EQ(store_.Get(kNobody, BlobPurpose::kPopulation, blob.digest), nullptr);
}

TEST_F(UploadStoreTest, StrangersShareASmallBudgetAndTheOneThatIsSentStays) {
  const auto begin = [&](const Digest& digest) {
    return Begin(digest, 5000, kNobody, BlobPurpose::kPopulation).verdict;
  };
  EXPECT_EQ(Begin(DigestOf("x"), 15'001, kNobody, BlobPurpose::kPopulation).verdict,
            UploadVerdict::kTooLarge);
  const Blob honest = RandomBlob(5000, 1);
  EXPECT_EQ(begin(honest.digest), UploadVerdict::kSend);
  ASSERT_TRUE(Send(honest, 0, 1000, kNobody).ok());
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(begin(DigestOf(std::to_string(i))), UploadVerdict::kSend);
    EXPECT_LE(store_.used_bytes(), 15'000u);
  }
  ASSERT_TRUE(Send(honest, 1000, 4000, kNobody).ok());
  EXPECT_TRUE(AwaitComplete(honest, kNobody).ok());
  // And their budget is not that of sessions.
  EXPECT_EQ(Begin(DigestOf("sums"), 10'000).verdict, UploadVerdict::kSend);
}

TEST_F(UploadStoreTest, ACallerWithANameSpoilsNoOthersPopulation) {
  const SessionId liar(101), honest(103);  // their numbers
  const Blob blob = RandomBlob(5000, 1), wrong = RandomBlob(5000, 2);
  const auto begin = [&](SessionId who, const Digest& digest) {
    return Begin(digest, 5000, who, BlobPurpose::kPopulation).verdict;
  };
  // Other bytes under the honest caller's digest.
  EXPECT_EQ(begin(liar, blob.digest), UploadVerdict::kSend);
  const auto upload = store_.Find(liar, blob.digest);
  ASSERT_NE(upload, nullptr);
  const auto bytes = std::as_const(*wrong.bytes).bytes().subspan(0, 1000);
  ASSERT_TRUE(upload->Append(0, Checksum(bytes), std::array{bytes}).ok());
  EXPECT_EQ(begin(honest, blob.digest), UploadVerdict::kSend);
  ASSERT_TRUE(Send(blob, 0, 5000, honest).ok());
  EXPECT_TRUE(AwaitComplete(blob, honest).ok());
  // Whatever it begins, it has one at a time.
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(begin(liar, DigestOf(std::to_string(i))), UploadVerdict::kSend);
    EXPECT_LE(store_.used_bytes(), 10'000u);
  }
  EXPECT_NE(store_.Get(honest, BlobPurpose::kPopulation, blob.digest), nullptr);
}

TEST_F(UploadStoreTest, WhatIsMappedIsCompleteAndKeepsItsBytes) {
  const Blob blob = RandomBlob(9000, 1);
  EXPECT_EQ(
      store_.Begin({.session = kSession, .digest = blob.digest, .size = 9000}, blob.bytes).verdict,
      UploadVerdict::kHave);
  EXPECT_EQ(Get(blob).get(), blob.bytes.get());
  EXPECT_EQ(store_.used_bytes(), 9000u);
  // Somebody sends it all the same: a repeat, to the end and past it.
  EXPECT_TRUE(Send(blob, 0, 4000).ok());
  EXPECT_TRUE(Send(blob, 9000, 0).ok());
  const std::array<std::span<const std::byte>, 1> all = {blob.bytes->bytes()};
  EXPECT_EQ(ReasonOf(store_.Find(kSession, blob.digest)->Append(1, 0, all)),
            v1::Refusal::REASON_OFFSET);
  EXPECT_TRUE(AwaitComplete(blob).ok());
  EXPECT_TRUE(std::ranges::equal(Get(blob)->bytes(), blob.bytes->bytes()));
}

TEST_F(UploadStoreTest, DropsWhatNobodyTouches) {
  Begin(DigestOf("a"), 10'000);
  clock_.Advance(FromSeconds(50));
  Begin(DigestOf("b"), 10'000, kOther);
  clock_.Advance(FromSeconds(50));
  Begin(DigestOf("x"), 1, kThird);
  EXPECT_EQ(store_.Find(kSession, DigestOf("a")), nullptr);
  EXPECT_NE(store_.Find(kOther, DigestOf("b")), nullptr);
  EXPECT_EQ(store_.used_bytes(), 10'001u);
}

TEST_F(UploadStoreTest, ContinuesAfterALongSilence) {
  const Blob blob = RandomBlob(9000, 1);
  Begin(blob.digest, 9000);
  ASSERT_TRUE(Send(blob, 0, 4000).ok());
  clock_.Advance(FromSeconds(1000));
  const auto begun = Begin(blob.digest, 9000);
  EXPECT_EQ(begun.verdict, UploadVerdict::kSend);
  EXPECT_EQ(begun.offset, 4000u);
  // Also where another session has brought something meanwhile, and there is memory for both.
  clock_.Advance(FromSeconds(1000));
  Begin(DigestOf("another"), 3000, kOther);
  EXPECT_EQ(Begin(blob.digest, 9000).offset, 4000u);
  ASSERT_TRUE(Send(blob, 4000, 5000).ok());
  EXPECT_TRUE(AwaitComplete(blob).ok());
}

TEST_F(UploadStoreTest, KeepsTheSumsOfACommitWhileItsRecordsArriveSlowly) {
  const Blob sums = RandomBlob(9000, 1), records = RandomBlob(9000, 2);
  Begin(sums.digest, 9000);
  ASSERT_TRUE(Send(sums, 0, 9000).ok());
  ASSERT_TRUE(AwaitComplete(sums).ok());
  Begin(records.digest, 9000, kSession, BlobPurpose::kRecords);
  for (uint64_t at = 0; at < 9000; at += 3000) {
    clock_.Advance(FromSeconds(50));
    ASSERT_TRUE(Send(records, at, 3000).ok());
    Begin(DigestOf(std::to_string(at)), 1, kOther);  // memory is short
  }
  EXPECT_NE(Get(sums), nullptr);
}

TEST_F(UploadStoreTest, WhatIsOfferedOrReadIsInUse) {
  const Blob blob = RandomBlob(9000, 1);
  Begin(DigestOf("takes memory"), 10'000, kThird);
  Begin(blob.digest, 9000);
  ASSERT_TRUE(Send(blob, 0, 9000).ok());
  ASSERT_TRUE(AwaitComplete(blob).ok());
  const auto others_offer = [&](int number) {
    clock_.Advance(FromSeconds(50));
    Begin(DigestOf(std::to_string(number)), 1, kOther);
  };
  others_offer(1);
  EXPECT_EQ(Begin(blob.digest, 9000).verdict, UploadVerdict::kHave);
  others_offer(2);
  EXPECT_NE(Get(blob), nullptr);
  others_offer(3);
  EXPECT_NE(store_.Find(kSession, blob.digest), nullptr);
  EXPECT_EQ(store_.Find(kThird, DigestOf("takes memory")), nullptr);
}

TEST_F(UploadStoreTest, WhatStrangersLeaveGoesThoughThereIsMemory) {
  Begin(DigestOf("left"), 100, kNobody, BlobPurpose::kPopulation);
  const Blob blob = RandomBlob(100, 1);
  Begin(blob.digest, 100, kSession);
  clock_.Advance(FromSeconds(61));
  Begin(DigestOf("x"), 1, kOther);
  EXPECT_EQ(store_.Find(kNobody, DigestOf("left")), nullptr);
  EXPECT_NE(store_.Find(kSession, blob.digest), nullptr);
}

TEST_F(UploadStoreTest, DropsWhatASessionThatHasEndedBrought) {
  Begin(DigestOf("a"), 10'000);
  Begin(DigestOf("b"), 10'000, kOther);
  ended_.insert(kSession);
  EXPECT_EQ(Begin(DigestOf("c"), 10'000, kThird).verdict, UploadVerdict::kSend);
  EXPECT_EQ(store_.Find(kSession, DigestOf("a")), nullptr);
  EXPECT_NE(store_.Find(kOther, DigestOf("b")), nullptr);
  EXPECT_EQ(store_.used_bytes(), 20'000u);
}

TEST_F(UploadStoreTest, DropsWhatWasBroughtForARoundThatIsOver) {
  Begin(DigestOf("late"), 10'000);
  Begin(DigestOf("population"), 5'000, kNobody, BlobPurpose::kPopulation);
  Begin(DigestOf("next"), 10'000, kOther, BlobPurpose::kSums, Round(2));
  EXPECT_EQ(store_.Find(kSession, DigestOf("late")), nullptr);
  EXPECT_NE(store_.Find(kNobody, DigestOf("population")), nullptr);
  EXPECT_EQ(store_.used_bytes(), 15'000u);
}

TEST_F(UploadStoreTest, TakesOneBlobFromManySendersAtOnce) {
  const Blob blob = RandomBlob(9999, 1);
  std::vector<std::thread> senders;
  for (int t = 0; t < 4; ++t) {
    senders.emplace_back([&] {
      // The budget holds one such blob and there are four senders: one buffer serves them all.
      EXPECT_NE(Begin(blob.digest, 9999, kNobody, BlobPurpose::kPopulation).verdict,
                UploadVerdict::kBusy);
      for (uint64_t at = 0; at < 9999; at += 101)
        EXPECT_TRUE(Send(blob, at, std::min<uint64_t>(101, 9999 - at), kNobody).ok());
    });
  }
  for (std::thread& sender : senders) sender.join();
  EXPECT_TRUE(AwaitComplete(blob, kNobody).ok());
}

}  // namespace
}  // namespace macaw::wire
