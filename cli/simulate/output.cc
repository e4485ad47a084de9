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

class PeopleOutput final : public RunOutput {
 public:
  explicit PeopleOutput(bool quiet) : quiet_(quiet) {}

  void Say(absl::string_view what, absl::string_view text) override {
    if (!quiet_) std::cerr << absl::StrFormat("%-10s %s\n", what, text) << std::flush;
  }
  void Begin(const std::string&, uint32_t) override {}
  void Row(const std::string&) override {}
  void Message(const std::string&) override {}
  void Error(const absl::Status& status, int) override { (void)Report(status); }
  void Result(const RunResult& result) override {
    std::cout << (quiet_ ? absl::StrCat(result.folder, "\n") : ResultText(result)) << std::flush;
  }
  void End(int, const std::string& go_on) override {
    if (!go_on.empty()) std::cerr << "go on with  macaw simulate --resume " << go_on << std::endl;
  }

 private:
  const bool quiet_;
};

std::string Absolute(const std::string& path) {
  std::error_code ignored;
  return path.empty() ? "" : std::filesystem::absolute(path, ignored).lexically_normal().string();
}

class JsonOutput final : public RunOutput {
 public:
  explicit JsonOutput(std::function<void(const std::string&)> write) : write_(std::move(write)) {}

  void Say(absl::string_view what, absl::string_view text) override {
    Write({{"event", "said"}, {"what", std::string(what)}, {"text", std::string(text)}});
  }
  void Begin(const std::string& folder, uint32_t rounds) override {
    Write({{"event", "begun"}, {"folder", Absolute(folder)}, {"rounds", rounds}});
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
    if (const std::string left_out = LeftOutText(result); !left_out.empty()) Message(left_out);
    Json warnings = Json::array();
    for (const Drop& drop : DropsOf(result)) warnings.push_back(WarningText(drop, result));
    Write({{"event", "result"},
           {"folder", Absolute(result.folder)},
           {"warnings", std::move(warnings)}});
  }
  void End(int code, const std::string& go_on) override {
    Write({{"event", "end"}, {"code", code}, {"go_on", Absolute(go_on)}});
  }

 private:
  // A message may hold any bytes, such as those of a file's name.
  void Write(const Json& event) {
    write_(event.dump(-1, ' ', false, Json::error_handler_t::replace));
  }

  const std::function<void(const std::string&)> write_;
};

}  // namespace

std::unique_ptr<RunOutput> OutputForPeople(bool quiet) {
  return std::make_unique<PeopleOutput>(quiet);
}

std::unique_ptr<RunOutput> OutputAsJson(std::function<void(const std::string& line)> write) {
  return std::make_unique<JsonOutput>(std::move(write));
}

}  // namespace macaw::cli
