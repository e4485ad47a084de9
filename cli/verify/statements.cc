#include "cli/verify/statements.h"

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "cli/bundle/portable.h"
#include "cli/config/document.h"
#include "cli/config/settings.h"
#include "core/one_line.h"
#include "core/status.h"

namespace macaw::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kSummaryName[] = "summary.json", kConfigName[] = "config.toml";

std::string ContentOf(const Bundle& bundle, const char* name) {
  const auto found = bundle.files().find(name);
  return found == bundle.files().end() ? "" : found->second;
}

Json SummaryIn(const Bundle& bundle) {
  return Json::parse(ContentOf(bundle, kSummaryName), nullptr, /*allow_exceptions=*/false);
}

std::string WordIn(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

class Statements {
 public:
  Statements(const Bundle& bundle, const Trace& recorded)
      : bundle_(bundle), manifest_(bundle.manifest()), recorded_(recorded) {}

  absl::Status Check() const {
    MACAW_RETURN_IF_ERROR(AreOfTheSummary());
    MACAW_RETURN_IF_ERROR(AreOfTheConfiguration());
    return ProfileIsOfTheOthers();
  }

 private:
  // By one file it is `first`, and by another `second`.
  absl::Status Denied(absl::string_view what, absl::string_view file, absl::string_view first,
                      absl::string_view other, absl::string_view second) const {
    const auto shown = [](absl::string_view value) {
      return value.empty() ? std::string("nothing") : OneLine(value);
    };
    return absl::InvalidArgumentError(absl::StrCat(bundle_.name(), " contradicts itself: by its ",
                                                   file, " ", what, " ", shown(first),
                                                   ", and by its ", other, " ", shown(second)));
  }

  absl::Status AreOfTheSummary() const {
    const Json summary = SummaryIn(bundle_);
    if (!summary.is_object()) {
      return absl::InvalidArgumentError(
          absl::StrCat(bundle_.name(), ": ", kSummaryName, " is not a JSON object"));
    }
    const auto rounds = summary.find("rounds");
    const std::string done = rounds == summary.end() ? "0" : rounds->dump();
    const struct {
      const char* what;
      std::string packed, summary;
    } statements[] = {
        {"the run's name is", manifest_.name, WordIn(summary, "name")},
        {"the algorithm is", manifest_.algorithm, WordIn(summary, "algorithm")},
        {"the run's end is", manifest_.end, WordIn(summary, "end")},
        {"the run's rounds are", absl::StrCat(manifest_.rounds), done},
        {"the program is", manifest_.program, WordIn(summary, "program")},
        {"the model's digest is", manifest_.model_digest, WordIn(summary, "model_digest")},
        {"the data's digest is", manifest_.data.digest, WordIn(summary, "data_digest")}};
    for (const auto& [what, packed, stated] : statements) {
      if (packed != stated) return Denied(what, kSummaryName, stated, kManifestFile, packed);
    }
    return absl::OkStatus();
  }

  absl::Status AreOfTheConfiguration() const {
    MACAW_ASSIGN_OR_RETURN(const Document document,
                           ParseDocument(ContentOf(bundle_, kConfigName),
                                         absl::StrCat(bundle_.name(), ": ", kConfigName), "/"));
    const std::map<std::string, Value> values = FlatValues(document);
    const auto text = [&](const char* key) {
      const auto found = values.find(key);
      const auto* const word = found == values.end() ? nullptr : found->second.As<std::string>();
      return word == nullptr ? std::string() : *word;
    };
    for (const auto& [key, packed] :
         {std::pair{"data.source", &manifest_.data.source}, {"data.path", &manifest_.data.path}}) {
      if (text(key) != *packed)
        return Denied(absl::StrCat(key, " is"), kConfigName, text(key), kManifestFile, *packed);
    }
    std::map<std::string, std::string> seeds;
    for (const auto& [key, value] : values) {
      if (IsSeed(key)) seeds[key] = settings::ToToml(value);
    }
    std::set<std::string> keys;
    for (const auto& [key, seed] : seeds) keys.insert(key);
    for (const auto& [key, seed] : manifest_.seeds) keys.insert(key);
    for (const std::string& key : keys) {
      if (IsOfOneMachine(key)) continue;  // config.toml has none of them
      const auto has = seeds.find(key);
      const auto says = manifest_.seeds.find(key);
      const std::string had = has == seeds.end() ? "" : has->second;
      const std::string packed = says == manifest_.seeds.end() ? "" : says->second;
      if (had != packed)
        return Denied(absl::StrCat(key, " is"), kConfigName, had, kManifestFile, packed);
    }
    return absl::OkStatus();
  }

  absl::Status ProfileIsOfTheOthers() const {
    const NumericProfile& profile = manifest_.profile;
    const std::string packed =
        absl::StrCat(profile.trainer, ", ", profile.instruction_set, ", ", profile.libraries);
    const auto refused = [&](absl::string_view file, absl::string_view says) {
      return Denied("the run had the numeric profile", kSummaryName, recorded_.profile, file, says);
    };
    if (!recorded_.profile.empty() && !profile.trainer.empty() && packed != recorded_.profile)
      return refused(kManifestFile, packed);
    if (!recorded_.history.has_value() || recorded_.history->profiles().empty())
      return absl::OkStatus();
    const std::set<std::string>& joined = recorded_.history->profiles();
    if (joined.contains(absl::StrCat("(", recorded_.profile, ")"))) return absl::OkStatus();
    return refused("rounds.log", absl::StrJoin(joined, ", "));
  }

  const Bundle& bundle_;
  const Manifest& manifest_;
  const Trace& recorded_;
};

}  // namespace

absl::Status CheckStatements(const Bundle& bundle, const Trace& recorded) {
  return Statements(bundle, recorded).Check();
}

std::string StoppedBy(const Bundle& bundle) {
  const Json summary = SummaryIn(bundle);
  return summary.is_object() ? WordIn(summary, "stopped_by") : "";
}

}  // namespace macaw::cli
