// Holds every #include to the rooms' pages. The rooms and their order are the map in
// CONTRIBUTING.md; what a folder may include is the table "May include" of its room's README.md. So
// each fact is in one place, and a page that says something else than the code fails here.
#include <gtest/gtest.h>

#include <algorithm>
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

constexpr char kAnything[] = "anything";

struct Folder {
  std::set<std::string> rooms;      // that it may include, besides itself
  std::set<std::string> libraries;  // besides the standard library, POSIX and abseil
};

std::string Page(const std::string& path) {
  const auto text = ReadFile(absl::StrCat(MACAW_SOURCE_DIR, "/", path));
  EXPECT_TRUE(text.ok()) << path << ": " << text.status();
  return text.value_or("");
}

// The rows of the table that follows a line, as cells.
std::vector<std::vector<std::string>> TableAfter(const std::string& page, absl::string_view line) {
  std::vector<std::vector<std::string>> rows;
  bool found = false, inside = false;
  for (absl::string_view text : absl::StrSplit(page, '\n')) {
    if (text == line) found = true;
    if (!found) continue;
    if (inside && !absl::StartsWith(text, "|")) break;
    if (!absl::StartsWith(text, "|")) continue;
    inside = true;
    std::vector<std::string> cells;
    for (absl::string_view cell : absl::StrSplit(text, '|'))
      cells.emplace_back(absl::StripAsciiWhitespace(cell));
    rows.emplace_back(cells.begin() + 1, cells.end() - 1);
  }
  // Head and rule.
  return rows.size() < 2 ? rows : std::vector(rows.begin() + 2, rows.end());
}

// The rooms by the map, from the top: "[core](core/README.md)".
std::vector<std::string> Map() {
  std::vector<std::string> rooms;
  for (const auto& row : TableAfter(Page("CONTRIBUTING.md"), "## The map")) {
    for (absl::string_view link : absl::StrSplit(row[0], ", ")) {
      const size_t begin = link.find('(') + 1, end = link.find("/README.md)");
      EXPECT_NE(end, link.npos) << link;
      rooms.emplace_back(link.substr(begin, end - begin));
    }
  }
  return rooms;
}

std::set<std::string> Words(absl::string_view cell) {
  if (cell == "none") return {};
  return absl::StrSplit(cell, ", ");
}

const std::map<std::string, Folder>& Folders() {
  static const auto* const folders = [] {
    auto* all = new std::map<std::string, Folder>;
    for (const std::string& room : Map()) {
      for (const auto& row : TableAfter(Page(room + "/README.md"), "## May include")) {
        const std::string name(absl::StripSuffix(absl::StripPrefix(row[0], "`"), "`"));
        EXPECT_EQ(name.substr(0, name.find('/')), room)
            << room << "/README.md has a row of another room";
        EXPECT_TRUE(fs::is_directory(absl::StrCat(MACAW_SOURCE_DIR, "/", name))) << name;
        (*all)[name] = {.rooms = Words(row[1]), .libraries = Words(row[2])};
      }
    }
    return all;
  }();
  return *folders;
}

// Which library a header in angle brackets belongs to; "" for the standard library, POSIX and
// abseil.
std::string LibraryOf(const std::string& header) {
  static const std::vector<std::pair<std::string, std::string>> prefixes = {
      {"spdlog/", "spdlog"},   {"nlohmann/", "nlohmann"},
      {"sodium", "sodium"},    {"xxhash", "xxhash"},
      {"grpc", "grpc"},        {"google/", "protobuf"},
      {"zlib", "zlib"},        {"hdf5", "hdf5"},
      {"hiredis/", "hiredis"}, {"torch/", "torch"},
      {"ATen/", "torch"},      {"c10/", "torch"},
      {"nccl", "nccl"},        {"cuda", "cuda"},
      {"toml++/", "toml++"},   {"CLI/", "CLI"},
      {"hwy/", "highway"},     {"openssl/", "openssl"},
      {"httplib", "httplib"},  {"prometheus/", "prometheus"}};
  for (const auto& [prefix, library] : prefixes) {
    if (absl::StartsWith(header, prefix)) return library;
  }
  return "";
}

