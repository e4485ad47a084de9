// What a fleet costs its server, on loopback: N devices over mutual TLS, each with a certificate of
// its own, or without TLS over a Unix socket. They are idle (memory, heartbeats, a storm of
// reconnects), or a run draws some of them each round.
//
//   bench_load [DEVICES] [--plain] [--pacing SECONDS]
//   bench_load [DEVICES] [--plain] --rounds N [--cohort N]
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "bench/frame.h"
#include "bench/load/idle.h"
#include "bench/load/rounds.h"

int main(int argc, char** argv) {
  using macaw::bench::MeasureIdle;
  using macaw::bench::MeasureRounds;
  CLI::App app("What a fleet's connections and rounds cost its server", "bench_load");
  macaw::bench::RoundsOptions options;
  options.rounds = 0;
  double pacing = 30;
  app.add_option("DEVICES", options.devices, "How many (default 3000)")
      ->check(CLI::Range(2, 100'000));
  app.add_flag("--plain", options.plain, "A Unix socket without TLS");
  app.add_option("--pacing", pacing, "Seconds over which the second storm is spread (default 30)")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--rounds", options.rounds, "A run of so many rounds");
  app.add_option("--cohort", options.cohort, "Devices in a round (default 300)");
  app.add_option("--log", options.log, "With --rounds: a file for the server's log");
  // What this program starts itself with as the server.
  std::vector<std::string> serve;
  int ready = -1;
  app.add_option("--serve", serve)->expected(2)->group("");
  app.add_option("--ready", ready)->group("");
  CLI11_PARSE(app, argc, argv);
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  if (!serve.empty()) macaw::bench::ServeNothing(serve[0], serve[1], ready);
  macaw::bench::PrintHeading(argc, argv);
  if (options.rounds > 0) {
    options.cohort = std::min<uint32_t>(options.cohort, options.devices);
    MeasureRounds(options);
  } else {
    MeasureIdle(options.devices, pacing, options.plain);
  }
}
