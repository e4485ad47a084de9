#pragma once

#include <cstdint>
#include <string>

#include "core/settings/section.h"

namespace macaw {

// The devices of the clients, for virtual time (virtual_time/devices.h). Nothing of it is measured.
struct DevicesConfig {
  // "none": no virtual time. "lognormal": speeds and rates are log-normal. "phones": the built-in
  // sample of phones and networks. "file": those of a table (virtual_time/table.h).
  std::string family = "none";
  std::string assign = "seed";  // of a table's rows: drawn by the seed, or by the client's "name"
  double samples_per_s = 100;   // training examples a second of the median device; not of a file
  double speed_spread = 1;      // σ of ln(examples a second) between devices; lognormal
  double down_kB_s = 2000, up_kB_s = 1000;  // of the median device, 1000 bytes; lognormal
  double network_spread = 1;                // σ of ln(rate) between devices; lognormal
  double round_spread = 0.2;                // σ of ln(seconds of work) between a device's turns
  uint64_t seed = 0;                        // whose device is which, and what its turns take
  std::string table;                        // digest of the table of devices; empty: no file
  std::string presence;                     // digest of the table of presence; empty: no file
  // When a round closes in virtual time: [round] of the configuration, which is resolved into this,
  // because it decides results here.
  double deadline = 0;       // seconds after the round began; 0: none
  double quorum = 1;         // share of the drawn clients that must have arrived by then
  uint64_t enough = 0;       // the first so many count; 0: all
  bool drops_below = false;  // below the quorum the round is dropped; else it waits on

  bool on() const { return family != "none"; }
  friend bool operator==(const DevicesConfig&, const DevicesConfig&) = default;
};

// The keys of [devices].
settings::Section<DevicesConfig> DevicesSection();

}  // namespace macaw
