#include "virtual_time/devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/virtual_time/moments.h"
#include "virtual_time/phones.h"
#include "virtual_time/table.h"

namespace macaw::virtual_time {
namespace {

using testing::HasSubstr;

constexpr size_t kClients = 10'000;  // a mean has an error of σ/100, and tests allow four of these

std::unique_ptr<Devices> Made(const DevicesConfig& config, const Tables& tables = {},
                              const Population& population = {}) {
  absl::StatusOr<std::unique_ptr<Devices>> devices = MakeDevices(config, tables, population);
  EXPECT_TRUE(devices.ok()) << devices.status();
  return *std::move(devices);
}

Tables TableOf(absl::string_view csv) {
  absl::StatusOr<DeviceTable> table = ParseDevices(csv, "devices.csv");
  EXPECT_TRUE(table.ok()) << table.status();
  return {.devices = std::make_shared<const DeviceTable>(*std::move(table))};
}

constexpr char kThree[] =
    "device,samples_per_s,down_kB_s,up_kB_s,down_sd_kB_s,up_sd_kB_s\n"
    "slow,10,100,50,0,0\n"
    "middle,20,200,100,100,50\n"
    "fast,40,400,200,0,100\n";

TEST(LognormalDevices, HaveTheMediansAndSpreadsOfTheConfiguration) {
  const auto devices = Made({.family = "lognormal",
                             .samples_per_s = 80,
                             .speed_spread = 0.5,
                             .down_kB_s = 1000,
                             .up_kB_s = 250,
                             .network_spread = 0.75,
                             .seed = 3});
  const Moments speed = MomentsOf(
      kClients, [&](size_t k) { return std::log(devices->Of(ClientId(k)).samples_per_s); });
  EXPECT_NEAR(speed.mean, std::log(80), 0.02);
  EXPECT_NEAR(speed.deviation, 0.5, 0.015);
  const Moments down =
      MomentsOf(kClients, [&](size_t k) { return std::log(devices->Of(ClientId(k)).down.mean); });
  EXPECT_NEAR(down.mean, std::log(1e6), 0.03);
  EXPECT_NEAR(down.deviation, 0.75, 0.022);
}

TEST(LognormalDevices, AreSlowInBothDirectionsOrInNone) {
  const auto devices =
      Made({.family = "lognormal", .down_kB_s = 1000, .up_kB_s = 250, .network_spread = 2});
  for (uint64_t k = 0; k < 100; ++k) {
    const Device device = devices->Of(ClientId(k));
    EXPECT_NEAR(device.down.mean / device.up.mean, 4, 1e-12);
    EXPECT_EQ(device.down.deviation, 0);
  }
}

TEST(LognormalDevices, OfNoSpreadTakeExactlyWhatTheirRatesSay) {
  const auto devices = Made({.family = "lognormal",
                             .samples_per_s = 50,
                             .speed_spread = 0,
                             .down_kB_s = 200,
                             .up_kB_s = 100,
                             .network_spread = 0,
                             .round_spread = 0});
  const TurnTime turn = devices->TurnOf(Round(1), ClientId(7), 600, {.down = 1e6, .up = 3e5});
  EXPECT_EQ(turn.download, 5);
  EXPECT_EQ(turn.work, 12);
  EXPECT_EQ(turn.upload, 3);
  EXPECT_EQ(turn.whole(), 20);
}

TEST(PhoneDevices, AreAsFastAsTheirScoresSay) {
  const auto devices = Made({.family = "phones", .samples_per_s = 60, .seed = 4});
  std::map<double, size_t> networks;
  size_t slower = 0;
  double slowest = 1e9, fastest = 0;
  for (size_t k = 0; k < kClients; ++k) {
    const Device device = devices->Of(ClientId(k));
    slower += device.samples_per_s <= 60 ? 1 : 0;
    slowest = std::min(slowest, device.samples_per_s);
    fastest = std::max(fastest, device.samples_per_s);
    ++networks[device.down.mean];
  }
  EXPECT_NEAR(static_cast<double>(slower) / kClients, 154.0 / 307, 0.02);
  EXPECT_DOUBLE_EQ(slowest, 60.0 * 212 / 4638);  // with 10,000 clients each phone is somebody's
  EXPECT_DOUBLE_EQ(fastest, 60.0 * 76206 / 4638);
  ASSERT_EQ(networks.size(), 19u);
  for (const auto& [rate, clients] : networks)
    EXPECT_NEAR(static_cast<double>(clients) / kClients, 1.0 / 19, 0.009) << rate;
}

TEST(Phones, AreSortedAndTheirMedianIsTheOneThatIsNamed) {
  const std::span<const Phone> phones = Phones();
  ASSERT_EQ(phones.size(), 307u);
  EXPECT_TRUE(std::ranges::is_sorted(phones, {}, &Phone::score));
  EXPECT_EQ(phones[153].score, kMedianScore);
  for (size_t i = 0; i < kNetworkCount; ++i) {
    EXPECT_GT(NetworkOf(i).down.mean, 2e6);
    EXPECT_GT(NetworkOf(i).up.deviation, 1e5);
  }
}

TEST(TurnOf, DrawsRatesWithTheMeanAndTheDeviationOfTheNetwork) {
  const Tables tables = TableOf(kThree);
  const auto devices = Made({.family = "file", .assign = "name", .round_spread = 0.3, .seed = 5},
                            tables, {.clients = 1, .name = [](ClientId) { return "middle"; }});
  const auto turn = [&](size_t round) {
    return devices->TurnOf(Round(static_cast<uint32_t>(round)), ClientId(0), 100,
                           {.down = 1e6, .up = 1e6});
  };
  const Moments down = MomentsOf(kClients, [&](size_t r) { return 1e6 / turn(r).download; });
  EXPECT_NEAR(down.mean, 200e3, 4e3);
  EXPECT_NEAR(down.deviation, 100e3, 6e3);  // its error is larger: the fourth moment counts
  const Moments up = MomentsOf(kClients, [&](size_t r) { return 1e6 / turn(r).upload; });
  EXPECT_NEAR(up.mean, 100e3, 2e3);
  EXPECT_NEAR(up.deviation, 50e3, 3e3);
  const Moments work = MomentsOf(kClients, [&](size_t r) { return std::log(turn(r).work); });
  EXPECT_NEAR(work.mean, std::log(5), 0.012);
  EXPECT_NEAR(work.deviation, 0.3, 0.009);
  // Drawn apart: the product of the deviations has the mean 0.
  const Moments both = MomentsOf(kClients, [&](size_t r) {
    const TurnTime one = turn(r);
    return std::log(one.download / 5) * std::log(one.upload / 10);
  });
  EXPECT_LT(std::fabs(both.mean), 0.02);
}

TEST(TurnOf, IsTheSameInAnyOrderAndOnAnyObject) {
  const DevicesConfig config{.family = "phones", .seed = 6};
  const auto first = Made(config), second = Made(config);
  std::vector<double> forwards, backwards;
  for (uint64_t k = 0; k < 50; ++k)
    forwards.push_back(
        first->TurnOf(Round(k % 5 + 1), ClientId(k), 10, {.down = 1, .up = 2}).whole());
  for (uint64_t k = 50; k-- > 0;)
    backwards.push_back(
        second->TurnOf(Round(k % 5 + 1), ClientId(k), 10, {.down = 1, .up = 2}).whole());
  std::ranges::reverse(backwards);
  EXPECT_EQ(forwards, backwards);
}

TEST(TurnOf, IsAnotherWithAnotherSeedClientOrRound) {
  for (const char* family : {"lognormal", "phones"}) {
    const auto devices = Made({.family = family, .seed = 1});
    const auto other = Made({.family = family, .seed = 2});
    const Traffic traffic{.down = 1e6, .up = 1e6};
    const double seconds = devices->TurnOf(Round(1), ClientId(1), 10, traffic).whole();
    EXPECT_NE(other->TurnOf(Round(1), ClientId(1), 10, traffic).whole(), seconds);
    EXPECT_NE(devices->TurnOf(Round(1), ClientId(2), 10, traffic).whole(), seconds);
    EXPECT_NE(devices->TurnOf(Round(2), ClientId(1), 10, traffic).whole(), seconds);
    EXPECT_EQ(devices->TurnOf(Round(1), ClientId(1), 0, {}).whole(), 0);
  }
}

// The numbers of a seed are part of results: a change here is a change of every run with devices.
TEST(TurnOf, KeepsTheNumbersOfASeed) {
  struct Case {
    const char* family;
    double download, work, upload;
  };
  for (const Case& known :
       {Case{"lognormal", 0.71371837236131808, 1.78724921709456, 1.4274367447226362},
        Case{"phones", 0.29992780033569899, 1.5877945504804034, 0.25562511593332993}}) {
    const auto devices = Made({.family = known.family, .seed = 17});
    const TurnTime turn = devices->TurnOf(Round(3), ClientId(5), 100, {.down = 1e6, .up = 1e6});
    EXPECT_NEAR(turn.download, known.download, 1e-9) << known.family;
    EXPECT_NEAR(turn.work, known.work, 1e-9) << known.family;
    EXPECT_NEAR(turn.upload, known.upload, 1e-9) << known.family;
  }
}

TEST(TableDevices, AreDrawnEquallyOftenBySeed) {
  const auto devices = Made({.family = "file", .seed = 8}, TableOf(kThree));
  std::map<double, size_t> found;
  for (size_t k = 0; k < kClients; ++k) ++found[devices->Of(ClientId(k)).samples_per_s];
  ASSERT_EQ(found.size(), 3u);
  for (const auto& [speed, clients] : found)
    EXPECT_NEAR(static_cast<double>(clients) / kClients, 1.0 / 3, 0.02) << speed;
}

TEST(TableDevices, GoByTheNamesOfClients) {
  const std::vector<std::string> names = {"fast", "slow", "fast"};
  const auto devices =
      Made({.family = "file", .assign = "name"}, TableOf(kThree),
           {.clients = 3, .name = [&](ClientId client) { return names[client.value]; }});
  EXPECT_EQ(devices->Of(ClientId(0)).samples_per_s, 40);
  EXPECT_EQ(devices->Of(ClientId(1)).up.mean, 50e3);
  EXPECT_EQ(devices->Of(ClientId(2)).up.deviation, 100e3);
}

TEST(MakeDevices, RefusesClientsWithoutARowAndNamesTheFirst) {
  const absl::Status status =
      MakeDevices({.family = "file", .assign = "name"}, TableOf(kThree),
                  {.clients = 6,
                   .name =
                       [](ClientId client) {
                         return client.value == 2 ? "slow" : absl::StrCat("phone-", client.value);
                       }})
          .status();
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("devices.csv (devices.file) has no row for 5 of 6 clients: \"phone-0\", "
                        "\"phone-1\", \"phone-3\", …"));
}

TEST(MakeDevices, RefusesNamesOfATableWithoutThem) {
  const Tables tables = TableOf("samples_per_s,down_kB_s,up_kB_s\n1,1,1\n");
  const absl::Status status =
      MakeDevices({.family = "file", .assign = "name"}, tables, {.clients = 1}).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("no column \"device\""));
  EXPECT_TRUE(MakeDevices({.family = "file"}, tables, {}).ok());
}

TEST(MakeDevices, RefusesAFileThatIsNotThere) {
  EXPECT_THAT(std::string(MakeDevices({.family = "file"}, {}, {}).status().message()),
              HasSubstr("devices.file"));
}

}  // namespace
}  // namespace macaw::virtual_time
