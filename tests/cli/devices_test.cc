#include "cli/config/devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/config/key_error.h"
#include "cli/config/resolve.h"
#include "cli/config/suggest.h"
#include "cli/config/writer.h"
#include "data/dataset.h"
#include "data/options.h"
#include "testing/temporary_folder.h"
#include "tests/cli/config_test_util.h"

namespace macaw::cli {
namespace {

using ::testing::HasSubstr;

constexpr char kDevices[] =
    "device,samples_per_s,down_kB_s,up_kB_s\n0,10,100,50\n1,20,200,100\n2,30,300,150\n";
constexpr char kPresence[] = "device,on_s,off_s,period_s\n0,0,10,20\n1,5,10,20\n2,0,20,20\n";

class DevicesConfiguration : public testing::Test {
 protected:
  // The minimal configuration with the keys.
  Config With(const std::vector<std::string>& set) {
    const absl::StatusOr<Config> config = Parse(kMinimal, set, folder_.path());
    EXPECT_TRUE(config.ok()) << config.status();
    return *config;
  }
  std::vector<std::string> FromFile(std::vector<std::string> more = {}) {
    more.insert(more.begin(),
                {"devices.family=file",
                 absl::StrCat("devices.file=", folder_.Write("devices.csv", devices_))});
    return more;
  }
  std::vector<std::string> WithPresence(std::vector<std::string> more = {}) {
    more.insert(more.begin(),
                {"devices.family=phones", "cohort.sampling=available",
                 absl::StrCat("devices.presence=", folder_.Write("presence.csv", presence_))});
    return more;
  }
  absl::Status ReadStatus(const std::vector<std::string>& set) {
    Config config = With(set);
    return ReadDevices(config).status();
  }

