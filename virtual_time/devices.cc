#include "virtual_time/devices.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/random.h"
#include "core/status.h"
#include "virtual_time/assignment.h"
#include "virtual_time/phones.h"
#include "virtual_time/table.h"

namespace macaw::virtual_time {
namespace {

constexpr double kBytes = 1000;  // of a kB

RandomStream StreamOf(uint64_t seed, ClientId client, DrawOf what, Round round = Round()) {
  return RandomStream({.seed = seed,
                       .purpose = Purpose::kDuration,
                       .round = round,
                       .client = client,
                       .extra = static_cast<uint64_t>(what)});
}

// A log-normal rate with this mean and this standard deviation.
double Drawn(const Rate& rate, double normal) {
  if (rate.deviation == 0) return rate.mean;
  const double relative = rate.deviation / rate.mean;
  const double variance = std::log1p(relative * relative);  // of ln(rate)
  return rate.mean * std::exp(std::sqrt(variance) * normal - variance / 2);
}

// What a device's turns have in common in all families.
class DevicesWithTurns : public Devices {
 public:
  explicit DevicesWithTurns(const DevicesConfig& config) : config_(config) {}

  TurnTime TurnOf(Round round, ClientId client, double passed, const Traffic& traffic) const final {
    const Device device = Of(client);
    RandomStream turn = StreamOf(config_.seed, client, DrawOf::kTurn, round);
    const double work = turn.Normal(), down = turn.Normal(), up = turn.Normal();
    return {.download = traffic.down / Drawn(device.down, down),
            .work = passed / device.samples_per_s * std::exp(config_.round_spread * work),
            .upload = traffic.up / Drawn(device.up, up)};
  }

 protected:
  const DevicesConfig config_;
};

class LognormalDevices final : public DevicesWithTurns {
 public:
  using DevicesWithTurns::DevicesWithTurns;

  Device Of(ClientId client) const override {
    const double speed = StreamOf(config_.seed, client, DrawOf::kDevice).Normal();
    // One draw for both directions: a slow network is slow both ways.
    const double network = StreamOf(config_.seed, client, DrawOf::kNetwork).Normal();
    const double rate = kBytes * std::exp(config_.network_spread * network);
    return {.samples_per_s = config_.samples_per_s * std::exp(config_.speed_spread * speed),
            .down = {.mean = config_.down_kB_s * rate},
            .up = {.mean = config_.up_kB_s * rate}};
  }
};

class PhoneDevices final : public DevicesWithTurns {
 public:
  using DevicesWithTurns::DevicesWithTurns;

  Device Of(ClientId client) const override {
    const std::span<const Phone> phones = Phones();
    const Phone& phone =
        phones[StreamOf(config_.seed, client, DrawOf::kDevice).Below(phones.size())];
    const Network network =
        NetworkOf(StreamOf(config_.seed, client, DrawOf::kNetwork).Below(kNetworkCount));
    return {.samples_per_s = config_.samples_per_s * phone.score / kMedianScore,
            .down = network.down,
            .up = network.up};
  }
};

class TableDevices final : public DevicesWithTurns {
 public:
  TableDevices(const DevicesConfig& config, std::shared_ptr<const DeviceTable> table,
               Assignment rows)
      : DevicesWithTurns(config), table_(std::move(table)), rows_(std::move(rows)) {}

  Device Of(ClientId client) const override { return table_->devices[rows_.Of(client)]; }

 private:
  const std::shared_ptr<const DeviceTable> table_;
  const Assignment rows_;
};

}  // namespace

uint64_t TieOf(const DevicesConfig& config, Round round, ClientId client) {
  return StreamOf(config.seed, client, DrawOf::kTie, round).NextU64();
}

absl::StatusOr<std::unique_ptr<Devices>> MakeDevices(const DevicesConfig& config,
                                                     const Tables& tables,
                                                     const Population& population) {
  if (config.family == "lognormal") return std::make_unique<LognormalDevices>(config);
  if (config.family == "phones") return std::make_unique<PhoneDevices>(config);
  if (config.family != "file") {
    return absl::InvalidArgumentError(
        absl::StrCat("devices.family is \"", config.family, "\"; known: lognormal, phones, file"));
  }
  if (tables.devices == nullptr) {
    return absl::InvalidArgumentError(
        "devices.family = \"file\" needs devices.file, a table of devices");
  }
  const DeviceTable& table = *tables.devices;
  if (config.assign == "name" && table.names.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("devices.assign = \"name\", but ", table.file,
                                                   " (devices.file) has no column \"device\""));
  }
  MACAW_ASSIGN_OR_RETURN(
      Assignment rows, Assignment::Make(config, DrawOf::kDevice, table.devices.size(), table.names,
                                        population, absl::StrCat(table.file, " (devices.file)")));
  return std::make_unique<TableDevices>(config, tables.devices, std::move(rows));
}

}  // namespace macaw::virtual_time
