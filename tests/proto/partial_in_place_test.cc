// Blobs that lie in files (core/page_pool.h): what continues after a restart is the memory itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "core/page_pool.h"
#include "proto/wire/partial_files.h"
#include "proto/wire/upload_store.h"
#include "testing/disk_space.h"
#include "testing/fake_handler.h"
#include "testing/temporary_folder.h"
#include "tests/proto/blob_files.h"

namespace macaw::wire {
namespace {

using fleet::Blob;
using fleet::BlobPurpose;
using fleet::RandomBlob;
using wire_testing::FilesIn;
using wire_testing::Flip;

// The setting is the process's, so these tests have processes of their own, which end with 0 if all
// holds.
constexpr uint64_t kLarge = (uint64_t{5} << 20) + 777;
constexpr uint64_t kPiece = uint64_t{64} << 10;

void Must(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "not so: %s\n", what);
  std::_Exit(1);
}

// What the next process finds of the blob, in its file.
struct Mapped {
  std::shared_ptr<PartialFile> file;
  AlignedBuffer blob;
  uint64_t there = 0;
};

Mapped OpenMapped(const std::string& folder) {
  const auto partials = PartialFiles::Open({.folder = folder});
  Mapped mapped{.file = (*partials)->Take("a", kLarge)};
  Must(mapped.file != nullptr, "nobody else uses the file");
  mapped.blob = mapped.file->Map(kLarge);
  Must(mapped.blob.size() == kLarge, "the blob lies in it");
  mapped.there = mapped.file->Read(mapped.blob.bytes());
  return mapped;
}

void Arrive(Mapped& mapped, const Blob& blob, uint64_t bytes) {
  const auto some = blob.bytes->bytes().subspan(mapped.there, bytes);
  const auto place = mapped.blob.bytes().subspan(mapped.there, bytes);
  std::ranges::copy(some, place.begin());
  mapped.file->Append(place);
  mapped.there += bytes;
}

bool BeginsAs(const Mapped& mapped, const Blob& blob) {
  return std::ranges::equal(std::as_const(mapped.blob).bytes().first(mapped.there),
                            blob.bytes->bytes().first(mapped.there));
}

void KeepTheBeginningInItsFile(const std::string& folder) {
  Must(KeepLargeBlocksIn(folder, 1 << 20).ok(), "the folder takes files");
  const std::string files = folder + "/uploads";
  const Blob blob = RandomBlob(kLarge, 1);
  {
    Mapped first = OpenMapped(files);
    Must(first.there == 0, "nothing is there");
    for (int i = 0; i < 3; ++i) Arrive(first, blob, 100'000);
    Must(testing_support::BytesOnDisk(files) <= kLarge + 2 * kPiece, "it is on the disk once");
  }
  {
    Mapped next = OpenMapped(files);
    Must(next.there == 300'000 / kPiece * kPiece, "whole pieces are there");
    Must(BeginsAs(next, blob), "they are right");
    Arrive(next, blob, kLarge - next.there);
  }
  Must(OpenMapped(files).there == kLarge, "all of it is there");
  Flip(FilesIn(files).at(0), 2 * kPiece + 5);
  Must(OpenMapped(files).there == 2 * kPiece, "what is damaged is lost, and nothing before");
  Mapped last = OpenMapped(files);
  Arrive(last, blob, kLarge - last.there);
  last.file->Discard();
  last.file = nullptr;
  Must(FilesIn(files).empty(), "a complete blob has no file with a name");
  Must(BeginsAs(last, blob), "and it is still there");
  std::_Exit(0);
}

TEST(PartialFilesInPlace, KeepTheBeginningOfABlobOnce) {
  const testing_support::TemporaryFolder folder;
  EXPECT_EXIT(KeepTheBeginningInItsFile(folder.path()), testing::ExitedWithCode(0), "");
}

void ReadTheOtherForm(const std::string& folder) {
  const std::string files = folder + "/uploads";
  const Blob blob = RandomBlob(kLarge, 1);
  const auto frames = [&](uint64_t bytes) {
    const auto partials = PartialFiles::Open({.folder = files});
    const auto file = (*partials)->Take("a", kLarge);
    Must(file->Map(kLarge).size() == 0, "without the setting it is not mapped");
    AlignedBuffer read(kLarge);
    const uint64_t there = file->Read(read.bytes());
    file->Append(blob.bytes->bytes().subspan(there, bytes));
    return there;
  };
  Must(frames(3000) == 0 && frames(3000) == 3000, "frames are read");
  Must(KeepLargeBlocksIn(folder, 1 << 20).ok(), "the folder takes files");
  Mapped mapped = OpenMapped(files);
  Must(mapped.there == 0, "frames are no beginning in place");
  Arrive(mapped, blob, kLarge);
  Must(BeginsAs(mapped, blob), "it arrives again");
  mapped = {};
  const auto partials = PartialFiles::Open({.folder = files});
  const auto file = (*partials)->Take("a", kLarge);
  AlignedBuffer read(kLarge);
  Must(file->Read(read.bytes()) == 0, "and a beginning in place is no frames");
  file->Append(blob.bytes->bytes().first(5000));
  std::_Exit(0);
}

TEST(PartialFilesInPlace, AndFramesAreNotTakenForEachOther) {
  const testing_support::TemporaryFolder folder;
  EXPECT_EXIT(ReadTheOtherForm(folder.path()), testing::ExitedWithCode(0), "");
}

void UploadInPlace(const std::string& folder) {
  Must(KeepLargeBlocksIn(folder, 1 << 20).ok(), "the folder takes files");
  const std::string files = folder + "/uploads";
  const Blob blob = RandomBlob(kLarge, 1);
  const uint64_t before = testing_support::BytesOnDisk(folder);
  const Clock& clock = SteadyClock();
  Executor executor("test", 2);
  const auto open = [&] {
    return std::make_unique<UploadStore>(
        UploadStore::Options{.max_blob_bytes = kLarge, .budget_bytes = 2 * kLarge},
        [](SessionId) { return true; }, clock, executor, *PartialFiles::Open({.folder = files}));
  };
  const auto begin = [&](UploadStore& store) {
    return store
        .Begin({.purpose = BlobPurpose::kSums,
                .session = SessionId(7),
                .digest = blob.digest,
                .size = blob.size,
                .round = Round(1)})
        .offset;
  };
  const auto send = [&](UploadStore& store, uint64_t from, uint64_t bytes) {
    const std::array pieces = {blob.bytes->bytes().subspan(from, bytes)};
    Must(store.Find(SessionId(7), blob.digest)->Append(from, Checksum(pieces[0]), pieces).ok(),
         "a chunk arrives");
  };
  auto store = open();
  Must(begin(*store) == 0, "nothing is there");
  send(*store, 0, 3 << 20);
  store = nullptr;
  executor.WaitIdle();  // until no task holds the file of the first store
  store = open();
  Must(begin(*store) == 3 << 20, "the next server continues");
  send(*store, 3 << 20, kLarge - (3 << 20));
  absl::Notification done;
  store->Find(SessionId(7), blob.digest)->WhenComplete([&](absl::Status status) {
    Must(status.ok(), "the digest is right");
    done.Notify();
  });
  done.WaitForNotification();
  Must(testing_support::BytesOnDisk(folder) - before <= kLarge + 2 * kPiece,
       "an upload is on the disk once");
  auto bytes = store->Get(SessionId(7), BlobPurpose::kSums, blob.digest);
  Must(std::ranges::equal(bytes->bytes(), blob.bytes->bytes()), "it is what was sent");
  store->Claim(SessionId(7), BlobPurpose::kSums, blob.digest);
  bytes = nullptr;
  while (!FilesIn(files).empty()) std::this_thread::yield();
  std::_Exit(0);
}

TEST(PartialFilesInPlace, AnUploadIsOnTheDiskOnce) {
  const testing_support::TemporaryFolder folder;
  EXPECT_EXIT(UploadInPlace(folder.path()), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace macaw::wire