// The most specific folder decides: "algorithms/api" before "algorithms".
std::string FolderOf(const std::string& path) {
  std::string best;
  for (const auto& [folder, rules] : Folders()) {
    if (absl::StartsWith(path, folder + "/") && folder.size() > best.size()) best = folder;
  }
  return best;
}

std::vector<std::string> Sources() {
  std::vector<std::string> files;
  for (const std::string& room : Map()) {
    for (const auto& entry :
         fs::recursive_directory_iterator(absl::StrCat(MACAW_SOURCE_DIR, "/", room))) {
      const std::string extension = entry.path().extension().string();
      if (extension != ".h" && extension != ".cc" && extension != ".cu" && extension != ".cuh")
        continue;
      files.push_back(fs::relative(entry.path(), MACAW_SOURCE_DIR).string());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

TEST(Architecture, EveryIncludeIsInTheTableOfItsRoom) {
  size_t checked = 0;
  for (const std::string& file : Sources()) {
    const std::string folder = FolderOf(file);
    ASSERT_FALSE(folder.empty()) << file << ": no row of \"May include\" is about its folder";
    const Folder& rules = Folders().at(folder);
    const std::string page = folder.substr(0, folder.find('/')) + "/README.md";
    const std::string text = Page(file);
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
        if (rules.libraries.contains(kAnything)) continue;
        EXPECT_TRUE(rules.libraries.contains(library))
            << file << " names " << header << ", and " << page << " does not let " << folder;
        EXPECT_FALSE(absl::EndsWith(file, ".h") && header == "torch/torch.h")
            << file << ": only in .cc files";
        continue;
      }
      const std::string target = FolderOf(header);
      if (target.empty() || target == folder || rules.rooms.contains(kAnything)) continue;
      EXPECT_TRUE(rules.rooms.contains(target))
          << file << " includes " << header << ", and " << page << " does not let " << folder;
    }
    EXPECT_FALSE(torch && grpc) << file << " names LibTorch and gRPC: both define CHECK and LOG";
  }
  EXPECT_GT(checked, 500u) << "the test did not find the sources";
}

TEST(Architecture, NoRoomMayIncludeARoomBelowItOnTheMap) {
  const std::vector<std::string> map = Map();
  const auto place = [&](const std::string& folder) {
    return std::find(map.begin(), map.end(), folder.substr(0, folder.find('/'))) - map.begin();
  };
  for (const auto& [folder, rules] : Folders()) {
    for (const std::string& target : rules.rooms) {
      if (target == kAnything) continue;
      EXPECT_TRUE(Folders().contains(target))
          << folder << " may include " << target << ", which is no folder";
      EXPECT_LE(place(target), place(folder)) << folder << " may include " << target;
    }
  }
}

TEST(Architecture, WhatIsForTestsIsIncludedByTestsAlone) {
  for (const auto& [folder, rules] : Folders()) {
    const bool test_code = folder == "testing" || folder == "tests" || folder == "bench";
    for (const char* target : {"testing", "tests", "bench", kAnything})
      EXPECT_TRUE(test_code || !rules.rooms.contains(target))
          << folder << " may include " << target;
  }
}

TEST(Architecture, EveryRoomHasAPageThatSaysWhatItDecides) {
  const std::vector<std::string> map = Map();
  EXPECT_GE(map.size(), 20u);
  for (const std::string& room : map)
    EXPECT_TRUE(absl::StrContains(Page(room + "/README.md"), "**Decides**")) << room;
  // A folder that the build knows is on the map.
  for (absl::string_view line : absl::StrSplit(Page("CMakeLists.txt"), '\n')) {
    line = absl::StripAsciiWhitespace(line);
    if (!absl::ConsumePrefix(&line, "add_subdirectory(")) continue;
    const std::string room(line.substr(0, line.find_first_of("/)")));
    EXPECT_TRUE(std::find(map.begin(), map.end(), room) != map.end())
        << room << " is not on the map of CONTRIBUTING.md";
  }
}

}  // namespace
}  // namespace macaw
