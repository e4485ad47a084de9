#include "sdk/catalogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/options.h"

namespace macaw::sdk {
namespace {

using testing::HasSubstr;

absl::StatusOr<std::vector<std::string>> OneLayer(const std::vector<int64_t>&, int64_t outputs) {
  return std::vector<std::string>{absl::StrCat("linear ", outputs)};
}

TEST(Catalogue, HasTheBuiltinAlgorithms) {
  const Catalogue catalogue = Catalogue::Builtins();
  EXPECT_TRUE(catalogue.algorithms().Find("fedavg").ok());
  EXPECT_TRUE(catalogue.plugins().empty());
}

TEST(Catalogue, RefusesNamesThatAreTakenOrMalformed) {
  Catalogue catalogue = Catalogue::Builtins();
  EXPECT_TRUE(catalogue.AddModel({"mine", "", OneLayer}).ok());
  for (const char* taken : {"mine", "logistic", "lenet5", "layers"}) {
    EXPECT_EQ(catalogue.AddModel({taken, "", OneLayer}).code(), absl::StatusCode::kAlreadyExists)
        << taken;
  }
  EXPECT_THAT(std::string(catalogue.AddModel({"My Model", "", OneLayer}).message()),
              HasSubstr("small letters"));
  const auto open = [](const auto&, const auto&) { return absl::UnimplementedError("none"); };
  EXPECT_TRUE(catalogue.AddDataSource({"blobs", "", open}).ok());
  for (const char* taken : {"blobs", "synthetic", "idx"}) {
    EXPECT_EQ(catalogue.AddDataSource({taken, "", open}).code(), absl::StatusCode::kAlreadyExists)
        << taken;
  }
  EXPECT_THAT(std::string(catalogue.AddAlgorithm({.name = "half"}).message()),
              HasSubstr("needs schema, server and client"));
}

TEST(Catalogue, OpensItsOwnSourcesAndTheBuiltinOnes) {
  Catalogue catalogue = Catalogue::Builtins();
  const auto open = [](const data::DataOptions& options, const auto&) {
    return absl::NotFoundError(absl::StrCat("seed ", options.seed));
  };
  ASSERT_TRUE(catalogue.AddDataSource({"blobs", "", open}).ok());
  EXPECT_EQ(catalogue.OpenDataset({.source = "blobs", .seed = 7}, {}).status().message(), "seed 7");
  EXPECT_TRUE(catalogue.OpenDataset({.source = "synthetic", .synthetic = {.clients = 3}}, {}).ok());
}

TEST(Catalogue, ASourceOfItsOwnGivesExamplesOfTheShapeThatIsAskedFor) {
  Catalogue catalogue = Catalogue::Builtins();
  const auto open = [](const data::DataOptions&, const data::PartitionOptions&) {
    return data::OpenDataset({.source = "synthetic", .synthetic = {.clients = 3}}, {});
  };
  ASSERT_TRUE(catalogue.AddDataSource({"blobs", "", open}).ok());
  EXPECT_TRUE(catalogue.OpenDataset({.source = "blobs", .input_shape = {60}}, {}).ok());
  EXPECT_THAT(std::string(catalogue.OpenDataset({.source = "blobs", .input_shape = {3, 20}}, {})
                              .status()
                              .message()),
              HasSubstr("data.input_shape: the data source \"blobs\" gives examples of [60]"));
}

}  // namespace
}  // namespace macaw::sdk
