#include "plan/devices.h"

namespace macaw {

using settings::Between;
using settings::Role;

settings::Section<DevicesConfig> DevicesSection() {
  using D = DevicesConfig;
  // Of a speed or rate: seconds stay finite.
  constexpr double kLeast = 1e-12, kMost = 1e12;
  constexpr double kMostSpread = 5;  // e^5 is 148
  settings::Section<D> f;
  f.AddChoice(
      "family", &D::family, {"none", "lognormal", "phones", "file"},
      "the clients' devices, which give each round its virtual time; in simulations only. "
      "lognormal: speeds and rates are log-normal; phones: a built-in sample of phones and their "
      "networks; file: those of devices.file; none: no virtual time");
  const auto on = [](const D& devices) { return devices.on(); };
  const char* const any = "devices.family other than \"none\"";
  const auto lognormal = [](const D& devices) { return devices.family == "lognormal"; };
  const char* const drawn = "devices.family = \"lognormal\"";
  f.AddChoice("assign", &D::assign, {"seed", "name"},
              "which row of a table is a client's. seed: any, drawn by devices.seed; name: the one "
              "whose device has the client's name")
      .Needs(on, any);
  f.Add("samples_per_s", &D::samples_per_s,
        "training examples that the median device takes through the model in a second, forward "
        "and backward",
        Between(kLeast, kMost))
      .Needs([](const D& devices) { return devices.on() && devices.family != "file"; },
             "devices.family = \"lognormal\" or \"phones\"");
  f.Add("speed_spread", &D::speed_spread,
        "standard deviation of ln(examples a second) between devices", Between(0, kMostSpread))
      .Needs(lognormal, drawn);
  f.Add("down_kB_s", &D::down_kB_s,
        "rate at which the median device downloads, 1000 bytes a second", Between(kLeast, kMost))
      .Needs(lognormal, drawn);
  f.Add("up_kB_s", &D::up_kB_s, "rate at which the median device uploads, 1000 bytes a second",
        Between(kLeast, kMost))
      .Needs(lognormal, drawn);
  f.Add("network_spread", &D::network_spread,
        "standard deviation of ln(rate) between devices, the same factor in both directions",
        Between(0, kMostSpread))
      .Needs(lognormal, drawn);
  f.Add("round_spread", &D::round_spread,
        "standard deviation of ln(seconds of work) between the turns of a device",
        Between(0, kMostSpread))
      .Needs(on, any);
  f.AddSeed("seed", &D::seed, "seed of whose device is which and of its turns; default: run.seed")
      .Needs(on, any);
  // Nodes compare what is in the files that devices.file and devices.presence name.
  f.Add("table", &D::table, "digest of the table devices.file").As(Role::kDerived).in_file = false;
  f.Add("presence_table", &D::presence, "digest of the table devices.presence")
      .As(Role::kDerived)
      .in_file = false;
  // Those of [round], which in virtual time decide results.
  f.Add("deadline", &D::deadline, "round.deadline in virtual time").As(Role::kDerived).in_file =
      false;
  f.Add("quorum", &D::quorum, "round.quorum in virtual time").As(Role::kDerived).in_file = false;
  f.Add("enough", &D::enough, "round.enough in virtual time").As(Role::kDerived).in_file = false;
  f.Add("drops_below", &D::drops_below, "round.below_quorum = \"drop\" in virtual time")
      .As(Role::kDerived)
      .in_file = false;
  return f;
}

}  // namespace macaw
