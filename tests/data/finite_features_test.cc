// Prepared files whose features are not finite.
#include "data/finite_features.h"

#include <gmock/gmock.h>

#include <cmath>

#include "core/safetensors.h"
#include "data/prepared.h"
#include "tests/data/test_files.h"

namespace macaw::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Rows of `width` zeros: clients of two and of one row, then the central test set of one.
class FiniteFeatures : public testing::Test {
 protected:
  // Writes the file with this value as the last element of the row.
  std::string Write(uint64_t width, uint64_t row, float value) {
    std::vector<float> features(4 * width);
    features[(row + 1) * width - 1] = value;
    const std::vector<int32_t> labels = {0, 1, 1, 0};
    const std::vector<int64_t> offsets = {0, 2, 3}, central = {3, 4};
    const auto bytes = [](const auto& values) { return std::as_bytes(std::span(values)); };
    const std::string path = folder_.path() + "/p.safetensors";
    EXPECT_TRUE(WriteSafetensors(path,
                                 {{"train_offsets", "I64", {3}, bytes(offsets)},
                                  {"central_test", "I64", {2}, bytes(central)},
                                  {"labels", "I32", {4}, bytes(labels)},
                                  {"features", "F32", {4, width}, bytes(features)}},
                                 metadata_)
                    .ok());
    return path;
  }
  static absl::StatusOr<std::unique_ptr<Dataset>> OpenPath(const std::string& path,
                                                           const PartitionOptions& partition = {}) {
    return OpenDataset({.source = "prepared", .path = path}, partition);
  }
  static std::string Refused(const absl::Status& status) { return std::string(status.message()); }
  static constexpr uint64_t kLarge = uint64_t{5} << 20;  // four rows have more than 64 MiB

  TemporaryFolder folder_;
  std::map<std::string, std::string> metadata_;
};

TEST_F(FiniteFeatures, ARowOfASmallFileIsRefusedAtOpening) {
  for (const float value : {NAN, INFINITY, -INFINITY}) {
    for (const uint64_t row : {uint64_t{1}, uint64_t{3}}) {
      const std::string path = Write(5, row, value);
      EXPECT_THAT(Refused(OpenPath(path).status()),
                  AllOf(HasSubstr(path), HasSubstr("\"features\""),
                        HasSubstr(absl::StrCat("row ", row, " (element 4)"))));
    }
  }
  EXPECT_TRUE(OpenPath(Write(5, 1, 3e38F)).ok());
}

TEST_F(FiniteFeatures, ARowOfALargeFileIsRefusedWhenItIsLoaded) {
  const std::string path = Write(kLarge, 1, NAN);
  const auto dataset = OpenPath(path);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_TRUE((*dataset)->Client(ClientId(1), Split::kTrain).ok());
  EXPECT_THAT(Refused((*dataset)->Client(ClientId(0), Split::kTrain).status()),
              AllOf(HasSubstr(path), HasSubstr("nan in row 1 ")));
  EXPECT_THAT(Refused(LoadEachClient(**dataset)), HasSubstr("row 1 "));
  EXPECT_THAT(Refused(WritePrepared(**dataset, folder_.path() + "/again")), HasSubstr("row 1 "));

  const auto divided = OpenPath(path, {.scheme = "iid", .clients = 3});
  ASSERT_TRUE(divided.ok()) << divided.status();
  EXPECT_THAT(Refused(LoadEachClient(**divided)), AllOf(HasSubstr(path), HasSubstr("row 1 ")));
}

TEST_F(FiniteFeatures, ACentralRowOfALargeFileIsRefusedAtOpening) {
  const std::string path = Write(kLarge, 3, INFINITY);
  EXPECT_THAT(Refused(OpenPath(path).status()), HasSubstr("inf in row 3 "));
  EXPECT_THAT(Refused(OpenPath(path, {.scheme = "iid", .clients = 3}).status()),
              HasSubstr("inf in row 3 "));
}

TEST_F(FiniteFeatures, ADeviationOfZeroIsRefusedInTheFile) {
  for (const char* std : {"0", "1,0,1", "-1"}) {
    metadata_ = {{"mean", "0"}, {"std", std}};
    const std::string path = Write(3, 0, 1);
    EXPECT_THAT(Refused(OpenPath(path).status()),
                AllOf(HasSubstr(path), HasSubstr("\"std\" must have numbers above 0")));
  }
}

}  // namespace
}  // namespace macaw::data
