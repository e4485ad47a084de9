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
  EXPECT_THAT(std::string(catalogue.AddModel({"empty", "", nullptr}).message()),
              HasSubstr("\"empty\" needs layers"));
  EXPECT_THAT(std::string(catalogue.AddDataSource({"none", "", nullptr}).message()),
              HasSubstr("\"none\" needs open"));
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

class NamedDataset final : public data::Dataset {
 public:
  NamedDataset(std::string of_class, std::string of_client) : client_(std::move(of_client)) {
    info_.clients = 2;
    info_.class_names = {"no", std::move(of_class)};
  }
  const data::DatasetInfo& info() const override { return info_; }
  uint32_t Examples(ClientId, data::Split) const override { return 0; }
  absl::StatusOr<data::Rows> Client(ClientId, data::Split) const override { return data::Rows(); }
  data::Rows CentralTest() const override { return {}; }
  std::string ClientName(ClientId client) const override {
    return client.value == 1 ? client_ : "a";
  }

 private:
  data::DatasetInfo info_;
  std::string client_;
};

TEST(Catalogue, NamesThatASourceGivesAreUtf8AndItIsToldTheNumberOfClients) {
  Catalogue catalogue = Catalogue::Builtins();
  std::string of_class = "yes", of_client = "b";
  const auto open = [&](const data::DataOptions&, const data::PartitionOptions& partition)
      -> absl::StatusOr<std::unique_ptr<data::Dataset>> {
    EXPECT_EQ(partition.clients, data::kDefaultClients);
    return std::make_unique<NamedDataset>(of_class, of_client);
  };
  ASSERT_TRUE(catalogue.AddDataSource({"named", "", open}).ok());
  EXPECT_TRUE(catalogue.OpenDataset({.source = "named"}, {}).ok());
  of_class = "\xE9t\xE9";
  EXPECT_THAT(std::string(catalogue.OpenDataset({.source = "named"}, {}).status().message()),
              HasSubstr("of a class"));
  of_class = "yes", of_client = "Jos\xE9";
  EXPECT_THAT(std::string(catalogue.OpenDataset({.source = "named"}, {}).status().message()),
              HasSubstr("of a client"));
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
