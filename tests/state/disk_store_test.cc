#include "state/disk_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/files.h"
#include "tests/state/states.h"

namespace macaw::state {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

void Replace(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

class DiskStateStoreTest : public ::testing::Test {
 protected:
  DiskStateStoreTest() {
    EXPECT_TRUE(store_->Put(kVersion, state_.views()).ok());
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_.path())) {
      if (entry.is_regular_file()) files_.push_back(entry.path().string());
    }
  }

  static constexpr Attempt kVersion{ClientId(7), {1, 3}};
  const StateSchema schema_ = TwoItems();
  const TestState state_{schema_, 1};
  const TemporaryFolder folder_;
  const std::unique_ptr<DiskStateStore> store_ = *DiskStateStore::Open(folder_.path(), schema_);
  std::vector<std::string> files_;
};

TEST_F(DiskStateStoreTest, KeepsOneFileAVersionAndNothingAside) {
  ASSERT_EQ(files_.size(), 1u);
  EXPECT_THAT(files_[0], ::testing::EndsWith("/7-1.3.state"));
}

TEST_F(DiskStateStoreTest, AnotherProcessSeesTheSame) {
  const auto other = *DiskStateStore::Open(folder_.path(), TwoItems());
  EXPECT_TRUE(state_.Equals(*other->Get(kVersion)));
}

TEST_F(DiskStateStoreTest, EveryDamagedByteAndEveryCutIsNoticed) {
  const std::string good = *ReadFile(files_[0]);
  for (size_t place = 0; place < good.size(); place += 5) {
    std::string bad = good;
    bad[place] = static_cast<char>(bad[place] ^ 0x10);
    Replace(files_[0], bad);
    EXPECT_EQ(store_->Get(kVersion).status().code(), absl::StatusCode::kDataLoss) << place;
  }
  for (const size_t size : {size_t{0}, size_t{1}, size_t{127}, size_t{128}, good.size() - 1}) {
    Replace(files_[0], good.substr(0, size));
    const absl::Status status = store_->Get(kVersion).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << size;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("client 7"), HasSubstr("version 1.3")));
  }
}

TEST_F(DiskStateStoreTest, AFileUnderAnotherNameIsNotTakenForIt) {
  ASSERT_TRUE(store_->Put({ClientId(7), {1, 4}}, state_.views()).ok());
  std::filesystem::copy_file(files_[0],
                             std::filesystem::path(files_[0]).replace_filename("7-1.4.state"),
                             std::filesystem::copy_options::overwrite_existing);
  const absl::Status status = store_->Get({ClientId(7), {1, 4}}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("the blob is of client 7, state version 1.3"));
}

TEST_F(DiskStateStoreTest, AStateOfAnotherModelIsRefused) {
  const StateSchema other = {ParameterLayout::Scalars("other", 20, DType::kF32),
                             ParameterLayout::Scalars("turns", 1, DType::kF64)};
  const absl::Status status =
      (*DiskStateStore::Open(folder_.path(), other))->Get(kVersion).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("another model"));
}

TEST(DiskStateStore, SaysWhichFolderItCannotUse) {
  EXPECT_THAT(std::string(DiskStateStore::Open("/dev/null/states", TwoItems()).status().message()),
              HasSubstr("/dev/null/states"));
}

}  // namespace
}  // namespace macaw::state
