#include "cli/bundle/manifest.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/status.h"

namespace macaw::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr char kFormat[] = "macaw-bundle";
constexpr uint64_t kFormatVersion = 1;

// The members of an object, with an error for what is missing or of another kind. After the first
// error all are empty.
class Members {
 public:
  Members(const OrderedJson& object, std::string place, absl::Status& status)
      : object_(object), place_(std::move(place)), status_(status) {
    if (!object.is_object()) Refuse("", "an object");
  }

  std::string Text(const char* key) {
    const OrderedJson* const value = Find(key);
    if (value == nullptr) return "";
    if (!value->is_string()) return (Refuse(key, "a text"), "");
    return value->get<std::string>();
  }
  uint64_t Number(const char* key) {
    const OrderedJson* const value = Find(key);
    if (value == nullptr) return 0;
    if (!value->is_number_unsigned()) return (Refuse(key, "a whole number"), 0);
    return value->get<uint64_t>();
  }
  uint32_t Count(const char* key) {
    const uint64_t number = Number(key);
    if (number > std::numeric_limits<uint32_t>::max()) return (Refuse(key, "below 2^32"), 0);
    return static_cast<uint32_t>(number);
  }
  bool Flag(const char* key) {
    const OrderedJson* const value = Find(key);
    if (value == nullptr) return false;
    if (!value->is_boolean()) return (Refuse(key, "true or false"), false);
    return value->get<bool>();
  }
  const OrderedJson& Object(const char* key) { return Container(key, &OrderedJson::is_object); }
  const OrderedJson& List(const char* key) { return Container(key, &OrderedJson::is_array); }

 private:
  const OrderedJson* Find(const char* key) {
    if (!status_.ok()) return nullptr;
    const auto found = object_.find(key);
    if (found != object_.end()) return &*found;
    Refuse(key, "there");
    return nullptr;
  }
  const OrderedJson& Container(const char* key, bool (OrderedJson::*is)() const noexcept) {
    static const OrderedJson none;
    const OrderedJson* const value = Find(key);
    if (value != nullptr && (value->*is)()) return *value;
    if (value != nullptr) Refuse(key, "a list or an object");
    return none;
  }
  void Refuse(absl::string_view key, absl::string_view expected) {
    if (!status_.ok()) return;
    status_ = absl::InvalidArgumentError(
        absl::StrCat(place_, key.empty() ? "" : absl::StrCat(": ", key), " is not ", expected));
  }

  const OrderedJson& object_;
  const std::string place_;
  absl::Status& status_;
};

}  // namespace

std::string ManifestJson(const Manifest& manifest) {
  OrderedJson inputs = OrderedJson::array(), files = OrderedJson::array();
  for (const BundledInput& input : manifest.inputs) {
    inputs.push_back({{"key", input.key},
                      {"path", input.path},
                      {"bytes", input.bytes},
                      {"sha256", input.sha256},
                      {"file", input.file}});
  }
  for (const BundledFile& file : manifest.files)
    files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"sha256", file.sha256}});
  const OrderedJson json = {{"format", kFormat},
                            {"version", kFormatVersion},
                            {"macaw", manifest.macaw},
                            {"program", manifest.program},
                            {"command", manifest.command},
                            {"run",
                             {{"name", manifest.name},
                              {"algorithm", manifest.algorithm},
                              {"end", manifest.end},
                              {"rounds", manifest.rounds},
                              {"began", manifest.began},
                              {"ended", manifest.ended},
                              {"model_digest", manifest.model_digest}}},
                            {"seeds", manifest.seeds},
                            {"profile",
                             {{"trainer", manifest.profile.trainer},
                              {"instruction_set", manifest.profile.instruction_set},
                              {"libraries", manifest.profile.libraries}}},
                            {"data",
                             {{"source", manifest.data.source},
                              {"path", manifest.data.path},
                              {"digest", manifest.data.digest},
                              {"by_name", manifest.data.by_name}}},
                            {"inputs", std::move(inputs)},
                            {"files", std::move(files)},
                            {"left_out", manifest.left_out}};
  return json.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

absl::StatusOr<Manifest> ParseManifest(const std::string& json, const std::string& name) {
  const std::string place = absl::StrCat(name, ": ", kManifestFile);
  const OrderedJson all = OrderedJson::parse(json, nullptr, /*allow_exceptions=*/false);
  if (all.is_discarded()) return absl::InvalidArgumentError(absl::StrCat(place, " is not JSON"));
  absl::Status status;
  Members top(all, place, status);
  const std::string format = top.Text("format");
  const uint64_t version = top.Number("version");
  MACAW_RETURN_IF_ERROR(status);
  if (format != kFormat)
    return absl::InvalidArgumentError(absl::StrCat(place, " is not of a bundle of Macaw"));
  if (version != kFormatVersion) {
    return absl::InvalidArgumentError(absl::StrCat(
        place, " has version ", version, ", and this program reads version ", kFormatVersion));
  }
  Manifest manifest{
      .macaw = top.Text("macaw"), .program = top.Text("program"), .command = top.Text("command")};
  Members run(top.Object("run"), absl::StrCat(place, ": run"), status);
  manifest.name = run.Text("name");
  manifest.algorithm = run.Text("algorithm");
  manifest.end = run.Text("end");
  manifest.rounds = run.Count("rounds");
  manifest.began = run.Text("began");
  manifest.ended = run.Text("ended");
  manifest.model_digest = run.Text("model_digest");
  const OrderedJson& seeds = top.Object("seeds");
  for (const auto& [key, seed] : seeds.items()) {
    if (seed.is_string()) manifest.seeds[key] = seed.get<std::string>();
  }
  Members profile(top.Object("profile"), absl::StrCat(place, ": profile"), status);
  manifest.profile = {.trainer = profile.Text("trainer"),
                      .instruction_set = profile.Text("instruction_set"),
                      .libraries = profile.Text("libraries")};
  Members data(top.Object("data"), absl::StrCat(place, ": data"), status);
  manifest.data = {.source = data.Text("source"),
                   .path = data.Text("path"),
                   .digest = data.Text("digest"),
                   .by_name = data.Flag("by_name")};
  for (const OrderedJson& one : top.List("inputs")) {
    Members input(one, absl::StrCat(place, ": inputs"), status);
    manifest.inputs.push_back({.key = input.Text("key"),
                               .path = input.Text("path"),
                               .bytes = input.Number("bytes"),
                               .sha256 = input.Text("sha256"),
                               .file = input.Text("file")});
  }
  for (const OrderedJson& one : top.List("files")) {
    Members file(one, absl::StrCat(place, ": files"), status);
    manifest.files.push_back(
        {.name = file.Text("name"), .bytes = file.Number("bytes"), .sha256 = file.Text("sha256")});
  }
  for (const OrderedJson& one : top.List("left_out")) {
    if (one.is_string()) manifest.left_out.push_back(one.get<std::string>());
  }
  MACAW_RETURN_IF_ERROR(status);
  return manifest;
}

}  // namespace macaw::cli
