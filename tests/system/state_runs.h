#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "core/fd.h"
#include "core/random.h"
#include "tests/system/simulation.h"

namespace macaw::testing_support {

// Everything that must not depend on who trains, where states lie, or what was killed.
struct StateBytes {
  std::string model, states, metrics;
  friend bool operator==(const StateBytes&, const StateBytes&) = default;
};
inline void PrintTo(const StateBytes& bytes, std::ostream* out) {
  *out << "model " << bytes.model.substr(0, 12) << ", states " << bytes.states.substr(0, 12);
}

inline StateBytes StateBytesOf(const Simulation& simulation) {
  const nlohmann::json summary = simulation.summary();
  return {simulation.digest(), summary.is_object() ? summary.value("state_digest", "") : "",
          simulation.metrics()};
}

inline StateBytes StateBytesAfter(const std::string& name, std::vector<std::string> arguments) {
  Simulation simulation(name, std::move(arguments));
  EXPECT_EQ(simulation.Wait(), 0) << simulation.output();
  StateBytes bytes = StateBytesOf(simulation);
  EXPECT_EQ(bytes.model.size(), 64u);
  EXPECT_EQ(bytes.states.size(), 64u);
  return bytes;
}

inline std::vector<std::string> Plus(std::vector<std::string> arguments,
                                     const std::vector<std::string>& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

// Half of the clients train in a round: most train more than once.
inline std::vector<std::string> SmallStateful(const std::string& algorithm,
                                              const std::string& rounds = "4",
                                              const std::string& model = "model.name=logistic",
                                              int clients = 40) {
  return {WriteConfig("state", "[evaluation]\nclients = true\nevery = 2\n"),
          "--clients",
          std::to_string(clients),
          "--rounds",
          rounds,
          "--set",
          "cohort.size=" + std::to_string(clients / 2),
          "--set",
          model,
          "--set",
          "algorithm.name=" + algorithm};
}

// The same with a hidden layer, and with a pause after each client, so that on any machine what is
// killed is killed in the middle of a round: ten pauses long, on two slots.
inline std::vector<std::string> SlowerStateful(const std::string& algorithm,
                                               const std::string& rounds,
                                               const std::string& pause = "0.05") {
  std::vector<std::string> arguments = SmallStateful(
      algorithm, rounds, R"(model.layers=["flatten", "linear 16", "relu", "linear 10"])");
  for (const std::string& setting : Pauses(pause)) {
    arguments.emplace_back("--set");
    arguments.push_back(setting);
  }
  return arguments;
}

// What such a run must end with.
inline StateBytes StateBytesWithoutPauses(const std::vector<std::string>& arguments) {
  return StateBytesAfter("undisturbed",
                         Plus(arguments, {"--set", "emulation.pause_probability=0"}));
}

// A condition for WaitForEvent: this round is done.
inline auto RoundDone(uint32_t round) {
  return [round](const nlohmann::json& event) {
    return event["event"] == "round" && event["round"].get<uint32_t>() >= round;
  };
}

// A moment within the next round, which is what is random in these tests.
inline void WaitAMoment(RandomStream& random) {
  std::this_thread::sleep_for(std::chrono::microseconds(random.Below(100'000)));
}

inline std::string Slurp(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// Blocks until one of the run's logs has this text (true) or the run has ended (false).
inline bool WaitForLog(const Simulation& simulation, const std::string& text) {
  const std::string logs = simulation.folder() + "/logs";
  const Fd watch(::inotify_init1(IN_CLOEXEC));
  ::inotify_add_watch(watch.get(), logs.c_str(), IN_MODIFY | IN_CREATE);
  bool found = false;
  while (!found) {
    const bool running = simulation.running();
    for (const auto& entry : std::filesystem::directory_iterator(logs)) {
      found = found || Slurp(entry.path().string()).find(text) != std::string::npos;
    }
    if (found || !running) break;
    pollfd fd{.fd = watch.get(), .events = POLLIN};
    ::poll(&fd, 1, 1000);  // also looks whether the run still goes on
    char buffer[4096];
    if ((fd.revents & POLLIN) != 0 && ::read(watch.get(), buffer, sizeof(buffer)) < 0) break;
  }
  return found;
}

}  // namespace macaw::testing_support
