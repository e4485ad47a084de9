#include "cli/config/devices.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/config/key_error.h"
#include "core/status.h"

namespace macaw::cli {
namespace {

absl::Status AboutDevices(const absl::Status& status, const char* key) {
  return status.ok() ? status : WithKeyError(Annotate(status, key), {.key = key});
}

}  // namespace

absl::StatusOr<virtual_time::Tables> ReadDevices(Config& config) {
  DevicesConfig& devices = config.run.devices;
  virtual_time::Tables tables;
  devices.table.clear();
  devices.presence.clear();
  if (!devices.on()) return tables;
  const server::RoundRules& round = config.node.server.round;
  if (round.present_within > 0) {
    return WithKeyError(absl::InvalidArgumentError(
                            "round.present_within is of nodes that are heard, and with [devices] "
                            "cohort.sampling = \"available\" says who is there: take it out"),
                        {.key = "round.present_within"});
  }
  devices.deadline = round.deadline;
  devices.quorum = round.quorum;
  devices.enough = round.enough;
  devices.drops_below = round.below_quorum == server::RoundRules::BelowQuorum::kDrop;
  if (devices.family == "file" && config.node.devices_file.empty()) {
    return WithKeyError(
        absl::InvalidArgumentError(
            "devices.family = \"file\" needs devices.file, the path of a table of devices"),
        {.key = "devices.family"});
  }
  if (!config.node.devices_file.empty()) {
    absl::StatusOr<virtual_time::DeviceTable> table =
        virtual_time::ReadDevices(config.node.devices_file);
    MACAW_RETURN_IF_ERROR(AboutDevices(table.status(), "devices.file"));
    devices.table = table->digest.Hex();
    tables.devices = std::make_shared<const virtual_time::DeviceTable>(*std::move(table));
  }
  if (!config.node.devices_presence.empty()) {
    absl::StatusOr<virtual_time::PresenceTable> table =
        virtual_time::ReadPresence(config.node.devices_presence);
    MACAW_RETURN_IF_ERROR(AboutDevices(table.status(), "devices.presence"));
    devices.presence = table->digest.Hex();
    tables.presence = std::make_shared<const virtual_time::PresenceTable>(*std::move(table));
  }
  return tables;
}

absl::StatusOr<ClientDevices> OpenClientDevices(const Config& config,
                                                const data::Dataset& dataset) {
  ClientDevices opened;
  if (!config.run.devices.on()) return opened;
  Config read = config;
  MACAW_ASSIGN_OR_RETURN(const virtual_time::Tables tables, ReadDevices(read));
  const bool owners = config.node.workers.owners > 0;
  const virtual_time::Population population{
      .clients = dataset.info().clients, .name = [&dataset, owners](ClientId client) {
        return owners ? absl::StrCat(client.value) : dataset.ClientName(client);
      }};
  const DevicesConfig& devices = read.run.devices;
  MACAW_ASSIGN_OR_RETURN(opened.devices, virtual_time::MakeDevices(devices, tables, population));
  MACAW_ASSIGN_OR_RETURN(opened.presence, virtual_time::MakePresence(devices, tables, population));
  return opened;
}

absl::Status CheckDevices(const Config& config, const virtual_time::Tables& tables,
                          const virtual_time::Population& population) {
  const DevicesConfig& devices = config.run.devices;
  if (!devices.on()) return absl::OkStatus();
  MACAW_RETURN_IF_ERROR(virtual_time::MakeDevices(devices, tables, population).status());
  return virtual_time::MakePresence(devices, tables, population).status();
}

}  // namespace macaw::cli
