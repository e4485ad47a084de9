#include "state/disk_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "core/files.h"
#include "state/blob.h"
#include "state/folder_of_run.h"
#include "testing/small_disk.h"
#include "tests/state/states.h"

namespace macaw::state {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const Digest kDiskRun = DigestOf("a run");

void Replace(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

std::vector<std::string> SegmentsIn(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".states") files.push_back(entry.path().string());
  }
  std::ranges::sort(files);
  return files;
}

class DiskStateStoreTest : public ::testing::Test {
 protected:
  DiskStateStoreTest() { EXPECT_TRUE(store_->Put(kVersion, state_.views()).ok()); }
  std::string File() const { return SegmentsIn(folder_.path()).at(0); }
  // Stands for another process: it shares no open file with this one.
  std::unique_ptr<DiskStateStore> Other() const {
    return *DiskStateStore::Open(folder_.path(), schema_, kDiskRun);
  }

  static constexpr Attempt kVersion{ClientId(7), {1, 3}};
  const StateSchema schema_ = TwoItems();
  const uint64_t bytes_ = BlobBytes(schema_);
  const TestState state_{schema_, 1};
  const TemporaryFolder folder_;
  const std::unique_ptr<DiskStateStore> store_ =
      *DiskStateStore::Open(folder_.path(), schema_, kDiskRun);
};

TEST_F(DiskStateStoreTest, TenThousandVersionsAreOneFile) {
  for (uint64_t counter = 100; counter < 10100; ++counter) {
    ASSERT_TRUE(store_->Put(Version(counter % 977, 1, counter), state_.views()).ok());
  }
  ASSERT_TRUE(store_->Flush().ok());
  EXPECT_EQ(SegmentsIn(folder_.path()).size(), 1u);
  EXPECT_TRUE(state_.Equals(*Other()->Get(Version(4321 % 977, 1, 4321))));
}

TEST_F(DiskStateStoreTest, AnotherProcessSeesWhatWasPutAtOnce) {
  EXPECT_TRUE(state_.Equals(*Other()->Get(kVersion)));
}

TEST_F(DiskStateStoreTest, WhatAKilledProcessHadPutIsThere) {
  const pid_t child = ::fork();
  if (child == 0) {
    const auto store = DiskStateStore::Open(folder_.path(), schema_, kDiskRun);
    const bool put = store.ok() && (*store)->Put(Version(8, 1, 4), state_.views()).ok();
    ::kill(::getpid(), put ? SIGKILL : SIGTERM);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  EXPECT_TRUE(state_.Equals(*store_->Get(Version(8, 1, 4))));
}

TEST_F(DiskStateStoreTest, EveryDamagedByteIsNoticed) {
  const std::string good = *ReadFile(File());
  ASSERT_EQ(good.size(), 4 * bytes_);
  for (size_t place = 3 * bytes_; place < good.size(); place += 5) {
    std::string bad = good;
    bad[place] = static_cast<char>(bad[place] ^ 0x10);
    Replace(File(), bad);
    const absl::Status status = Other()->Get(kVersion).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << place;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("client 7"), HasSubstr("version 1.3")));
  }
}

// What a crash of the machine can leave: the end of the file, or any part of it, was never written.
TEST_F(DiskStateStoreTest, ATornTailIsNoticedAndHarmsNothingBeforeIt) {
  ASSERT_TRUE(store_->Put(Version(8, 1, 2), state_.views()).ok());
  const std::string good = *ReadFile(File());
  for (uint64_t size = 3 * bytes_; size < 4 * bytes_; size += 16) {
    Replace(File(), good.substr(0, size));
    const absl::StatusOr<ClientState> cut = Other()->Get(kVersion);
    if (cut.ok()) {  // the last bytes are padding
      EXPECT_GT(size, 4 * bytes_ - 64);
      EXPECT_TRUE(state_.Equals(*cut));
      continue;
    }
    EXPECT_EQ(cut.status().code(),
              size == 3 * bytes_ ? absl::StatusCode::kNotFound : absl::StatusCode::kDataLoss)
        << size;
    EXPECT_TRUE(state_.Equals(*Other()->Get(Version(8, 1, 2))));
    // The attempt itself was never accepted, so a new one may overwrite what is left of it.
    EXPECT_TRUE(Other()->Put(kVersion, state_.views()).ok());
    EXPECT_TRUE(state_.Equals(*Other()->Get(kVersion)));
  }
}

TEST_F(DiskStateStoreTest, ARecordInAnotherPlaceIsNotTakenForIt) {
  std::string bytes = *ReadFile(File());
  bytes += bytes.substr(3 * bytes_);
  Replace(File(), bytes);
  const absl::Status status = Other()->Get(Version(7, 1, 4)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("the blob is of client 7, state version 1.3"));
}

TEST_F(DiskStateStoreTest, TheStatesOfAnotherRunOrModelAreRefused) {
  const auto why = [](const absl::StatusOr<std::unique_ptr<DiskStateStore>>& store) {
    EXPECT_EQ(store.status().code(), absl::StatusCode::kFailedPrecondition);
    return std::string(store.status().message());
  };
  EXPECT_THAT(why(DiskStateStore::Open(folder_.path(), schema_, DigestOf("another"))),
              AllOf(HasSubstr("another run"), HasSubstr("state.path")));
  const StateSchema other = {ParameterLayout::Scalars("control", 21, DType::kF32)};
  EXPECT_THAT(why(DiskStateStore::Open(folder_.path(), other, kDiskRun)),
              HasSubstr("another model"));
}

