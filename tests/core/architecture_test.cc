// Reads every #include line and checks it against the table of rooms in README.md: no room includes
// a room below it, no program includes what is for tests, and what tests share does not include one
// test's own helpers.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/files.h"

namespace macaw {
namespace {

namespace fs = std::filesystem;

struct Room {
  std::set<std::string> may_include;  // rooms, besides itself
  std::set<std::string>
      may_name;  // outside libraries, besides the standard library, POSIX and abseil
};
const char kAnything[] = "anything";

// The most specific folder decides: "algorithms/api" before "algorithms".
const std::map<std::string, Room>& Rooms() {
  static const std::map<std::string, Room> rooms = {
      {"core", {{}, {"spdlog", "nlohmann", "sodium", "xxhash", "highway"}}},
      {"identity", {{"core"}, {"openssl", "nlohmann"}}},
      {"plan", {{"core"}, {}}},
      {"proto/fleet", {{"core", "plan"}, {}}},
      {"proto/admin", {{"core", "proto/fleet"}, {"nlohmann"}}},
      {"proto/http",
       {{"core", "proto/fleet", "proto/admin"}, {"nlohmann", "httplib", "prometheus"}}},
      {"proto/wire",
       {{"core", "identity", "plan", "proto/fleet", "proto/admin"}, {"grpc", "protobuf"}}},
      {"data", {{"core", "plan"}, {"zlib", "nlohmann"}}},
      {"device", {{"core"}, {}}},
      {"device/cuda", {{"core", "device"}, {"cuda", "nccl"}}},
      {"aggregation", {{"core", "device"}, {}}},
      {"aggregation/cuda", {{"core", "device", "device/cuda", "aggregation"}, {"cuda"}}},
      {"scheduler", {{"core", "plan"}, {}}},
      {"state", {{"core"}, {"hiredis"}}},
      {"models", {{"core", "plan"}, {"torch"}}},
      {"training/api", {{"core", "plan", "data", "models", "device"}, {}}},
      {"training",
       {{"core", "plan", "data", "models", "training/api", "device"}, {"torch", "highway"}}},
      {"training/process",
       {{"core", "plan", "data", "models", "training", "training/api"}, {"nlohmann"}}},
      {"training/device",
       {{"core", "plan", "data", "models", "training", "training/api", "device"}, {}}},
      {"training/cuda",
       {{"core", "plan", "data", "models", "device", "device/cuda", "training", "training/api",
         "training/device", "aggregation", "aggregation/cuda"},
        {"cuda"}}},
      {"training/torch",
       {{"core", "plan", "data", "models", "training", "training/api"}, {"torch"}}},
      {"algorithms/api", {{"core", "plan", "aggregation", "training/api", "data"}, {}}},
      {"algorithms",
       {{"core", "plan", "aggregation", "models", "training", "training/api", "algorithms/api"},
        {"torch"}}},
      {"sdk",
       {{"core", "plan", "data", "aggregation", "models", "training/api", "algorithms/api",
         "algorithms", "sdk/rules"},
        {}}},
      {"sdk/rules",
       {{"core", "plan", "aggregation", "training/api", "algorithms/api", "data"}, {"nlohmann"}}},
      {"sdk/testing",
       {{"core", "plan", "aggregation", "models", "training", "training/api", "algorithms/api",
         "algorithms", "sdk"},
        {}}},
      {"server/log", {{"core", "plan", "proto/fleet"}, {"nlohmann"}}},
      {"server/engine",
       {{"core", "plan", "proto/fleet", "proto/admin", "aggregation", "scheduler", "training/api",
         "server/log"},
        {}}},
      {"server/journal", {{"core", "plan", "proto/fleet", "server/log", "server/engine"}, {}}},
      {"server",
       {{"core", "plan", "proto/fleet", "proto/admin", "aggregation", "scheduler", "training/api",
         "algorithms/api", "server/engine", "server/journal", "server/log"},
        {"nlohmann"}}},
      {"worker",
       {{"core", "plan", "proto/fleet", "data", "aggregation", "state", "models", "training",
         "training/api", "algorithms/api", "algorithms", "device"},
        {}}},
      {"cli/config",
       {{"core", "plan", "data", "models", "scheduler", "state", "training/api", "algorithms/api",
         "sdk", "server", "worker"},
        {"toml++", "nlohmann"}}},
      {"cli/process", {{"core", "identity", "proto/fleet"}, {"nlohmann"}}},
      {"cli/log", {{"core", "server/log"}, {}}},
      {"cli/timeline", {{"core"}, {"nlohmann"}}},
      {"cli/track", {{"core", "cli/config", "cli/process"}, {"nlohmann"}}},
      {"cli/simulate",
       {{"core", "plan", "data", "state", "models", "training", "training/api", "algorithms/api",
         "sdk", "server", "cli/config", "cli/process", "cli/track"},
        {"nlohmann"}}},
      {"cli/compare",
       {{"core", "plan", "algorithms/api", "server", "cli/config", "cli/simulate"}, {}}},
      {"cli/report", {{"core", "sdk", "cli/simulate", "cli/timeline"}, {"nlohmann"}}},
      {"cli/watch", {{"core", "proto/http", "cli/report"}, {"httplib"}}},
      {"cli/sweep",
       {{"core", "training", "server", "sdk", "cli/config", "cli/process", "cli/simulate",
         "cli/compare", "cli/report"},
        {"nlohmann"}}},
      {"cli/commands",
       {{"core",         "identity",     "plan",        "proto/fleet",  "data",
         "state",        "models",       "training",    "training/api", "algorithms/api",
         "sdk",          "server/log",   "cli/config",  "cli/process",  "cli/log",
         "cli/timeline", "cli/simulate", "cli/compare", "cli/report",   "cli/sweep",
         "cli/track",    "cli/watch"},
        {"CLI", "nlohmann"}}},
      {"cli/admin", {{"core"}, {"nlohmann"}}},
      {"cli/identity", {{"core", "identity", "proto/wire"}, {}}},
      {"cli/standing",
       {{"core", "proto/admin", "proto/wire", "models", "sdk", "cli/config", "cli/identity",
         "cli/process"},
        {"nlohmann"}}},
      // The programs: here the rooms are put together.
      {"cli",
       {{"core",         "identity",       "proto/admin", "proto/http",     "cli/admin",
         "cli/identity", "cli/standing",   "plan",        "proto/fleet",    "proto/wire",
         "data",         "aggregation",    "scheduler",   "state",          "models",
         "training",     "training/api",   "algorithms",  "algorithms/api", "sdk",
         "server",       "server/journal", "server/log",  "worker",         "cli/config",
         "cli/process",  "cli/simulate",   "cli/compare", "cli/commands",   "cli/log",
         "cli/timeline", "cli/report",     "cli/watch",   "cli/sweep",      "cli/track"},
        {"CLI", "nlohmann"}}},
      // No room above may include these: none of them names them.
      {"testing", {{kAnything}, {kAnything}}},
      {"tests", {{kAnything}, {kAnything}}},
      {"bench", {{kAnything}, {kAnything}}},
  };
  return rooms;
}

// Which library a header in angle brackets belongs to; "" for the standard library, POSIX and
// abseil.
std::string LibraryOf(const std::string& header) {
  static const std::vector<std::pair<std::string, std::string>> prefixes = {
      {"spdlog/", "spdlog"},
      {"nlohmann/", "nlohmann"},
      {"sodium", "sodium"},
      {"xxhash", "xxhash"},
      {"grpc", "grpc"},
      {"google/", "protobuf"},
      {"zlib", "zlib"},
      {"hiredis/", "hiredis"},
      {"torch/", "torch"},
      {"ATen/", "torch"},
      {"c10/", "torch"},
      {"nccl", "nccl"},
      {"cuda", "cuda"},
      {"toml++/", "toml++"},
      {"CLI/", "CLI"},
      {"hwy/", "highway"},
      {"openssl/", "openssl"},
      {"httplib", "httplib"},
      {"prometheus/", "prometheus"}};
  for (const auto& [prefix, library] : prefixes) {
    if (absl::StartsWith(header, prefix)) return library;
  }
  return "";
}

std::string RoomOf(const std::string& path) {
  std::string best;
  for (const auto& [room, rules] : Rooms()) {
    if (absl::StartsWith(path, room + "/") && room.size() > best.size()) best = room;
  }
  return best;
}

std::vector<std::string> Sources() {
  std::vector<std::string> files;
  for (const auto& [room, rules] : Rooms()) {
    const std::string top = room.substr(0, room.find('/'));
    for (const auto& entry :
         fs::recursive_directory_iterator(std::string(MACAW_SOURCE_DIR "/") + top)) {
      const std::string extension = entry.path().extension().string();
      if (extension != ".h" && extension != ".cc" && extension != ".cu" && extension != ".cuh")
        continue;
      files.push_back(fs::relative(entry.path(), MACAW_SOURCE_DIR).string());
    }
  }
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files;
}

TEST(Architecture, EveryIncludePointsUpTheTableOfRooms) {
  size_t checked = 0;
  for (const std::string& file : Sources()) {
    const std::string room = RoomOf(file);
    ASSERT_FALSE(room.empty()) << file << " stands in no room";
    const Room& rules = Rooms().at(room);
    const std::string text = *ReadFile(std::string(MACAW_SOURCE_DIR "/") + file);
    bool torch = false, grpc = false;
    for (absl::string_view line : absl::StrSplit(text, '\n')) {
      line = absl::StripAsciiWhitespace(line);
      if (!absl::ConsumePrefix(&line, "#include ")) continue;
      const char close = line[0] == '<' ? '>' : '"';
      const std::string header(line.substr(1, line.find(close, 1) - 1));
      const std::string library = LibraryOf(header);
      torch = torch || library == "torch";
      grpc = grpc || library == "grpc";
      ++checked;
      if (!library.empty()) {
        if (rules.may_name.contains(kAnything)) continue;
        EXPECT_TRUE(rules.may_name.contains(library))
            << file << ": " << room << " may not name " << header;
        EXPECT_FALSE(absl::EndsWith(file, ".h") && header == "torch/torch.h")
            << file << ": only in .cc files";
        continue;
      }
      const std::string target = RoomOf(header);
      if (target.empty() || target == room) continue;
      const bool anything = rules.may_include.contains(kAnything);
      EXPECT_TRUE(rules.may_include.contains(target) || anything)
          << file << ": " << room << " may not include " << header;
    }
    EXPECT_FALSE(torch && grpc) << file << " names LibTorch and gRPC: both define CHECK and LOG";
  }
  EXPECT_GT(checked, 500u) << "the test did not find the sources";
}

TEST(Architecture, EveryRoomHasAPageThatSaysWhatItDecides) {
  for (const char* room : {"core", "identity", "proto", "data", "device", "aggregation",
                           "scheduler", "state", "models", "training", "algorithms", "sdk",
                           "server", "worker", "cli", "python", "deploy", "bench", "testing"}) {
    const auto text = ReadFile(absl::StrCat(MACAW_SOURCE_DIR, "/", room, "/README.md"));
    EXPECT_TRUE(text.ok()) << room << " has no README.md";
  }
}

}  // namespace
}  // namespace macaw
