// Transfers that continue after a restart: the files with the beginnings of blobs, and the uploads
// of a server that ended.
#include "proto/wire/partial_files.h"

#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "proto/wire/refusal.h"
#include "proto/wire/upload_store.h"
#include "testing/fake_clock.h"
#include "testing/fake_handler.h"
#include "testing/temporary_folder.h"
#include "tests/proto/blob_files.h"

namespace macaw::wire {
namespace {

namespace fs = std::filesystem;
using fleet::Blob;
using fleet::BlobPurpose;
using fleet::RandomBlob;
using fleet::UploadVerdict;
using testing_support::FakeClock;
using wire_testing::FilesIn;
using wire_testing::Flip;

constexpr uint64_t kSize = 9000;
constexpr uint64_t kFrameHead = 16;

class PartialUploads : public testing::Test {
 protected:
  PartialUploads() { Restart(); }

  // What is in memory is lost.
  void Restart(uint64_t budget = 100'000) {
    store_.reset();
    auto partials = PartialFiles::Open({.folder = files_, .budget_bytes = budget});
    ASSERT_TRUE(partials.ok()) << partials.status();
    store_ = std::make_unique<UploadStore>(
        UploadStore::Options{.max_blob_bytes = 10'000, .budget_bytes = 50'000},
        [this](SessionId session) { return !ended_.contains(session); }, clock_, executor_,
        *std::move(partials));
  }
  UploadStore::Begun Begin(const Blob& blob, SessionId session = SessionId(7),
                           Round round = Round(1)) {
    return store_->Begin({.purpose = BlobPurpose::kSums,
                          .session = session,
                          .digest = blob.digest,
                          .size = blob.size,
                          .round = round});
  }
  void Send(const Blob& blob, uint64_t offset, uint64_t size, SessionId session = SessionId(7)) {
    const std::array pieces = {blob.bytes->bytes().subspan(offset, size)};
    const auto status =
        store_->Find(session, blob.digest)->Append(offset, Checksum(pieces[0]), pieces);
    EXPECT_TRUE(status.ok()) << status;
  }
  // Begins and sends the first chunks, each of 3000 bytes, until the server stops.
  void SendAndStop(const Blob& blob, int chunks, SessionId session = SessionId(7)) {
    EXPECT_EQ(Begin(blob, session).verdict, UploadVerdict::kSend);
    for (int i = 0; i < chunks; ++i) Send(blob, 3000 * static_cast<uint64_t>(i), 3000, session);
    Restart();
  }
  absl::Status Complete(const Blob& blob) { return OutcomeOf(*Find(blob)); }
  std::shared_ptr<Upload> Find(const Blob& blob) { return store_->Find(SessionId(7), blob.digest); }
  static absl::Status OutcomeOf(Upload& upload) {
    absl::Notification done;
    absl::Status result;
    upload.WhenComplete([&](absl::Status status) {
      result = status;
      done.Notify();
    });
    done.WaitForNotification();
    return result;
  }
  std::shared_ptr<const AlignedBuffer> Get(const Blob& blob) {
    return store_->Get(SessionId(7), BlobPurpose::kSums, blob.digest);
  }
  void ExpectComplete(const Blob& blob) {
    EXPECT_TRUE(Complete(blob).ok());
    const auto bytes = Get(blob);
    ASSERT_NE(bytes, nullptr);
    EXPECT_TRUE(std::ranges::equal(bytes->bytes(), blob.bytes->bytes()));
  }
  std::vector<std::string> Files() const { return FilesIn(files_); }
  void AwaitNoFile() const {
    while (!Files().empty()) std::this_thread::yield();
  }