TEST_F(DiskStateStoreTest, WhatIsDamagedInTheRunsOwnFolderIsWrittenAnewAndStatesAreKept) {
  const std::string own = *FolderOfRun(folder_ / "device", kDiskRun);
  ASSERT_TRUE((*DiskStateStore::Open(own, schema_, kDiskRun))->Put(kVersion, state_.views()).ok());
  const std::string store = own + "/store", whole = *ReadFile(store);
  std::string flipped = whole;
  flipped[40] ^= 1;
  for (const std::string& damaged : {std::string(), whole.substr(0, 60), flipped}) {
    Replace(store, damaged);
    EXPECT_EQ(*FolderOfRun(folder_ / "device", kDiskRun), own);
    const auto opened = DiskStateStore::Open(own, schema_, kDiskRun);
    ASSERT_TRUE(opened.ok()) << opened.status();
    EXPECT_TRUE(state_.Equals(*(*opened)->Get(kVersion)));
    EXPECT_EQ(*ReadFile(store), whole);
  }
}

TEST_F(DiskStateStoreTest, DeletedVersionsGiveTheirRoomBack) {
  std::vector<Attempt> early, late;
  for (uint64_t counter = 0; counter < 4000; ++counter) {
    const Attempt version = Version(counter, 2, counter);
    ASSERT_TRUE(store_->Put(version, state_.views()).ok());
    (counter % 7 == 0 ? late : early).push_back(version);
  }
  ASSERT_TRUE(store_->Flush().ok());
  const uint64_t full = store_->UsageOnDisk()->bytes;
  ASSERT_TRUE(store_->Delete(early).ok());
  for (const Attempt& version : late) ASSERT_TRUE(state_.Equals(*Other()->Get(version)));
  EXPECT_EQ(Other()->Get(early[0]).status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(store_->Delete(late).ok());
  ASSERT_TRUE(store_->Flush().ok());
  EXPECT_LT(store_->UsageOnDisk()->bytes, full / 20);
  EXPECT_TRUE(state_.Equals(*store_->Get(kVersion))) << "of another epoch";
}

TEST_F(DiskStateStoreTest, AFileGoesWithItsLastVersionOnceNobodyWritesToItAnyMore) {
  const Attempt gone[] = {kVersion};
  ASSERT_TRUE(store_->Delete(gone).ok());
  EXPECT_EQ(SegmentsIn(folder_.path()).size(), 1u) << "attempts of this file may still be running";
  ASSERT_TRUE(store_->Put(Version(7, 2, 1), state_.views()).ok());
  ASSERT_TRUE(store_->Flush().ok());
  const Attempt later[] = {kVersion, Version(7, 2, 1)};
  ASSERT_TRUE(store_->Delete(later).ok());
  EXPECT_THAT(SegmentsIn(folder_.path()), ::testing::ElementsAre(HasSubstr("/2-0.states")));
}

TEST(DiskStateStore, LargeStatesBeginOnBlocksAndAreFreedOneByOne) {
  const TemporaryFolder folder;
  const StateSchema schema = {ParameterLayout::Scalars("personal", 50000, DType::kF32)};
  const TestState state(schema, 3);
  const auto store = *DiskStateStore::Open(folder.path(), schema, kDiskRun);
  for (uint64_t counter = 1; counter <= 8; ++counter)
    ASSERT_TRUE(store->Put(Version(counter, 1, counter), state.views()).ok());
  ASSERT_TRUE(store->Flush().ok());
  const uint64_t full = store->UsageOnDisk()->bytes;
  const Attempt gone[] = {Version(4, 1, 4)};
  ASSERT_TRUE(store->Delete(gone).ok());
  EXPECT_LE(store->UsageOnDisk()->bytes, full - 200000 + 4096);
  EXPECT_TRUE(state.Equals(*store->Get(Version(3, 1, 3))));
  EXPECT_TRUE(state.Equals(*store->Get(Version(5, 1, 5))));
}

TEST(DiskStateStore, AFullDiskIsAnErrorAndWhatWasPutBeforeStays) {
  const testing_support::SmallDisk disk(64 << 10);
  if (!disk.mounted()) GTEST_SKIP() << disk.why();
  const StateSchema schema = {ParameterLayout::Scalars("control", 2500, DType::kF32)};
  const TestState state(schema, 3);
  const auto store = *DiskStateStore::Open(disk.path() + "/states", schema, kDiskRun);
  absl::Status full;
  uint64_t put = 0;
  while (put < 100 && full.ok()) {
    full = store->Put(Version(put, 1, 1 + put), state.views());
    put += full.ok() ? 1 : 0;
  }
  ASSERT_GE(put, 2u);
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted) << full;
  EXPECT_THAT(std::string(full.message()),
              AllOf(HasSubstr(absl::StrCat("client ", put)), HasSubstr(disk.path())));
  for (uint64_t client = 0; client < put; ++client)
    EXPECT_TRUE(state.Equals(*store->Get(Version(client, 1, 1 + client))));
  EXPECT_FALSE(store->Get(Version(put, 1, 1 + put)).ok()) << "half of it may be there";
  ASSERT_TRUE(disk.Grow(1 << 20));
  EXPECT_TRUE(store->Put(Version(put, 1, 1 + put), state.views()).ok());
  EXPECT_TRUE(store->Flush().ok());
  EXPECT_TRUE(state.Equals(*store->Get(Version(put, 1, 1 + put))));
}

TEST(DiskStateStore, SaysWhichFolderItCannotUse) {
  EXPECT_THAT(
      std::string(
          DiskStateStore::Open("/dev/null/states", TwoItems(), kDiskRun).status().message()),
      HasSubstr("/dev/null/states"));
}

}  // namespace
}  // namespace macaw::state
