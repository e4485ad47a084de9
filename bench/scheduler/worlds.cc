#include "bench/scheduler/worlds.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "core/random.h"

namespace macaw::bench {
namespace {

constexpr size_t kPopulation = 4000;

absl::StatusOr<std::vector<uint32_t>> ReadSizes(const std::string& file) {
  std::ifstream in(file);
  if (!in) return absl::NotFoundError(absl::StrCat(file, " cannot be read"));
  std::vector<uint32_t> sizes;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with('#')) continue;
    std::istringstream words(line);
    for (uint32_t size = 0; words >> size;) sizes.push_back(size);
  }
  if (sizes.empty()) return absl::InvalidArgumentError(absl::StrCat(file, " holds no numbers"));
  return sizes;
}

}  // namespace

absl::StatusOr<std::vector<uint32_t>> MakeSizes(const std::string& name,
                                                const std::string& speakers_file) {
  if (name == "speakers") return ReadSizes(speakers_file);
  RandomStream stream({.seed = kSeed, .purpose = Purpose::kData});
  std::vector<uint32_t> sizes(kPopulation);
  for (uint32_t& size : sizes) {
    double rows = 0;
    if (name == "lognormal-1") {
      rows = 100 * std::exp(stream.Normal() - 0.5);
    } else if (name == "lognormal-2") {
      rows = 100 * std::exp(2 * stream.Normal() - 2);
    } else if (name == "power-1.5") {
      rows = std::min(33 * std::pow(1 - stream.Uniform(), -1 / 1.5), 20000.0);
    } else if (name == "synthetic-1-1") {
      rows = std::min(std::floor(std::exp(4 + 2 * stream.Normal())) + 50, 2000.0);
    } else {
      return absl::InvalidArgumentError(absl::StrCat("no sizes are called ", name));
    }
    size = static_cast<uint32_t>(std::max(rows, 1.0));
  }
  return sizes;
}

std::string World::name() const {
  const char* const changes[] = {"", ", cos", ", one halves"};
  return absl::StrCat(sizes, ", ", speeds.size(), even ? " equal" : " at 1:2:4", ", ", per_slot,
                      " a slot, ", std::lround(noise * 100), " %",
                      changes[static_cast<size_t>(change)]);
}

double SpeedOf(const World& world, size_t slot, uint32_t round) {
  double speed = world.speeds[slot];
  const uint32_t all = world.warmup + world.rounds;
  if (world.change == Change::kCos) {
    speed /= EmulatedSlowdown({.environment = "cos", .ratio = 1},
                              {.slot = static_cast<uint32_t>(slot),
                               .slots = static_cast<uint32_t>(world.speeds.size()),
                               .rounds = all},
                              Round(round));
  }
  if (world.change == Change::kHalving && slot == 0 && round > world.warmup + world.rounds / 2)
    speed /= 2;
  return speed;
}

double WorkOf(const World& world, uint32_t rows, Round round, ClientId client) {
  const double mean = kFixedSeconds + kRowSeconds * rows;
  if (world.noise == 0) return mean;
  RandomStream stream(
      {.seed = kSeed, .purpose = Purpose::kNoise, .round = round, .client = client});
  const double variance = std::log1p(world.noise * world.noise);
  return mean * std::exp(std::sqrt(variance) * stream.Normal() - variance / 2);
}

std::vector<World> AllWorlds() {
  std::vector<World> worlds;
  const auto speeds = [](size_t slots, bool even) {
    std::vector<double> out;
    for (size_t s = 0; s < slots; ++s) out.push_back(even ? 1.0 : static_cast<double>(1 << s % 3));
    return out;
  };
  for (const char* sizes :
       {"lognormal-1", "lognormal-2", "power-1.5", "synthetic-1-1", "speakers"}) {
    for (const size_t slots : {4, 8, 32}) {
      for (const bool even : {true, false}) {
        for (const double noise : {0.0, 0.1, 0.3, 0.5}) {
          worlds.push_back(
              {.sizes = sizes, .speeds = speeds(slots, even), .even = even, .noise = noise});
        }
        // Four times as many clients, at the noise that the goal is about.
        if (sizes != std::string("speakers") || slots < 32) {
          worlds.push_back({.sizes = sizes,
                            .speeds = speeds(slots, even),
                            .even = even,
                            .per_slot = 32,
                            .noise = 0.3});
        }
      }
    }
    for (const Change change : {Change::kCos, Change::kHalving}) {
      worlds.push_back({.sizes = sizes, .speeds = speeds(8, true), .noise = 0.3, .change = change});
    }
  }
  return worlds;
}

}  // namespace macaw::bench