  const testing_support::TemporaryFolder folder_;
  const std::string files_ = folder_ / "uploads";
  FakeClock clock_;
  std::set<SessionId> ended_;
  Executor executor_{"test", 2};
  std::unique_ptr<UploadStore> store_;
};

TEST_F(PartialUploads, ContinueInTheNextServer) {
  const Blob blob = RandomBlob(kSize, 1);
  SendAndStop(blob, 2);
  const auto begun = Begin(blob);
  EXPECT_EQ(begun.verdict, UploadVerdict::kSend);
  EXPECT_EQ(begun.offset, 6000u);
  Send(blob, 6000, 3000);
  ExpectComplete(blob);
}

TEST_F(PartialUploads, ThatHadArrivedButWereNotCommittedAreNotSentAgain) {
  const Blob blob = RandomBlob(kSize, 1);
  SendAndStop(blob, 3);
  EXPECT_EQ(Begin(blob).offset, kSize);
  ExpectComplete(blob);
}

TEST_F(PartialUploads, LoseWhatIsDamagedOnTheDiskAndNothingBefore) {
  const Blob blob = RandomBlob(kSize, 1);
  const std::vector<std::pair<uint64_t, uint64_t>> kept_by_place = {
      {kFrameHead + 3000 + kFrameHead + 7, 3000},  // a byte of the second chunk
      {kFrameHead + 7, 0},                         // a byte of the first
      {5, 0},                                      // a length
  };
  for (const auto& [place, kept] : kept_by_place) {
    EXPECT_EQ(Begin(blob).verdict, UploadVerdict::kSend);
    // The first chunk is in the file, in a frame of its own, before the second arrives.
    Send(blob, 0, 3000);
    Restart();
    EXPECT_EQ(Begin(blob).offset, 3000u);
    Send(blob, 3000, 3000);
    Restart();
    Flip(Files().at(0), place);
    EXPECT_EQ(Begin(blob).offset, kept);
    Send(blob, kept, kSize - kept);
    ExpectComplete(blob);
    store_->Claim(SessionId(7), BlobPurpose::kSums, blob.digest);
    AwaitNoFile();
  }
}

TEST_F(PartialUploads, OfOtherBytesThanTheDigestsAreThrownAway) {
  const Blob blob = RandomBlob(kSize, 1), other = RandomBlob(kSize, 2);
  SendAndStop(blob, 1);
  const std::string name = fs::path(Files().at(0)).filename();
  store_.reset();
  {
    const auto partials = PartialFiles::Open({.folder = files_});
    const auto file = (*partials)->Take(name, kSize);
    file->Append(other.bytes->bytes().first(3000));
  }
  Restart();
  EXPECT_EQ(Begin(blob).offset, 3000u);
  const std::shared_ptr<Upload> upload = Find(blob);  // none is found once it has failed
  Send(blob, 3000, 6000);
  EXPECT_EQ(ReasonOf(OutcomeOf(*upload)), v1::Refusal::REASON_DIGEST_MISMATCH);
  EXPECT_EQ(Get(blob), nullptr);
  EXPECT_EQ(Begin(blob).offset, 0u);
}

TEST_F(PartialUploads, AreRemovedOnceTheirBytesAreReleased) {
  const Blob blob = RandomBlob(kSize, 1);
  EXPECT_EQ(Begin(blob).verdict, UploadVerdict::kSend);
  Send(blob, 0, kSize);
  ExpectComplete(blob);
  auto bytes = Get(blob);
  store_->Claim(SessionId(7), BlobPurpose::kSums, blob.digest);
  EXPECT_EQ(Files().size(), 1u) << "the part is not in the journal yet";
  bytes.reset();
  AwaitNoFile();
}

TEST_F(PartialUploads, AreRemovedWithTheirSessionTheirRoundAndTheNextUpload) {
  const Blob blob = RandomBlob(kSize, 1), other = RandomBlob(kSize, 2);
  SendAndStop(blob, 1);
  ended_.insert(SessionId(7));
  Begin(other, SessionId(8));
  EXPECT_EQ(Files().size(), 1u) << "only that of the open session";
  ended_.clear();
  Restart();
  EXPECT_EQ(Begin(blob, SessionId(7), Round(2)).offset, 0u);
  EXPECT_EQ(Files().size(), 1u) << "only that of the open round";
  Restart();
  Begin(other, SessionId(7), Round(2));
  EXPECT_EQ(Files().size(), 1u) << "a session has one upload of its sums";
}

TEST_F(PartialUploads, LeaveMemoryWhenTheyAreIdleAndNotTheDisk) {
  const Blob blob = RandomBlob(kSize, 1);
  EXPECT_EQ(Begin(blob).verdict, UploadVerdict::kSend);
  Send(blob, 0, 3000);
  const auto file = Files().at(0);
  while (fs::file_size(file) < 3000) std::this_thread::yield();
  clock_.Advance(FromSeconds(61));
  Begin(RandomBlob(100, 2), SessionId(8));
  EXPECT_EQ(store_->used_bytes(), 100u);
  UploadStore::Begun begun;
  do begun = Begin(blob);
  while (begun.verdict == UploadVerdict::kBusy);  // as long as the file is being written
  EXPECT_EQ(begun.offset, 3000u);
}

TEST_F(PartialUploads, AreKeptWithinABudgetTheOldestGoingFirst) {
  const Blob blob = RandomBlob(kSize, 1);
  SendAndStop(blob, 2, SessionId(8));
  SendAndStop(blob, 2, SessionId(7));
  store_.reset();
  const auto of_session = [this](char session) {
    for (const std::string& file : Files())
      if (fs::path(file).filename().string().front() == session) return file;
    return std::string();
  };
  fs::last_write_time(of_session('8'), fs::file_time_type::clock::now() - std::chrono::hours(1));
  Restart(/*budget=*/16'000);
  EXPECT_EQ(Begin(blob, SessionId(9)).verdict, UploadVerdict::kSend);
  EXPECT_EQ(of_session('8'), "") << "the older one had to go";
  EXPECT_NE(of_session('7'), "");
  EXPECT_EQ(Begin(blob, SessionId(8)).verdict, UploadVerdict::kSend);
  EXPECT_EQ(of_session('8'), "") << "there is no room on the disk: it is in memory alone";
}

TEST_F(PartialUploads, OfYesterdayAreRemoved) {
  const Blob blob = RandomBlob(kSize, 1);
  SendAndStop(blob, 2);
  store_.reset();
  fs::last_write_time(Files().at(0), fs::file_time_type::clock::now() - std::chrono::hours(25));
  Restart();
  EXPECT_TRUE(Files().empty());
  EXPECT_EQ(Begin(blob).offset, 0u);
}

TEST_F(PartialUploads, WithoutAFolderAreInMemory) {
  fs::remove_all(files_);
  const Blob blob = RandomBlob(kSize, 1);
  EXPECT_EQ(Begin(blob).verdict, UploadVerdict::kSend);
  Send(blob, 0, kSize);
  ExpectComplete(blob);
}

TEST(PartialFilesTest, AFileHasOneUserAtATime) {
  const testing_support::TemporaryFolder folder;
  const auto first = PartialFiles::Open({.folder = folder / "downloads"});
  const auto second = PartialFiles::Open({.folder = folder / "downloads"});  // another process
  auto file = (*first)->Take("a", 100);
  ASSERT_NE(file, nullptr);
  EXPECT_EQ((*first)->Take("a", 100), nullptr);
  EXPECT_EQ((*second)->Take("a", 100), nullptr);
  EXPECT_NE((*second)->Take("b", 100), nullptr);
  file.reset();
  EXPECT_NE((*second)->Take("a", 100), nullptr);
}

}  // namespace
}  // namespace macaw::wire
