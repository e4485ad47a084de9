#include "virtual_time/presence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "virtual_time/table.h"

namespace macaw::virtual_time {
namespace {

using testing::HasSubstr;

constexpr char kTwo[] =
    "device,on_s,off_s,period_s\n"
    "night,0,100,1000\n"
    "night,900,1000,1000\n"
    "noon,400,600,800\n";

Tables PresenceOf(absl::string_view csv) {
  absl::StatusOr<PresenceTable> table = ParsePresence(csv, "presence.csv");
  EXPECT_TRUE(table.ok()) << table.status();
  return {.presence = std::make_shared<const PresenceTable>(*std::move(table))};
}

// Client 0 is the device "night", client 1 "noon".
std::unique_ptr<Presence> ByName() {
  const std::vector<std::string> names = {"night", "noon"};
  absl::StatusOr<std::unique_ptr<Presence>> presence =
      MakePresence({.family = "phones", .assign = "name"}, PresenceOf(kTwo),
                   {.clients = 2, .name = [&](ClientId client) { return names[client.value]; }});
  EXPECT_TRUE(presence.ok()) << presence.status();
  return *std::move(presence);
}

TEST(Presence, BeginsWithAnIntervalAndEndsBeforeItsEnd) {
  const auto presence = ByName();
  const ClientId night(0), noon(1);
  for (const double second : {0.0, 99.999, 900.0, 999.0, 1000.0, 1099.0, 7900.0})
    EXPECT_TRUE(presence->On(night, second)) << second;
  for (const double second : {100.0, 899.999, 1100.0, 7899.0})
    EXPECT_FALSE(presence->On(night, second)) << second;
  EXPECT_FALSE(presence->On(noon, 399.999));
  EXPECT_TRUE(presence->On(noon, 400));
  EXPECT_TRUE(presence->On(noon, 599.999));
  EXPECT_FALSE(presence->On(noon, 600));
  EXPECT_TRUE(presence->On(noon, 8e6 + 400)) << "10,000 periods later";
}

TEST(Presence, SaysWhenTheClientIsThereNext) {
  const auto presence = ByName();
  const ClientId night(0), noon(1);
  EXPECT_EQ(presence->NextOn(night, 50), 50);
  EXPECT_EQ(presence->NextOn(night, 100), 900);
  EXPECT_EQ(presence->NextOn(night, 1100), 1900);
  EXPECT_EQ(presence->NextOn(noon, 0), 400);
  EXPECT_EQ(presence->NextOn(noon, 600), 1200) << "in the next period";
  EXPECT_EQ(presence->NextOn(noon, 8e6 + 700), 8e6 + 1200);
}

// Sums of times that have no exact double.
TEST(Presence, IsThereWhenItSaysSo) {
  const auto presence =
      *MakePresence({.family = "phones"},
                    PresenceOf("device,on_s,off_s,period_s\na,0.1,0.2,0.7\na,0.3,0.4,0.7\n"), {});
  double seconds = 0;
  for (int i = 0; i < 20'000; ++i) {
    const double next = presence->NextOn(ClientId(0), seconds);
    ASSERT_TRUE(presence->On(ClientId(0), next)) << seconds;
    ASSERT_LT(next - seconds, 0.5);
    seconds = next + 0.13;
  }
}

TEST(Presence, SaysTheShareOfTime) {
  const auto presence = ByName();
  EXPECT_DOUBLE_EQ(presence->ShareOn(ClientId(0)), 0.2);
  EXPECT_DOUBLE_EQ(presence->ShareOn(ClientId(1)), 0.25);
}

TEST(Presence, IsDrawnBySeedWithoutNames) {
  const auto presence = *MakePresence({.family = "phones", .seed = 2}, PresenceOf(kTwo), {});
  std::map<double, size_t> shares;
  for (uint64_t k = 0; k < 10'000; ++k) ++shares[presence->ShareOn(ClientId(k))];
  ASSERT_EQ(shares.size(), 2u);
  EXPECT_NEAR(static_cast<double>(shares.begin()->second) / 10'000, 0.5, 0.02);
}

TEST(MakePresence, IsNullWithoutATable) {
  const auto presence = MakePresence({.family = "phones"}, {}, {});
  ASSERT_TRUE(presence.ok());
  EXPECT_EQ(*presence, nullptr);
}

TEST(MakePresence, RefusesClientsWithoutARecord) {
  const absl::Status status = MakePresence({.family = "phones", .assign = "name"}, PresenceOf(kTwo),
                                           {.clients = 1, .name = [](ClientId) { return "dawn"; }})
                                  .status();
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("presence.csv (devices.presence) has no row for 1 of 1 client: \"dawn\""));
}

}  // namespace
}  // namespace macaw::virtual_time