  testing_support::TemporaryFolder folder_;
  std::string devices_ = kDevices, presence_ = kPresence;
};

TEST_F(DevicesConfiguration, IsNotThereByDefault) {
  Config config = With({});
  const absl::StatusOr<virtual_time::Tables> tables = ReadDevices(config);
  ASSERT_TRUE(tables.ok());
  EXPECT_EQ(tables->devices, nullptr);
  EXPECT_EQ(tables->presence, nullptr);
  EXPECT_FALSE(config.run.devices.on());
}

TEST_F(DevicesConfiguration, PutsTheDigestsOfItsTablesIntoThePlan) {
  Config config = With(FromFile());
  const absl::StatusOr<virtual_time::Tables> tables = ReadDevices(config);
  ASSERT_TRUE(tables.ok()) << tables.status();
  EXPECT_EQ(config.run.devices.table, tables->devices->digest.Hex());
  EXPECT_EQ(config.run.devices.presence, "");
  const auto before = Fingerprint(config.run);
  devices_ = "device,samples_per_s,down_kB_s,up_kB_s\n0,10,100,51\n";
  Config other = With(FromFile());
  ASSERT_TRUE(ReadDevices(other).ok());
  EXPECT_NE(Fingerprint(other.run).at("devices.table"), before.at("devices.table"));

  Config present = With(WithPresence());
  ASSERT_TRUE(ReadDevices(present).ok());
  EXPECT_TRUE(Fingerprint(present.run).contains("devices.presence_table"));
  EXPECT_FALSE(Fingerprint(present.run).contains("devices.table"));
}

TEST_F(DevicesConfiguration, IsReadAgainFromTheEffectiveFile) {
  Config config = With(FromFile());
  ASSERT_TRUE(ReadDevices(config).ok());
  const std::string file = EffectiveToml(config);
  EXPECT_THAT(file, HasSubstr("[devices]\nfamily = \"file\""));
  EXPECT_THAT(file, testing::Not(HasSubstr(config.run.devices.table))) << "a digest is no key";
  absl::StatusOr<Config> again = Parse(file);
  ASSERT_TRUE(again.ok()) << again.status();
  ASSERT_TRUE(ReadDevices(*again).ok());
  EXPECT_EQ(again->run, config.run);
}

TEST_F(DevicesConfiguration, NamesTheKeyThatAFileNeeds) {
  const absl::Status status = ReadStatus({"devices.family=file"});
  EXPECT_THAT(std::string(status.message()), HasSubstr("needs devices.file"));
  EXPECT_EQ(KeyErrorOf(status).key, "devices.family");
}

TEST_F(DevicesConfiguration, NamesTheFileTheLineAndTheColumnOfAnError) {
  devices_ = "device,samples_per_s,down_kB_s,up_kB_s\n0,10,100,50\n1,20,many,100\n";
  const absl::Status status = ReadStatus(FromFile());
  EXPECT_THAT(std::string(status.message()),
              testing::AllOf(HasSubstr("devices.file: /"), HasSubstr("/devices.csv:3: ")));
  EXPECT_THAT(std::string(status.message()), HasSubstr("\"down_kB_s\""));
  EXPECT_EQ(KeyErrorOf(status).key, "devices.file");
  presence_ = "device,on_s,off_s\n";
  EXPECT_EQ(KeyErrorOf(ReadStatus(WithPresence())).key, "devices.presence");
  const absl::Status missing =
      ReadStatus({"devices.family=file", "devices.file=/nowhere/devices.csv"});
  EXPECT_THAT(std::string(missing.message()), HasSubstr("/nowhere/devices.csv"));
}

TEST_F(DevicesConfiguration, GoesByTheNamesOfTheDataWhenItIsResolved) {
  const auto dataset = data::OpenDataset({.source = "synthetic", .synthetic = {.clients = 3}}, {});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const auto resolve = [&](const std::vector<std::string>& set) {
    Config config = With(set);
    config.run.cohort.size = 2;
    return Resolve(config, **dataset, sdk::Catalogue::Builtins());
  };
  EXPECT_TRUE(resolve(FromFile({"devices.assign=name"})).ok());
  EXPECT_TRUE(resolve(WithPresence({"devices.assign=name"})).ok());
  devices_ = "device,samples_per_s,down_kB_s,up_kB_s\n0,10,100,50\n2,10,100,50\n";
  EXPECT_THAT(std::string(resolve(FromFile({"devices.assign=name"})).message()),
              HasSubstr("no row for 1 of 3 clients: \"1\""));
  EXPECT_TRUE(resolve(FromFile()).ok());
  presence_ = "device,on_s,off_s,period_s\n0,0,1,2\n";
  EXPECT_THAT(std::string(resolve(WithPresence({"devices.assign=name"})).message()),
              HasSubstr("no row for 2 of 3 clients: \"1\", \"2\""));
}

TEST_F(DevicesConfiguration, RefusesKeysThatItLeavesWithoutAnEffect) {
  const auto refused = [](const std::vector<std::string>& set) { return Refusal(kMinimal, set); };
  EXPECT_THAT(refused({"devices.family=phones", "devices.speed_spread=2"}),
              HasSubstr("devices.speed_spread has no effect without"));
  EXPECT_THAT(refused({"devices.family=file", "devices.samples_per_s=2"}),
              HasSubstr("devices.samples_per_s has no effect without"));
  EXPECT_THAT(refused({"devices.family=phones", "devices.file=a.csv"}),
              HasSubstr("devices.file has no effect without"));
  EXPECT_THAT(refused({"devices.family=phones", "devices.presence=a.csv"}),
              HasSubstr("devices.presence has no effect without cohort.sampling"));
  EXPECT_THAT(refused({"devices.family=phones", "devices.assign=name"}),
              HasSubstr("devices.assign has no effect without"));
  EXPECT_THAT(refused({"devices.round_spread=1"}),
              HasSubstr("devices.round_spread has no effect without devices.family"));
  EXPECT_THAT(
      refused({"devices.family=phones", "cohort.over_selection=1.3", "cohort.device_spread=2"}),
      HasSubstr("cohort.device_spread has no effect without devices.family = \"none\""));
  EXPECT_THAT(refused({"devices.family=phones", "devices.presence=a.csv",
                       "cohort.sampling=available", "cohort.availability=0.3"}),
              HasSubstr("cohort.availability has no effect without"));
}

TEST_F(DevicesConfiguration, HasTheRunsSeedUnlessItHasItsOwn) {
  EXPECT_EQ(With({"run.seed=7", "devices.family=phones"}).run.devices.seed, 7u);
  EXPECT_EQ(With({"run.seed=7", "devices.family=phones", "devices.seed=8"}).run.devices.seed, 8u);
}

TEST_F(DevicesConfiguration, IsFoundByTheNamesOfOtherSystems) {
  std::vector<std::string> keys;
  for (const Field& field : AllFields()) keys.push_back(field.key);
  EXPECT_EQ(NearestKey("device_conf_file", keys), "devices.file");
  EXPECT_EQ(NearestKey("device_avail_file", keys), "devices.presence");
  EXPECT_EQ(NearestKey("devices.down_kb_s", keys), "devices.down_kB_s");
}

}  // namespace
}  // namespace macaw::cli
