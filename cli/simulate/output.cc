#include "cli/simulate/output.h"

#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/config/key_error.h"
#include "cli/process/exit.h"

namespace macaw::cli {
namespace {

using Json = nlohmann::ordered_json;

class PeopleOutput final : public Output {
 public:
  explicit PeopleOutput(PeopleOptions options) : options_(std::move(options)) {}

  void Say(absl::string_view what, absl::string_view text) override {
    if (options_.quiet) return;
    const std::string line = absl::StrFormat("%-10s %s", what, text);
    if (options_.say) return options_.say(line);
    std::cerr << line << std::endl;
  }
  void Message(const std::string& message) override {
    if (options_.message) options_.message(message);
  }
  void Error(const absl::Status& status, int) override { (void)Report(status); }
  void Result(const RunResult& result) override {
    std::cout << (options_.quiet ? absl::StrCat(result.folder, "\n") : ResultText(result))
              << std::flush;
  }
  void Estimate(const std::string& text) override { std::cout << text << std::flush; }
  void End(int, const std::string& folder, const std::string& command) override {
    if (!folder.empty()) std::cerr << "go on with  " << command << std::endl;
  }

 private:
  const PeopleOptions options_;
};

class JsonOutput final : public Output {
 public:
  explicit JsonOutput(std::function<void(const std::string&)> write) : write_(std::move(write)) {}

  void Say(absl::string_view what, absl::string_view text) override {
    Write({{"event", "said"}, {"what", std::string(what)}, {"text", std::string(text)}});
  }
  // A row is JSON already.
  void Row(const std::string& row) override {
    write_(absl::StrCat("{\"event\":\"round\",\"row\":", row, "}"));
  }
  void Message(const std::string& message) override {
    Write({{"event", "message"}, {"text", message}});
  }
  void Error(const absl::Status& status, int code) override {
    const KeyError about = KeyErrorOf(status);
    Write({{"event", "error"},
           {"code", code},
           {"message", std::string(status.message())},
           {"place", about.place},
           {"key", about.key},
           {"meant", about.meant}});
  }
  void Result(const RunResult& result) override {
    Json warnings = Json::array();
    if (std::string left_out = LeftOutText(result); !left_out.empty())
      warnings.push_back(std::move(left_out));
    if (std::string not_kept = BestNotKeptText(result); !not_kept.empty())
      warnings.push_back(std::move(not_kept));
    for (const Drop& drop : DropsOf(result)) warnings.push_back(WarningText(drop, result));
    if (std::string coarse = CoarseSumsText(result); !coarse.empty())
      warnings.push_back(std::move(coarse));
    Write({{"event", "result"},
           {"folder", AbsolutePath(result.folder)},
           {"warnings", std::move(warnings)}});
  }
  void Event(const Json& event) override { Write(event); }
  void End(int code, const std::string& folder, const std::string&) override {
    Write({{"event", "end"}, {"code", code}, {"go_on", AbsolutePath(folder)}});
  }

 private:
  // A message may hold any bytes, such as those of a file's name.
  void Write(const Json& event) {
    write_(event.dump(-1, ' ', false, Json::error_handler_t::replace));
  }

  const std::function<void(const std::string&)> write_;
};

}  // namespace

void Output::Say(absl::string_view, absl::string_view) {}
void Output::Row(const std::string&) {}
void Output::Message(const std::string&) {}
void Output::Error(const absl::Status&, int) {}
void Output::Result(const RunResult&) {}
void Output::Estimate(const std::string&) {}
void Output::Event(const Json&) {}
void Output::End(int, const std::string&, const std::string&) {}

std::unique_ptr<Output> OutputForPeople(PeopleOptions options) {
  return std::make_unique<PeopleOutput>(std::move(options));
}

std::unique_ptr<Output> OutputAsJson(std::function<void(const std::string& line)> write) {
  return std::make_unique<JsonOutput>(std::move(write));
}

std::unique_ptr<Output> OutputFor(bool json, PeopleOptions options) {
  if (!json) return OutputForPeople(std::move(options));
  return OutputAsJson([](const std::string& line) { std::cout << line << "\n" << std::flush; });
}

std::string AbsolutePath(const std::string& path) {
  std::error_code ignored;
  return path.empty() ? "" : std::filesystem::absolute(path, ignored).lexically_normal().string();
}

}  // namespace macaw::cli
